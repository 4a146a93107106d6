//! A worker that panicked, made anew where it stands: its sockets, frames and keys stay, of what it
//! knew of packets nothing does.
//!
//! ```text
//!  panic in a turn -> the stack is unwound -> sources, pipeline, outbox anew -> frames back
//!    -> adopts the snapshot as at its start -> next turn
//! ```
//!
//! Nothing is opened, which the sandbox forbids; other workers, tunnels and sessions do not notice.
//! Counters of keys are shared and go on, so no number is used twice. To neighbours it is a node
//! that started again, but with the keys that they know.
//!
//! Where this ends: a panic while a job is handed to an accelerator or taken from it, while a
//! worker is made anew, or in another thread, and a worker that panicked [`RENEWALS_MAX`] times.
//! There the process ends, and another takes its place.

use super::Worker;
use crate::arrived::BURST_PACKETS;
use crate::caught_panics::ends_well;
use crate::node::seed;
use crate::wake::Sleeper;
use std::time::Instant;

/// Times that a worker is made anew. Each may cost it some frames: those that were between Linux
/// and the accounts at that moment, a burst at most.
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
        // Also what was read and waits: a packet in it may be the reason.
        std::mem::take(&mut self.state.sources).into_iter().for_each(|source| self.close(source));
        // Counts what is open, if the pipeline still can.
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
            "worker {} panicked, and was made anew in {:.1} ms: units that were open are lost, all \
             else goes on. Please report this, with the lines above",
            self.index,
            begun.elapsed().as_secs_f64() * 1e3,
        );
    }
}
