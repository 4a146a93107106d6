//! Routes that this program adds, each with a protocol number that shows its purpose.

use super::Netlink;
use super::rules::{EXIT_TABLE, TUNNEL_PROTOCOL};
use crate::error::StartError;
use crate::topology::Address;
use futures_util::stream::StreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::{Error, RouteMessageBuilder};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;

/// Protocol number of the kill switch's routes, which no routing daemon has:
/// `ip route flush proto 82`.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(82);

/// Destinations of a route.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Prefix {
    address: IpAddr,
    bits: u8,
    /// The routing table.
    table: u32,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Netlink {
    /// Destinations of routes by these interfaces that the kill switch does not cover yet.
    pub(crate) fn unprotected(&self, interfaces: &[String]) -> Result<Vec<Prefix>, StartError> {
        let mut indices = Vec::with_capacity(interfaces.len());
        for name in interfaces {
            indices.extend(self.link(name)?.map(|message| message.header.index));
        }
        let (mut into, mut ours) = (BTreeSet::new(), BTreeSet::new());
        for route in self.all_routes()? {
            let Some(prefix) = read_prefix(&route) else { continue };
            if route.header.protocol == PROTOCOL {
                ours.insert(prefix);
            } else if read_interfaces(&route).any(|index| indices.contains(&index)) {
                into.insert(prefix);
            }
        }
        Ok(into.difference(&ours).copied().collect())
    }

    /// Makes destinations unreachable unless another route leads to them.
    pub(crate) fn make_unreachable(&self, prefix: &Prefix) -> Result<(), StartError> {
        let failed = |reason: String| StartError::Netlink { reason };
        // `ip -6 route flush` takes the default route with the last metric for Linux's null entry.
        let is_null = prefix.address.is_ipv6() && prefix.bits == 0;
        let message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(prefix.address, prefix.bits)
            .map_err(|error| failed(error.to_string()))?
            .table_id(prefix.table)
            .protocol(PROTOCOL)
            .kind(RouteType::Unreachable)
            .priority(if is_null { u32::MAX - 1 } else { u32::MAX })
            .build();
        let added = self.executor.block_on(self.handle.route().add(message).execute());
        added.map_err(|error| failed(error.to_string()))
    }

    /// Makes the routes into an interface that this program has added those to `next`. Returns the
    /// destinations that were added and removed. Has no effect while the interface is down.
    pub(crate) fn route_into(&self, name: &str, next: &[Address]) -> Result<Changed, StartError> {
        let failed = |reason: String| StartError::Netlink { reason };
        let Some(link) = self.link(name)?.filter(|link| super::read_interface(link).is_up) else {
            return Ok(Changed::default());
        };
        let index = link.header.index;
        let mut present = Vec::new();
        for route in self.all_routes()? {
            let is_ours = route.header.protocol == TUNNEL_PROTOCOL
                && read_interfaces(&route).any(|it| it == index);
            if let Some(Prefix { address, bits, table }) = read_prefix(&route).filter(|_| is_ours)
                && table == table_of(bits)
            {
                present.push(Installed { destination: (address, bits), route });
            }
        }
        let mut changed = Changed::default();
        for Installed { destination, route } in &present {
            if !next.contains(destination) {
                let removed = self.handle.route().del(route.clone()).execute();
                let removed = self.executor.block_on(removed);
                removed.map_err(|error| failed(error.to_string()))?;
                changed.removed.push(*destination);
            }
        }
        let is_present = |it: &Address| present.iter().any(|known| known.destination == *it);
        for destination in next.iter().filter(|it| !is_present(it)) {
            let (address, bits) = *destination;
            let refused = |error: String| failed(format!("route {address}/{bits}: {error}"));
            let message = RouteMessageBuilder::<IpAddr>::new()
                .destination_prefix(address, bits)
                .map_err(|error| refused(error.to_string()))?
                .output_interface(index)
                .scope(RouteScope::Link)
                .table_id(table_of(bits))
                .protocol(TUNNEL_PROTOCOL)
                .build();
            let added = self.executor.block_on(self.handle.route().add(message).execute());
            added.map_err(|error| refused(error.to_string()))?;
            changed.added.push(*destination);
        }
        Ok(changed)
    }

    /// Whether no route is in the table of default routes into tunnels.
    pub(crate) fn has_no_exit(&self) -> Result<bool, StartError> {
        let mut routes = self.all_routes()?.into_iter().filter_map(|route| read_prefix(&route));
        Ok(!routes.any(|prefix| prefix.table == EXIT_TABLE))
    }

    /// All routes of this network namespace.
    fn all_routes(&self) -> Result<Vec<RouteMessage>, StartError> {
        let all = [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ];
        let read = self.executor.block_on(async {
            let mut found = Vec::new();
            for message in all {
                let mut routes = pin!(self.handle.route().get(message).execute());
                while let Some(route) = routes.next().await {
                    found.push(route?);
                }
            }
            Ok::<_, Error>(found)
        });
        read.map_err(|error| StartError::Netlink { reason: error.to_string() })
    }
}

/// The table of a route into a tunnel with a prefix of this length: default routes have their own,
/// so that they need not replace those of the host.
fn table_of(bits: u8) -> u32 {
    if bits == 0 { EXIT_TABLE } else { u32::from(RouteHeader::RT_TABLE_MAIN) }
}

/// Destinations of routes that were added and removed.
#[derive(Default, Debug)]
pub(crate) struct Changed {
    pub(crate) added: Vec<Address>,
    pub(crate) removed: Vec<Address>,
}

/// A route that this program has added.
struct Installed {
    destination: Address,
    route: RouteMessage,
}

/// The destination of an ordinary route; excludes those of this host itself and those that no route
/// by another interface could lead to.
fn read_prefix(message: &RouteMessage) -> Option<Prefix> {
    let mut table = u32::from(message.header.table);
    let mut address = match message.header.address_family {
        AddressFamily::Inet => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(v4)) => address = IpAddr::V4(*v4),
            RouteAttribute::Destination(RouteAddress::Inet6(v6)) => address = IpAddr::V6(*v6),
            RouteAttribute::Table(id) => table = *id,
            _ => {}
        }
    }
    let is_local = match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unicast_link_local(),
    };
    let is_ordinary = matches!(message.header.kind, RouteType::Unicast | RouteType::Unreachable);
    let bits = message.header.destination_prefix_length;
    (is_ordinary && !is_local).then_some(Prefix { address, bits, table })
}

/// The interfaces that a route leads to.
fn read_interfaces(message: &RouteMessage) -> impl Iterator<Item = u32> + '_ {
    message.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    })
}
