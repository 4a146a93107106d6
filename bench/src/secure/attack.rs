//! `bench secure --attack`: a good flow over a relay with keys, alone and, in turns, alongside
//! hostile packets for that relay.
//!
//! ```text
//!   h0 source ---- h1 relay ---- h2 sink      good: datagrams through the tunnel, 20 Mbit/s
//!   |  `--- hostile packets ---> |            over UDP sockets of h0, as fast as told
//! ```
//!
//! Links lose nothing and have capacity for all packets, so the good flow's loss is the cost of
//! hostile packets at the relay's host. The generator of these packets uses a share of the same
//! cores.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::{
    AuthPlan, Bed, BedConfig, Capture, CodePlan, Daemon, LinePlan, LinkConfig, Loss,
};
use recoded_secure::{
    Entropy, HANDSHAKE_BYTES_MAX, Identity, PresharedKey, PrivateKey, PublicKey, Scope, Session,
    Suite, timing,
};
use recoded_wire::DEFAULT_PORT;
use recoded_wire::handshake::write_hop_handshake;
use serde::Serialize;

use super::adversaries::{self, Adversaries};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::median::median;

/// Of each link: more than good and hostile packets take together.
const RATE_MBIT: f64 = 4000.0;

/// The good flow.
const GOOD_BYTES: usize = 1000;
const GOOD_PER_SECOND: f64 = 2500.0;

/// The sink's end of the tunnel.
const SINK: [u8; 4] = [10, 99, 0, 2];

/// An address of the source's host that no configuration names.
const OUTSIDE: [u8; 4] = [10, 255, 255, 7];

/// Share of its goodput that the good flow should keep.
const AIM: f64 = 0.95;

/// Different hostile packets, sent in turn.
const KINDS_OF_PACKETS: usize = 512;

/// Packets between two checks of the clock.
const BURST: u64 = 16;

/// Kinds of hostile packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Good packets, from an address that is no neighbour's.
    Outsiders,
    /// Good packets with one byte changed, from the neighbour's address.
    Forgeries,
    /// Replayed good packets, from the neighbour's address.
    Copies,
    /// First handshake messages of a sender that knows the relay's public key, from the neighbour's
    /// address.
    Initiations,
}

impl Attack {
    const ALL: [Attack; 4] =
        [Attack::Outsiders, Attack::Forgeries, Attack::Copies, Attack::Initiations];

    const fn per_second(self) -> u64 {
        match self {
            Attack::Initiations => 50_000,
            _ => 100_000,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Attack::Outsiders => "from unknown addresses",
            Attack::Forgeries => "forged, from a neighbour's address",
            Attack::Copies => "copies, from a neighbour's address",
            Attack::Initiations => "handshakes, from a neighbour's address",
        }
    }
}

/// One attack, over all rounds.
#[derive(Serialize)]
struct AttackResult {
    attack: Attack,
    wanted_per_second: u64,
    /// Median of the achieved rate.
    reached_per_second: f64,
    /// Median share of its goodput that the good flow kept, pair by pair.
    kept: f64,
    pairs: Vec<Pair>,
    /// Counters of the relay that rose, summed over all rounds.
    counted: BTreeMap<String, u64>,
}

/// The good flow alone, and right after that under attack.
#[derive(Serialize)]
struct Pair {
    alone_mbit: f64,
    beside_mbit: f64,
    reached_per_second: f64,
}

/// All attacks, as JSON.
#[derive(Serialize)]
pub struct AttackReport {
    benchmark: &'static str,
    machine: Machine,
    seconds: u64,
    rows: Vec<AttackResult>,
    adversaries: Adversaries,
    aim: f64,
    met: bool,
}

