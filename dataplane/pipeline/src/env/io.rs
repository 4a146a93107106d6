//! Memory, outputs, randomness and the time, passed to each call.

use crate::base::time::Nanos;
use crate::config::params::ShardId;
use crate::env::combine::Combiner;
use crate::env::egress::{Egress, Keys};

/// The outside world during one call.
pub(crate) struct Io<'a, F, E> {
    pub frames: &'a mut F,
    pub egress: &'a mut E,
    pub combiner: &'a mut Combiner,
    pub now: Nanos,
}

impl<F, E: Egress> Io<'_, F, E> {
    /// The key to tag the symbols of a beginning unit with, if there is one.
    pub(crate) fn tag_key(&mut self, shard: ShardId) -> Option<u8> {
        self.egress.keys()?.tag_key(shard)
    }
}
