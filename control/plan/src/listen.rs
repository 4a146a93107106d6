//! The far end: serves one client at a time, bounded in time, rate and memory.
//!
//! ```text
//!  Hello ──> Cookie        stateless: the token is a MAC of address, port and half minute
//!  Open  ──> Opened        only with that token; Refused while another client is served
//!  token ──> anything      of the client's address alone
//! ```
//!
//! A client that was served while others were refused pauses before its next session.
//!
//! Without a token no response is longer than its request. With one, the client gets at most what
//! it requests, within `rate_max_mbit`, in trains of 0.6 s that it must request one by one.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::packet::{Body, OPENING_BYTES, ParseError, Refusal, Token, VERSION};
use crate::socket::{Endpoint, Received, header_bytes};
use crate::summary::Summary;
use crate::train::{Arrivals, TrainPlan, be_prompt, send, wall_nanos};

/// Idle timeout of a session.
const IDLE: Duration = Duration::from_secs(5);

/// Longest session, so that other clients get their turn.
pub const SESSION_MAX: Duration = Duration::from_secs(180);

/// How long an address that was served while others were refused waits for its next session: long
/// enough for another client to try again by hand. Half of it is too short for that; twice as much
/// only delays clients that share an address behind NAT.
const PAUSE: Duration = Duration::from_secs(60);

/// Addresses that wait; the oldest is forgotten for one more.
const PAUSED_MAX: usize = 64;

/// Period of a token, in seconds; it stays valid during the next period.
const SLOT_SECONDS: u64 = 30;

/// Interval of checks for the end of the listening time.
const PATIENCE: Duration = Duration::from_millis(100);

/// Short responses a second in a session: pings and probes need some hundred.
const ANSWERS_PER_SECOND: f64 = 2000.0;

/// Copies of an important message.
const COPIES: usize = 3;

/// Limits of a listener.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Highest rate in both directions.
    pub rate_max_mbit: f64,
    /// Time until it ends.
    pub length: Duration,
}

/// Statistics of a listener.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Served {
    /// Sessions that were opened.
    pub sessions: u64,
    /// Sessions refused, because one was active or the version differed.
    pub refused: u64,
    /// Packets of other programs, without a token, with a wrong one, or malformed.
    pub ignored: u64,
}

/// An event for the log.
#[derive(Copy, Clone, Debug)]
pub enum Event {
    /// A client began.
    Opened(SocketAddr),
    /// A client finished or fell silent.
    Ended(SocketAddr),
    /// A client with another version.
    Version(SocketAddr, u8),
}

struct Session {
    client: SocketAddr,
    token: Token,
    began: Instant,
    heard: Instant,
    /// Remaining allowance for short responses.
    answers: f64,
    filled: Instant,
    /// The newest train sent, and its packets.
    sent: (u32, u32),
    /// The newest summary.
    summary: Option<Summary>,
    /// Whether a client from elsewhere was refused meanwhile.
    is_contended: bool,
}

/// The far end of a measurement.
pub struct Listener {
    endpoint: Endpoint,
    limits: Limits,
    secret: [u8; 16],
    began: Instant,
    session: Option<Session>,
    /// Addresses that wait until others had their turn, and when that ends. Oldest first.
    paused: VecDeque<(IpAddr, Instant)>,
    arrivals: Arrivals,
    served: Served,
}

