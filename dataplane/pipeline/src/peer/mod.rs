//! Neighbours of a shard. Of the one it receives from: which link sequence numbers came, what the
//! link between loses, when it was last heard, what it is told. Of those it sends to: their link
//! sequence numbers, and what came of their feedback.

pub(crate) mod next_hops;

pub(crate) mod arrivals;

pub(crate) mod branches;

mod contest;
mod moments;
mod own;

mod sequence;

pub(crate) mod shares;

pub(crate) mod headroom;
pub(crate) mod lateness;

pub(crate) mod loss;

mod quarantine;

pub(crate) mod repair;

pub(crate) mod reporter;

pub(crate) mod policed;
pub(crate) mod rate;

pub(crate) mod sample;

pub(crate) mod liveness;

pub(crate) mod sizes;

pub(crate) mod path_size;

pub(crate) mod tally;

pub(crate) mod sent;

mod gate;

pub(crate) mod mender;

pub(crate) mod upstreams;

use crate::combine::Combiner;
use crate::egress::Egress;
use crate::io::Io;
use crate::params::{Nanos, PeerId, ShardId};
use crate::report::DropReason;
use arrivals::{Arrivals, Onward};
use loss::LossTracker;
use quarantine::Quarantine;
use recoded_wire::frames::Frames;
use recoded_wire::header::Header;
use reporter::Reporter;
use sequence::{Arrived, Sequences};

/// A neighbour of which nothing came for so long does not take the place of another one.
const HEARD_NANOS: Nanos = 3_000_000_000;

/// The neighbour that a shard is received from. A source has none: nothing arrives.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub peer: Option<PeerId>,
    /// Its place among those that the shard is received from.
    pub place: usize,
    sequences: Sequences,
    pub loss: LossTracker,
    pub reporter: Reporter,
    pub quarantine: Quarantine,
    arrivals: Arrivals,
    /// Whether the packet at hand said nothing new where something is still missing.
    was_useless: bool,
    /// The newest packet, and when it came.
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

    /// Notes a data packet, before anything else is made of it.
    ///
    /// # Errors
    /// [`DropReason::Replayed`] when it came before.
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

    /// Notes a packet of a code whose hops mend themselves, of so many bytes, that was noted by
    /// [`Upstream::arrived`], and whether the neighbour waits for a report on it.
    pub(crate) fn track(&mut self, header: &Header, what: (usize, bool), now: Nanos) {
        if !self.was_useless {
            self.arrivals.note(header.link_sequence, what, now);
        }
    }

    /// Notes that the packet at hand, of a stream, asks whether anything arrives.
    pub(crate) fn asked(&mut self) {
        self.arrivals.asked();
    }

    /// Notes that the packet at hand said nothing new of a unit that still lacks some: as good as
    /// lost, and reported as that.
    pub(crate) fn note_useless(&mut self) {
        self.was_useless = true;
    }

    /// When a link report is due.
    pub(crate) fn link_report_due(&self) -> Option<Nanos> {
        self.arrivals.due()
    }

    /// Sends a link report; `waits` says how long what came last has to wait here, and what is
    /// missing.
    pub(crate) fn report_link(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        shard: ShardId,
        onward: Onward,
    ) {
        let Some(peer) = self.peer else { return };
        let about = (shard, peer, self.epoch());
        self.arrivals.report(io, about, onward, self.reporter.numbers());
    }

    /// Hop index of what arrives: links travelled before the one it came over.
    pub(crate) fn hop_index(&self) -> u8 {
        self.newest.map_or(0, |(header, _)| header.hop_index)
    }

    /// Whether anything came lately that was heard.
    pub(crate) fn is_heard(&self, now: Nanos) -> bool {
        self.newest.is_some_and(|(_, at)| at.saturating_add(HEARD_NANOS) > now)
    }

    /// When the newest packet came.
    pub(crate) fn heard_at(&self) -> Option<Nanos> {
        self.newest.map(|(_, at)| at)
    }

    /// Epoch of the newest packet.
    pub(crate) fn epoch(&self) -> u8 {
        self.newest.map_or(0, |(header, _)| header.epoch)
    }
}
