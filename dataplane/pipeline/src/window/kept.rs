//! Recently sent source packets of a window flow, kept in their frames until the next node reports
//! on them; missing ones are retransmitted.
//!
//! ```text
//!  left ──► kept ──► came: its frame is free
//!             ▲  └──► lost: a copy leaves under another link sequence number ─┐
//!             └────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Repair packets are not kept: any other one is as good, and if all source packets arrive none is
//! needed. Packets that no longer fit the table are not recovered on this hop.

use crate::context::Context;
use crate::egress::Egress;
use crate::params::{FlowCode, FlowParams};
use crate::peer::mender::Mender;
use crate::peer::next_hops::copy;
use crate::peer::sent::{Carried, Outcome};
use crate::relay::mended::mended_packets;
use crate::table::Table;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::serial_before;

/// Packets kept before the first report of the next node: a path without a return path takes no
/// more.
const UNHEARD_MAX: usize = 1024;

/// Most packets that a hop may keep: two round trips of 100 ms at 200 Mbit/s.
const PACKETS: usize = 4096;

/// Packets that a hop of these parameters may keep. A relay that was made for another code keeps as
/// many as that one needs.
pub(crate) fn kept_packets(params: &FlowParams) -> usize {
    match params.code {
        FlowCode::Window(_) => PACKETS,
        _ => mended_packets(params),
    }
}

/// A sent packet and its traffic class.
#[derive(Copy, Clone, Debug)]
struct Packet {
    esi: u32,
    payload: Span,
    class: u8,
}

/// The packets of one hop, by ESI modulo their number.
#[derive(Debug)]
pub(crate) struct KeptPackets {
    packets: Table<Option<Packet>>,
    newest: u32,
    /// Outcomes resolved by a report.
    resolved: Vec<(u32, Outcome)>,
}

impl KeptPackets {
    /// Room for `count` packets.
    pub(crate) fn new(count: usize) -> Self {
        let count = count.max(1);
        Self {
            packets: Table::new((0..count).map(|_| None)),
            newest: 0,
            resolved: Vec::with_capacity(count),
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(count: usize) -> usize {
        count.max(1) * (size_of::<Option<Packet>>() + size_of::<(u32, Outcome)>() + 1)
    }

    /// Packets held.
    pub(crate) fn held(&self) -> usize {
        self.packets.held()
    }

    /// Keeps a packet that was sent under a link sequence number.
    pub(crate) fn keep(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        mender: &mut Mender,
        (number, esi, payload, class): (u32, u32, Span, u8),
    ) {
        let carried = (Carried::Source(esi), usize::from(payload.len));
        mender.left_with(carried, (number, 1), cx.io.now);
        mender.unit(1, cx.io.now);
        // Two are evicted for each one kept, so that a table that was full when the next node fell
        // silent drains.
        for _ in 0..2 {
            if !mender.is_on(cx.io.now) && self.held() >= UNHEARD_MAX {
                self.evict_oldest(cx.io.frames);
            }
        }
        let index = self.packets.index(esi);
        self.clear(index, cx.io.frames);
        cx.io.frames.retain(payload.frame);
        self.packets[index] = Some(Packet { esi, payload, class });
        self.packets.hold(index);
        if self.held() == 1 || serial_before(self.newest, esi) {
            self.newest = esi;
        }
    }

    /// Notes the outcome of a packet that the next node reported on.
    pub(crate) fn note(&mut self, esi: u32, outcome: Outcome) {
        // A full list is read before the next report; further missing packets are evicted in due
        // course.
        if self.resolved.len() < self.resolved.capacity() {
            self.resolved.push((esi, outcome));
        }
    }

    /// Releases packets that arrived, and retransmits lost ones, as far as pacing allows.
    pub(crate) fn mend(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        mender: &mut Mender,
    ) {
        let mut done = 0;
        for place in 0..self.resolved.len() {
            let (esi, outcome) = self.resolved[place];
            if outcome == Outcome::Lost && !mender.may_mend(cx.io.now) {
                break;
            }
            done = place + 1;
            let index = self.packets.index(esi);
            let Some(packet) = self.packets[index].filter(|packet| packet.esi == esi) else {
                continue;
            };
            cx.counters.too_large += u64::from(outcome == Outcome::TooLarge);
            if outcome != Outcome::Lost || !Self::again(&packet, cx, mender) {
                self.clear(index, cx.io.frames);
            }
        }
        self.resolved.drain(..done);
    }

    /// Retransmits a packet, as far as the budget and frames allow. Returns false when it is
    /// abandoned.
    fn again(
        packet: &Packet,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        mender: &mut Mender,
    ) -> bool {
        if cx.hops.next_number().is_none() || !mender.spend_one(cx.counters) {
            return false;
        }
        let Some(payload) = copy(cx.io.frames, packet.payload) else {
            cx.counters.send_failed += 1;
            return false;
        };
        let number = cx.send_to(0, payload, packet.class);
        cx.counters.sent_repair += 1;
        let carried = (Carried::Source(packet.esi), usize::from(packet.payload.len));
        mender.left_with(carried, (number, 1), cx.io.now);
        true
    }

    /// Evicts the oldest one. Returns false when none is held.
    pub(crate) fn evict_oldest(&mut self, frames: &mut impl Frames) -> bool {
        let oldest = self.packets.oldest(self.newest);
        oldest.iter().for_each(|index| self.clear(*index, frames));
        oldest.is_some()
    }

    /// Releases all packets.
    pub(crate) fn release(&mut self, frames: &mut impl Frames) {
        while let Some(index) = self.packets.next_held(0) {
            self.clear(index, frames);
        }
    }

    fn clear(&mut self, index: usize, frames: &mut impl Frames) {
        if let Some(packet) = self.packets[index].take() {
            frames.release(packet.payload.frame);
        }
        self.packets.free(index);
    }
}
