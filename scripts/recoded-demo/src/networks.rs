//! `--topology`: networks that are not lines, once with plain Linux and once recoded. The beds are
//! those of `bench networks`, which runs longer and compares more contenders.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use recoded_netns::probe::{Probe, ProbeOutcome, ProbePlan};
use recoded_netns::stream::{Stream, StreamOutcome};
use recoded_netns::topology::{
    FAST, RECEIVER, SLOW, TREE_MBIT, Topology, UNIT_LOSS, UNIT_PACKET_BYTES,
};
use recoded_netns::{Bed, BedError, Loss};
use serde::Serialize;

use crate::findings::Criterion;
use crate::load::Meter;
use crate::options::{DemoOptions, DemoTopology};
use crate::progress::Progress;
use crate::table::verdict;

/// TCP payload in a full packet of 1514 bytes, in a tunnel.
const PAYLOAD_SHARE: f64 = 1373.0 / 1514.0;

/// Start of a stream that is ignored, and duration of a path's outage, in seconds.
const SETTLE: f64 = 3.0;
const CUT: f64 = 2.0;

/// Sinks of the tree, and the traffic to all of them.
const SINKS: usize = 8;
const TREE_LOAD_MBIT: f64 = 50.0;
const TREE_PAYLOAD: usize = 1300;

/// Results of a run.
#[derive(Serialize)]
pub struct NetworkRun {
    topology: &'static str,
    /// The network.
    #[serde(skip)]
    picture: &'static str,
    lines: Vec<Line>,
    criteria: Vec<Criterion>,
    /// Whether all that should hold does.
    pub ok: bool,
}

/// Something measured.
#[derive(Serialize)]
struct Line {
    what: String,
    value: f64,
    unit: &'static str,
}

fn line(what: impl Into<String>, value: f64, unit: &'static str) -> Line {
    Line { what: what.into(), value, unit }
}

/// Something that holds on every machine.
fn criterion(rule: &str, found: String, holds: bool) -> Criterion {
    Criterion { rule: rule.into(), found, holds, waived: None }
}

/// A criterion that holds if the machine carries the unscaled rates.
fn criterion_of_speed(rule: &str, found: String, holds: bool, busy: &Busy) -> Criterion {
    Criterion { waived: busy.clone(), ..criterion(rule, found, holds) }
}

/// The reason why speed is not judged, if the machine was busy.
type Busy = Option<String>;

impl NetworkRun {
    /// Text for humans.
    pub fn text(&self) -> String {
        let mut text = format!("\n{}\n\n", self.picture);
        for Line { what, value, unit } in &self.lines {
            let digits = if *unit == "packets" { 0 } else { 1 };
            text += &format!("  {what:<58} {value:>8.digits$} {unit}\n");
        }
        text + "\n" + &verdict(&self.criteria)
    }
}

/// Measures the network that the options name.
///
/// # Errors
/// [`BedError`] if the bed fails.
pub fn run(options: &DemoOptions) -> Result<NetworkRun, BedError> {
    let mut found = match options.topology {
        DemoTopology::Tree => tree(options.seconds)?,
        DemoTopology::Butterfly => butterfly(options.seconds)?,
        DemoTopology::Paths | DemoTopology::Line => paths(options.seconds)?,
    };
    found.ok = found.criteria.iter().all(Criterion::is_met);
    Ok(found)
}

fn plan(to: SocketAddr, payload_bytes: usize, rate: f64, seconds: f64) -> ProbePlan {
    ProbePlan {
        to,
        payload_bytes,
        packets_per_second: rate,
        length: Duration::from_secs_f64(seconds),
        grace: Duration::from_secs(2),
        buffer_bytes: None,
    }
}

fn stream(bed: &Bed, to: IpAddr) -> Result<Stream, BedError> {
    let to = SocketAddr::new(to, 5202);
    Stream::start(bed.source(), to, bed.sink(), to, "bbr")
}

const PATHS: &str = "  s ───────── 100 Mbit/s, 10 % lost, 20 ms ───────── d
   \\__ r ──── 50 Mbit/s, 2 % lost, 60 ms ──────────/";

