//! What attackers can do to a server: forged addresses, full tables, endless requests, replays,
//! other sessions, random bytes.

mod random;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use random::{random_bytes, seed};
use recoded_swarm::{
    Drop, GRANTS_MAX, Grant, HELLO_BYTES, Hello, KeyPair, Limits, Manifest, Message, Outbox, Path,
    Refusal, Request, Server, ServerKeys, Store, Welcome,
};

const MILLI: u64 = 1_000_000;

struct Sent(Vec<Vec<u8>>);

impl Outbox for Sent {
    fn send(&mut self, _: &Path, bytes: &[u8], datagram_bytes: usize) {
        self.0.extend(bytes.chunks(datagram_bytes).map(<[u8]>::to_vec));
    }
}

struct Bed {
    server: Server,
    content: [u8; 32],
}

impl Bed {
    fn new(limits: Limits) -> Self {
        let bytes = random_bytes(1, 500_000);
        let source = KeyPair::new([1; 32]);
        let manifest = Manifest::describe(&bytes, 32, 1024, *source.public()).expect("valid");
        let content = manifest.id().0;
        let keys = ServerKeys { source: Some(source), datagrams: None };
        let store = Arc::new(Store::complete(manifest, &bytes));
        Self { server: Server::new(store, keys, limits, &[3; 32], 0), content }
    }

    fn exchange(&mut self, now: u64, from: SocketAddr, message: &Message<'_>) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        self.send(now, from, &bytes)
    }

    fn send(&mut self, now: u64, from: SocketAddr, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut sent = Sent(Vec::new());
        self.server.handle(now, Path { remote: from, local: None }, bytes, &mut sent);
        sent.0
    }

    fn poll(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut sent = Sent(Vec::new());
        self.server.poll(now, &mut sent);
        sent.0
    }

    fn hello(&self, cookie: [u8; 16]) -> Message<'static> {
        Message::Hello(Hello { content: self.content, nonce: 1, cookie, public_key: [4; 32] })
    }

    fn cookie(&mut self, from: SocketAddr) -> [u8; 16] {
        let answers = self.exchange(0, from, &self.hello([0; 16]));
        match Message::parse(&answers[0]) {
            Ok(Message::Challenge { cookie, .. }) => cookie,
            other => panic!("{other:?}"),
        }
    }

    fn session(&mut self, from: SocketAddr) -> Option<u64> {
        let cookie = self.cookie(from);
        let answers = self.exchange(0, from, &self.hello(cookie));
        match Message::parse(&answers[0]) {
            Ok(Message::Welcome(Welcome { session, .. })) => Some(session),
            Ok(Message::Refused { reason: Refusal::Full, .. }) => {
                assert!(answers[0].len() < HELLO_BYTES);
                None
            }
            other => panic!("{other:?}"),
        }
    }

    fn drops(&self, reason: Drop) -> u64 {
        self.server.counters().drops[reason as usize]
    }
}

fn address(number: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, number))
}

fn request(session: u64, sequence: u32, grant: Grant) -> Message<'static> {
    let mut grants = [Grant::default(); GRANTS_MAX];
    grants[0] = grant;
    Message::Request(Request { session, sequence, rate_kbit: 0, grants, count: 1 })
}

#[test]
fn forged_addresses_get_less_than_was_sent_and_take_no_place() {
    let mut bed = Bed::new(Limits { peers: 4, ..Limits::default() });
    for number in 1..2000 {
        for cookie in [[0; 16], [7; 16]] {
            let hello = bed.hello(cookie);
            let answers = bed.exchange(0, address(number), &hello);
            assert!(answers.iter().map(Vec::len).sum::<usize>() < HELLO_BYTES);
        }
    }
    // Cookies of other addresses are no better.
    let cookie = bed.cookie(address(1));
    let hello = bed.hello(cookie);
    let answers = bed.exchange(0, address(2), &hello);
    assert!(matches!(Message::parse(&answers[0]), Ok(Message::Challenge { .. })));
    assert_eq!(bed.drops(Drop::Cookie), 2000);
    bed.poll(MILLI);
    assert_eq!(bed.server.counters().peers, 0);
    assert!(bed.session(address(1)).is_some());
}

