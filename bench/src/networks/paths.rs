//! Two paths between the same two hosts: their sum, one of them cut, copies on both.

use std::net::SocketAddr;
use std::time::Duration;

use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::topology::{FAST, SLOW, Topology};
use recoded_netns::{Bed, Loss};

use super::report::{Figure, Network, Unit, figure};
use super::tcp::{Contender, FAST_LINK, SLOW_LINK};
use super::{Setup, processor_seconds, row};
use crate::error::BenchError;
use crate::line::case::PACKET;
use crate::line::sample::{Datagrams, summary};

/// Left out at the start of a stream.
const OMITTED: Duration = Duration::from_secs(3);

/// Time when the faster path is cut, when it is restored, and when the test ends, in seconds.
const CUT: f64 = 5.0;
const BACK: f64 = 8.0;
const END: f64 = 12.0;

/// Datagrams while a path is cut: a rate that the slower path carries by itself.
const DATAGRAM_BYTES: usize = 1300;
const DATAGRAM_MBIT: f64 = 30.0;

/// Share of the previous rate that counts as full recovery, if held for `FULL_SECONDS`.
const FULL_SHARE: f64 = 0.9;
const FULL_SECONDS: f64 = 0.5;

/// Grace period for late datagrams.
const GRACE: Duration = Duration::from_millis(1500);

/// TCP over both paths, with a concurrent probe.
pub fn sum(setup: &Setup) -> Network {
    let contenders = [
        Contender::Fast,
        Contender::Slow,
        Contender::Split,
        Contender::Mptcp,
        Contender::Tunnel("cubic"),
        Contender::Tunnel("bbr"),
    ];
    let measure =
        |contender: &Contender| row("paths", &contender.name(), || sum_of(setup, *contender));
    let mut network = Network {
        name: "paths",
        what: format!(
            "{}; TCP and 250 datagrams of 200 B a second. The sum of both after losses, \
             as TCP payload: {:.0} Mbit/s, {:.0} through a tunnel",
            in_words(),
            limit_mbit(Contender::Fast),
            limit_mbit(Contender::Tunnel("bbr"))
        ),
        rows: contenders.iter().map(measure).collect(),
        aims: Vec::new(),
    };
    let ours = Contender::Tunnel("bbr").name();
    network.aim("of the sum", &ours, "of the sum", true, 0.93);
    network.aim("p99 of the probe", &ours, "probe p99", false, SLOW.delay_ms as f64 + 25.0);
    network
}

fn in_words() -> String {
    let path = |link: recoded_netns::topology::PathLink| {
        format!("{} Mbit/s, {:.0} %, {} ms", link.rate_mbit, link.loss * 100.0, link.delay_ms)
    };
    format!("two paths, {} and {} (behind a relay)", path(FAST), path(SLOW))
}

/// TCP payload that both paths carry together.
fn limit_mbit(contender: Contender) -> f64 {
    (FAST.carries_mbit() + SLOW.carries_mbit()) * contender.payload_bytes() / PACKET
}

/// Bytes that left by each path.
fn bytes(bed: &Bed) -> Result<[f64; 2], BenchError> {
    let links = bed.counters().map_err(BenchError::Bed)?;
    Ok([FAST_LINK, SLOW_LINK].map(|number| links[number - 1].eastward.bytes as f64))
}

