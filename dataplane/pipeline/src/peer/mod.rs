//! Neighbours of a flow. Of the one it receives from: which link sequence numbers came, what the
//! link between loses, when it was last heard, what it is told. Of those it sends to: their link
//! sequence numbers, and what repairs for them may cost.

pub(crate) mod next_hops;

mod sequence;

pub(crate) mod loss;

pub(crate) mod repair;

pub(crate) mod reporter;

use crate::params::Nanos;
use crate::report::DropReason;
use loss::LossTracker;
use recoded_wire::entropy::bucket_of;
use recoded_wire::header::{Block, Header};
use sequence::{Arrived, Sequences};

/// One neighbour, in the direction in which it sends.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    sequences: Sequences,
    pub loss: LossTracker,
    /// When a packet of it came last.
    pub heard_at: Nanos,
}

impl Peer {
    /// Notes a data packet, before anything else is made of it.
    ///
    /// # Errors
    /// [`DropReason::Replayed`] when it came before.
    pub(crate) fn arrived(
        &mut self,
        header: &Header,
        block: Option<&Block>,
        now: Nanos,
    ) -> Result<(), DropReason> {
        let bucket = bucket_of(header, block);
        match self.sequences.arrived(bucket, header.link_sequence, now) {
            Arrived::First => self.loss.arrived(header.hop_index, 0),
            Arrived::Newer { lost } => self.loss.arrived(header.hop_index, lost),
            Arrived::Late => self.loss.arrived_late(),
            Arrived::Replayed => return Err(DropReason::Replayed),
        }
        self.heard_at = now;
        Ok(())
    }
}
