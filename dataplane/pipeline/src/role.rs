//! What every role does in its life, whatever its code: sources, relays and sinks alike.

use crate::context::Context;
use crate::egress::Egress;
use crate::params::{FlowParams, Nanos};
use crate::report::FlowReport;
use recoded_wire::frames::Frames;

/// The state of a role.
pub(crate) trait Lifecycle {
    /// Lets timers act. When to call it again.
    fn tick(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> Option<Nanos>;

    /// When to call [`Lifecycle::tick`] next, after a packet came.
    fn wake(&self, params: &FlowParams, now: Nanos) -> Option<Nanos>;

    /// Units held, each of them with frames.
    fn held(&self) -> usize {
        0
    }

    /// Closes what is open, as before a change of parameters or a shutdown.
    fn drain(&mut self, _cx: &mut Context<'_, '_, impl Frames, impl Egress>) {}

    /// Lets the oldest unit go, to free frames. False when none is held.
    fn evict_oldest(&mut self, _cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        false
    }

    /// Lets all frames go.
    fn release(&mut self, _frames: &mut impl Frames) {}

    /// Writes what it knows into a report.
    fn fill(&self, report: &mut FlowReport);
}
