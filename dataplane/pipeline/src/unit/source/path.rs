//! Hop reports of a path at its source: the loss of each hop, measured by the node at its end.
//!
//! Reports come from the network. A node reports on its own hop only, and the number of links that
//! a report has travelled identifies that hop; a contradicting report is ignored. A hop whose
//! reports stop while others continue is forgotten.

use crate::config::params::{HOPS_MAX, Nanos};
use crate::config::report::HopLoss;
use recoded_wire::feedback::HopReport;

/// A hop is forgotten when it has not reported for this long and others have. Nodes report every 20
/// ms while packets flow: on a path that loses nine reports in ten, one in 10^4 hops is forgotten
/// by mistake, until its next report.
const EXPIRY_NANOS: Nanos = 2_000_000_000;

/// When no hop reports for this long the flow is idle, and hops do not age meanwhile.
const PAUSE_NANOS: Nanos = 200_000_000;

/// A hop and when it last reported.
#[derive(Copy, Clone, Debug)]
struct ReportedHop {
    loss: HopLoss,
    at: Nanos,
}

/// Reports of a path's hops to its source: at most [`HOPS_MAX`] of them.
#[derive(Debug)]
pub(crate) struct Path {
    heard: Vec<ReportedHop>,
    /// When any hop reported last.
    reported_at: Nanos,
    /// Losses of the hops in use now.
    hops: Vec<HopLoss>,
    /// The same, when plans were last made.
    planned_with: Vec<HopLoss>,
}

impl Path {
    pub(crate) fn new() -> Path {
        let losses = || Vec::with_capacity(HOPS_MAX);
        Path {
            heard: Vec::with_capacity(HOPS_MAX),
            reported_at: 0,
            hops: losses(),
            planned_with: losses(),
        }
    }

    /// Notes a hop report that travelled `travelled` links beyond the first. Returns whether
    /// earlier plans are out of date.
    pub(crate) fn hear(&mut self, travelled: u8, report: HopReport, now: Nanos) -> bool {
        // The relays that passed the report on equal the links in front of that hop.
        //= docs/protocol §2.8(b)
        if report.hop != travelled || usize::from(report.hop) >= HOPS_MAX {
            return false;
        }
        let loss = HopLoss {
            hop: report.hop,
            loss: f64::from(report.loss),
            burst_mean: f64::from(report.burst_mean),
        };
        let silence = now.saturating_sub(std::mem::replace(&mut self.reported_at, now));
        if silence > PAUSE_NANOS {
            self.heard.iter_mut().for_each(|heard| heard.at += silence);
        }
        match self.heard.iter_mut().find(|heard| heard.loss.hop == loss.hop) {
            Some(heard) => *heard = ReportedHop { loss, at: now },
            None => self.heard.push(ReportedHop { loss, at: now }),
        }
        self.heard.retain(|heard| heard.at + EXPIRY_NANOS > now);
        self.hops.clear();
        self.hops.extend(self.heard.iter().map(|heard| heard.loss));
        let changed = self.hops.len() != self.planned_with.len()
            || self.hops.iter().zip(&self.planned_with).any(|(new, old)| new.differs(old));
        if changed {
            self.planned_with.clear();
            self.planned_with.extend_from_slice(&self.hops);
        }
        changed
    }

    /// Newest report of each reporting hop.
    pub(crate) fn hops(&self) -> &[HopLoss] {
        &self.hops
    }

    /// The reports to make plans with.
    pub(crate) fn planned_with(&self) -> &[HopLoss] {
        &self.planned_with
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    fn hear(path: &mut Path, hop: u8, travelled: u8, now: Nanos) -> bool {
        let report = HopReport { hop, loss: 0.1, burst_mean: 1.0 };
        path.hear(travelled, report, now)
    }

    #[test]
    fn a_node_reports_on_its_own_hop_only() {
        let mut path = Path::new();
        assert!(!hear(&mut path, 3, 0, 0));
        assert!(hear(&mut path, 0, 0, 0) && hear(&mut path, 1, 1, 0));
        assert_eq!(path.hops().len(), 2);
    }

    #[test]
    fn hops_beyond_the_longest_path_are_ignored() {
        let mut path = Path::new();
        for hop in 0..=u8::MAX {
            hear(&mut path, hop, hop, 0);
        }
        assert_eq!(path.hops().len(), HOPS_MAX);
    }

    #[test]
    fn a_hop_that_falls_silent_while_others_report_is_forgotten() {
        let mut path = Path::new();
        hear(&mut path, 0, 0, 0);
        hear(&mut path, 1, 1, 0);
        let changes: Vec<u64> =
            (0..50).map(|n| 50 * n).filter(|at| hear(&mut path, 0, 0, at * MILLI)).collect();
        assert_eq!(changes, [2_000], "forgotten after two seconds, once");
        assert_eq!(path.hops().len(), 1);
    }

    #[test]
    fn no_hop_grows_old_while_the_flow_is_idle() {
        let mut path = Path::new();
        hear(&mut path, 0, 0, 0);
        hear(&mut path, 1, 1, 0);
        assert!(!hear(&mut path, 0, 0, 60_000 * MILLI), "nothing changed");
        assert_eq!(path.hops().len(), 2);
    }
}