/// Measures all attacks, in three rounds of four seconds, or quickly; those in virtual time by this
/// seed.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(seed: u64, is_quick: bool) -> Result<AttackReport, BenchError> {
    let (seconds, rounds) = if is_quick { (1, 1) } else { (4, 3) };
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::NotRoot);
    }
    let machine = Machine::describe();
    let link = LinkConfig::new(Loss::independent(0.0), RATE_MBIT);
    let bed = Bed::build(&BedConfig::uniform(2, link)).map_err(BenchError::Bed)?;
    let auth = AuthPlan::new("full", 2);
    let relay_key: PublicKey = auth.public(1).parse().map_err(|_| BenchError::NoSuchItem("key"))?;
    let mut plan = LinePlan { auth: Some(auth), udp: vec![0], ..LinePlan::protected(2) };
    plan.flows.iter_mut().for_each(|flow| (flow.code, flow.field) = (CodePlan::Auto, 256));
    let daemons = Daemon::start_line(&bed, &plan).map_err(BenchError::Bed)?;
    let length = Duration::from_secs(seconds);
    good(&bed, Duration::from_secs(1))?;
    let mut rows = Vec::new();
    for attack in Attack::ALL {
        let before = counters(&daemons[1])?;
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            let packets = match attack {
                Attack::Initiations => initiations(relay_key)?,
                _ => recorded(&bed, attack)?,
            };
            pairs.push(pair(&bed, attack, &packets, length)?);
        }
        let after = counters(&daemons[1])?;
        let counted = after.into_iter().filter_map(|(name, count)| {
            let rise = count.saturating_sub(before.get(&name).copied().unwrap_or_default());
            (rise > 0).then_some((name, rise))
        });
        let counted = counted.collect();
        rows.push(AttackResult {
            attack,
            wanted_per_second: attack.per_second(),
            reached_per_second: median(pairs.iter().map(|pair| pair.reached_per_second)),
            kept: median(pairs.iter().map(|pair| pair.beside_mbit / pair.alone_mbit)),
            pairs,
            counted,
        });
    }
    let adversaries = adversaries::run(seed, is_quick)?;
    let met = rows.iter().all(|row| row.kept >= AIM) && adversaries.met;
    let benchmark = "secure --attack";
    Ok(AttackReport { benchmark, machine, seconds, rows, adversaries, aim: AIM, met })
}

impl AttackReport {
    /// The results for readers.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{}\n\nA flow of 20 Mbit/s over a relay with keys, next to packets for that relay:\n\n\
             {:<40} {:>9} {:>9} {:>7} {:>7} {:>7}\n",
            self.machine.heading(),
            "hostile packets",
            "wanted/s",
            "reached/s",
            "alone",
            "beside",
            "kept"
        );
        for row in &self.rows {
            let of = |pick: fn(&Pair) -> f64| median(row.pairs.iter().map(pick));
            let _ = writeln!(
                text,
                "{:<40} {:>9} {:>9.0} {:>7.2} {:>7.2} {:>7.3}",
                row.attack.name(),
                row.wanted_per_second,
                row.reached_per_second,
                of(|pair| pair.alone_mbit),
                of(|pair| pair.beside_mbit),
                row.kept
            );
            let counted = row.counted.iter().map(|(name, count)| format!("{name} {count}"));
            let _ = writeln!(text, "    {}", counted.collect::<Vec<_>>().join(", "));
        }
        let verdict = if self.met { "met" } else { "not met" };
        let _ = writeln!(text, "\naim: {AIM} of its goodput is kept, and those below: {verdict}\n");
        text += &self.adversaries.table();
        text
    }
}

/// Runs the good flow for `length`; returns its goodput in Mbit/s.
fn good(bed: &Bed, length: Duration) -> Result<f64, BenchError> {
    let plan = ProbePlan {
        to: SocketAddr::from((SINK, 7000)),
        payload_bytes: GOOD_BYTES,
        packets_per_second: GOOD_PER_SECOND,
        length,
        grace: Duration::from_millis(500),
        buffer_bytes: Some(4 << 20),
    };
    let probe = Probe::start(bed.source(), bed.sink(), &plan).map_err(BenchError::Bed)?;
    let outcome = probe.finish().map_err(BenchError::Bed)?;
    Ok(outcome.came as f64 * GOOD_BYTES as f64 * 8.0 / 1e6 / length.as_secs_f64())
}

