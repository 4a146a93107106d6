//! When blocks close and when their batches are sent: at the rate of the link, or of the data where
//! the link does not report, since a block sent at once would overflow the queue of a slow link.

use crate::base::layout::payload_of;
use crate::bats::source::{BatsSource, Formed};
use crate::config::params::{FlowParams, Nanos};
use crate::env::egress::Egress;
use crate::unit::context::Context;
use recoded_wire::coded::{INDEX_BYTES, coding_offset, write_index};
use recoded_wire::frames::Frames;
use recoded_wire::header::Flags;

/// Longest time that a block collects packets, in flush timeouts.
const FLUSH_AGE: Nanos = 32;

impl BatsSource {
    /// Whether packets of a closed block remain to be sent.
    pub(super) fn is_sending(&self) -> bool {
        self.left.is_some() || self.sending().is_some()
    }

    /// Whether the pace allows a packet to leave; otherwise when it will.
    pub(super) fn leaves_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        if self.mender.is_paced(now) {
            return self.mender.leaves_at(now);
        }
        let at = self.open_pace.leaves_at();
        if at > now { Err(Some(at)) } else { Ok(()) }
    }

    /// When the open block is closed as it is: as soon as packets pause, and after a while even if
    /// they do not. Blocks are large; a steady flow must not be cut into short blocks, which cost
    /// more packets per symbol. A block that would wait behind another gains nothing from closing
    /// early.
    pub(super) fn flush_due(&self, params: &FlowParams) -> Option<Nanos> {
        let pause = self.touched + params.flush_timeout_nanos;
        let latest = self.opened + params.flush_timeout_nanos * FLUSH_AGE;
        (self.open && !self.is_sending()).then_some(pause.min(latest))
    }

    /// Sends the batches of the group, interleaved packet by packet, as far as the pace of the link
    /// allows now; all of them if hurried. Returns false when some are left.
    pub(super) fn send_group(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        is_hurried: bool,
    ) -> bool {
        if self.left.is_none() && self.is_mended(cx) {
            for Formed { header, word, first, class } in &self.group {
                let symbols = &self.packets[*first..][..usize::from(header.size)];
                self.kept.keep(cx.io.frames, *header, *word, *class, symbols);
            }
        }
        let longest = self.group.iter().map(|formed| formed.header.size).max().unwrap_or(0);
        for index in self.left.unwrap_or(0)..longest {
            if !is_hurried && self.leaves_at(cx.io.now).is_err() {
                self.left = Some(index);
                return false;
            }
            let sent = self.send_turn(index, cx);
            if !is_hurried {
                self.open_pace.spend(sent, cx.io.now);
            }
        }
        let symbols = self.group.iter().map(|formed| usize::from(formed.header.size)).sum();
        self.mender.unit(symbols, cx.io.now);
        self.left = None;
        self.group.clear();
        self.packets.clear();
        true
    }

    /// Sends packet `index` of each batch of the group. Returns how many batches have one.
    fn send_turn(
        &mut self,
        index: u16,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) -> usize {
        let is_asked = cx.asks_to_mend();
        let mut sent = 0;
        for Formed { header, word, first, class } in &self.group {
            if index >= header.size {
                continue;
            }
            let symbol = self.packets[first + usize::from(index)];
            let payload = payload_of(symbol, coding_offset(true) + INDEX_BYTES);
            let bytes = cx.io.frames.bytes_mut(payload);
            header.with(Flags::END, index + 1 == header.size).write(bytes);
            word.write(bytes);
            write_index(bytes, true, index as u8);
            cx.counters.sent_coded += 1;
            sent += 1;
            let number = cx.hops.next_number();
            cx.send(payload, *class);
            if let Some(number) = number.filter(|_| is_asked) {
                let bytes = usize::from(payload.len);
                self.mender.left(header.generation, bytes, number, 1, cx.io.now);
                self.kept.left(header.generation, 1);
            }
        }
        sent
    }

    /// Releases the unsent packets of the group.
    pub(super) fn release_group(&mut self, frames: &mut impl Frames) {
        let left = usize::from(self.left.take().unwrap_or(0));
        for Formed { header, first, .. } in self.group.drain(..) {
            let packets = &self.packets[first..][..usize::from(header.size)];
            packets.iter().skip(left).for_each(|packet| frames.release(packet.frame));
        }
        self.packets.clear();
    }
}
