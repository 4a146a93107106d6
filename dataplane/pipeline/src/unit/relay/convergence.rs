//! A relay at which paths meet: the sum of all upstreams' announcements of a generation, and when
//! each has sent its last packet of it.

use crate::config::params::{FlowParams, Nanos, UPSTREAMS_MAX};
use crate::env::egress::Egress;
use crate::packet::arrival::RESTART_DISTANCE;
use crate::packet::collected::{Collected, PacketView};
use crate::unit::context::Context;
use crate::unit::convergence::UnitArrivals;
use crate::unit::relay::{Relay, plan_within};
use recoded_wire::coded::{CodedHeader, PLANNED_MAX};
use recoded_wire::frames::Frames;
use recoded_wire::header::{Flags, serial_before};

impl Relay {
    /// Notes a planned packet of a generation from the present one of several upstreams. Earlier
    /// generations close once all upstreams are done with them.
    pub(super) fn go_on(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        generation: u32,
    ) {
        if cx.params.further_upstreams.is_empty() {
            return;
        }
        let (place, now) = (cx.upstream.place, cx.io.now);
        let before = self.branches.note(place, generation, RESTART_DISTANCE, now);
        let Some(before) = before else { return };
        let mut from = 0;
        while let Some(index) = self.generations.next_held(from) {
            from = index + 1;
            let collected = &mut self.generations[index];
            if serial_before(collected.generation, before) {
                collected.ended |= 1 << (place % UPSTREAMS_MAX);
                if !collected.closed && collected.has_ended(cx.params) {
                    self.close(index, cx);
                }
            }
        }
    }

    /// Whether a repair is forwarded. Only a share is: each branch brings answers to the same
    /// request, and sinks get the rest over other paths.
    pub(super) fn goes_on(&mut self, share: f64) -> bool {
        self.onward += share;
        let goes_on = self.onward >= 1.0;
        if goes_on {
            self.onward -= 1.0;
        }
        goes_on
    }

    /// When a generation closes that receives nothing more.
    pub(super) fn ends_at(&self, collected: &Collected, params: &FlowParams) -> Nanos {
        let unit = UnitArrivals {
            ended: collected.ended,
            upstreams: params.further_upstreams.len() + 1,
            first: collected.first,
            newest: collected.touched,
        };
        self.branches.ends_at(&unit, params.generation_timeout_nanos, params.hold_timeout_nanos)
    }
}

/// Packets to be sent of a generation, from its upstreams' announcements: their sum, if each brings
/// a part; if one announces as many as there are symbols, the others bring copies.
fn onward(params: &FlowParams, collected: &Collected) -> u16 {
    let announced = collected.announced.iter().map(|packets| usize::from(*packets));
    let most = announced.clone().max().unwrap_or(0);
    let packets = if most >= collected.size() { most } else { announced.sum() };
    let share = (packets as f64 * params.onward_share).ceil();
    share.min(f64::from(PLANNED_MAX)) as u16
}

impl Collected {
    /// Notes the announcement of a packet from the upstream at a place. Returns whether nothing
    /// useful remains to come: the generation is complete, or each upstream has sent its last
    /// packet of it.
    pub(super) fn hear_plan(
        &mut self,
        params: &FlowParams,
        header: &CodedHeader,
        view: &PacketView,
        place: usize,
    ) -> bool {
        let place = place % UPSTREAMS_MAX;
        let is_batch = view.block.is_some();
        self.announced[place] = if is_batch { view.size as u16 } else { header.planned };
        self.ended |= u8::from(header.common.flags.has(Flags::END)) << place;
        if !self.is_planned {
            self.planned = plan_within(params, self.size(), onward(params, self));
        }
        self.has_ended(params) || self.is_complete()
    }

    /// Whether each upstream has sent its last packet of it.
    fn has_ended(&self, params: &FlowParams) -> bool {
        self.ended.count_ones() as usize > params.further_upstreams.len()
    }
}
