//! Newest report of a flow's sink to its source.

use crate::config::report::{FlowReport, RemoteReport};
use recoded_wire::coded::SIZE_MAX;
use recoded_wire::feedback::{FlowReport as SinkReport, RankReport};

/// State of the sink as its source knows it.
#[derive(Debug)]
pub(crate) struct Remote {
    report: Option<SinkReport>,
    rank_histogram: Vec<u32>,
}

impl Remote {
    pub(crate) fn new() -> Remote {
        Remote { report: None, rank_histogram: Vec::with_capacity(SIZE_MAX + 1) }
    }

    /// Notes a report.
    pub(crate) fn hear(&mut self, report: SinkReport) {
        self.report = Some(report);
    }

    /// Notes its rank histogram.
    pub(crate) fn hear_ranks(&mut self, report: &RankReport<'_>) {
        self.rank_histogram.clear();
        self.rank_histogram.extend(report.counts());
    }

    /// Its newest report.
    #[cfg(feature = "bats")]
    pub(crate) fn report(&self) -> Option<SinkReport> {
        self.report
    }

    pub(crate) fn fill(&self, report: &mut FlowReport) {
        report.remote = self.report.map(|remote| RemoteReport {
            newest: remote.newest,
            complete: remote.complete,
            failed: remote.failed,
            rank_histogram: self.rank_histogram.clone(),
        });
    }
}