#[test]
fn full_table_refuses_and_serves_those_that_it_has() {
    let mut bed = Bed::new(Limits { peers: 2, ..Limits::default() });
    let first = bed.session(address(1)).expect("there is room");
    assert_eq!(bed.session(address(1)), Some(first), "a repeated hello");
    assert!(bed.session(address(2)).is_some());
    assert_eq!(bed.session(address(3)), None);
    assert_eq!(bed.drops(Drop::Full), 1);
    bed.exchange(0, address(1), &request(first, 1, Grant { segment: 0, total: 5 }));
    // The bucket of a new peer is empty.
    assert_eq!(bed.poll(0).len(), 0);
    assert_eq!(bed.poll(20 * MILLI).len(), 5);
    bed.exchange(0, address(1), &Message::Bye { session: first });
    assert!(bed.session(address(3)).is_some());
    // Silent peers leave after a while.
    bed.poll(60_000 * MILLI);
    assert_eq!(bed.server.counters().peers, 0);
}

#[test]
fn endless_requests_get_no_more_than_the_budget() {
    let limits = Limits { rate_bytes: 100_000, ..Limits::default() };
    let mut bed = Bed::new(limits);
    let session = bed.session(address(1)).expect("there is room");
    let mut bytes = 0;
    for tick in 1..=5000_u32 {
        let now = u64::from(tick) * 2 * MILLI;
        let grant = Grant { segment: tick % 16, total: u32::MAX };
        let mut answers = bed.exchange(now, address(1), &request(session, tick, grant));
        answers.extend(bed.exchange(
            now,
            address(1),
            &Message::ManifestRequest { session, offset: 0 },
        ));
        if tick.is_multiple_of(500) {
            let checks = Message::ChecksRequest { session, segment: 1, part: 0 };
            answers.extend(bed.exchange(now, address(1), &checks));
        }
        answers.extend(bed.poll(now));
        bytes += answers.iter().map(Vec::len).sum::<usize>() as u64;
    }
    let budget = limits.burst_bytes + 10 * limits.rate_bytes;
    assert!(bytes <= budget, "{bytes} of {budget}");
    assert!(bytes > budget / 2, "{bytes} of {budget}");
    assert!(bed.drops(Drop::Budget) > 1000);
}

#[test]
fn requests_of_others_and_old_ones_have_no_effect() {
    let mut bed = Bed::new(Limits::default());
    let session = bed.session(address(1)).expect("there is room");
    bed.session(address(2)).expect("there is room");
    let grant = Grant { segment: 0, total: 4 };
    bed.exchange(0, address(2), &request(session, 1, grant));
    bed.exchange(0, address(3), &request(session, 1, grant));
    bed.exchange(0, address(1), &request(session ^ 1, 1, grant));
    assert_eq!((bed.drops(Drop::NoSession), bed.poll(20 * MILLI).len()), (3, 0));
    bed.exchange(0, address(1), &request(session, 2, grant));
    assert_eq!(bed.poll(20 * MILLI).len(), 4);
    bed.exchange(0, address(1), &request(session, 2, Grant { segment: 1, total: 9 }));
    bed.exchange(0, address(1), &request(session, 1, Grant { segment: 1, total: 9 }));
    assert_eq!((bed.drops(Drop::Stale), bed.poll(40 * MILLI).len()), (2, 0));
    // A grant is a total: the same one again sends nothing.
    bed.exchange(0, address(1), &request(session, 3, grant));
    assert_eq!(bed.poll(60 * MILLI).len(), 0);
}

#[test]
fn requests_for_changing_segments_at_most_double_the_arithmetic() {
    let limits = Limits { rate_bytes: 50_000_000, segments_ahead: 3, ..Limits::default() };
    let mut bed = Bed::new(limits);
    let session = bed.session(address(1)).expect("there is room");
    for tick in 1..=3000_u32 {
        let now = u64::from(tick) * 2 * MILLI;
        let grant = Grant { segment: tick * 7 % 15, total: 8 };
        bed.exchange(now, address(1), &request(session, tick, grant));
        bed.poll(now);
    }
    let counters = bed.server.counters();
    assert!(counters.blocks > 10_000, "{counters:?}");
    assert!(counters.combinations <= 2 * counters.blocks, "{counters:?}");
}

