//! Memory, outputs, randomness and the time, passed to each call.

use crate::base::time::Nanos;
use crate::env::combine::Combiner;

/// The outside world during one call.
pub(crate) struct Io<'a, F, E> {
    pub frames: &'a mut F,
    pub egress: &'a mut E,
    pub combiner: &'a mut Combiner,
    pub now: Nanos,
}
