//! From packet to flow to batch to recoded or decoded packets.
//!
//! No I/O, no clock, no unsafe: bytes and `now` in, bytes and verdicts out, so that AF_XDP, the
//! simulator and the fuzzer drive the same code. All tables are allocated when a flow is created.

#![forbid(unsafe_code)]

pub mod params;

pub mod egress;

pub mod report;

use egress::Egress;
use params::{Nanos, Snapshot};
use recoded_wire::frames::{Frames, Span};
use report::Report;

/// One worker's pipeline.
pub struct Pipeline {}

impl Pipeline {
    /// Builds the tables of every flow in `snapshot`. `seed` starts the coefficient generator.
    pub fn new(_snapshot: &Snapshot, _seed: u64) -> Pipeline {
        Pipeline {}
    }

    /// Adopts a new snapshot: flows appear, disappear or change parameters. Call between bursts.
    pub fn apply(&mut self, _snapshot: &Snapshot, _frames: &mut impl Frames) {}

    /// Takes over one reference to `payload.frame`, whose span is a UDP payload.
    pub fn receive(
        &mut self,
        _frames: &mut impl Frames,
        _egress: &mut impl Egress,
        _payload: Span,
        _now: Nanos,
    ) {
    }

    /// Takes an IP packet from the tunnel of source flow `flow`.
    pub fn ingress(
        &mut self,
        _frames: &mut impl Frames,
        _egress: &mut impl Egress,
        _flow: u32,
        _packet: &[u8],
        _now: Nanos,
    ) {
    }

    /// Lets timers act. Returns when it wants to be called again at the latest, if at all.
    pub fn tick(
        &mut self,
        _frames: &mut impl Frames,
        _egress: &mut impl Egress,
        _now: Nanos,
    ) -> Option<Nanos> {
        None
    }

    /// Closes every open generation, as before a shutdown.
    pub fn drain(&mut self, _frames: &mut impl Frames, _egress: &mut impl Egress, _now: Nanos) {}

    /// A copy of all counters. Allocates: for housekeeping, not for the packet path.
    pub fn report(&self) -> Report {
        Report { edition: 0, packets: Default::default(), flows: Vec::new() }
    }
}