fn paths(seconds: u64) -> Result<NetworkRun, BedError> {
    let mut progress = Progress::new(4);
    let topology = Topology::paths();
    let seconds = seconds as f64;
    let end = SETTLE + seconds;
    let mut alone = [0.0; 2];
    let addresses = [Bed::east_address(1), Bed::east_address(3)];
    for (index, name) in ["faster", "slower"].into_iter().enumerate() {
        alone[index] =
            progress.step(&format!("Linux: TCP with BBR over the {name} path"), |_| {
                let bed = topology.build(1)?;
                let stream = stream(&bed, addresses[index])?;
                stream.wait_until(Duration::from_secs_f64(end));
                let mbit = stream.finish().mbit_between(SETTLE, end);
                Ok::<_, BedError>((mbit, format!("{mbit:.1} Mbit/s")))
            })?;
    }
    let (mut bed, daemons) = progress.step("Start a daemon on every host", |_| {
        let bed = topology.build(1)?;
        let daemons = topology.start(&bed)?;
        let text = format!("{} answer, and both paths carry", daemons.len());
        Ok::<_, BedError>(((bed, daemons), text))
    })?;
    let title = "Recoded: TCP with BBR over both paths; one is cut";
    let (outcome, busy) = progress.step(title, |_| {
        let meter = Meter::start(&daemons);
        let outcome = both(&mut bed, end)?;
        let mbit = outcome.mbit_between(SETTLE, end);
        Ok::<_, BedError>(((outcome, meter.stop().excuse()), format!("{mbit:.1} Mbit/s")))
    })?;
    let sum = outcome.mbit_between(SETTLE, end);
    let limit = (FAST.carries_mbit() + SLOW.carries_mbit()) * PAYLOAD_SHARE;
    let stall = outcome.longest_gap_between(end, end + 2.0 * CUT) * 1e3;
    let left = outcome.mbit_between(end + 0.5, end + CUT);
    let best = alone[0].max(alone[1]);
    Ok(NetworkRun {
        topology: "paths",
        picture: PATHS,
        lines: vec![
            line("the faster path by itself, TCP with BBR", alone[0], "Mbit/s"),
            line("the slower path by itself", alone[1], "Mbit/s"),
            line("both, recoded", sum, "Mbit/s"),
            line("what both carry after losses, as TCP payload", limit, "Mbit/s"),
            line("the faster path cut: longest time without a byte", stall, "ms"),
            line("meanwhile, over the slower one", left, "Mbit/s"),
        ],
        criteria: vec![
            criterion_of_speed(
                "two paths carry more than the better one",
                format!("{sum:.1} against {best:.1} Mbit/s"),
                sum > best,
                &busy,
            ),
            criterion_of_speed(
                "TCP continues when a path dies",
                format!("{left:.1} Mbit/s, {stall:.0} ms without a byte"),
                left > 0.25 * SLOW.carries_mbit() && stall < 2000.0,
                &busy,
            ),
        ],
        ok: false,
    })
}

/// A stream over both paths until `end`; then the faster one is cut for a while, and restored.
fn both(bed: &mut Bed, end: f64) -> Result<StreamOutcome, BedError> {
    let stream = stream(bed, RECEIVER.into())?;
    let link = bed.link_config(1);
    stream.wait_until(Duration::from_secs_f64(end));
    bed.set_link(1, link.with_loss(Loss::ALL))?;
    stream.wait_until(Duration::from_secs_f64(end + CUT));
    bed.set_link(1, link)?;
    stream.wait_until(Duration::from_secs_f64(end + 2.0 * CUT));
    Ok(stream.finish())
}

const TREE: &str = "  s ─┬─ 10 % ─ a ─┬─ t1 to t4, each behind a link that loses 1 to 8 %
     └─ 5 % ── b ─┴─ t5 to t8, each behind a link that loses 10 to 20 %";

fn tree(seconds: u64) -> Result<NetworkRun, BedError> {
    let mut progress = Progress::new(3);
    let topology = Topology::tree(SINKS);
    let rate = TREE_LOAD_MBIT * 1e6 / 8.0 / TREE_PAYLOAD as f64;
    let seconds = seconds as f64;
    let (unicast, copies) = progress.step("Linux: a copy to each of 8 receivers", |_| {
        let (worst, sent) = unicast(&topology, rate, seconds)?;
        Ok::<_, BedError>(((worst, sent), format!("the worst lacks {:.1} %", worst * 100.0)))
    })?;
    let (bed, daemons) = progress.step("Start a daemon on every host", |_| {
        let bed = topology.build(1)?;
        let daemons = topology.start(&bed)?;
        let text = format!("{} answer, and all sinks are reached", daemons.len());
        Ok::<_, BedError>(((bed, daemons), text))
    })?;
    let (outcomes, once, busy) = progress.step("Recoded: one flow for all", |_| {
        send(&bed, &topology, TREE_PAYLOAD, rate, 1.0)?;
        let meter = Meter::start(&daemons);
        let before = bed.counters()?[0];
        let outcomes = send(&bed, &topology, TREE_PAYLOAD, rate, seconds)?;
        let sent = bed.counters()?[0].since(&before).eastward.seen as f64;
        let once = sent / outcomes[0].sent.max(1) as f64;
        let text = format!("the worst lacks {:.3} %", worst_loss(&outcomes) * 100.0);
        Ok::<_, BedError>(((outcomes, once, meter.stop().excuse()), text))
    })?;
    let lost = worst_loss(&outcomes);
    let p99 = outcomes.iter().map(|it| it.quantile_millis(0.99)).fold(0.0, f64::max);
    Ok(NetworkRun {
        topology: "tree",
        picture: TREE,
        lines: vec![
            line("datagrams to each receiver", TREE_LOAD_MBIT, "Mbit/s"),
            line("rate of each link, of 10 ms", TREE_MBIT, "Mbit/s"),
            line("Linux, a copy for each: the worst receiver lacks", unicast * 100.0, "%"),
            line("packets on the source's first link for each datagram", copies, ""),
            line("recoded: the worst receiver lacks", lost * 100.0, "%"),
            line("packets on the source's first link for each datagram", once, ""),
            line("99 % within", p99, "ms"),
        ],
        criteria: vec![
            criterion_of_speed(
                "every receiver gets all but one in a hundred",
                format!("the worst lacks {lost:.1e}"),
                lost <= 0.01,
                &busy,
            ),
            criterion(
                "the source's link carries the flow once",
                format!("{once:.2} packets for each, with one copy for each {copies:.2}"),
                once < copies / 2.0,
            ),
        ],
        ok: false,
    })
}

