//! Forged messages of handshakes, in virtual time: cookies while two nodes agree on keys, and
//! grants, group messages and initiations of edges next to honest ones.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_secure::{
    Admission, Arrived, Entropy, GRANT_BYTES_MAX, Gate, Grant, GroupReceiver, GroupSender,
    HANDSHAKE_BYTES_MAX, Identity, PresharedKey, PrivateKey, Profile, RelayColumns, Scope, Secrets,
    Session, Strength, Suite, granted_seeds, is_response, timing, write_grant,
};
use serde::Serialize;

use crate::error::BenchError;
use crate::kernels::thread_seconds;
use crate::median::median;

const SECOND: u64 = 1_000_000_000;

/// Time between two looks at both nodes.
const STEP: u64 = SECOND / 200;

/// A handshake that takes longer has failed.
const AGREED_MAX: u64 = 60 * SECOND;

const ROUND_TRIPS_MILLIS: [u64; 5] = [30, 60, 100, 150, 200];
const SEEDS: u64 = 9;

/// Forged messages a second, and how long each rate lasts.
const RATES: [u64; 3] = [20, 500, 5000];
const SECONDS: u64 = 10;

/// Different forged messages, in turn.
const KINDS: usize = 32;

const FLOW: u32 = 7;

/// Time of an agreement without and with forged cookies.
#[derive(Serialize)]
pub struct CookieRow {
    pub round_trip_millis: u64,
    pub alone_millis: f64,
    /// The median of all seeds; of failed agreements, the limit.
    pub attacked_millis: f64,
    pub seeds: Vec<u64>,
}

/// Honest messages next to forged ones that a neighbour brings.
#[derive(Serialize)]
pub struct ForgedRow {
    pub message: &'static str,
    pub forged_per_second: u64,
    pub honest: u64,
    pub refused: u64,
    /// Share of a core that the forged ones take.
    pub core_share: f64,
}

/// A node of an agreement. The forger's has the keys of the peer, and is always too busy: the
/// strongest forger of cookies.
struct Node {
    session: Session,
    gate: Gate,
    random: ChaCha8Rng,
    is_agreed: bool,
}

fn private(number: u8) -> PrivateKey {
    PrivateKey::generate(&Entropy::new([number; 64]))
}

fn entropy(random: &mut ChaCha8Rng) -> Entropy {
    let mut bytes = [0; 64];
    random.fill_bytes(&mut bytes);
    Entropy::new(bytes)
}

fn failed(what: &'static str) -> impl Fn(recoded_secure::Refused) -> BenchError {
    move |_| BenchError::NoSuchItem(what)
}

fn session(scope: Scope, own: u8, peer: u8, random: &mut ChaCha8Rng) -> Session {
    let (private, peer) = (private(own), private(peer).public());
    let identity = Identity { scope, private, peer, psk: PresharedKey::none() };
    Session::new(identity, Suite::preferred(), 0, &entropy(random))
}

impl Node {
    fn new(side: usize, seed: u64) -> Node {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let session = session(Scope::Hop, side as u8 + 1, 2 - side as u8, &mut random);
        let gate = Gate::new(0, &entropy(&mut random));
        Node { session, gate, random, is_agreed: false }
    }

    fn poll(&mut self, now: u64) -> Result<Option<Vec<u8>>, BenchError> {
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let random = entropy(&mut self.random);
        let step = self.session.poll(now, now + 1, 0, &random, &mut out);
        let bytes = step.map_err(failed("a handshake"))?.send;
        Ok((bytes > 0).then(|| out[..bytes].to_vec()))
    }

    fn admit(&mut self, now: u64, message: &[u8], out: &mut [u8]) -> Option<Admission> {
        let arrived = Arrived { address: b"peer", message };
        let random = entropy(&mut self.random);
        self.session.admit(&mut self.gate, now, &random, arrived, out).ok()
    }

    /// Reads a message; returns the answer.
    fn receive(&mut self, now: u64, message: &[u8]) -> Option<Vec<u8>> {
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let bytes = match self.admit(now, message, &mut out)? {
            Admission::Reply(bytes) => bytes,
            Admission::Pass => {
                let random = entropy(&mut self.random);
                let step = self.session.receive(now, &random, message, &mut out).ok()?;
                self.is_agreed |= step.established.is_some_and(|new| new.is_confirmed);
                step.send
            }
        };
        (bytes > 0).then(|| out[..bytes].to_vec())
    }

