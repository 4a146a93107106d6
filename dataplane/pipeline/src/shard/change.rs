//! How a shard adopts other parameters, and how a source changes from one code to another.

use std::mem::replace;

use super::{Shard, split};
use crate::config::params::{FlowParams, Nanos, Role};
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::stage::{RoleState, Stage, source};
use crate::unit::source::SourceCode;
use recoded_wire::frames::Frames;

/// Distance of the epochs of two runs of a source: sinks mistake neither for a straggler of the
/// other.
const ANOTHER_LIFE: u8 = 128;

/// Minimum time between two changes that require another stage at other nodes: those abandon a
/// stage that accepted no packet for a fifth of this, and repairs of packets sent under it take
/// some round trips.
const APART_NANOS: Nanos = 1_000_000_000;

impl Shard {
    /// Adopts changed parameters of the flow, keeping the state that still fits. Neighbours follow
    /// link sequence numbers through any change.
    pub(crate) fn apply(&mut self, params: &FlowParams, io: &mut Io<'_, impl Frames, impl Egress>) {
        self.hops.update(params, io.combiner);
        self.upstreams.update(self.id, params, io.combiner);
        self.deadline = Some(io.now);
        self.symbol_bytes = params.symbol_bytes;
        self.postponed = None;
        if !matches!(params.role, Role::Source { .. }) {
            // Its accepted code and sizes follow the packets.
            self.present.adopt(params);
            self.other.iter_mut().for_each(|other| other.adopt(params));
        } else if self.asks_too_much(params, io.now) {
            // Relays and sinks hold two codes or sizes at once; they would drop packets of a third.
            let mut sizes = self.present.params.sizes();
            sizes.symbol_bytes = sizes.symbol_bytes.min(params.symbol_bytes);
            self.go_on(&params.with(sizes), io);
            self.postponed = Some(Box::new(params.clone()));
        } else if self.present.fits(params) {
            if announces_more(&self.present.params, params) {
                self.changed_at = Some(io.now);
            }
            self.go_on(params, io);
        } else {
            self.change(params, io);
        }
    }

    /// Continues with the present stage of a source under other parameters.
    pub(super) fn go_on(&mut self, params: &FlowParams, io: &mut Io<'_, impl Frames, impl Egress>) {
        let (state, mut cx) = split(self, io);
        source!(state, source => source.apply(params, &mut cx), ());
        self.present.params = params.clone();
    }

    /// Whether a source's new parameters would require a third stage at other nodes: they have
    /// another code or larger sizes, while those nodes still need the two of the last change.
    fn asks_too_much(&self, params: &FlowParams, now: Nanos) -> bool {
        let present = &self.present;
        let differs_in_sizes = present.fits(&params.with(present.params.sizes()));
        let goes_back = self.other.as_ref().is_some_and(|other| other.fits(params));
        let asks_for_stage = match present.fits(params) {
            true => announces_more(&present.params, params),
            false => !goes_back,
        };
        differs_in_sizes && asks_for_stage && self.changes_at().is_some_and(|at| now < at)
    }

    /// When a source may change to a third code or size; `None` if it has used only one.
    fn changes_at(&self) -> Option<Nanos> {
        Some(self.changed_at?.saturating_add(APART_NANOS))
    }

    /// When postponed parameters are to be adopted.
    pub(super) fn postponed_until(&self) -> Option<Nanos> {
        self.postponed.as_ref().and(self.changes_at())
    }

    /// Adopts postponed parameters, if it is time.
    pub(super) fn adopt_postponed(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) {
        if self.postponed_until().is_some_and(|at| at <= io.now)
            && let Some(params) = self.postponed.take()
        {
            self.apply(&params, io);
        }
    }

    /// Switches a source to another stage. The previous one remains while sinks request packets
    /// sent with it, if there is memory for both.
    fn change(&mut self, params: &FlowParams, io: &mut Io<'_, impl Frames, impl Egress>) {
        // From now on nothing is sent unencrypted, not even held packets: as after a restart.
        let begins_to_seal = params.sealed && !self.present.params.sealed;
        if !begins_to_seal {
            self.drain(io);
        }
        let epochs = if begins_to_seal { ANOTHER_LIFE } else { 1 };
        let epoch = source!(&self.present.state, source => source.epoch(), 0);
        let next_epoch = epoch.wrapping_add(epochs);
        self.changed_at = Some(io.now);
        if self.other.as_ref().is_some_and(|other| other.fits(params)) {
            // Back to the previous code, which continues its numbering.
            self.exchange();
            self.go_on(params, io);
        } else {
            let numbers = self.numbers();
            drop(self.take_other(io.frames));
            let new = Stage::new(self.id, params.clone(), io.combiner);
            self.other = Some(replace(&mut self.present, new));
            self.continue_from(numbers);
        }
        source!(&mut self.present.state, source => source.begin_epoch(next_epoch), ());
        self.present.rent = None;
        if begins_to_seal {
            drop(self.take_other(io.frames));
        }
        if let Some(before) = &mut self.other {
            before.used_at = io.now;
            before.rent = io.egress.keep(before.params.memory_bytes());
            if before.rent.is_none() {
                drop(self.take_other(io.frames));
            }
        }
    }
}

/// Whether relays and sinks need larger tables for packets of these parameters than for those of
/// the previous ones, of the same code.
fn announces_more(before: &FlowParams, params: &FlowParams) -> bool {
    params.generation_size > before.generation_size
        || params.code.unit_symbols() > before.code.unit_symbols()
}
