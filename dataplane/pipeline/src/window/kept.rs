//! Source packets of a window flow that left lately, in the frames they left in, until the next
//! node reports on them: what it lacks is sent again.
//!
//! ```text
//!  left ──► kept ──► came: its frame is free
//!             ▲  └──► lost: a copy leaves under another link sequence number ─┐
//!             └────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Repair packets are not kept: any other one is as good, and where all source packets come none
//! is needed. What the table has no place for any more is not made up for on this hop.

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

/// Before the next node has reported for the first time, so many are kept: a path without a way
/// back takes no more.
const UNHEARD_MAX: usize = 1024;

/// Packets that a hop may keep: those of two round trips of 100 ms at 200 Mbit/s.
const PACKETS: usize = 4096;

/// Packets that a hop of these parameters may keep. A relay that was made for another code keeps as
/// many as that takes.
pub(crate) fn kept_packets(params: &FlowParams) -> usize {
    match params.code {
        FlowCode::Window(_) => PACKETS,
        _ => mended_packets(params),
    }
}

/// A packet as it left, and the traffic class that it left with.
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
    /// What a report resolves.
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

    /// Keeps a packet that left under a link sequence number.
    pub(crate) fn keep(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        mender: &mut Mender,
        (number, esi, payload, class): (u32, u32, Span, u8),
    ) {
        let carried = (Carried::Source(esi), usize::from(payload.len));
        mender.left_with(carried, (number, 1), cx.io.now);
        mender.unit(1, cx.io.now);
        // Two for one, so that a table that was full when the next node fell silent empties.
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

    /// Notes what became of a packet that the next node reported on.
    pub(crate) fn note(&mut self, esi: u32, outcome: Outcome) {
        // A full list is read before the next report; what it lacks is let go in its time.
        if self.resolved.len() < self.resolved.capacity() {
            self.resolved.push((esi, outcome));
        }
    }

    /// Lets packets go that came, and sends those again that were lost, as far as they may leave
    /// now.
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

    /// Sends a copy, as far as the budget and frames allow. False when it is given up.
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

    /// Lets the oldest one go. False when none is held.
    pub(crate) fn evict_oldest(&mut self, frames: &mut impl Frames) -> bool {
        let oldest = self.packets.oldest(self.newest);
        oldest.iter().for_each(|index| self.clear(*index, frames));
        oldest.is_some()
    }

    /// Lets all go.
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
