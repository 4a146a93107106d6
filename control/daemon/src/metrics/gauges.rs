//! Measured values that are not counters: states, rates, losses, ages.

use super::labels::{Labels, flow, link, splits, tunnel, worker};
use recoded_api::v1::{Flow, FlowNeighbour, FlowUpstream, Neighbour, State};
use std::fmt;

/// Takes one value with its labels.
pub type Put<'a> = &'a mut dyn FnMut(Labels, f64) -> fmt::Result;

/// A metric that may decrease.
#[derive(Copy, Clone, Debug)]
pub struct Gauge {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, without a full stop.
    pub meaning: &'static str,
    /// Its values.
    pub read: fn(&State, Put<'_>) -> fmt::Result,
}

/// Every such metric.
pub const GAUGES: [Gauge; 35] = [
    Gauge {
        name: "recoded_build",
        meaning: "1, with the version of the daemon and its field arithmetic",
        read: |state, put| {
            put(vec![("version", state.version.clone()), ("kernel", state.kernel.clone())], 1.0)
        },
    },
    Gauge {
        name: "recoded_uptime_seconds",
        meaning: "Time since the process that sees packets started, and counters from zero with it",
        read: |state, put| put(Labels::new(), count(state.uptime_seconds)),
    },
    Gauge {
        name: "recoded_config_edition",
        meaning: "Edition of the active configuration; 1 is that of the file",
        read: |state, put| put(Labels::new(), count(state.edition)),
    },
    Gauge {
        name: "recoded_link_up",
        meaning: "Whether the interface of a link is up",
        read: |state, put| {
            state.links.iter().try_for_each(|it| put(link(it), truth(it.state == "up")))
        },
    },
    Gauge {
        name: "recoded_link_mtu_bytes",
        meaning: "MTU of the interface of a link",
        read: |state, put| state.links.iter().try_for_each(|it| put(link(it), count(it.mtu))),
    },
    Gauge {
        name: "recoded_neighbour_resolved",
        meaning: "Whether packets can be sent to a neighbour: with AF_XDP, its Ethernet address is known",
        read: |state, put| neighbours(state).try_for_each(|(at, it)| put(at, truth(it.resolved))),
    },
    Gauge {
        name: "recoded_neighbour_disagreements",
        meaning: "On how much this node and a neighbour do not agree",
        read: |state, put| {
            let number = |it: &Neighbour| count(it.disagreements.len() as u64);
            neighbours(state).try_for_each(|(at, it)| put(at, number(it)))
        },
    },
    Gauge {
        name: "recoded_neighbour_moves",
        meaning: "How often a neighbour that roams moved since its node runs",
        read: |state, put| neighbours(state).try_for_each(|(at, it)| put(at, count(it.moves))),
    },
    Gauge {
        name: "recoded_tunnel_up",
        meaning: "Whether a tunnel is there and has a carrier",
        read: |state, put| {
            let mut tunnels = state.tunnels.iter();
            tunnels.try_for_each(|it| put(tunnel(it), truth(it.state == "present")))
        },
    },
    Gauge {
        name: "recoded_tunnel_mtu_bytes",
        meaning: "MTU of a tunnel, less than the configured one where the path carries less",
        read: |state, put| state.tunnels.iter().try_for_each(|it| put(tunnel(it), count(it.mtu))),
    },
    Gauge {
        name: "recoded_tunnel_mtu_configured_bytes",
        meaning: "MTU of a tunnel by its configuration",
        read: |state, put| {
            state.tunnels.iter().try_for_each(|it| put(tunnel(it), count(it.mtu_configured)))
        },
    },
    Gauge {
        name: "recoded_split_connected",
        meaning: "Whether the other edge takes TCP connections of this tunnel that are split",
        read: |state, put| {
            splits(state).try_for_each(|(at, it)| put(at, truth(it.state == "connected")))
        },
    },
    Gauge {
        name: "recoded_split_open_connections",
        meaning: "Split TCP connections that are open, in both directions",
        read: |state, put| splits(state).try_for_each(|(at, it)| put(at, count(it.open))),
    },
    Gauge {
        name: "recoded_split_waiting_bytes",
        meaning: "Bytes of split TCP connections that one side sent and the other has not taken",
        read: |state, put| splits(state).try_for_each(|(at, it)| put(at, count(it.waiting_bytes))),
    },
    Gauge {
        name: "recoded_worker_free_frames",
        meaning: "Packet buffers of a worker that are free",
        read: |state, put| {
            state.workers.iter().try_for_each(|it| put(worker(it), count(it.frames.free)))
        },
    },
    Gauge {
        name: "recoded_flow_held_generations",
        meaning: "Generations that a flow holds",
        read: |state, put| state.flows.iter().try_for_each(|it| put(flow(it), count(it.held))),
    },
    Gauge {
        name: "recoded_flow_rank_ratio",
        meaning: "Mean rank of full-size generations or batches over their size",
        read: |state, put| each_flow(state, put, |it| it.rank_ratio),
    },
    Gauge {
        name: "recoded_flow_rank_theory_ratio",
        meaning: "What theory expects that ratio to be at the sink",
        read: |state, put| each_flow(state, put, |it| it.rank_theory),
    },
    Gauge {
        name: "recoded_flow_overhead_ratio",
        meaning: "Packets per source symbol, sent at a source or received at a sink",
        read: |state, put| each_flow(state, put, |it| it.overhead),
    },
    Gauge {
        name: "recoded_flow_overhead_theory_ratio",
        meaning: "Packets per source symbol that theory needs",
        read: |state, put| each_flow(state, put, |it| it.overhead_theory),
    },
    Gauge {
        name: "recoded_flow_hop_loss_ratio",
        meaning: "Share of packets that a hop loses; hop 0 is the link that leaves the source",
        read: |state, put| {
            let mut hops =
                state.flows.iter().flat_map(|it| it.hops.iter().map(move |hop| (it, hop)));
            hops.try_for_each(|(it, hop)| {
                let mut labels = flow(it);
                labels.push(("hop", hop.hop.to_string()));
                put(labels, hop.loss)
            })
        },
    },
    Gauge {
        name: "recoded_next_hop_silent",
        meaning: "Whether a next hop has not answered for 3 seconds, although packets were sent to it",
        read: |state, put| each_hop(state, put, |hop| Some(truth(hop.silent))),
    },
    Gauge {
        name: "recoded_next_hop_heard_seconds",
        meaning: "Time since a next hop reported last; without packets there is nothing to report",
        read: |state, put| each_hop(state, put, |hop| hop.heard_ago_seconds),
    },
    Gauge {
        name: "recoded_next_hop_rate_bytes_per_second",
        meaning: "How fast a next hop may be sent to, headers of Ethernet, IP and UDP included",
        read: |state, put| each_hop(state, put, |hop| Some(hop.rate_mbit * 1e6 / 8.0)),
    },
    Gauge {
        name: "recoded_next_hop_round_trip_seconds",
        meaning: "Mean time from a packet to the report on it",
        read: |state, put| each_hop(state, put, |hop| hop.round_trip_us.map(|us| us / 1e6)),
    },
    Gauge {
        name: "recoded_next_hop_queue_seconds",
        meaning: "Mean time that packets waited in queues on the link",
        read: |state, put| each_hop(state, put, |hop| hop.queue_us.map(|us| us / 1e6)),
    },
    Gauge {
        name: "recoded_next_hop_loss_ratio",
        meaning: "Share of packets that the link to a next hop loses",
        read: |state, put| each_hop(state, put, |hop| hop.loss),
    },
    Gauge {
        name: "recoded_next_hop_share_ratio",
        meaning: "Share of the newest symbols that went to this one of several paths",
        read: |state, put| each_hop(state, put, |hop| hop.share),
    },
    Gauge {
        name: "recoded_next_hop_in_doubt",
        meaning: "Whether other paths carry what this one had, since it does not answer",
        read: |state, put| each_hop(state, put, |hop| hop.share.map(|_| truth(hop.in_doubt))),
    },
    Gauge {
        name: "recoded_next_hop_behind_seconds",
        meaning: "How long the oldest symbol has waited that is still to be sent to a next hop",
        read: |state, put| each_hop(state, put, |hop| hop.behind_us.map(|us| us / 1e6)),
    },
    Gauge {
        name: "recoded_flow_carries_bytes_per_second",
        meaning: "What several next hops carry after losses: paths together, or the least receiver",
        read: |state, put| each_flow(state, put, |it| it.carries_mbit.map(|it| it * 1e6 / 8.0)),
    },
    Gauge {
        name: "recoded_upstream_loss_ratio",
        meaning: "Share of packets that the link from an upstream loses",
        read: |state, put| each_upstream(state, put, |it| it.loss),
    },
    Gauge {
        name: "recoded_upstream_share_ratio",
        meaning: "Share of the newest packets that came from an upstream",
        read: |state, put| each_upstream(state, put, |it| it.share),
    },
    Gauge {
        name: "recoded_upstream_received_seconds",
        meaning: "Time since a packet came from an upstream",
        read: |state, put| each_upstream(state, put, |it| it.received_ago_seconds),
    },
    Gauge {
        name: "recoded_session_age_seconds",
        meaning: "Time since keys were agreed on; infinite while there are none",
        read: |state, put| {
            state.sessions.iter().try_for_each(|it| {
                let labels = vec![("with", it.with.clone())];
                put(labels, it.age_seconds.unwrap_or(f64::INFINITY))
            })
        },
    },
];

fn count(count: u64) -> f64 {
    count as f64
}

fn truth(truth: bool) -> f64 {
    f64::from(u8::from(truth))
}

fn each_flow(state: &State, put: Put<'_>, value: fn(&Flow) -> Option<f64>) -> fmt::Result {
    let mut flows = state.flows.iter().filter_map(|it| Some((it, value(it)?)));
    flows.try_for_each(|(it, value)| put(flow(it), value))
}

fn each_hop(state: &State, put: Put<'_>, value: fn(&FlowNeighbour) -> Option<f64>) -> fmt::Result {
    let mut hops = state.flows.iter().flat_map(|it| it.neighbours.iter().map(move |hop| (it, hop)));
    hops.try_for_each(|(it, hop)| {
        let Some(value) = value(hop) else { return Ok(()) };
        let mut labels = flow(it);
        labels.push(("next_hop", hop.next_hop.clone()));
        put(labels, value)
    })
}

fn each_upstream(
    state: &State,
    put: Put<'_>,
    value: fn(&FlowUpstream) -> Option<f64>,
) -> fmt::Result {
    let mut all = state.flows.iter().flat_map(|it| it.arrivals.iter().map(move |up| (it, up)));
    all.try_for_each(|(it, upstream)| {
        let Some(value) = value(upstream) else { return Ok(()) };
        let mut labels = flow(it);
        labels.push(("upstream", upstream.upstream.clone()));
        put(labels, value)
    })
}

/// The neighbours of all links, with their labels.
fn neighbours(state: &State) -> impl Iterator<Item = (Labels, &Neighbour)> {
    state.links.iter().flat_map(|it| {
        it.neighbours.iter().map(move |neighbour| {
            let mut labels = link(it);
            labels.push(("neighbour", neighbour.address.clone()));
            (labels, neighbour)
        })
    })
}
