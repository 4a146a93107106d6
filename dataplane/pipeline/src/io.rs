//! What every role works with during one call, and what it answers.

use crate::combine::Combiner;
use crate::params::Nanos;
use crate::report::DropReason;

/// A generation number this far behind the newest is a source that restarted, not a straggler.
pub(crate) const RESTART_DISTANCE: u32 = 1 << 16;

/// The outside world during one call: memory, outputs, randomness and the time.
pub(crate) struct Io<'a, F, E> {
    pub frames: &'a mut F,
    pub egress: &'a mut E,
    pub combiner: &'a mut Combiner,
    pub now: Nanos,
}

/// What became of a received packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Forwarded,
    Consumed,
    Dropped(DropReason),
}

/// The earlier of two deadlines.
pub(crate) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