impl Listener {
    /// Binds the address.
    ///
    /// # Errors
    /// Linux refuses the address or provides no random numbers.
    pub fn bind(local: SocketAddr, limits: Limits) -> io::Result<Listener> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Listener {
            endpoint: Endpoint::bind(local)?,
            limits,
            secret,
            began: Instant::now(),
            session: None,
            paused: VecDeque::with_capacity(PAUSED_MAX),
            arrivals: Arrivals::default(),
            served: Served::default(),
        })
    }

    /// The local address.
    ///
    /// # Errors
    /// The address is not available.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.endpoint.socket().local_addr()
    }

    /// Serves until its time is up.
    ///
    /// # Errors
    /// The socket fails.
    pub fn run(&mut self, mut log: impl FnMut(Event)) -> io::Result<Served> {
        be_prompt();
        let end = self.began + self.limits.length;
        while Instant::now() < end {
            self.expire(&mut log);
            match self.endpoint.receive(PATIENCE) {
                Ok(Some(received)) => self.handle(&received, &mut log),
                Ok(None) => {}
                // Not an error of this socket: a packet that it sent found no listener.
                Err(error) if is_remote(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.served)
    }

    fn expire(&mut self, log: &mut impl FnMut(Event)) {
        let is_over = |session: &Session| {
            session.heard.elapsed() > IDLE || session.began.elapsed() > SESSION_MAX
        };
        if self.session.as_ref().is_some_and(is_over) {
            self.end(log);
        }
    }

    fn end(&mut self, log: &mut impl FnMut(Event)) {
        if let Some(session) = self.session.take() {
            if session.is_contended {
                if self.paused.len() == PAUSED_MAX {
                    self.paused.pop_front();
                }
                self.paused.push_back((network(session.client.ip()), Instant::now() + PAUSE));
            }
            log(Event::Ended(session.client));
        }
    }

    fn handle(&mut self, received: &Received, log: &mut impl FnMut(Event)) {
        let from = received.from;
        let is_opening = received.bytes >= OPENING_BYTES;
        match received.packet {
            Err(ParseError::Version(version)) if is_opening && version != VERSION => {
                self.served.refused += 1;
                log(Event::Version(from, version));
                self.answer(from, Body::Refused { nonce: 0, refusal: Refusal::Version });
            }
            Err(_) => self.served.ignored += 1,
            Ok(packet) => match packet.body {
                Body::Hello { nonce } if is_opening => {
                    let token = self.token(from, slot());
                    let body = Body::Cookie { nonce };
                    self.put(from, token, body);
                }
                Body::Open { nonce } if is_opening && self.is_proved(from, packet.token) => {
                    self.open(from, packet.token, nonce, log);
                }
                body => self.in_session(received, packet.token, body, log),
            },
        }
    }

    fn open(&mut self, from: SocketAddr, token: Token, nonce: u64, log: &mut impl FnMut(Event)) {
        let now = Instant::now();
        match &mut self.session {
            // A repeated request: the response was lost.
            Some(session) if session.client == from && session.token == token => {}
            Some(session) => {
                session.is_contended |= network(session.client.ip()) != network(from.ip());
                let left = SESSION_MAX.saturating_sub(session.began.elapsed());
                return self.refuse(from, token, nonce, left);
            }
            None => {
                if let Some(left) = self.pause(from.ip(), now) {
                    return self.refuse(from, token, nonce, left);
                }
                self.served.sessions += 1;
                self.arrivals.begin(0);
                self.session = Some(Session {
                    client: from,
                    token,
                    began: now,
                    heard: now,
                    answers: ANSWERS_PER_SECOND,
                    filled: now,
                    sent: (0, 0),
                    summary: None,
                    is_contended: false,
                });
                log(Event::Opened(from));
            }
        }
        let left = (self.began + self.limits.length).saturating_duration_since(now);
        let seconds = left.min(SESSION_MAX).as_secs() as u32;
        let rate_max_kbit = (self.limits.rate_max_mbit * 1e3).clamp(1.0, 4e9) as u32;
        self.put(from, token, Body::Opened { nonce, rate_max_kbit, seconds });
    }

    fn refuse(&mut self, from: SocketAddr, token: Token, nonce: u64, left: Duration) {
        let refusal = Refusal::Busy(u32::try_from(left.as_secs() + 1).unwrap_or(u32::MAX));
        self.served.refused += 1;
        self.put(from, token, Body::Refused { nonce, refusal });
    }

    /// How long an address still waits for its next session.
    fn pause(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        self.paused.retain(|(_, until)| *until > now);
        let paused = self.paused.iter().rev().find(|(known, _)| *known == network(address));
        paused.map(|(_, until)| until.saturating_duration_since(now))
    }

    fn in_session(
        &mut self,
        received: &Received,
        token: Token,
        body: Body,
        log: &mut impl FnMut(Event),
    ) {
        let from = received.from;
        let Some(session) = self.session.as_mut() else {
            self.served.ignored += 1;
            return;
        };
        if session.client != from || session.token != token {
            self.served.ignored += 1;
            return;
        }
        session.heard = Instant::now();
        if let Body::Data { train, number, at } = body {
            if train > self.arrivals.train() {
                self.arrivals.begin(train);
            }
            if train == self.arrivals.train() {
                self.arrivals.note(number, at, received.at, received.overrun);
            }
            return;
        }
        if !session.may_answer() {
            return;
        }
        match body {
            Body::Ping { number, at } => {
                let held = wall_nanos().saturating_sub(received.at);
                let held_nanos = u32::try_from(held).unwrap_or(u32::MAX);
                self.answer(from, Body::Pong { number, at, held_nanos });
            }
            Body::Probe { payload_bytes } => {
                if usize::from(payload_bytes) == received.bytes {
                    self.answer(from, Body::Probed { payload_bytes });
                }
            }
            Body::ProbeBack { payload_bytes } => {
                let body = Body::Echo { payload_bytes };
                let token = session.token;
                // A packet too large for the interface counts as lost.
                let _ = self.endpoint.send(Some(from), token, body, payload_bytes.into());
            }
            Body::Ask { train, sent } => self.report(from, train, sent),
            Body::Send { train, packets, payload_bytes, interval_nanos } => {
                let plan = TrainPlan {
                    train,
                    packets,
                    payload_bytes: payload_bytes.into(),
                    interval_nanos: interval_nanos.into(),
                };
                self.send_train(from, plan);
            }
            Body::Bye => self.end(log),
            _ => self.served.ignored += 1,
        }
    }

    fn report(&mut self, from: SocketAddr, train: u32, sent: u32) {
        if train > self.arrivals.train() {
            // No packet of it arrived.
            self.arrivals.begin(train);
        }
        let Some(session) = self.session.as_mut() else { return };
        if train != self.arrivals.train() {
            return;
        }
        // A lost response is repeated, not recomputed.
        let known = session.summary.filter(|known| known.train == train && known.sent == sent);
        let summary = known.unwrap_or_else(|| self.arrivals.summary(sent));
        session.summary = Some(summary);
        self.answer(from, Body::Report(summary));
    }

    fn send_train(&mut self, from: SocketAddr, plan: TrainPlan) {
        let Some(session) = self.session.as_mut() else { return };
        let (train, token) = (plan.train, session.token);
        if train > session.sent.0 {
            let bits = (plan.payload_bytes + usize::from(header_bytes(from.ip())) + 14) * 8;
            let plan = plan.bounded(self.limits.rate_max_mbit * 1e6 / bits as f64);
            let socket = self.endpoint.socket();
            // After an error of Linux the number sent is unknown; the client requests such a train
            // again.
            let sent = send(&plan, token, |bytes| socket.send_to(bytes, from)).unwrap_or(0);
            session.sent = (train, sent);
            session.heard = Instant::now();
        }
        if train == session.sent.0 {
            let sent = session.sent.1;
            for _ in 0..COPIES {
                self.put(from, token, Body::Sent { train, sent });
            }
        }
    }

    fn answer(&mut self, to: SocketAddr, body: Body) {
        let token = self.session.as_ref().map_or([0; 16], |session| session.token);
        let token = if matches!(body, Body::Refused { .. }) { [0; 16] } else { token };
        self.put(to, token, body);
    }

    fn put(&mut self, to: SocketAddr, token: Token, body: Body) {
        // A client that cannot be reached retries or stops.
        let _ = self.endpoint.send(Some(to), token, body, 0);
    }

    fn is_proved(&self, from: SocketAddr, token: Token) -> bool {
        let slot = slot();
        token == self.token(from, slot) || token == self.token(from, slot.wrapping_sub(1))
    }

    fn token(&self, from: SocketAddr, slot: u64) -> Token {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        let ip = match from.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        hasher.write(&ip.octets());
        hasher.write_u16(from.port());
        hasher.write_u64(slot);
        hasher.finish128().as_bytes()
    }
}

impl Session {
    fn may_answer(&mut self) -> bool {
        let since = self.filled.elapsed().as_secs_f64();
        self.filled = Instant::now();
        self.answers = (self.answers + since * ANSWERS_PER_SECOND).min(ANSWERS_PER_SECOND);
        let may = self.answers >= 1.0;
        self.answers -= f64::from(u8::from(may));
        may
    }
}

/// Addresses that one client has: an IPv4 address, or an IPv6 network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        },
    }
}

