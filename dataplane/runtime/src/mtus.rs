//! Sets the MTU of each tunnel to that of the path behind it, as discovered by streams and bounded
//! by the configuration and by IP's minimum. Linux does the rest: it reports "packet too large" to
//! senders on this host and behind it, and TCP sends shorter segments from then on.

use crate::netlink::Netlink;
use crate::node::Node;
use crate::sent_stream::Flow;
use crate::topology::{TunnelConfig, tunnel_mtu_min};
use std::collections::BTreeSet;

/// The MTU of a tunnel whose path carries packets of this size: at most the configured one, at
/// least IP's minimum.
fn mtu(config: &TunnelConfig, packet_bytes: Option<usize>) -> u16 {
    let least = tunnel_mtu_min(&config.addresses).min(config.mtu);
    let carried = packet_bytes.and_then(|bytes| u16::try_from(bytes).ok());
    carried.unwrap_or(config.mtu).clamp(least, config.mtu)
}

/// The MTUs of the tunnels.
#[derive(Default)]
pub(crate) struct Mtus {
    /// Tunnels whose MTU Linux refused to change, as logged.
    refused: BTreeSet<usize>,
}

impl Mtus {
    /// Sets every tunnel's MTU. A recreated tunnel has the configured one; an MTU changed by hand
    /// stays until the path changes.
    pub(crate) fn follow(&mut self, node: &Node, netlink: &Netlink, flows: &[Flow]) {
        for (index, tunnel) in node.shared.tunnels.get().iter().enumerate() {
            let limits = flows.iter().filter(|flow| flow.reads(index));
            let limit = limits.filter_map(|flow| flow.packet_bytes.map(|it| (it, flow.id))).min();
            let mtu = mtu(&node.topology.tunnels[index], limit.map(|(bytes, _)| bytes));
            if tunnel.mtu() == mtu || tunnel.is_gone() {
                continue;
            }
            let name = tunnel.name();
            match (tunnel.set_mtu(mtu, netlink), limit) {
                (Ok(()), Some((bytes, flow))) if bytes < usize::from(mtu) => tracing::warn!(
                    flow,
                    tunnel = name,
                    mtu,
                    "the path carries packets of {bytes} bytes at most, which is less than the \
                     least MTU of a tunnel: longer ones are lost until the MTU of the path is raised"
                ),
                (Ok(()), Some((_, flow))) => tracing::warn!(
                    flow,
                    tunnel = name,
                    mtu,
                    "the MTU of the tunnel follows that of the path"
                ),
                (Ok(()), None) => {
                    tracing::info!(tunnel = name, mtu, "the tunnel has its configured MTU again");
                }
                (Err(error), _) if self.refused.insert(index) => tracing::warn!(
                    %error,
                    tunnel = name,
                    mtu,
                    "the MTU of the tunnel stays as it is: packets too large for the path are lost"
                ),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_is_between_what_ip_needs_and_what_is_configured() {
        let tunnel = |address: &str, mtu| {
            let addresses = vec![(address.parse().expect("an address"), 24)];
            TunnelConfig { name: "rec0".into(), addresses, mtu }
        };
        for (address, least) in [("10.99.0.1", 576), ("fd00::1", 1280)] {
            let config = tunnel(address, 1421);
            let cases = [(None, 1421), (Some(1340), 1340), (Some(1440), 1421), (Some(0), least)];
            for (carried, expected) in cases {
                assert_eq!(mtu(&config, carried), expected, "{address}, {carried:?}");
            }
        }
        assert_eq!(mtu(&tunnel("10.99.0.1", 100), Some(50)), 100, "a test may configure less");
    }
}
