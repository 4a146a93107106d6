//! Two nodes agree on keys over a link that loses, delays, reorders and duplicates packets, change
//! them while packets are in flight, and lose no others than the link loses.

mod chance;

use std::collections::BTreeMap;
use std::sync::Arc;

use chance::Chance;
use proptest::prelude::*;
use recoded_secure::{
    Association, EdgeKeys, Entropy, EpochKeys, HANDSHAKE_BYTES_MAX, HopKeys, Identity,
    PresharedKey, PrivateKey, Refused, Ring, Scope, Suite, TRAILER_BYTES, open_edge, open_hop,
    open_report, timing,
};

const MILLI: u64 = 1_000_000;
const PORT: u16 = 49_155;

/// A message in flight: one of a handshake, or a packet with a tag and its number; 0 is a hello.
#[derive(Clone)]
enum Travelling {
    Message(Vec<u8>),
    Packet(Vec<u8>, u64),
}

/// One end, with a worker's copy of its keys.
struct End {
    association: Association<HopKeys>,
    worker: Ring<Arc<HopKeys>>,
    sent: u64,
}

fn identity(own: &PrivateKey, other: &PrivateKey, scope: Scope) -> Identity {
    Identity { scope, private: own.clone(), peer: other.public(), psk: PresharedKey::none() }
}

impl End {
    fn new(own: &PrivateKey, other: &PrivateKey, now: u64, chance: &mut Chance) -> End {
        let identity = identity(own, other, Scope::Hop);
        let entropy = chance.entropy();
        let association = Association::new(identity, Suite::Aes128Gcm, now, &entropy);
        End { association, worker: Ring::default(), sent: 0 }
    }

    fn adopt(&mut self) {
        self.worker = self.association.ring().clone();
    }

    /// A packet with a number, if there are keys.
    fn packet(&mut self, number: u64) -> Option<Travelling> {
        let epoch = self.worker.sending()?;
        let mut packet = [&number.to_be_bytes()[..], &[0; TRAILER_BYTES]].concat();
        epoch.keys.seal(&mut packet, PORT).ok()?;
        Some(Travelling::Packet(packet, number))
    }

    fn poll(&mut self, now: u64, stamp: u64, chance: &mut Chance) -> Vec<Travelling> {
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let turn = self.association.poll(now, stamp, &chance.entropy(), &mut out).unwrap();
        self.follow(turn, &out)
    }

    fn follow(&mut self, turn: recoded_secure::Turn, out: &[u8]) -> Vec<Travelling> {
        if turn.is_changed {
            self.adopt();
        }
        let message = (turn.send > 0).then(|| Travelling::Message(out[..turn.send].to_vec()));
        let hello = turn.hello.then(|| self.packet(0)).flatten();
        message.into_iter().chain(hello).collect()
    }
}

/// Runs two ends for some minutes. Returns the packets that were sent, that arrived, and that were
/// not accepted.
fn run(seed: u64, loss: f64, delay_ms: u64, restart_at_ms: Option<u64>) -> (u64, u64, u64) {
    run_by(seed, loss, delay_ms, restart_at_ms, |_, now| now + 1)
}