fn sum_of(setup: &Setup, contender: Contender) -> Result<Vec<Figure>, BenchError> {
    let topology = Topology::paths();
    let bed = topology.build(setup.seed).map_err(BenchError::Bed)?;
    let running = contender.start(&bed, &topology)?;
    let stream = running.open(&bed)?;
    stream.wait_until(OMITTED);
    let (before, busy) = (bytes(&bed)?, processor_seconds(&running.daemons)?);
    let plan = plan(running.datagrams(7000), 172, 250.0, setup.time);
    let probe = Probe::start(bed.source(), bed.sink(), &plan).map_err(BenchError::Bed)?;
    stream.wait_until(OMITTED + setup.time);
    let (after, busy_after) = (bytes(&bed)?, processor_seconds(&running.daemons)?);
    let outcome = stream.finish();
    let probe = summary(&probe.finish().map_err(BenchError::Bed)?);
    let (start, seconds) = (OMITTED.as_secs_f64(), setup.time.as_secs_f64());
    let mbit = outcome.mbit_between(start, start + seconds);
    let [fast, slow] = [0, 1].map(|path| after[path] - before[path]);
    let mut figures = vec![
        figure("TCP", Unit::Mbit, mbit),
        figure("of the sum", Unit::Ratio, mbit / limit_mbit(contender)),
        figure("sent by the slower path", Unit::Share, slow / (fast + slow)),
        figure("faster link full", Unit::Share, full(fast, seconds, FAST.rate_mbit)),
        figure("slower link full", Unit::Share, full(slow, seconds, SLOW.rate_mbit)),
    ];
    figures.extend(of_probe(&probe));
    figures.push(figure("cores of daemons", Unit::Ratio, (busy_after - busy) / seconds));
    Ok(figures)
}

/// Utilisation of a link.
fn full(bytes: f64, seconds: f64, rate_mbit: f64) -> f64 {
    bytes * 8e-6 / seconds / rate_mbit
}

fn of_probe(probe: &Datagrams) -> [Figure; 3] {
    [
        figure("probe p50", Unit::Millis, probe.p50_ms),
        figure("probe p99", Unit::Millis, probe.p99_ms),
        figure("probe lost", Unit::Share, probe.lost as f64 / probe.sent.max(1) as f64),
    ]
}

fn plan(to: SocketAddr, payload_bytes: usize, rate: f64, length: Duration) -> ProbePlan {
    let (packets_per_second, buffer_bytes) = (rate, None);
    ProbePlan { to, payload_bytes, packets_per_second, length, grace: GRACE, buffer_bytes }
}

/// The faster path is cut for three seconds.
pub fn cut(setup: &Setup) -> Network {
    let contenders = [Contender::Mptcp, Contender::Tunnel("cubic"), Contender::Tunnel("bbr")];
    let measure =
        |contender: &Contender| row("cut", &contender.name(), || cut_under_tcp(setup, *contender));
    let mut rows: Vec<_> = contenders.iter().map(measure).collect();
    rows.push(row("cut", "recoded, datagrams", || cut_under_datagrams(setup)));
    let mut network = Network {
        name: "cut",
        what: format!(
            "{}; the faster one loses everything for {} s. TCP, and {DATAGRAM_MBIT} Mbit/s of \
             datagrams of {DATAGRAM_BYTES} B by themselves",
            in_words(),
            BACK - CUT
        ),
        rows,
        aims: Vec::new(),
    };
    let ours = Contender::Tunnel("bbr").name();
    network.aim("longest stall of TCP, ms", &ours, "longest stall", false, 200.0);
    network.aim("full rate again, ms", &ours, "full rate after", false, 1000.0);
    network.aim("datagrams lost", "recoded, datagrams", "lost", false, 1e-3);
    network
}

/// Cuts the faster path and restores it, each at its time as signalled by `wait`.
fn cut_and_mend(bed: &mut Bed, wait: impl Fn(f64)) -> Result<(), BenchError> {
    let link = bed.link_config(FAST_LINK);
    wait(CUT);
    bed.set_link(FAST_LINK, link.with_loss(Loss::ALL)).map_err(BenchError::Bed)?;
    wait(BACK);
    bed.set_link(FAST_LINK, link).map_err(BenchError::Bed)?;
    wait(END);
    Ok(())
}

