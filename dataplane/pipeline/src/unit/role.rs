//! Lifecycle common to roles of all codes: sources, relays and sinks.

use crate::config::params::{FlowParams, Nanos};
use crate::config::report::FlowReport;
use crate::env::egress::Egress;
use crate::unit::context::Context;
use recoded_wire::frames::Frames;

/// The state of a role.
pub(crate) trait Lifecycle {
    /// Runs due timers. Returns when to call it again.
    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos>;

    /// When to call [`Lifecycle::tick`] next, after a packet arrived.
    fn wake(&self, params: &FlowParams, now: Nanos) -> Option<Nanos>;

    /// Number of units held, each with frames.
    fn held(&self) -> usize {
        0
    }

    /// Closes open units, as before a change of parameters or a shutdown.
    fn drain(&mut self, _cx: &mut Context<'_, '_, impl Frames, impl Egress>) {}

    /// Evicts the oldest unit, to free frames. Returns false when none is held.
    fn evict_oldest(&mut self, _cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        false
    }

    /// Releases all frames.
    fn release(&mut self, _frames: &mut impl Frames) {}

    /// Writes its state into a report.
    fn fill(&self, report: &mut FlowReport);
}