/// The same, given the wall clocks of both ends.
fn run_by(
    seed: u64,
    loss: f64,
    delay_ms: u64,
    restart_at_ms: Option<u64>,
    wall_clock: impl Fn(usize, u64) -> u64,
) -> (u64, u64, u64) {
    let mut chance = Chance(seed);
    let keys = [0, 1].map(|_| PrivateKey::generate(&chance.entropy()));
    let end = |side: usize, now: u64, chance: &mut Chance| {
        End::new(&keys[side], &keys[1 - side], now, chance)
    };
    let mut ends = [end(0, 0, &mut chance), end(1, 0, &mut chance)];
    let mut wire: BTreeMap<(u64, u64), (usize, Travelling)> = BTreeMap::new();
    let (mut order, mut refused, mut taken) = (0, 0, 0);
    // Packets sent before a restart of either end are lost with its keys.
    let mut since_restart = [0; 2];
    for tick in 0..400_000 {
        let now = tick * MILLI;
        if restart_at_ms == Some(tick) {
            let side = (seed % 2) as usize;
            let numbers = ends[side].sent;
            ends[side] = End { sent: numbers, ..end(side, now, &mut chance) };
            since_restart =
                [ends[0].sent + delay_ms * 2 + 5000, ends[1].sent + delay_ms * 2 + 5000];
        }
        let mut leaving = Vec::new();
        for (side, end) in ends.iter_mut().enumerate() {
            leaving.extend(
                end.poll(now, wall_clock(side, now), &mut chance).into_iter().map(|it| (side, it)),
            );
            if tick % 5 == 0 {
                end.sent += 1;
                let number = end.sent;
                leaving.extend(end.packet(number).map(|packet| (side, packet)));
            }
        }
        while let Some(first) = wire.first_entry() {
            if first.key().0 > now {
                break;
            }
            let (from, what) = first.remove();
            let to = 1 - from;
            match what {
                Travelling::Message(message) => {
                    let mut out = [0; HANDSHAKE_BYTES_MAX];
                    let entropy = chance.entropy();
                    let turn = ends[to].association.receive(now, &entropy, &message, &mut out);
                    if let Ok(turn) = turn {
                        leaving.extend(ends[to].follow(turn, &out).into_iter().map(|it| (to, it)));
                    }
                }
                Travelling::Packet(packet, number) => {
                    match open_hop(&mut ends[to].worker, &packet, PORT) {
                        Ok(_) => taken += 1,
                        Err(Refused::Replayed) => {}
                        Err(_) if number < since_restart[from] => {}
                        Err(_) => refused += 1,
                    }
                }
            }
        }
        for (side, what) in leaving {
            if chance.share() < loss {
                continue;
            }
            order += 1;
            let late = now + (1 + delay_ms) * MILLI + (chance.share() * 3e6) as u64;
            if chance.share() < 0.01 {
                wire.insert((late + MILLI, order | 1 << 63), (side, what.clone()));
            }
            wire.insert((late, order), (side, what));
        }
    }
    (ends[0].sent + ends[1].sent, taken, refused)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn packets_are_lost_by_the_link_only_while_keys_change(
        seed: u64, loss in 0.0..0.3_f64, delay in 0..300_u64,
    ) {
        let (sent, taken, refused) = run(seed, loss, delay, None);
        prop_assert_eq!(refused, 0, "over three changes of keys");
        // No packets are sent before the first keys.
        let expected = (1.0 - loss) * sent as f64;
        prop_assert!(taken as f64 > 0.93 * expected, "{taken} of {expected}");
    }

    #[test]
    fn an_end_that_restarts_is_heard_again(
        seed: u64, loss in 0.0..0.2_f64, delay in 0..100_u64, at in 1_000..200_000_u64,
    ) {
        let (sent, taken, refused) = run(seed, loss, delay, Some(at));
        prop_assert_eq!(refused, 0, "once both have new keys");
        let expected = (1.0 - loss) * sent as f64;
        prop_assert!(taken as f64 > 0.9 * expected, "{taken} of {expected}");
    }
}

/// The wall clock only orders handshakes of successive starts: keys change by the monotonic one.
#[test]
fn wall_clocks_that_jump_by_an_hour_cost_no_packet() {
    const HOUR: u64 = 3600 * 1_000_000_000;
    let jumps = |side: usize, now: u64| {
        let steps = [0, HOUR, 0, 2 * HOUR, HOUR];
        let step = (now / (80_000 * MILLI)) as usize;
        10 * HOUR + now + steps[(step + 2 * side) % steps.len()]
    };
    let (sent, taken, refused) = run_by(17, 0.05, 40, None, jumps);
    assert_eq!(refused, 0);
    assert!(taken as f64 > 0.93 * 0.95 * sent as f64, "{taken} of {sent}");
}

/// Two finished ends.
fn agreed<Keys: EpochKeys>(scopes: [Scope; 2]) -> Result<[Association<Keys>; 2], Refused> {
    let mut chance = Chance(7);
    let keys = [0, 1].map(|_| PrivateKey::generate(&chance.entropy()));
    let mut ends = [0, 1].map(|side| {
        let identity = identity(&keys[side], &keys[1 - side], scopes[side]);
        Association::<Keys>::new(identity, Suite::Aes128Gcm, 0, &chance.entropy())
    });
    let (mut there, mut back) = ([0; HANDSHAKE_BYTES_MAX], [0; HANDSHAKE_BYTES_MAX]);
    let now = timing::START_NANOS;
    let sent = ends[0].poll(now, 1, &chance.entropy(), &mut there)?.send;
    let answered = ends[1].receive(now, &chance.entropy(), &there[..sent], &mut back)?.send;
    ends[0].receive(now, &chance.entropy(), &back[..answered], &mut there)?;
    Ok(ends)
}

