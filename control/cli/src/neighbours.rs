//! The next hops of streams as text.

use crate::activity::SILENCE_CURE;
use crate::remark::Remark;
use crate::table::{Align, percent, table};
use recoded_api::v1::{Flow, FlowNeighbour};

use Align::{Left, Right};

/// A line for each next hop of each flow that has reports of them, and their faults; empty if there
/// are none.
pub fn neighbour_table(flows: &[Flow]) -> String {
    let head = [
        ("flow", Right),
        ("next hop", Left),
        ("Mbit/s", Right),
        ("round trip ms", Right),
        ("queue ms", Right),
        ("loss", Right),
        ("heard s ago", Right),
    ];
    let of_flow = |flow| move |neighbour| row(flow, neighbour);
    let rows = flows.iter().flat_map(|flow| flow.neighbours.iter().map(of_flow(flow)));
    let rows = rows.collect::<Vec<_>>();
    if rows.is_empty() {
        return String::new();
    }
    let faults = flows.iter().flat_map(hop_faults).map(|it| it.text());
    table(head, &rows) + &faults.collect::<String>()
}

/// Faults of a flow's next hops, and their fixes.
pub fn hop_faults(flow: &Flow) -> impl Iterator<Item = Remark> {
    let label = format!("flow {}", flow.id);
    let has_own_packets = flow.is_stream();
    let of = move |it| [silence(it), black_hole(it, has_own_packets)];
    let faults = flow.neighbours.iter().flat_map(of).flatten();
    faults.map(move |words| Remark::new(&label, &words))
}

fn silence(neighbour: &FlowNeighbour) -> Option<String> {
    neighbour.silent.then(|| format!("{} no response: {SILENCE_CURE}", neighbour.next_hop))
}

/// Reports packets that are too long for the path. If an IP packet is a symbol, and
/// `has_own_packets`, the tunnel must follow.
fn black_hole(neighbour: &FlowNeighbour, has_own_packets: bool) -> Option<String> {
    let lost = neighbour.lost_packet_bytes?;
    let arrived = neighbour.arrived_packet_bytes;
    let arrived = arrived.map_or(String::new(), |bytes| format!(", those of {bytes} bytes do"));
    if let Some(needed) = neighbour.needed_packet_bytes {
        return Some(format!(
            "IP packets of {lost} bytes and more do not arrive at {}{arrived}, and no tunnel has so \
             small an MTU: raise the MTU of the path to {needed} or more",
            neighbour.next_hop
        ));
    }
    let follows = match has_own_packets {
        true => "the tunnel of the flow's source has a smaller MTU",
        false => "the flow's source makes shorter symbols",
    };
    Some(format!(
        "IP packets of {lost} bytes and more do not arrive at {}{arrived}: {follows}",
        neighbour.next_hop
    ))
}

fn row(flow: &Flow, neighbour: &FlowNeighbour) -> [String; 7] {
    let known = |number: Option<f64>| number.map_or("-".into(), |number| format!("{number:.1}"));
    let millis = |micros: Option<f64>| known(micros.map(|micros| micros / 1e3));
    [
        flow.id.to_string(),
        neighbour.next_hop.clone(),
        format!("{:.1}", neighbour.rate_mbit),
        millis(neighbour.round_trip_us),
        millis(neighbour.queue_us),
        neighbour.loss.map_or("-".into(), percent),
        known(neighbour.heard_ago_seconds),
    ]
}
