//! Neighbours of a shard. Per upstream: the link sequence numbers received, the loss of the link,
//! the time of the newest packet, and the reports sent to it. Per next hop: its link sequence
//! numbers and those of its feedback.

pub(crate) mod link_report;

pub(crate) mod sequence;

pub(crate) mod shares;

pub(crate) mod lateness;

pub(crate) mod loss;

mod quarantine;

pub(crate) mod feedback;

pub(crate) mod upstreams;

use crate::config::params::{Nanos, PeerId, ShardId};
use crate::config::report::DropReason;
use crate::env::combine::Combiner;
use crate::env::egress::Egress;
use crate::env::io::Io;
use feedback::Reporter;
use link_report::{Arrivals, Onward};
use loss::LossTracker;
use quarantine::Quarantine;
use recoded_wire::frames::Frames;
use recoded_wire::header::Header;
use sequence::{Arrived, Sequences};

/// An upstream silent for this long cannot replace one in quarantine.
const HEARD_NANOS: Nanos = 3_000_000_000;

/// A neighbour that the shard receives from. A source has none, and receives nothing.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub peer: Option<PeerId>,
    /// Its index among the upstreams of the shard.
    pub place: usize,
    sequences: Sequences,
    pub loss: LossTracker,
    pub reporter: Reporter,
    pub quarantine: Quarantine,
    arrivals: Arrivals,
    /// Whether the current packet was redundant for a unit that is still incomplete.
    was_useless: bool,
    /// The newest packet and its arrival time.
    newest: Option<(Header, Nanos)>,
}

impl Upstream {
    pub(crate) fn new(shard: ShardId, peer: Option<PeerId>, combiner: &mut Combiner) -> Self {
        Self {
            peer,
            place: 0,
            sequences: Sequences::default(),
            loss: LossTracker::default(),
            reporter: Reporter::new(shard, peer, combiner),
            quarantine: Quarantine::default(),
            arrivals: Arrivals::new(),
            was_useless: false,
            newest: None,
        }
    }

    /// Records the arrival of a data packet, before it is processed.
    ///
    /// # Errors
    /// [`DropReason::Replayed`] when the packet is a duplicate.
    pub(crate) fn arrived(&mut self, header: &Header, now: Nanos) -> Result<(), DropReason> {
        match self.sequences.arrived(header.link_sequence, now) {
            Arrived::First => self.loss.arrived(header.hop_index, 0),
            Arrived::Newer { lost } => self.loss.arrived(header.hop_index, lost),
            Arrived::Late => self.loss.arrived_late(),
            Arrived::Replayed => return Err(DropReason::Replayed),
        }
        self.newest = Some((*header, now));
        self.was_useless = false;
        self.reporter.note(now);
        Ok(())
    }

    /// Records a packet of a code with per-hop retransmission, already passed to
    /// [`Upstream::arrived`]: its bytes, and whether the neighbour waits for a report on it.
    pub(crate) fn track(&mut self, header: &Header, bytes: usize, is_asked: bool, now: Nanos) {
        if !self.was_useless {
            self.arrivals.note(header.link_sequence, bytes, is_asked, now);
        }
    }

    /// Notes that the current packet, of a stream, requests a report.
    pub(crate) fn asked(&mut self) {
        self.arrivals.asked();
    }

    /// Notes that the current packet was redundant for an incomplete unit: it is reported as lost.
    pub(crate) fn note_useless(&mut self) {
        self.was_useless = true;
    }

    /// When a link report is due.
    pub(crate) fn link_report_due(&self) -> Option<Nanos> {
        self.arrivals.due()
    }

    /// Sends a link report; `onward` carries the delay of the newest data in this node and the
    /// missing packets.
    pub(crate) fn report_link(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        shard: ShardId,
        onward: Onward,
    ) {
        let Some(peer) = self.peer else { return };
        let epoch = self.epoch();
        self.arrivals.report(io, shard, peer, epoch, onward, self.reporter.numbers());
    }

    /// Hop index of arriving packets: the number of links before the incoming one.
    pub(crate) fn hop_index(&self) -> u8 {
        self.newest.map_or(0, |(header, _)| header.hop_index)
    }

    /// Whether a packet arrived within [`HEARD_NANOS`].
    pub(crate) fn is_heard(&self, now: Nanos) -> bool {
        self.newest.is_some_and(|(_, at)| at.saturating_add(HEARD_NANOS) > now)
    }

    /// Arrival time of the newest packet.
    pub(crate) fn heard_at(&self) -> Option<Nanos> {
        self.newest.map(|(_, at)| at)
    }

    /// Epoch of the newest packet.
    pub(crate) fn epoch(&self) -> u8 {
        self.newest.map_or(0, |(header, _)| header.epoch)
    }
}