fn pair(
    bed: &Bed,
    attack: Attack,
    packets: &[Vec<u8>],
    length: Duration,
) -> Result<Pair, BenchError> {
    let alone_mbit = good(bed, length)?;
    let local = match attack {
        Attack::Outsiders => {
            let address = format!("address replace {}/32 dev lo", Ipv4Addr::from(OUTSIDE));
            bed.source().ip(&address).map_err(BenchError::Bed)?;
            OUTSIDE
        }
        _ => [0; 4],
    };
    let socket = bed.source().udp_socket(SocketAddr::from((local, 0))).map_err(BenchError::Bed)?;
    let target = SocketAddr::new(Bed::east_address(1), DEFAULT_PORT);
    socket.connect(target).map_err(BenchError::os("connecting a socket"))?;
    let is_over = AtomicBool::new(false);
    let (beside_mbit, reached_per_second) = std::thread::scope(|scope| {
        let hostile = scope.spawn(|| send(&socket, packets, attack.per_second(), &is_over));
        let beside = good(bed, length);
        is_over.store(true, Ordering::Relaxed);
        let reached = hostile.join().map_err(|_| BenchError::Thread("attack"));
        Ok::<_, BenchError>((beside?, reached?))
    })?;
    Ok(Pair { alone_mbit, beside_mbit, reached_per_second })
}

/// Sends packets in turn at `per_second` until `is_over`; returns the rate that Linux accepted.
fn send(socket: &UdpSocket, packets: &[Vec<u8>], per_second: u64, is_over: &AtomicBool) -> f64 {
    let (begin, mut tried, mut sent) = (Instant::now(), 0, 0);
    let mut packets = packets.iter().cycle();
    while !is_over.load(Ordering::Relaxed) {
        let due = Duration::from_nanos(tried * 1_000_000_000 / per_second);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
        for packet in packets.by_ref().take(BURST as usize) {
            sent += u64::from(socket.send(packet).is_ok());
        }
        tried += BURST;
    }
    sent as f64 / begin.elapsed().as_secs_f64()
}

/// Packets of the good flow to the relay, as the attack has them.
fn recorded(bed: &Bed, attack: Attack) -> Result<Vec<Vec<u8>>, BenchError> {
    let capture = Capture::start(bed.source(), "east", DEFAULT_PORT).map_err(BenchError::Bed)?;
    good(bed, Duration::from_millis(500))?;
    let mut packets = capture.finish();
    packets.retain(|packet| packet.len() > GOOD_BYTES);
    packets.truncate(KINDS_OF_PACKETS);
    if attack == Attack::Forgeries {
        packets.iter_mut().for_each(|packet| packet[GOOD_BYTES / 2] ^= 1);
    }
    if packets.is_empty() { Err(BenchError::NoSuchItem("packets to copy")) } else { Ok(packets) }
}

/// Handshake initiations of a node that the relay does not know.
fn initiations(relay: PublicKey) -> Result<Vec<Vec<u8>>, BenchError> {
    let fresh =
        || Entropy::fresh().map_err(|error| BenchError::os("asking for random bytes")(error));
    let initiation = |_| {
        let identity = Identity {
            scope: Scope::Hop,
            private: PrivateKey::generate(&fresh()?),
            peer: relay,
            psk: PresharedKey::none(),
        };
        let mut session = Session::new(identity, Suite::preferred(), 0, &fresh()?);
        let mut message = [0; HANDSHAKE_BYTES_MAX];
        let step = session.poll(timing::START_NANOS, 1, 0, &fresh()?, &mut message);
        let bytes = step.map_err(|_| BenchError::NoSuchItem("a handshake"))?.send;
        let mut packet = [0; HANDSHAKE_BYTES_MAX + 64];
        let length = write_hop_handshake(&message[..bytes], &mut packet);
        Ok(packet[..length].to_vec())
    };
    (0..KINDS_OF_PACKETS).map(initiation).collect()
}

/// All that a daemon has counted of packets that end.
fn counters(daemon: &Daemon) -> Result<BTreeMap<String, u64>, BenchError> {
    let state = daemon.show().map_err(BenchError::Bed)?;
    let mut counters = BTreeMap::new();
    let links =
        state.links.into_iter().flat_map(|link| link.counters.into_iter().chain(link.faults));
    let ends = links.filter(|(name, _)| name.starts_with("rx_") && name != "rx_packets");
    let verdicts = state.verdicts.into_iter().filter(|(name, _)| name.starts_with("drop"));
    let drops = state.drops.into_iter();
    for (name, count) in ends.chain(verdicts).chain(drops) {
        *counters.entry(name.to_string()).or_default() += count;
    }
    Ok(counters)
}
