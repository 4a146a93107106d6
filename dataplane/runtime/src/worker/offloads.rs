//! Harmful offloads of UDP sockets: one worker's finding holds for all.

use super::Worker;
use crate::port::Port;
use recoded_pipeline::params::Nanos;
use std::sync::atomic::Ordering::Relaxed;

impl Worker {
    /// Makes sockets that compare both ways of sending alternate. Packets of a turn leave before it
    /// ends, so they leave in the half that belongs to their time.
    #[inline]
    pub(super) fn alternate(&mut self, now: Nanos) {
        for (port, segmentation) in self.ports.iter_mut().zip(&self.outbox.segmentation) {
            if segmentation.is_comparing()
                && let Some(socket) = port.as_mut().and_then(Port::of_linux)
            {
                socket.send_single(segmentation.is_single(now));
            }
        }
    }

    /// Disables harmful offloads, and counts them at the worker that detected them.
    pub(super) fn look_at_offloads(&mut self, now: Nanos) {
        for (link, port) in self.ports.iter_mut().enumerate() {
            let Some(socket) = port.as_mut().and_then(Port::of_linux) else { continue };
            let unused = &self.shared.unused_offloads[link];
            let counters = &mut self.outbox.links[link];
            if socket.has_bursts() {
                let segmentation = &mut self.outbox.segmentation[link];
                if segmentation.look(now) && !unused.segmentation.swap(true, Relaxed) {
                    counters.tx_bursts_ended += 1;
                    self.state.dirty = true;
                }
                socket.send_single(segmentation.is_single(now));
                if unused.segmentation.load(Relaxed) {
                    socket.end_bursts();
                }
            }
            if socket.merges_wrongly() && !unused.merging.swap(true, Relaxed) {
                counters.rx_merging_ended += 1;
                self.state.dirty = true;
            }
            if unused.merging.load(Relaxed) {
                socket.end_merging();
            }
        }
    }
}
