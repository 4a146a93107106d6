//! Numbers of a source's units. Under one key they only grow, so they continue when a change makes
//! another stage, or another shard of the same number.

use crate::config::params::FlowParams;
use crate::packet::arrival::RESTART_DISTANCE;
use crate::stage::RoleState;
use crate::unit::source::SourceCode;

/// The next number of each code, if the source used it.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct SourceNumbers {
    generation: Option<u32>,
    #[cfg(feature = "bats")]
    batch: Option<u32>,
    symbol: Option<u32>,
}

impl SourceNumbers {
    /// Records how far a stage of a source has come.
    pub(crate) fn note(&mut self, state: &RoleState) {
        match state {
            RoleState::RlncSource(source) => self.generation = Some(source.next_number()),
            #[cfg(feature = "bats")]
            RoleState::BatsSource(source) => self.batch = Some(source.next_number()),
            RoleState::StreamSource(source) => self.symbol = Some(source.next_number()),
            _ => {}
        }
    }

    /// Lets a new stage of a tagged flow begin above the numbers of those before, as after a
    /// restart: nodes find nothing in common with those before.
    pub(crate) fn begin(&self, state: &mut RoleState, params: &FlowParams) {
        if !params.tagged {
            return;
        }
        let first = |number: Option<u32>| number.map(|it| it.wrapping_add(RESTART_DISTANCE));
        match state {
            RoleState::RlncSource(source) => {
                first(self.generation).into_iter().for_each(|number| source.begin_at(number));
            }
            #[cfg(feature = "bats")]
            RoleState::BatsSource(source) => {
                first(self.batch).into_iter().for_each(|number| source.begin_at(number));
            }
            RoleState::StreamSource(source) => {
                first(self.symbol).into_iter().for_each(|number| source.begin_at(number));
            }
            _ => {}
        }
    }
}
