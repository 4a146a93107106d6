//! Labels that identify the subject of a metric.

use recoded_api::v1::{Flow, Link, Split, State, Tunnel, Worker};

/// Labels of a metric.
pub(super) type Labels = Vec<(&'static str, String)>;

pub(super) fn flow(flow: &Flow) -> Labels {
    vec![("flow", flow.id.to_string()), ("role", flow.role.clone())]
}

pub(super) fn link(link: &Link) -> Labels {
    vec![("link", link.name.clone()), ("interface", link.interface.clone())]
}

pub(super) fn tunnel(tunnel: &Tunnel) -> Labels {
    vec![("tunnel", tunnel.name.clone())]
}

/// Tunnels whose TCP connections end at both edges.
pub(super) fn splits(state: &State) -> impl Iterator<Item = (Labels, &Split)> {
    state.tunnels.iter().filter_map(|it| Some((tunnel(it), it.split.as_ref()?)))
}

pub(super) fn worker(worker: &Worker) -> Labels {
    vec![("worker", worker.index.to_string())]
}