/// Sends a copy to each receiver, as Linux routes it: the loss of the worst receiver, and packets
/// on the source's first link per datagram.
fn unicast(topology: &Topology, rate: f64, seconds: f64) -> Result<(f64, f64), BedError> {
    let bed = topology.build(1)?;
    let hosts = topology.receivers();
    let start = |(sink, host): (usize, &usize)| {
        let to = SocketAddr::new(Topology::leaf_address(sink), 7000);
        let plan = plan(to, TREE_PAYLOAD, rate, seconds);
        Probe::start(bed.source(), &bed.hosts()[*host], &plan)
    };
    let probes = hosts.iter().enumerate().map(start).collect::<Result<Vec<_>, _>>()?;
    let outcomes = probes.into_iter().map(Probe::finish).collect::<Result<Vec<_>, _>>()?;
    let sent = bed.counters()?[0].eastward.seen as f64 / outcomes[0].sent.max(1) as f64;
    Ok((worst_loss(&outcomes), sent))
}

/// Sends datagrams through the tunnel, to all receivers at once.
fn send(
    bed: &Bed,
    topology: &Topology,
    payload_bytes: usize,
    rate: f64,
    seconds: f64,
) -> Result<Vec<ProbeOutcome>, BedError> {
    let receivers: Vec<_> =
        topology.receivers().into_iter().map(|host| &bed.hosts()[host]).collect();
    let to = SocketAddr::from((RECEIVER, 7000));
    let plan = plan(to, payload_bytes, rate, seconds);
    Probe::start_to(bed.source(), &receivers, &plan)?.finish_all()
}

fn worst_loss(outcomes: &[ProbeOutcome]) -> f64 {
    outcomes.iter().map(ProbeOutcome::loss).fold(0.0, f64::max)
}

const BUTTERFLY: &str = "  s ─┬─ a ─┬─────────── t      both receivers want all of it;
     │     c ═══ d ──┬──       c combines what comes of a and b,
     └─ b ─┴─────────┴─ u      since its one link is shared";

fn butterfly(seconds: u64) -> Result<NetworkRun, BedError> {
    let mut progress = Progress::new(2);
    let topology = Topology::butterfly();
    let (bed, daemons) = progress.step("Start a daemon on every host", |_| {
        let bed = topology.build(1)?;
        let daemons = topology.start(&bed)?;
        let text = format!("{} answer, and both receivers are reached", daemons.len());
        Ok::<_, BedError>(((bed, daemons), text))
    })?;
    let rate = Topology::butterfly_rate();
    let (outcomes, most, busy) = progress.step("Recoded: datagrams to both", |_| {
        let payload_bytes = UNIT_PACKET_BYTES - 28;
        send(&bed, &topology, payload_bytes, rate, 1.5)?;
        let meter = Meter::start(&daemons);
        let before = bed.counters()?;
        let outcomes = send(&bed, &topology, payload_bytes, rate, seconds as f64)?;
        let after = bed.counters()?;
        let links = after.iter().zip(&before).map(|(after, before)| after.since(before));
        let most = links.map(|link| link.eastward.seen).max().unwrap_or(1) as f64;
        let text = format!("the worse lacks {:.3} %", worst_loss(&outcomes) * 100.0);
        Ok::<_, BedError>(((outcomes, most, meter.stop().excuse()), text))
    })?;
    let came = outcomes.iter().map(|outcome| outcome.came).min().unwrap_or(0) as f64;
    let links = came / (most * (1.0 - UNIT_LOSS));
    let lost = worst_loss(&outcomes);
    Ok(NetworkRun {
        topology: "butterfly",
        picture: BUTTERFLY,
        lines: vec![
            line("packets that came to the worse receiver", came, "packets"),
            line("packets on the link that carries most", most, "packets"),
            line("links' worth to each receiver, after losses", links, "links"),
            line("the most that routing brings", 1.5, "links"),
        ],
        criteria: vec![
            criterion(
                "each receiver gets more than routing could bring",
                format!("{links:.2} links of 2"),
                links > 1.5,
            ),
            criterion_of_speed(
                "all but one in a hundred arrive",
                format!("the worse receiver lacks {lost:.1e}"),
                lost <= 0.01,
                &busy,
            ),
        ],
        ok: false,
    })
}
