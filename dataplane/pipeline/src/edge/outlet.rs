//! Delivery of IP packets to a tunnel.

use crate::config::params::{ShardId, TunnelId};
use crate::config::report::FlowCounters;
use crate::edge::class::{self, Marks};
use crate::edge::framing::is_ip_packet;
use crate::edge::inner::FlowKey;
use crate::edge::sealed::envelope_of;
use crate::env::combine::Combiner;
use crate::env::egress::{Egress, Keys, Unsealed};

/// Destination of the packets of a sink.
pub(crate) struct Outlet<'a, E> {
    pub egress: &'a mut E,
    pub combiner: &'a mut Combiner,
    pub tunnel: TunnelId,
    pub shard: ShardId,
    /// Whether its packets are sealed; then no others are delivered.
    pub sealed: bool,
    /// If counted: how many non-TCP packets it delivered. TCP receivers advertise how much they can
    /// take.
    pub datagrams: Option<u32>,
}

impl<E: Egress> Outlet<'_, E> {
    /// Delivers a decoded packet, if it is an IP packet or opens to one; with a congestion mark if
    /// one is pending.
    pub(crate) fn deliver(
        &mut self,
        carried: &[u8],
        counters: &mut FlowCounters,
        marks: &mut Marks,
    ) {
        let Self { egress, combiner, tunnel, shard, sealed, datagrams } = self;
        let (opened, copy) = combiner.packets();
        //= docs/protocol §2.12(b)
        let packet = match (*sealed, envelope_of(carried)) {
            (true, Some(envelope)) => {
                let place = &mut opened[..envelope.len()];
                place.copy_from_slice(envelope);
                let keys = egress.keys().ok_or(Unsealed::NoKeys);
                match keys.and_then(|keys| keys.unseal(*shard, place)) {
                    Ok(packet) => packet,
                    Err(Unsealed::NoKeys) => return counters.unseal_no_keys += 1,
                    Err(Unsealed::Refused) => return counters.unseal_refused += 1,
                }
            }
            (true, None) if is_ip_packet(carried) => return counters.clear_refused += 1,
            (false, Some(_)) => return counters.sealed_refused += 1,
            (false, None) => carried,
            (true, None) => return counters.framing_errors += 1,
        };
        if !is_ip_packet(packet) {
            counters.framing_errors += 1;
            return;
        }
        if let Some(datagrams) = datagrams {
            *datagrams += u32::from(!FlowKey::of(packet).is_tcp());
        }
        counters.delivered_packets += 1;
        counters.delivered_bytes += packet.len() as u64;
        if !marks.take(class::of(packet)) {
            egress.deliver(*tunnel, packet);
            return;
        }
        counters.delivered_marked += 1;
        let marked = &mut copy[..packet.len()];
        marked.copy_from_slice(packet);
        class::mark(marked);
        egress.deliver(*tunnel, marked);
    }
}