    /// A cookie that answers a message, as if this node were too busy to read it.
    fn cookie(&mut self, now: u64, message: &[u8]) -> Option<Vec<u8>> {
        let (before, _) = message.split_last_chunk::<16>()?;
        let message = [before, &[0; 16]].concat();
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let mut admissions = 0..=timing::HANDSHAKES_PER_SECOND;
        admissions.find_map(|_| match self.admit(now, &message, &mut out)? {
            Admission::Reply(bytes) => Some(out[..bytes].to_vec()),
            Admission::Pass => None,
        })
    }
}

/// A message in flight: when it arrives, and at which side.
struct Flight {
    at: u64,
    side: usize,
    message: Vec<u8>,
}

/// When one side knows that both have keys; the limit if that takes longer. A forged cookie answers
/// the first message soon, and each later one right behind a response.
fn agreed_at(seed: u64, way: u64, forges: bool) -> Result<u64, BenchError> {
    let mut nodes = [0, 1].map(|side| Node::new(side, 2 * seed + side as u64));
    let mut forgers = [1, 0].map(|side| (Node::new(side, seed), Vec::new(), true));
    let (mut flights, mut now) = (Vec::<Flight>::new(), 0);
    while now < AGREED_MAX && nodes.iter().all(|node| !node.is_agreed) {
        let (arrived, waiting) = flights.into_iter().partition(|flight| flight.at <= now);
        flights = waiting;
        let mut left = Vec::new();
        for Flight { side, message, .. } in arrived {
            left.extend(nodes[side].receive(now, &message).map(|answer| (side, answer)));
            let (forger, newest, _) = &mut forgers[side];
            if forges && is_response(&message) {
                let newest = std::mem::take(newest);
                let cookie = forger.cookie(now, &newest);
                cookie.into_iter().for_each(|cookie| _ = nodes[side].receive(now, &cookie));
            }
        }
        for (side, node) in nodes.iter_mut().enumerate() {
            left.extend(node.poll(now)?.map(|message| (side, message)));
        }
        for (side, message) in left {
            let (forger, newest, is_first) = &mut forgers[side];
            newest.clone_from(&message);
            if forges && std::mem::take(is_first) {
                let cookie = forger.cookie(now, &message);
                let soon = |message| Flight { at: now + STEP, side, message };
                flights.extend(cookie.map(soon));
            }
            flights.push(Flight { at: now + way, side: 1 - side, message });
        }
        now += STEP;
    }
    Ok(now)
}

/// Measures agreements of each round trip.
pub fn cookies() -> Result<Vec<CookieRow>, BenchError> {
    let row = |round_trip_millis: u64| {
        let way = round_trip_millis * SECOND / 2000;
        let millis = |forges| {
            let took = (0..SEEDS).map(|seed| agreed_at(seed, way, forges));
            let took: Result<Vec<u64>, BenchError> = took.collect();
            Ok::<_, BenchError>(median(took?.into_iter().map(|nanos| nanos as f64 / 1e6)))
        };
        let (alone_millis, attacked_millis) = (millis(false)?, millis(true)?);
        let seeds = (0..SEEDS).collect();
        Ok(CookieRow { round_trip_millis, alone_millis, attacked_millis, seeds })
    };
    ROUND_TRIPS_MILLIS.into_iter().map(row).collect()
}

/// A kind of message, and the node that reads it. The source has key 1, the reader 2, the forger 9.
trait Reader {
    fn name(&self) -> &'static str;
    fn form(&self, own: u8, stamp: u64) -> Result<Vec<u8>, BenchError>;
    fn reads(&mut self, now: u64, message: &[u8]) -> bool;
}

struct Grants(RelayColumns);

impl Reader for Grants {
    fn name(&self) -> &'static str {
        "grants"
    }

    fn form(&self, own: u8, stamp: u64) -> Result<Vec<u8>, BenchError> {
        let secrets = Secrets::extract(&[1], &[7; 32]);
        let epochs = [granted_seeds(&secrets, Strength::Standard, 0)];
        let grant = Grant { flow: FLOW, stamp, strength: Strength::Standard, epochs: &epochs };
        let (mut out, random) = ([0; GRANT_BYTES_MAX], Entropy::new([stamp as u8; 64]));
        let bytes = write_grant(&grant, &private(own), &private(2).public(), &random, &mut out);
        Ok(out[..bytes.map_err(failed("a grant"))?].to_vec())
    }

    fn reads(&mut self, now: u64, message: &[u8]) -> bool {
        self.0.receive(now, message).is_ok()
    }
}

