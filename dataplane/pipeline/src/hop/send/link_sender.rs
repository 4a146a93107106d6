//! The sending side of one link, whatever is sent over it: packets in flight, rate, round trip,
//! keepalives, and a budget.
//!
//! Symbols of a stream wait until the link is free. Packets of generations and batches leave at
//! once, at a relay as they arrive. So the source keeps the pace:
//!
//! ```text
//!  source |##### packets that left #####| free_at: nothing is taken from the tunnel, and no batch
//!                                         formed, until shortly before that
//!  relay  reports the packets queued for its link and behind it to its upstream neighbour, as its
//!         own queue: so the queues of the whole path slow the source down
//! ```
//!
//! Pacing holds and drops nothing here: a source that ignores it sends at an unchanged rate.

use crate::config::params::Nanos;
use crate::config::segmentation::Comparison;
use crate::hop::rate::sample::AROUND_BYTES;
use crate::hop::rate::{Rate, Verdict};
use crate::hop::send::in_flight::{Carried, InFlight, Measurements, Outcome};
use crate::hop::send::keepalive::Keepalive;
use crate::hop::send::path_mtu::PathMtu;
use crate::hop::send::repair::RepairBudget;
use crate::hop::send::round_trip::RoundTrip;
use recoded_wire::link::LinkReport;

/// Longest time that the link counts as busy where packets leave at once: more would leave it idle
/// later.
const BUSY_MAX_NANOS: Nanos = 50_000_000;

/// One link, from the sender.
#[derive(Debug)]
pub(crate) struct LinkSender {
    pub in_flight: InFlight,
    pub rate: Rate,
    pub round_trip: RoundTrip,
    pub keepalive: Keepalive,
    pub budget: RepairBudget,
    /// Sum of the round trips of the later hops, as reported by the neighbour.
    beyond: Nanos,
    /// Queueing delay in front of the link, and backlog of the neighbour, by the newest report.
    pub waited: Nanos,
    pub backlog: Nanos,
    /// When the link will have drained the packets sent; and the same at its full rate, although
    /// long round trips limit the headroom.
    pub free_at: Nanos,
    full_rate_free_at: Nanos,
    /// When it is free for probes.
    probes_at: Nanos,
    /// Whether the window, not a lack of data, held packets back since the last one.
    pub is_full: bool,
}

impl LinkSender {
    /// Creates the sender of a link whose packets wait until it is free, with room for `packets` in
    /// flight.
    pub(crate) fn new(packets: usize, budget: RepairBudget) -> Self {
        Self {
            in_flight: InFlight::new(packets),
            rate: Rate::new(),
            round_trip: RoundTrip::default(),
            keepalive: Keepalive::default(),
            budget,
            beyond: 0,
            waited: 0,
            backlog: 0,
            free_at: 0,
            full_rate_free_at: 0,
            probes_at: 0,
            is_full: false,
        }
    }

    /// Creates the sender of a link whose packets leave at once.
    pub(crate) fn passing(packets: usize, budget: RepairBudget) -> Self {
        Self { rate: Rate::beside_passing(), ..Self::new(packets, budget) }
    }

    /// Records a packet sent under a link sequence number. Returns how long the link takes for it.
    pub(crate) fn sent(
        &mut self,
        number: u32,
        carried: Carried,
        bytes: usize,
        now: Nanos,
    ) -> Nanos {
        let earliest = now.saturating_sub(self.rate.burst());
        let free_at = if self.rate.passes { self.full_rate_free_at } else { self.free_at };
        if free_at < earliest && !std::mem::take(&mut self.is_full) {
            // The sender ran out of data: the next arrivals do not show the capacity.
            self.in_flight.ran_dry();
        }
        self.in_flight.note(number, carried, bytes, now);
        let bytes = bytes + AROUND_BYTES;
        let takes = match carried {
            Carried::Probe => self.rate.nanos_of_probe(bytes),
            _ => self.rate.spend(bytes),
        };
        let latest = if self.rate.passes { now + BUSY_MAX_NANOS } else { Nanos::MAX };
        self.free_at = (self.free_at.max(earliest) + takes).min(latest);
        let full_rate_free_at = self.full_rate_free_at.max(earliest) + self.rate.nanos(bytes);
        self.full_rate_free_at = full_rate_free_at.min(latest);
        takes
    }

