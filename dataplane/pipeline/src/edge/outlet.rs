//! IP packets on their way to a tunnel.

use crate::combine::Combiner;
use crate::edge::class::{self, Marks};
use crate::edge::framing::is_ip_packet;
use crate::egress::Egress;
use crate::params::TunnelId;
use crate::report::FlowCounters;

/// Where the packets of a sink go.
pub(crate) struct Outlet<'a, E> {
    pub egress: &'a mut E,
    pub combiner: &'a mut Combiner,
    pub tunnel: TunnelId,
}

impl<E: Egress> Outlet<'_, E> {
    /// Delivers what was decoded, if it is an IP packet; with a congestion mark if one is pending.
    pub(crate) fn deliver(
        &mut self,
        packet: &[u8],
        counters: &mut FlowCounters,
        marks: &mut Marks,
    ) {
        if !is_ip_packet(packet) {
            counters.framing_errors += 1;
            return;
        }
        counters.delivered_packets += 1;
        counters.delivered_bytes += packet.len() as u64;
        if !marks.take(class::of(packet)) {
            self.egress.deliver(self.tunnel, packet);
            return;
        }
        counters.delivered_marked += 1;
        let copy = self.combiner.packet(packet);
        class::mark(copy);
        self.egress.deliver(self.tunnel, copy);
    }
}
