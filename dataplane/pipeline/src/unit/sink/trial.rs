//! Trial of an out-of-range unit, alongside the units that are held.
//!
//! A number far from all that is held comes from a source that restarted, or from one whose units
//! were lost entirely in a blackout; or it is forged. A sink that followed each such packet would
//! discard its units for nothing. So the sink collects the unit separately, and resynchronises to
//! it only when it has decoded to IP packets, or to sealed ones:
//!
//! ```text
//!  out of range ──► trial unit ──decodes──► a jump within the table: at once
//!                                           farther: when nothing in range has come for a while
//! ```
//!
//! One unit is tried at a time, and costs as much memory as any other.

use crate::config::params::Nanos;
use crate::edge::framing::begins_with_packet;
use crate::env::egress::Egress;
use crate::packet::arrival::AHEAD_MAX;
use crate::unit::context::Context;
use crate::unit::sink::unit::{Progress, Unit};
use recoded_wire::frames::Frames;

/// A unit on trial that has had no packet for this long is replaced by the next. The packets of a
/// unit are sent within a millisecond of each other, or when the last one is flushed.
const IDLE_NANOS: Nanos = 5_000_000;

/// The unit on trial, if there is one.
pub(crate) struct Trial<U> {
    pub unit: U,
    number: u32,
}

impl<U: Unit> Trial<U> {
    pub(crate) fn new(unit: U) -> Self {
        Self { unit, number: 0 }
    }

    /// Number of the unit on trial.
    pub(crate) fn number(&self) -> Option<u32> {
        self.unit.progress().live.then_some(self.number)
    }

    /// Puts unit `number` on trial, unless it already is. Returns false while another one is.
    pub(crate) fn begin(&mut self, number: u32, frames: &mut impl Frames, now: Nanos) -> bool {
        let progress = self.unit.progress();
        if progress.live && self.number == number {
            return true;
        }
        let is_idle = now >= progress.touched.saturating_add(IDLE_NANOS);
        // The source has moved on to the next one.
        let is_next = number.wrapping_sub(self.number) <= AHEAD_MAX * U::STEP;
        if progress.live && !progress.decoded && !is_idle && !is_next {
            return false;
        }
        self.clear(frames);
        self.number = number;
        *self.unit.progress_mut() = Progress::opened(now);
        self.unit.open(number);
        true
    }

    /// Decodes it as far as one call allows.
    pub(crate) fn decode(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        let unit = &mut self.unit;
        let Progress { live, decoded, .. } = *unit.progress();
        if live && !decoded && unit.decode(cx.io, cx.shard) {
            unit.progress_mut().decoded = true;
        }
    }

    /// Whether its decoding is unfinished.
    pub(crate) fn is_busy(&self) -> bool {
        self.unit.progress().live && self.unit.is_busy()
    }

    /// Whether it decoded to IP packets, or to sealed ones.
    pub(crate) fn is_proven(&self, frames: &impl Frames, sealed: bool) -> bool {
        let is_decoded = self.unit.progress().live && self.unit.progress().decoded;
        let first = if is_decoded { self.unit.symbol(0) } else { None };
        first.is_some_and(|symbol| begins_with_packet(frames.bytes(symbol), sealed))
    }

    /// Ends the trial.
    pub(crate) fn clear(&mut self, frames: &mut impl Frames) {
        self.unit.progress_mut().live = false;
        self.unit.clear(frames);
    }
}