    /// Resolves the packets that a report covers, as [`InFlight::hear`] does.
    pub(crate) fn resolve(
        &mut self,
        report: &LinkReport,
        payload: &[u8],
        now: Nanos,
        resolve: impl FnMut(Carried, Outcome),
    ) -> Option<Measurements> {
        self.in_flight.hear(report, payload, now, self.round_trip.mean(), resolve)
    }

    /// Updates round trip, queues and rate by a report.
    pub(crate) fn measure(&mut self, report: &LinkReport, heard: &Measurements, now: Nanos) {
        (self.waited, self.backlog) = (heard.waited, report.backlog_nanos());
        self.beyond = report.beyond_nanos();
        let round_trip = self.round_trip.note(heard.round_trip, now);
        self.rate.queue(heard.waited, round_trip);
        if let Some(sample) = &heard.sample {
            if self.rate.sample(sample, round_trip, now) == Verdict::NotOurs {
                self.in_flight.accept_queue();
            }
            if !self.rate.passes {
                self.rate.slow_lossy_start(sample);
            }
        }
        self.rate.heard();
    }

    /// Applies the pace of the local link, and returns the outcomes of packets reported since the
    /// last call.
    pub(crate) fn settle(&mut self, pace: Option<f64>) -> Comparison {
        self.rate.limit(pace);
        std::mem::take(&mut self.in_flight.comparison)
    }

    /// When the next packet may leave: shortly before the link is free. Filling a long round trip
    /// must not build a queue that is reported too late.
    pub(crate) fn opens_at(&self) -> Nanos {
        self.free_at.saturating_sub(self.rate.burst())
    }

    /// When packets that are queued already may leave.
    #[cfg(feature = "bats")]
    pub(crate) fn leaves_at(&self) -> Nanos {
        self.full_rate_free_at.saturating_sub(self.rate.burst())
    }

    /// Bytes of the path MTU probe to send now, if one is due. Where packets wait for the link,
    /// probes are paced separately: vanishing packets reduce the rate to almost nothing, and a
    /// jumbo probe would then take a third of a second.
    pub(crate) fn probe(&mut self, now: Nanos) -> Option<u16> {
        if self.probes_at > now {
            return None;
        }
        let bytes = self.in_flight.sizes_mut().probe(self.round_trip.mean(), now)?;
        if !self.rate.passes {
            let bytes = usize::from(bytes) + AROUND_BYTES;
            self.probes_at = now + self.rate.nanos_of_probe(bytes);
        }
        Some(bytes)
    }

    /// When the next probe is due.
    pub(crate) fn probe_due(&self) -> Option<Nanos> {
        let due = self.sizes().due(self.round_trip.mean())?;
        Some(due.max(self.probes_at))
    }

    /// The packet sizes that arrive.
    pub(crate) fn sizes(&self) -> &PathMtu {
        self.in_flight.sizes()
    }

    /// Sum of the known round trips of all hops from here.
    pub(crate) fn path_round_trip(&self) -> Nanos {
        self.round_trip.mean() + self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    #[test]
    fn link_is_busy_for_as_long_as_what_left_takes_and_opens_a_little_before() {
        let mut link = LinkSender::passing(64, RepairBudget::new());
        let now = 1000 * MILLI;
        let mut number = 0..;
        let mut send = |link: &mut LinkSender, packets| {
            for number in number.by_ref().take(packets) {
                link.sent(number, Carried::Unit(0), 1458, now);
            }
        };
        // Ten packets at the first rate, 12.5 MB/s, are 1.2 ms; 1.5 ms may leave at once.
        send(&mut link, 10);
        assert!(link.opens_at() <= now);
        send(&mut link, 40);
        let closed = link.opens_at().saturating_sub(now);
        assert!((2 * MILLI..4 * MILLI).contains(&closed), "{closed}");
        send(&mut link, 100_000);
        assert!(link.opens_at() <= now + BUSY_MAX_NANOS, "whatever left");
    }
}
