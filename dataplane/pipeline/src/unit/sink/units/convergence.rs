//! A sink of units at which paths meet: when each upstream has sent its last packet of a unit.

use crate::config::params::{FlowParams, Nanos};
use crate::env::egress::Egress;
use crate::unit::context::Context;
use crate::unit::convergence::UnitArrivals;
use crate::unit::sink::unit::{Progress, Unit};
use crate::unit::sink::units::UnitSink;
use recoded_wire::coded::CodedHeader;
use recoded_wire::frames::Frames;

impl<U: Unit> UnitSink<U> {
    /// Whether no more packets are planned for a unit after a packet of the upstream at `place`. An
    /// unrequested repair, which sources send when idle, follows the plan of its own upstream only.
    pub(super) fn ends(
        &mut self,
        index: usize,
        header: &CodedHeader,
        place: usize,
        upstreams: usize,
    ) -> bool {
        let unit = &mut self.units[index];
        if unit.progress().decoded || !unit.ends_with(header) {
            return unit.progress().decoded;
        }
        unit.is_complete() || unit.progress_mut().ends(place, upstreams)
    }

    /// Notes a planned packet of a unit from the present one of several upstreams. Earlier units
    /// close once all upstreams are done with them.
    pub(super) fn go_on<F: Frames, E: Egress>(&mut self, number: u32, cx: &Context<'_, '_, F, E>) {
        let (place, count) = (cx.upstream.place, upstreams(cx.params));
        if count == 1 {
            return;
        }
        let before = self.branches.note(place, number, U::RESTART, cx.io.now);
        let Some(before) = before else { return };
        let Some((next, _)) = self.range else { return };
        let span = before.wrapping_sub(next);
        if span.cast_signed() <= 0 || span > self.held_span() {
            return;
        }
        for unit in (0..span / U::STEP).map(|n| next.wrapping_add(n * U::STEP)) {
            let index = self.index(unit);
            if self.units[index].progress_mut().ends(place, count) {
                self.close(index, cx.io.now);
            }
        }
    }

    /// When a unit ends that receives nothing more.
    pub(super) fn ends_at(&self, progress: &Progress, params: &FlowParams) -> Nanos {
        let unit = UnitArrivals {
            ended: progress.ended,
            upstreams: upstreams(params),
            first: progress.first.unwrap_or(progress.touched),
            newest: progress.touched,
        };
        self.branches.ends_at(&unit, params.generation_timeout_nanos, params.hold_timeout_nanos)
    }
}

/// Neighbours that a flow is received from.
pub(super) fn upstreams(params: &FlowParams) -> usize {
    params.further_upstreams.len() + 1
}
