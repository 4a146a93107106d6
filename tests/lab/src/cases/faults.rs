//! Faults of the path and of the card: loss by netem, a third-party emulator, and a card that is
//! set down and up.

use std::thread::sleep;
use std::time::Duration;

use recoded_api::v1::FlowNeighbour;
use recoded_netns::{Bed, BedConfig, DirectionConfig, LinkConfig, Loss, Namespace, process};

use crate::LabError;
use crate::guest::{Guest, Node, OUTSIDE, Setup, Stack, round_trip, tcp};
use crate::nic::Nic;

/// Share of packets that netem drops in each direction, in percent.
const LOSS_PERCENT: f64 = 10.0;

/// Bytes of TCP in each direction over it.
const LOSS_BYTES: usize = 1_000_000;

/// Bounds of the measured share. netem drops up to 64 kB of UDP segments at once, so that a
/// transfer of 1 MB sees some 100 independent losses of 10 %: three deviations are 9 points.
const MEASURED_PERCENT: [f64; 2] = [1.0, 25.0];

/// Duration of a card's outage.
const DOWN: Duration = Duration::from_secs(3);

/// Pings and TCP over a lossy path, and the loss that the sinks measure.
pub(super) fn netem(guest: &Guest) -> Result<String, LabError> {
    let setup = Setup { backend: Some("udp"), stack: Some(with_netem), ..Setup::default() };
    let boxes = guest.pair(Nic::Virtio)?.start(&setup)?;
    boxes.carry()?;
    boxes.exchange(LOSS_BYTES)?;
    let mut measured = Vec::new();
    for node in boxes.nodes() {
        let mut show = node.namespace.command("tc");
        let counted = process::run(show.args(["-s", "qdisc", "show", "dev", &node.interface]))?;
        if !counted.contains("dropped ") || counted.contains("dropped 0,") {
            return LabError::wrong(format!("netem dropped no packet: {counted}"));
        }
        let flows = node.show()?.flows;
        let sink = flows.iter().find(|flow| flow.role == "sink");
        let hop = sink.and_then(|flow| flow.hops.first());
        let Some(hop) = hop else { return LabError::wrong("the sink measured no loss") };
        measured.push(hop.loss * 100.0);
    }
    let [low, high] = MEASURED_PERCENT;
    if measured.iter().any(|percent| !(low..=high).contains(percent)) {
        return LabError::wrong(format!(
            "netem drops {LOSS_PERCENT} %, sinks measured {measured:.1?} %"
        ));
    }
    Ok(format!("{LOSS_PERCENT} % by netem, measured {measured:.1?} %"))
}

fn with_netem(host: &Namespace, card: &str, _: usize) -> Result<String, LabError> {
    host.ip(&format!("link set {card} up"))?;
    let loss = format!("{LOSS_PERCENT}%");
    let mut add = host.command("tc");
    add.args(["qdisc", "add", "dev", card, "root", "netem", "limit", "10000"]);
    process::run(add.args(["delay", "10ms", "loss", &loss]))?;
    Ok(card.into())
}

/// Delay and rate of each direction.
const DELAY: Duration = Duration::from_millis(20);
const RATE_MBIT: f64 = 10.0;

/// Bytes of TCP: several seconds at this rate.
const RATE_BYTES: usize = 4_000_000;

/// Pings; the shortest round trip counts.
const ROUND_TRIPS: u32 = 10;

/// Slack of a round trip over both delays, because the processor is emulated. The value in `show`
/// is a mean that includes queueing delay, so its slack is larger.
const ROUND_TRIP_SLACK_MILLIS: f64 = 40.0;
const SHOWN_SLACK_MILLIS: f64 = 100.0;

/// Share of plain TCP's rate that TCP through the tunnel has at least: 0.76 to 0.87 in four runs
/// on a machine that did nothing else. With drops of the start counted as loss of the link, it was
/// as low as 0.04.
const CARRIED: f64 = 0.25;

/// Two emulators differ by less than this factor.
const EMULATORS_FACTOR: f64 = 1.7;

/// Round trip and rate of a path.
struct Path {
    round_trip_millis: f64,
    rate_mbit: f64,
}

/// A path with delay and rate by netem, compared with the bed's emulator.
pub(super) fn netem_rate(guest: &Guest) -> Result<String, LabError> {
    let (path, text) = shaped(guest, |host, card, _| {
        let (delay, rate) = (format!("{}ms", DELAY.as_millis()), format!("{RATE_MBIT}mbit"));
        shape(host, card, &["root", "netem", "limit", "200", "delay", &delay, "rate", &rate])
    })?;
    let bed = bed()?;
    let (millis, mbit) = (bed.round_trip_millis, bed.rate_mbit);
    let differ = (millis - path.round_trip_millis).abs();
    let factor = (mbit / path.rate_mbit).max(path.rate_mbit / mbit);
    let text = format!("{text}; the bed: {millis:.1} ms, {mbit:.1} Mbit/s");
    if differ > ROUND_TRIP_SLACK_MILLIS || factor > EMULATORS_FACTOR {
        return LabError::wrong(format!("the bed differs: {text}"));
    }
    Ok(text)
}

/// fq paces each flow at the sender's card; netem at the receiver has delay and rate.
pub(super) fn fq(guest: &Guest) -> Result<String, LabError> {
    let (_, text) = shaped(guest, |host, card, _| {
        let (delay, rate) = (format!("{}ms", DELAY.as_millis()), format!("{RATE_MBIT}mbit"));
        shape(host, card, &["root", "fq"])?;
        shape_inbound(host, card, &["limit", "200", "delay", &delay, "rate", &rate])?;
        Ok(card.into())
    })?;
    Ok(text)
}