struct Groups(GroupReceiver);

impl Reader for Groups {
    fn name(&self) -> &'static str {
        "group messages"
    }

    fn form(&self, own: u8, stamp: u64) -> Result<Vec<u8>, BenchError> {
        let profile = Profile { suite: Suite::preferred(), strength: Strength::Standard };
        let (sinks, random) = (vec![private(2).public()], Entropy::new([stamp as u8; 64]));
        let mut sender = GroupSender::new(private(own), FLOW, sinks, profile, None, &random);
        let fresh = || Ok::<_, BenchError>(Entropy::new([stamp as u8; 64]));
        let turn = sender.poll(1, stamp, fresh, &mut |_, _| true)?;
        turn.map_err(failed("a group message"))?;
        let first = sender.tellings().first();
        Ok(first.ok_or(BenchError::NoSuchItem("a group message"))?.to_vec())
    }

    fn reads(&mut self, now: u64, message: &[u8]) -> bool {
        self.0.receive(now, message, &mut |_, _| true).is_ok()
    }
}

struct Edges(Session, ChaCha8Rng);

impl Reader for Edges {
    fn name(&self) -> &'static str {
        "initiations of edges"
    }

    fn form(&self, own: u8, stamp: u64) -> Result<Vec<u8>, BenchError> {
        let mut random = ChaCha8Rng::seed_from_u64(stamp);
        let mut source = session(Scope::Edge(FLOW), own, 2, &mut random);
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let (now, random) = (timing::START_NANOS, entropy(&mut random));
        let step = source.poll(now, stamp, 0, &random, &mut out).map_err(failed("a handshake"))?;
        Ok(out[..step.send].to_vec())
    }

    fn reads(&mut self, now: u64, message: &[u8]) -> bool {
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let random = entropy(&mut self.1);
        self.0.is_from_peer(message) && self.0.receive(now, &random, message, &mut out).is_ok()
    }
}

/// Measures each kind of message at each rate: one honest message follows the forged ones of each
/// second.
pub fn messages() -> Result<Vec<ForgedRow>, BenchError> {
    let mut rows = Vec::new();
    for forged_per_second in RATES {
        let mut random = ChaCha8Rng::seed_from_u64(forged_per_second);
        let source = private(1).public();
        let edge = session(Scope::Edge(FLOW), 2, 1, &mut random);
        let readers: [Box<dyn Reader>; 3] = [
            Box::new(Grants(RelayColumns::of(private(2), source, FLOW))),
            Box::new(Groups(GroupReceiver::new(private(2), source, FLOW, None))),
            Box::new(Edges(edge, random)),
        ];
        for reader in readers {
            rows.push(measure(reader, forged_per_second)?);
        }
    }
    Ok(rows)
}

fn measure(mut reader: Box<dyn Reader>, per_second: u64) -> Result<ForgedRow, BenchError> {
    let forged = (0..KINDS as u64).map(|stamp| reader.form(9, SECOND * (stamp + 1)));
    let forged = forged.collect::<Result<Vec<_>, BenchError>>()?;
    let (mut spent, mut refused) = (Duration::ZERO, 0);
    for second in 1..=SECONDS {
        let honest = reader.form(1, SECOND * second)?;
        let start = thread_seconds();
        let messages = forged.iter().cycle().take(per_second as usize);
        let read = messages.filter(|message| reader.reads(second * SECOND, message)).count();
        spent += Duration::from_secs_f64((thread_seconds() - start).max(0.0));
        if read > 0 {
            return Err(BenchError::NoSuchItem("refusal of forged messages"));
        }
        refused += u64::from(!reader.reads(second * SECOND, &honest));
    }
    let core_share = spent.as_secs_f64() / SECONDS as f64;
    let message = reader.name();
    let forged_per_second = per_second;
    Ok(ForgedRow { message, forged_per_second, honest: SECONDS, refused, core_share })
}
