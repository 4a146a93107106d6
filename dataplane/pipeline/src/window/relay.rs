//! A relay's part in a window flow: packets are forwarded as they came, since no recoding is
//! defined for them. If hops recover their losses, source packets are kept until the next node has
//! reported on them.

use crate::arrival::{Arrival, Fate};
use crate::context::Context;
use crate::edge::class;
use crate::egress::Egress;
use crate::relay::Relay;
use recoded_wire::frames::Frames;
use recoded_wire::window::{WindowPacket, write_header};

impl Relay {
    /// Forwards a packet of a window flow as it came.
    pub(crate) fn pass(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        arrival: &Arrival<'_>,
        packet: &WindowPacket,
    ) -> Fate {
        self.incoming.arrived_window(packet);
        let is_kept = packet.is_mended() && packet.is_source();
        if is_kept && self.mender.refuses(usize::from(arrival.payload.len)) {
            cx.counters.too_large += 1;
            return Fate::Consumed;
        }
        let mut header = packet.header;
        header.hop_index = header.hop_index.saturating_add(1);
        let window = (packet.symbol_bytes, packet.window_symbols);
        write_header(&header, window.0, window.1, cx.io.frames.bytes_mut(arrival.payload));
        let class = class::outer(arrival.traffic_class);
        let number = cx.hops.next_number();
        cx.io.frames.retain(arrival.payload.frame);
        cx.counters.sent_forwarded += 1;
        cx.send(arrival.payload, class);
        if let Some(number) = number.filter(|_| is_kept) {
            let what = (number, packet.first, arrival.payload, class);
            self.kept.keep(cx, &mut self.mender, what);
        }
        Fate::Forwarded
    }
}
