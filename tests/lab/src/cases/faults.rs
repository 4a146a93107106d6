//! Faults of the path and of the card: losses by netem, an emulator that is not ours, and a card
//! that is set down and up.

use std::thread::sleep;
use std::time::Duration;

use recoded_netns::{Namespace, process};

use super::Nic;
use crate::LabError;
use crate::guest::{Guest, Setup};

/// Share of packets that netem drops in each direction, in percent.
const LOSS_PERCENT: f64 = 10.0;

/// Bounds of the measured share. netem drops up to 64 kB of UDP segments at once, so that a
/// transfer of 1 MB sees some 100 independent losses of 10 %: three deviations are 9 points.
const MEASURED_PERCENT: [f64; 2] = [1.0, 25.0];

/// How long a card is down.
const DOWN: Duration = Duration::from_secs(3);

/// Pings and TCP over a lossy path, and the loss that the sinks measure.
pub(super) fn netem(guest: &Guest) -> Result<String, LabError> {
    let setup = Setup { backend: Some("udp"), stack: Some(with_netem), ..Setup::default() };
    let boxes = guest.pair(Nic::Virtio)?.start(&setup)?;
    boxes.carry()?;
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
