//! A line for each flow: its state, rate and cost, and the age of its neighbours' reports.

use crate::table::{Align, count, known, percent, residual, sentence, table};
use recoded_api::v1::Flow;

use Align::{Left, Right};

/// Explains the columns of `show flows` whose names do not.
pub fn legend() -> String {
    [
        ("symbols", "of a full generation, batch or window"),
        ("bytes", "of each symbol"),
        ("planned", "packets to send for the symbols of a full generation or batch"),
        ("loss", "of the hop that loses most"),
        ("rank", "mean share of those symbols that can be decoded from what arrived"),
        ("in, out", "packets that the flow takes and gives on this host"),
    ]
    .map(|(column, meaning)| sentence(column, meaning))
    .concat()
}

/// State of each flow.
pub fn flow_lines(flows: &[Flow]) -> String {
    let head = [
        ("flow", Right),
        ("role", Left),
        ("code", Left),
        ("state", Left),
        ("Mbit/s", Right),
        ("wire", Right),
        ("ratio", Right),
        ("theory", Right),
        ("loss", Right),
        ("delay", Right),
        ("residual", Right),
        ("heard", Right),
    ];
    let with_unit = |number: Option<f64>, unit: &str| {
        number.map_or("-".into(), |number| format!("{number:.1} {unit}"))
    };
    let rows = flows.iter().map(|flow| {
        let heard = flow.neighbours.iter().filter_map(|hop| hop.heard_ago_seconds);
        let heard = heard.chain(flow.received_ago_seconds).chain(flow.heard_ago_seconds);
        let heard = heard.reduce(f64::min);
        [
            flow.id.to_string(),
            flow.role.clone(),
            if flow.code.is_empty() { "-".into() } else { flow.code.clone() },
            flow.state.clone().unwrap_or_else(|| "-".into()),
            known(flow.goodput_mbit, 1),
            known(flow.wire_mbit, 1),
            known(wire_ratio(flow), 2),
            known(flow.overhead_theory, 2),
            worst_loss(flow).map_or("-".into(), percent),
            with_unit(flow.decode_delay_mean_us.map(|micros| micros / 1e3), "ms"),
            flow.residual_loss.map_or("-".into(), residual),
            with_unit(heard, "s"),
        ]
    });
    let text = table(head, &rows.collect::<Vec<_>>());
    let below = flows.iter().flat_map(|flow| [hop_losses(flow), quiet(flow)]);
    text + &below.flatten().collect::<String>()
}

/// The loss of each hop, if a flow has several.
fn hop_losses(flow: &Flow) -> Option<String> {
    let losses = flow.hops.iter().map(|hop| format!("{:.1}", hop.loss * 100.0));
    let losses = losses.collect::<Vec<_>>().join(", ");
    let words = format!("loss by hop: {losses} %");
    (flow.hops.len() > 1).then(|| sentence(&format!("flow {}", flow.id), &words))
}

/// Possible causes if a flow receives nothing.
fn quiet(flow: &Flow) -> Option<String> {
    if !flow.waits.is_empty() {
        let words = format!("waiting: {}", flow.waits);
        return Some(sentence(&format!("flow {}", flow.id), &words));
    }
    let words = match flow.state.as_deref()? {
        "waiting" if flow.role == "source" => {
            "no next hop has reported yet: nothing was sent, or no response"
        }
        "waiting" => {
            "no packet has arrived yet: nothing was sent, or a previous box does not run or lacks it"
        }
        "quiet" if flow.role == "source" => "no traffic: the source has nothing to send",
        "down" if flow.neighbours.is_empty() => {
            "packets are sent, and no feedback arrives: check that the next boxes run and have \
             this flow, and that packets pass in both directions"
        }
        "quiet" => "no packets arrive: the source has nothing to send, or the path is dead",
        _ => return None,
    };
    Some(sentence(&format!("flow {}", flow.id), words))
}

/// Rate on the wire to the next hops over goodput, over the last second.
pub fn wire_ratio(flow: &Flow) -> Option<f64> {
    let goodput = flow.goodput_mbit.filter(|mbit| *mbit > 0.0)?;
    flow.wire_mbit.map(|wire| wire / goodput)
}

/// That ratio, and the packets per symbol required in theory.
#[cfg_attr(not(feature = "top"), allow(dead_code, reason = "shown by top"))]
pub fn ratio(flow: &Flow) -> String {
    match (wire_ratio(flow), flow.overhead_theory) {
        (None, None) => "-".into(),
        (ratio, theory) => format!("{} {}", known(ratio, 2), known(theory, 2)),
    }
}

/// Both rates in words.
pub fn rates(flow: &Flow) -> Option<String> {
    let goodput = flow.goodput_mbit?;
    let Some(wire) = flow.wire_mbit else { return Some(format!("{goodput:.1} Mbit/s")) };
    let ratio = wire_ratio(flow).map(|ratio| format!("{ratio:.2}x"));
    let theory = flow.overhead_theory.map(|theory| format!("theory {theory:.2}"));
    let ratios: Vec<String> = ratio.into_iter().chain(theory).collect();
    let ratios =
        if ratios.is_empty() { String::new() } else { format!(" ({})", ratios.join("; ")) };
    Some(format!("{goodput:.1} Mbit/s, {wire:.1} on the wire{ratios}"))
}

/// The highest loss of a hop.
pub fn worst_loss(flow: &Flow) -> Option<f64> {
    flow.hops.iter().map(|hop| hop.loss).reduce(f64::max)
}

/// Generations that were abandoned.
pub fn failed(flow: &Flow) -> u64 {
    let remote = flow.remote.as_ref();
    remote.map_or(flow.count("generations_failed"), |remote| remote.failed)
}

/// Units abandoned at the sink, and their share.
pub fn given_up(flow: &Flow) -> Option<String> {
    let share = residual(flow.residual_loss?);
    let ended = match &flow.remote {
        Some(remote) => remote.complete.saturating_add(remote.failed),
        None => flow.count("generations"),
    };
    Some(format!("{share}: {} of {} {} given up", failed(flow), count(ended), units(flow)))
}

/// The unit that the counters of generations count.
pub fn units(flow: &Flow) -> &'static str {
    match flow.code.as_str() {
        "bats" => "blocks",
        "stream" => "symbols",
        _ => "generations",
    }
}
