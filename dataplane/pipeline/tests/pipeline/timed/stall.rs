//! Workers that are stalled for a while, as when other programs occupy the processors.

use super::{Line, Nanos, What};

impl Line {
    /// Stalls the worker of a node: arrivals, and due timers, wait.
    pub fn stall(&mut self, node: usize, nanos: Nanos) {
        self.nodes[node].stalled_until = self.now + nanos;
    }

    /// Nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The event, unless it has to wait for a stalled worker, in order of arrival.
    pub(super) fn unless_stalled(&mut self, what: What) -> Option<What> {
        let index = match what {
            What::Arrive { node, .. } | What::Wake { node } => node,
            What::Ingress => 0,
            What::Beside { .. } => return Some(what),
        };
        let node = &mut self.nodes[index];
        let until = node.stalled_until;
        if until <= self.now {
            return Some(what);
        }
        let planned = match what {
            What::Arrive { .. } | What::Beside { .. } => None,
            What::Wake { .. } => Some(&mut node.wakes_at),
            What::Ingress => Some(&mut self.ingress_at),
        };
        if let Some(planned) = planned {
            if *planned != Some(self.now) {
                return None;
            }
            *planned = Some(until);
        }
        self.push(until, what);
        None
    }
}