/// fq_codel manages the queue of a shaper at the sender's card; netem at the receiver has delay.
pub(super) fn fq_codel(guest: &Guest) -> Result<String, LabError> {
    let (_, text) = shaped(guest, |host, card, _| {
        let (delay, rate) = (format!("{}ms", DELAY.as_millis()), format!("{RATE_MBIT}mbit"));
        let shaper = ["root", "handle", "1:", "tbf", "rate", &rate];
        shape(host, card, &[&shaper[..], &["burst", "64kb", "latency", "400ms"]].concat())?;
        shape(host, card, &["parent", "1:1", "fq_codel"])?;
        shape_inbound(host, card, &["limit", "1000", "delay", &delay])?;
        Ok(card.into())
    })?;
    Ok(text)
}

/// Device between a card and netem for packets that arrive.
pub(super) const INBOUND: &str = "ifb0";

/// Applies netem to packets that arrive at a card. AF_XDP sockets would bypass it.
pub(super) fn shape_inbound(
    host: &Namespace,
    card: &str,
    options: &[&str],
) -> Result<(), LabError> {
    let tc = |arguments: &str| process::run(host.command("tc").args(arguments.split(' ')));
    host.ip(&format!("link add {INBOUND} type ifb"))?;
    shape(host, INBOUND, &[&["root", "netem"], options].concat())?;
    tc(&format!("qdisc add dev {card} handle ffff: ingress"))?;
    tc(&format!(
        "filter add dev {card} parent ffff: matchall action mirred egress redirect dev {INBOUND}"
    ))?;
    Ok(())
}

/// Sets an interface up and gives it a queueing discipline.
pub(super) fn shape(host: &Namespace, card: &str, discipline: &[&str]) -> Result<String, LabError> {
    host.ip(&format!("link set {card} up"))?;
    let mut add = host.command("tc");
    process::run(add.args(["qdisc", "add", "dev", card]).args(discipline))?;
    Ok(card.into())
}

/// A path between two boxes, as measured by Linux and as reported by Recoded.
fn shaped(guest: &Guest, stack: Stack) -> Result<(Path, String), LabError> {
    let setup = Setup { backend: Some("udp"), stack: Some(stack), ..Setup::default() };
    let boxes = guest.pair(Nic::Virtio)?.start(&setup)?;
    boxes.carry()?;
    let [a, b] = boxes.nodes();
    // Before plain TCP fills the queue: the value in `show` would include that.
    let inside = round_trip(&a.namespace, b.inside, ROUND_TRIPS)?.as_secs_f64() * 1e3;
    let shown = next_hop(a)?.round_trip_us.unwrap_or_default() / 1e3;
    let path = measured([&a.namespace, &b.namespace], OUTSIDE[1])?;
    let carried_mbit = mbit(tcp(&a.namespace, &b.namespace, b.inside, RATE_BYTES)?);
    let text = format!(
        "round trip {:.1} ms, {inside:.1} inside, {shown:.1} shown; TCP {:.1} Mbit/s outside, \
         {carried_mbit:.1} inside",
        path.round_trip_millis, path.rate_mbit
    );
    let millis = DELAY.as_secs_f64() * 2e3;
    let is_near = |value: f64, slack: f64| (millis..=millis + slack).contains(&value);
    let is_right = is_near(path.round_trip_millis, ROUND_TRIP_SLACK_MILLIS)
        && is_near(inside, ROUND_TRIP_SLACK_MILLIS)
        && is_near(shown, SHOWN_SLACK_MILLIS)
        && path.rate_mbit <= RATE_MBIT
        && carried_mbit > CARRIED * path.rate_mbit;
    if is_right { Ok((path, text)) } else { LabError::wrong(text) }
}

/// The same path by the emulator of the bed.
fn bed() -> Result<Path, LabError> {
    let fast = DirectionConfig::new(Loss::independent(0.0), RATE_MBIT);
    let link = LinkConfig::both(DirectionConfig { delay: DELAY, ..fast });
    let bed = Bed::build(&BedConfig::uniform(1, link))?;
    measured([bed.source(), bed.sink()], &bed.sink_address().to_string())
}

/// Round trip and rate of TCP between two hosts without Recoded.
fn measured(hosts: [&Namespace; 2], address: &str) -> Result<Path, LabError> {
    let [from, to] = hosts;
    let trip = round_trip(from, address, ROUND_TRIPS)?;
    let rate_mbit = mbit(tcp(from, to, address, RATE_BYTES)?);
    Ok(Path { round_trip_millis: trip.as_secs_f64() * 1e3, rate_mbit })
}

/// The rate of a transfer.
fn mbit(took: Duration) -> f64 {
    RATE_BYTES as f64 * 8e-6 / took.as_secs_f64()
}

/// The other box, from the point of view of its flow.
fn next_hop(node: &Node) -> Result<FlowNeighbour, LabError> {
    let flows = node.show()?.flows;
    let source = flows.into_iter().find(|flow| flow.role == "source");
    let hop = source.and_then(|flow| flow.neighbours.into_iter().next());
    hop.ok_or_else(|| LabError::Wrong("the source has no next hop".into()))
}

/// A card that is set down and up under a tunnel.
pub(super) fn flap(guest: &Guest, nic: Nic, backend: &'static str) -> Result<String, LabError> {
    let pair = guest.pair(nic)?;
    let boxes = pair.start(&Setup { backend: Some(backend), ..Setup::default() })?;
    boxes.carry()?;
    let [a, _] = boxes.nodes();
    a.namespace.ip(&format!("link set {} down", a.interface))?;
    sleep(DOWN);
    a.namespace.ip(&format!("link set {} up", a.interface))?;
    boxes.carry()?;
    Ok(format!("down for {} s, then carries again", DOWN.as_secs()))
}
