//! In-order delivery of a sink of units: known symbols whose turn it is, in parts if many become
//! known at once.

use crate::config::params::{Role, TunnelId};
use crate::edge::outlet::Outlet;
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::unit::context::Context;
use crate::unit::sink::unit::{Progress, Unit};
use crate::unit::sink::units::UnitSink;
use recoded_wire::frames::Frames;

impl<U: Unit> UnitSink<U> {
    /// Delivers the next symbols in order, as far as they are known and due.
    pub(super) fn pump(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) {
        self.pace.pass(cx.io.now);
        self.pump_paced(cx, true);
    }

    /// Delivers all known symbols that are next in order, because their place is needed. Returns
    /// whether a unit was finished.
    pub(super) fn hurry(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>) -> bool {
        let held = self.held_span();
        self.pump_paced(cx, false);
        self.held_span() != held
    }

    fn pump_paced(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, is_paced: bool) {
        let params = cx.params;
        let Role::Sink { tunnel, .. } = params.role else { return };
        while let Some((next, _)) = self.range.filter(|_| self.holds()) {
            let index = self.index(next);
            self.deliver(index, tunnel, is_paced, cx);
            if is_paced && self.pace.due().is_some() {
                return;
            }
            let unit = &self.units[index];
            let Progress { decoded, closed, .. } = *unit.progress();
            let may_follow = params.repair || self.requests.is_mended() || unit.is_busy();
            if decoded && self.cursor == unit.size() {
                cx.counters.source_symbols += unit.size() as u64;
                cx.counters.generations += 1;
                cx.counters.generations_complete += 1;
                self.finish(cx.io.frames);
            } else if closed.is_some() && !may_follow && !unit.is_complete() {
                self.give_up(cx);
            } else {
                return;
            }
        }
    }

    /// Delivers the known symbols that follow the cursor.
    fn deliver(
        &mut self,
        index: usize,
        tunnel: TunnelId,
        is_paced: bool,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
    ) {
        let unit = &self.units[index];
        let delivered = cx.counters.delivered_packets;
        for symbol in (self.cursor..unit.size()).map_while(|symbol| unit.symbol(symbol)) {
            if is_paced && !self.pace.take() {
                break;
            }
            self.cursor += 1;
            let Io { frames, egress, combiner, .. } = &mut *cx.io;
            let (shard, sealed) = (cx.shard, cx.params.sealed);
            let mut outlet = Outlet {
                egress: &mut **egress,
                combiner,
                tunnel,
                shard,
                sealed,
                datagrams: Some(0),
            };
            self.unpacker.feed(frames.bytes(symbol), |packet| {
                outlet.deliver(packet, cx.counters, cx.marks);
            });
            if is_paced && outlet.datagrams == Some(0) {
                self.pace.give_back();
            }
        }
        self.has_delivered |= cx.counters.delivered_packets > delivered;
    }
}
