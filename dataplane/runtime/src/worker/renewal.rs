//! Restarts a panicked worker in place: its sockets, frames and keys stay, its packet state is
//! dropped.
//!
//! ```text
//!  panic in a turn -> the stack is unwound -> new sources, pipeline, outbox -> frames back
//!    -> adopts the snapshot as at its start -> next turn
//! ```
//!
//! Nothing is opened, which the sandbox forbids; other workers, tunnels and sessions do not notice.
//! Counters of keys are shared and continue, so no number is used twice. To neighbours it looks
//! like a restarted node, but with the keys that they know.
//!
//! Not covered: a panic while a job is passed to or from an accelerator, during a restart, or in
//! another thread, and a worker that panicked [`RENEWALS_MAX`] times. Then the process ends, and
//! another replaces it.

use super::Worker;
use crate::arrived::BURST_PACKETS;
use crate::caught_panics::ends_well;
use crate::node::seed;
use crate::wake::Sleeper;
use std::time::Instant;

/// Restarts of a worker. Each may cost it some frames: those in transit between Linux and the
/// accounts at that moment, a burst at most.
const RENEWALS_MAX: u64 = 8;

impl Worker {
    /// Once around the loop.
    #[inline]
    pub(super) fn turn_or_renew(&mut self, sleeper: &mut Sleeper<'_>) {
        if self.state.panics >= RENEWALS_MAX {
            self.turn(sleeper);
        } else if !ends_well(|| self.turn(sleeper)) {
            self.renew();
        }
    }

    #[cold]
    fn renew(&mut self) {
        let begun = Instant::now();
        self.state.panics += 1;
        // Also drops packets that were read and wait: one of them may be the cause.
        std::mem::take(&mut self.state.sources).into_iter().for_each(|source| self.close(source));
        // Counts open units, if the pipeline still can.
        ends_well(|| self.pipeline.release(&mut self.umem));
        self.ports.iter_mut().flatten().for_each(|port| port.discard(&mut self.umem));
        self.outbox.renew(self.umem.gauge().total);
        self.umem.abandon();
        self.pipeline.renew(&self.shared.snapshot.get(), seed());
        self.state.arrived = Vec::with_capacity(BURST_PACKETS);
        self.state.snapshot_seen = 0;
        self.state.tick_at = Some(0);
        self.adopt();
        self.publish();
        tracing::error!(
            "worker {} panicked and was restarted in {:.1} ms: open units are lost, everything \
             else continues. Please report this, with the lines above",
            self.index,
            begun.elapsed().as_secs_f64() * 1e3,
        );
    }
}
