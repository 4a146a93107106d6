//! Numbers of a source's units. Under one key they only grow, so they continue when a change makes
//! another stage, or another shard of the same number.

use crate::packet::arrival::RESTART_DISTANCE;
use crate::stage::{RoleState, Stage, source};
use crate::unit::source::SourceCode;

/// Numbers of packet types: a type has four bits.
const TYPES: usize = 16;

/// The next number of each code, by the type of its packets, if the source used it.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct SourceNumbers([Option<u32>; TYPES]);

impl SourceNumbers {
    /// Records how far a stage of a source has come.
    pub(crate) fn note(&mut self, stage: &Stage) {
        let place = stage.params.code.packet_type() as usize % TYPES;
        source!(&stage.state, source => self.0[place] = Some(source.next_number()), ());
    }

    /// Lets a new stage of a tagged flow begin above the numbers of those before, as after a
    /// restart: nodes find nothing in common with those before.
    //= docs/protocol §4.5(e)
    pub(crate) fn begin(&self, stage: &mut Stage) {
        let place = stage.params.code.packet_type() as usize % TYPES;
        if let Some(number) = self.0[place].filter(|_| stage.params.tagged) {
            let first = number.wrapping_add(RESTART_DISTANCE);
            source!(&mut stage.state, source => source.begin_at(first), ());
        }
    }
}
