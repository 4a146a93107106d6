//! Labels that identify the subject of a metric.

use recoded_api::v1::{Flow, Link, Tunnel, Worker};

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

pub(super) fn worker(worker: &Worker) -> Labels {
    vec![("worker", worker.index.to_string())]
}