/// Half minutes of the wall clock.
fn slot() -> u64 {
    wall_nanos() / (SLOT_SECONDS * 1_000_000_000)
}

/// Errors that report the fate of an earlier packet.
pub(crate) fn is_remote(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;

    fn listener() -> Listener {
        let limits = Limits { rate_max_mbit: 1.0, length: Duration::from_secs(9) };
        Listener::bind("127.0.0.1:0".parse().unwrap(), limits).unwrap()
    }

    /// Requests a session from this address; returns whether there is one.
    fn opens(listener: &mut Listener, from: &str) -> bool {
        let from: SocketAddr = from.parse().unwrap();
        let before = listener.served.sessions;
        let packet = Packet { token: listener.token(from, slot()), body: Body::Open { nonce: 1 } };
        let received = Received { from, packet: Ok(packet), bytes: OPENING_BYTES, ..received() };
        listener.handle(&received, &mut |_| {});
        listener.served.sessions > before
    }

    fn received() -> Received {
        let from = "127.0.0.1:1".parse().unwrap();
        Received { from, packet: Err(ParseError::Foreign), bytes: 0, at: 0, overrun: 0 }
    }

    /// One client could once take the only session again and again.
    #[test]
    fn client_that_was_served_while_others_were_refused_waits_for_its_next_turn() {
        let mut listener = listener();
        for _ in 0..3 {
            assert!(opens(&mut listener, "127.0.0.1:7"), "no other client waits");
            assert!(!opens(&mut listener, "127.0.0.1:8"), "the same client");
            listener.end(&mut |_| {});
        }
        assert!(opens(&mut listener, "127.0.0.1:7"));
        assert!(!opens(&mut listener, "127.0.0.2:7"));
        listener.end(&mut |_| {});
        assert!(!opens(&mut listener, "127.0.0.1:7") && !opens(&mut listener, "127.0.0.1:9"));
        assert!(opens(&mut listener, "127.0.0.2:7"));
        listener.end(&mut |_| {});
        let now = Instant::now();
        assert_eq!(listener.pause("127.0.0.1".parse().unwrap(), now + PAUSE), None, "it ends");
        for client in 0..200 {
            assert!(opens(&mut listener, &format!("127.0.1.{client}:7")));
            assert!(!opens(&mut listener, "127.0.0.3:7"));
            listener.end(&mut |_| {});
        }
        assert_eq!(listener.paused.len(), PAUSED_MAX);
    }

    #[test]
    fn clients_are_told_apart_by_network() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