fn cut_under_tcp(setup: &Setup, contender: Contender) -> Result<Vec<Figure>, BenchError> {
    let topology = Topology::paths();
    let mut bed = topology.build(setup.seed).map_err(BenchError::Bed)?;
    let running = contender.start(&bed, &topology)?;
    let stream = running.open(&bed)?;
    cut_and_mend(&mut bed, |at| stream.wait_until(Duration::from_secs_f64(at)))?;
    let outcome = stream.finish();
    let before = outcome.mbit_between(CUT - 2.0, CUT);
    let steps = (0..).map(|step| BACK + f64::from(step) / 10.0);
    let steps = steps.take_while(|at| *at + FULL_SECONDS <= END);
    let is_full = |at: &f64| outcome.mbit_between(*at, at + FULL_SECONDS) >= FULL_SHARE * before;
    let full = steps.into_iter().find(is_full).map_or(f64::INFINITY, |at| (at - BACK) * 1e3);
    Ok(vec![
        figure("before", Unit::Mbit, before),
        figure("while cut", Unit::Mbit, outcome.mbit_between(CUT + 1.0, BACK)),
        figure("a second after", Unit::Mbit, outcome.mbit_between(BACK + 1.0, END)),
        figure("longest stall", Unit::Millis, outcome.longest_gap_between(CUT, END) * 1e3),
        figure("full rate after", Unit::Millis, full),
    ])
}

fn cut_under_datagrams(setup: &Setup) -> Result<Vec<Figure>, BenchError> {
    let topology = Topology::paths();
    let mut bed = topology.build(setup.seed).map_err(BenchError::Bed)?;
    let running = Contender::Tunnel("bbr").start(&bed, &topology)?;
    let rate = DATAGRAM_MBIT * 1e6 / 8.0 / DATAGRAM_BYTES as f64;
    let length = Duration::from_secs_f64(END);
    let plan = plan(running.datagrams(7000), DATAGRAM_BYTES, rate, length);
    let probe = Probe::start(bed.source(), bed.sink(), &plan).map_err(BenchError::Bed)?;
    let begin = std::time::Instant::now();
    let wait = |at: f64| {
        let left = Duration::from_secs_f64(at).saturating_sub(begin.elapsed());
        std::thread::sleep(left);
    };
    cut_and_mend(&mut bed, wait)?;
    let outcome = probe.finish().map_err(BenchError::Bed)?;
    Ok(vec![
        figure("lost", Unit::Share, outcome.loss()),
        figure("of these overruns", Unit::Count, outcome.overrun as f64),
        figure("longest stall", Unit::Millis, outcome.longest_gap_millis()),
        figure("p99", Unit::Millis, outcome.quantile_millis(0.99)),
    ])
}

/// A probe without other traffic, with one copy on each path.
pub fn every(setup: &Setup) -> Network {
    let rows = vec![
        row("every", "Linux, the faster path", || probe_over(setup, Contender::Fast)),
        row("every", "recoded, every", || probe_over(setup, Contender::Tunnel("bbr"))),
    ];
    let what = format!("{}; 250 datagrams of 200 B a second and nothing else", in_words());
    let mut network = Network { name: "every", what, rows, aims: Vec::new() };
    network.aim("lost", "recoded, every", "probe lost", false, 0.0);
    let most = FAST.delay_ms as f64 + 3.0;
    network.aim("p99", "recoded, every", "probe p99", false, most);
    network
}

fn probe_over(setup: &Setup, contender: Contender) -> Result<Vec<Figure>, BenchError> {
    let topology = Topology::paths().with("spread = \"every\"\n");
    let bed = topology.build(setup.seed).map_err(BenchError::Bed)?;
    let running = contender.start(&bed, &topology)?;
    // Lets it learn the loss of the paths.
    let start = |length| {
        let plan = plan(running.datagrams(7000), 172, 250.0, length);
        Probe::start(bed.source(), bed.sink(), &plan).map_err(BenchError::Bed)
    };
    start(Duration::from_secs(1))?.finish().map_err(BenchError::Bed)?;
    let before = bytes(&bed)?;
    let outcome = start(2 * setup.time)?.finish().map_err(BenchError::Bed)?;
    let after = bytes(&bed)?;
    let probe = summary(&outcome);
    // An IP packet of 200 bytes.
    let sent: f64 = (0..2).map(|path| after[path] - before[path]).sum();
    let mut figures = vec![figure("sent", Unit::Count, probe.sent as f64)];
    figures.extend(of_probe(&probe));
    figures.push(figure("probe max", Unit::Millis, probe.max_ms));
    figures.push(figure("bytes per byte", Unit::Ratio, sent / (probe.sent as f64 * 200.0)));
    Ok(figures)
}