#[test]
fn envelopes_open_once_at_the_other_end_and_for_their_flow_only() {
    let [source, sink] = agreed::<EdgeKeys>([Scope::Edge(5); 2]).unwrap();
    let mut sealed = vec![9; recoded_secure::ENVELOPE_BYTES + 100];
    let keys = source.ring().sending().unwrap().keys.clone();
    keys.seal(&mut sealed, &[5]).unwrap();
    let mut ring = sink.ring().clone();
    assert!(open_edge(&mut ring, &mut sealed.clone(), &[6]).is_err(), "of another flow");
    assert_eq!(ring.sending().map(|epoch| epoch.key_id), None, "not confirmed by that");
    assert_eq!(open_edge(&mut ring, &mut sealed.clone(), &[5]).unwrap(), [9; 100]);
    assert!(ring.sending().is_some());
    assert_eq!(open_edge(&mut ring, &mut sealed, &[5]), Err(Refused::Replayed));
}

//= docs/protocol §2.8(f)
#[test]
fn reports_verify_once_at_the_source_and_only_as_the_sink_wrote_them() {
    let [source, sink] = agreed::<EdgeKeys>([Scope::Edge(5); 2]).unwrap();
    let report: Vec<u8> = (0..100).collect();
    let mut ring = source.ring().clone();
    let keys = sink.ring().waiting().or(sink.ring().sending()).unwrap().keys.clone();
    let seal = keys.seal_report(&report).unwrap();
    for at in 0..report.len() {
        let mut other = report.clone();
        other[at] ^= 1;
        assert_eq!(open_report(&mut ring, &seal, &other), Err(Refused::Tag), "byte {at}");
    }
    for at in 1..seal.len() {
        let mut other = seal;
        other[at] ^= 1;
        assert!(open_report(&mut ring, &other, &report).is_err(), "byte {at} of the seal");
    }
    let mut own = sink.ring().clone();
    assert!(open_report(&mut own, &seal, &report).is_err(), "the sink is no source");
    assert_eq!(open_report(&mut ring, &seal, &report), Ok(()));
    assert_eq!(open_report(&mut ring, &seal, &report), Err(Refused::Replayed));
    // Neither is the other.
    let mut packet = seal;
    assert!(open_edge(&mut ring, &mut packet, &[5]).is_err());
    let mut sealed = [0; recoded_secure::ENVELOPE_BYTES];
    keys.seal(&mut sealed, &report[..20]).unwrap();
    assert!(open_report(&mut ring, &sealed, &report[..20]).is_err());
    for bytes in [0, 23, recoded_secure::REPORT_BYTES_MAX + 1] {
        assert!(keys.seal_report(&vec![0; bytes]).is_err(), "{bytes} bytes");
    }
}

//= docs/protocol §3.1(a)
#[test]
fn handshakes_of_one_scope_mean_nothing_in_another() {
    for scopes in [[Scope::Hop, Scope::Edge(0)], [Scope::Edge(1), Scope::Edge(2)]] {
        assert!(matches!(agreed::<HopKeys>(scopes), Err(Refused::Handshake)), "{scopes:?}");
    }
    assert!(agreed::<HopKeys>([Scope::Hop; 2]).is_ok());
}

/// The neighbour restarted and does not know this node's address: its own handshakes are lost, and
/// it cannot read this node's packets.
#[test]
fn an_end_that_sends_and_hears_nothing_begins_a_handshake_long_before_keys_are_old() {
    let second = 1000 * MILLI;
    let mut chance = Chance(11);
    let [mut source, sink] = agreed::<HopKeys>([Scope::Hop; 2]).unwrap();
    let mut out = [0; HANDSHAKE_BYTES_MAX];
    let mut worker = source.ring().clone();
    let seal = |ring: &Ring<Arc<HopKeys>>| {
        let mut packet = [7; 40 + TRAILER_BYTES];
        ring.sending().unwrap().keys.seal(&mut packet, PORT).unwrap();
        packet
    };
    // It receives from the other one every ten seconds.
    let mut neighbour = sink.ring().clone();
    let packet = seal(&worker);
    open_hop(&mut neighbour, &packet, PORT).unwrap();
    // A packet every four seconds; an evaluation every 50 ms.
    let mut look = |tick: u64, worker: &Ring<Arc<HopKeys>>| {
        if tick.is_multiple_of(80) {
            seal(worker);
        }
        source.poll(tick * second / 20, tick, &chance.entropy(), &mut out).unwrap().send
    };
    for tick in 1..59 * 20 {
        if tick % 200 == 0 {
            open_hop(&mut worker, &seal(&neighbour), PORT).unwrap();
        }
        assert_eq!(look(tick, &worker), 0, "after {tick} looks");
    }
    let begins = (59 * 20..110 * 20).find(|tick| look(*tick, &worker) > 0);
    assert_eq!(begins, Some((52 + timing::SILENCE_NANOS / second) * 20));
    // An end that sends nothing waits.
    let [mut source, _] = agreed::<HopKeys>([Scope::Hop; 2]).unwrap();
    for at in 1..110 {
        let turn = source.poll(at * second, at, &chance.entropy(), &mut out).unwrap();
        assert_eq!(turn.send, 0, "after {at} s");
    }
}