#[test]
fn random_bytes_in_a_session_do_not_panic() {
    let seed = seed();
    let mut bed = Bed::new(Limits::default());
    let session = bed.session(address(1)).expect("there is room");
    let random = random_bytes(seed, 3_000_000);
    for (round, chunk) in random.chunks_exact(100).enumerate() {
        let number = |index: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| chunk[index + i]));
        let mut grants = [Grant::default(); GRANTS_MAX];
        for (index, grant) in grants.iter_mut().enumerate() {
            *grant =
                Grant { segment: number(index) % 20, total: number(10 + index) >> (index * 4) };
        }
        let (sequence, rate_kbit) = (round as u32 + number(30) % 3, number(34));
        let count = usize::from(chunk[40]) % (GRANTS_MAX + 1);
        let message = match chunk[41] % 4 {
            0 => Message::ManifestRequest { session, offset: number(50) % 2000 },
            1 => Message::ChecksRequest { session, segment: number(50) % 20, part: chunk[60] % 4 },
            _ => Message::Request(Request { session, sequence, rate_kbit, grants, count }),
        };
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        if chunk[42] < 20 {
            // Not in session and sequence: one damaged number would end the session.
            let index = usize::from(chunk[43]) % bytes.len();
            if !(4..16).contains(&index) {
                bytes[index] = chunk[44];
            }
        }
        let now = round as u64 * MILLI;
        bed.send(now, address(1), &bytes);
        bed.poll(now);
    }
    assert!(bed.server.counters().blocks > 1000, "{:?}", bed.server.counters());
}

/// A new public key, or a farewell and a hello, must not refill the token bucket.
#[test]
fn repeated_sessions_get_no_new_burst() {
    let limits = Limits { rate_bytes: 100_000, ..Limits::default() };
    let mut bed = Bed::new(limits);
    let cookie = bed.cookie(address(1));
    let mut bytes = 0;
    for round in 1..=1000_u32 {
        let now = u64::from(round) * MILLI;
        let mut public_key = [4; 32];
        public_key[..4].copy_from_slice(&(round / 2).to_be_bytes());
        let hello = Hello { content: bed.content, nonce: 1, cookie, public_key };
        let answers = bed.exchange(now, address(1), &Message::Hello(hello));
        let Ok(Message::Welcome(Welcome { session, .. })) = Message::parse(&answers[0]) else {
            panic!("no session");
        };
        bed.exchange(now, address(1), &request(session, 1, Grant { segment: 0, total: 30 }));
        bytes += bed.poll(now).iter().map(Vec::len).sum::<usize>() as u64;
        bed.exchange(now, address(1), &Message::Bye { session });
    }
    assert!(bytes <= limits.rate_bytes + limits.burst_bytes, "{bytes}");
}

/// One host has 65 536 ports, and more addresses of a /64 than the table has places.
#[test]
fn one_host_cannot_fill_the_table() {
    let mut bed = Bed::new(Limits { peers: 100, peers_per_host: 10, ..Limits::default() });
    let taken = (1..=50).filter(|&port| bed.session(address(port)).is_some()).count();
    assert_eq!(taken, 10);
    let in_prefix = |host: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 7, 0, 0, 0, host], 1));
    let taken = (1..=50).filter(|&host| bed.session(in_prefix(host)).is_some()).count();
    assert_eq!(taken, 10);
    let other = SocketAddr::from(([0x2001, 0xdb8, 0, 8, 0, 0, 0, 1], 1));
    assert!(bed.session(other).is_some());
    // Places of sessions that ended are free.
    bed.poll(60_000 * MILLI);
    assert!(bed.session(address(1)).is_some());
}

/// A long manifest over a long path takes longer than an idle session lives.
#[test]
fn requests_for_the_manifest_keep_a_session() {
    let mut bed = Bed::new(Limits::default());
    let session = bed.session(address(1)).expect("there is room");
    for second in 1..60 {
        let now = second * 1000 * MILLI;
        bed.poll(now);
        let wanted = Message::ManifestRequest { session, offset: 0 };
        assert_eq!(bed.exchange(now, address(1), &wanted).len(), 1, "after {second} s");
    }
}

/// Checks of a segment take as much arithmetic as eight blocks, though their message is short.
#[test]
fn checks_cost_as_much_budget_as_their_arithmetic() {
    let limits = Limits { rate_bytes: 100_000, ..Limits::default() };
    let mut bed = Bed::new(limits);
    let session = bed.session(address(1)).expect("there is room");
    let mut answers = 0;
    for tick in 1..=5000_u32 {
        let now = u64::from(tick) * 2 * MILLI;
        let checks = Message::ChecksRequest { session, segment: tick % 16, part: 0 };
        answers += bed.exchange(now, address(1), &checks).len() as u64;
    }
    let budget = limits.burst_bytes + 10 * limits.rate_bytes;
    assert!(answers <= budget / (8 * 1024) + 1, "{answers}");
    assert!(answers >= budget / (8 * 1024) / 2, "{answers}");
}
