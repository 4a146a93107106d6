//! Offloads of UDP sockets that do harm: what one worker finds out holds for all.

use super::Worker;
use crate::port::Port;
use recoded_pipeline::params::Nanos;
use std::sync::atomic::Ordering::Relaxed;

impl Worker {
    /// Has sockets that compare both ways of sending alternate. Packets of a turn leave before it
    /// ends, so they leave in the half of their time.
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

    /// Ends what does harm, and counts it where it was found out.
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