/// The neighbour restarted and cannot reach this node, which sends continuously: 24 s without a
/// packet otherwise.
#[test]
fn an_end_that_sends_much_and_hears_nothing_begins_a_handshake_within_two_seconds() {
    let mut chance = Chance(12);
    let [mut source, sink] = agreed::<HopKeys>([Scope::Hop; 2]).unwrap();
    let (mut out, mut worker) = ([0; HANDSHAKE_BYTES_MAX], source.ring().clone());
    let mut neighbour = sink.ring().clone();
    let mut packet = [7; 40 + TRAILER_BYTES];
    worker.sending().unwrap().keys.seal(&mut packet, PORT).unwrap();
    open_hop(&mut neighbour, &packet, PORT).unwrap();
    let mut begins = None;
    for tick in 0..500 {
        let now = tick * 10 * MILLI;
        worker.sending().unwrap().keys.seal(&mut packet, PORT).unwrap();
        // It answers for two seconds.
        if now < 2000 * MILLI && tick % 50 == 0 {
            let mut answer = [7; 40 + TRAILER_BYTES];
            neighbour.sending().unwrap().keys.seal(&mut answer, PORT).unwrap();
            open_hop(&mut worker, &answer, PORT).unwrap();
        }
        if tick % 5 == 0 {
            let turn = source.poll(now, 1, &chance.entropy(), &mut out).unwrap();
            if turn.send > 0 && begins.is_none() {
                assert!(turn.is_silent, "its address is requested, too");
                begins = Some(now / MILLI);
            }
        }
    }
    let begins = begins.expect("no handshake");
    assert!((3000..3700).contains(&begins), "after {begins} ms");
}

#[test]
fn messages_of_a_peer_are_known_by_a_mac_that_nobody_else_can_form() {
    let mut chance = Chance(5);
    let keys = [0; 3].map(|_| PrivateKey::generate(&chance.entropy()));
    let mut association = |own: usize, peer: usize, scope| {
        let (peer, psk) = (keys[peer].public(), PresharedKey::none());
        let identity = Identity { scope, private: keys[own].clone(), peer, psk };
        Association::<HopKeys>::new(identity, Suite::Aes128Gcm, 0, &chance.entropy())
    };
    let hears = association(0, 1, Scope::Hop);
    let hears_another = association(0, 2, Scope::Hop);
    let mut calls = association(1, 0, Scope::Hop);
    let mut elsewhere = association(1, 0, Scope::Edge(5));
    let mut to_another = association(1, 2, Scope::Hop);
    let mut of_another = association(2, 0, Scope::Hop);
    let entropy = Entropy::new([8; 64]);
    let initiation = |end: &mut Association<HopKeys>| {
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let send = end.poll(timing::START_NANOS, 1, &entropy, &mut out).unwrap().send;
        out[..send].to_vec()
    };
    let message = initiation(&mut calls);
    assert!(hears.is_from_peer(&message));
    assert!(!hears_another.is_from_peer(&message));
    for place in 0..message.len() - 16 {
        let mut changed = message.clone();
        changed[place] ^= 1;
        assert!(!hears.is_from_peer(&changed), "byte {place}");
        assert!(!hears.is_from_peer(&message[..place]), "{place} bytes");
    }
    assert!(!hears.is_from_peer(&initiation(&mut elsewhere)), "of another scope");
    assert!(!hears.is_from_peer(&initiation(&mut to_another)), "to another node");
    assert!(!hears.is_from_peer(&initiation(&mut of_another)), "of another node");
}
