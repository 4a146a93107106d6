//! Addresses of this host's interfaces that Linux uses as source addresses.

use crate::Link;
use crate::facts::{self, FactsError, shares_prefix};
use crate::netlink::all;
use rtnetlink::packet_route::address::{AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::route::{RouteAttribute, RouteFlags, RouteHeader, RouteMessage};
use rtnetlink::{Error, Handle, RouteMessageBuilder};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Interfaces by name, each with its addresses and the lengths of their prefixes.
pub type OwnAddresses = BTreeMap<String, Vec<(IpAddr, u8)>>;

/// Addresses that Linux does not use by default: the second address of an IPv4 subnet, a temporary
/// IPv6 address (the same bit), a deprecated one, and a duplicate.
const PASSED_OVER: AddressHeaderFlags = AddressHeaderFlags::Secondary
    .union(AddressHeaderFlags::Deprecated)
    .union(AddressHeaderFlags::Dadfailed);

/// Every interface in the network namespace of the calling thread, and its addresses except those
/// that source address selection ignores.
///
/// # Errors
///
/// Linux does not answer queries about its interfaces.
pub fn own_addresses() -> Result<OwnAddresses, FactsError> {
    facts::with_handle(async |handle| look(&handle, is_sent_from).await)
}

/// The same with all addresses of each interface.
///
/// # Errors
///
/// Linux does not answer queries about its interfaces.
pub fn all_own_addresses() -> Result<OwnAddresses, FactsError> {
    facts::with_handle(async |handle| look(&handle, |_| true).await)
}

/// Table of default routes into tunnels. A test of the daemon compares it with that of the runtime.
pub const EXIT_TABLE: u32 = 9426;

/// The interface of Linux's route to an address, or of its IPv4 default route; none if there is no
/// route. A default route into a tunnel is none: packets of links do not take it, but the default
/// route of the host.
///
/// # Errors
///
/// Linux does not answer queries about its interfaces.
pub fn outgoing(to: Option<IpAddr>) -> Result<Option<String>, FactsError> {
    facts::with_handle(async |handle| {
        let found = match to {
            Some(to) => route_to(&handle, to).await,
            None => None,
        };
        let route = match (to, found) {
            (Some(_), None) => None,
            (Some(_), Some(route)) if table(&route) != EXIT_TABLE => Some(route),
            (Some(to), Some(_)) => default_route(&handle, to.is_ipv4()).await,
            (None, _) => default_route(&handle, true).await,
        };
        let index = route.as_ref().and_then(interface);
        let links = all(handle.link().get().execute(), usize::MAX).await?;
        let faces = links.iter().filter_map(facts::face);
        Ok(faces.into_iter().find(|face| Some(face.index) == index).map(|face| face.name))
    })
}

/// Linux's route to an address. Without one Linux answers with an error.
async fn route_to(handle: &Handle, to: IpAddr) -> Option<RouteMessage> {
    let mut message = match to {
        IpAddr::V4(to) => RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(to, 32).build(),
        IpAddr::V6(to) => {
            RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(to, 128).build()
        }
    };
    // Otherwise Linux names the main table, whichever has the route.
    message.header.flags |= RouteFlags::LookupTable;
    all(handle.route().get(message).execute(), 1).await.ok()?.pop()
}

/// The default route of this host with the least metric, of the main table if it has one.
async fn default_route(handle: &Handle, is_ipv4: bool) -> Option<RouteMessage> {
    let message = match is_ipv4 {
        true => RouteMessageBuilder::<Ipv4Addr>::new().build(),
        false => RouteMessageBuilder::<Ipv6Addr>::new().build(),
    };
    let routes = all(handle.route().get(message).execute(), usize::MAX).await.ok()?;
    let is_default = |route: &RouteMessage| {
        route.header.destination_prefix_length == 0 && table(route) != EXIT_TABLE
    };
    let routes = routes.into_iter().filter(|it| is_default(it) && interface(it).is_some());
    let main = u32::from(RouteHeader::RT_TABLE_MAIN);
    routes.min_by_key(|route| (table(route) != main, metric(route)))
}

fn table(route: &RouteMessage) -> u32 {
    let table = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(id) => Some(*id),
        _ => None,
    });
    table.unwrap_or_else(|| u32::from(route.header.table))
}

fn interface(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

fn metric(route: &RouteMessage) -> u32 {
    let metrics = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    metrics.unwrap_or(0)
}

async fn look(
    handle: &Handle,
    is_wanted: fn(&AddressMessage) -> bool,
) -> Result<OwnAddresses, Error> {
    let links = all(handle.link().get().execute(), usize::MAX).await?;
    let faces = links.iter().filter_map(facts::face);
    let names: BTreeMap<u32, String> = faces.map(|face| (face.index, face.name)).collect();
    let messages = all(handle.address().get().execute(), usize::MAX).await?;
    let mut found: OwnAddresses = names.values().map(|name| (name.clone(), Vec::new())).collect();
    for message in messages.iter().filter(|message| is_wanted(message)) {
        let Some(own) = facts::address(message) else { continue };
        if let Some(addresses) = names.get(&own.index).and_then(|name| found.get_mut(name)) {
            addresses.push((own.address, own.prefix));
        }
    }
    Ok(found)
}

/// The links with Linux's source addresses where the configuration has none: one in the network of
/// a neighbour, otherwise the first of the family of the first neighbour.
pub(crate) fn with_own_addresses(links: &[Link], own: &OwnAddresses) -> Vec<Link> {
    let derived = |link: &Link| {
        let is_ipv4 = link.neighbours.first().is_none_or(IpAddr::is_ipv4);
        let all = own.get(&link.interface).map(Vec::as_slice).unwrap_or_default();
        let mut family = all.iter().filter(|(address, _)| address.is_ipv4() == is_ipv4);
        let is_near = |(address, prefix): &&(IpAddr, u8)| {
            link.neighbours.iter().any(|it| shares_prefix(*it, *address, *prefix))
        };
        let near = family.clone().find(is_near);
        near.or_else(|| family.next()).map(|(address, _)| *address)
    };
    let with = |link: &Link| Link { local: link.local.or_else(|| derived(link)), ..link.clone() };
    links.iter().map(with).collect()
}

fn is_sent_from(message: &AddressMessage) -> bool {
    !message.header.flags.intersects(PASSED_OVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_near_a_neighbour_is_that_of_a_link_which_writes_none() {
        let near: (IpAddr, u8) = ([10, 0, 2, 1].into(), 24);
        let own = [([10, 0, 1, 1].into(), 24), ("fd00::1".parse().unwrap(), 64), near];
        let own = OwnAddresses::from([("eth0".to_owned(), own.to_vec())]);
        let local = |neighbour: &str, interface: &str, written: Option<IpAddr>| {
            let neighbours = vec![neighbour.parse().unwrap()];
            let interface = interface.to_owned();
            let link = Link { interface, local: written, neighbours, ..Link::default() };
            with_own_addresses(&[link], &own)[0].local.map(|it| it.to_string())
        };
        assert_eq!(local("10.0.2.9", "eth0", None).as_deref(), Some("10.0.2.1"));
        assert_eq!(local("192.0.2.9", "eth0", None).as_deref(), Some("10.0.1.1"));
        assert_eq!(local("fd00::9", "eth0", None).as_deref(), Some("fd00::1"));
        assert_eq!(local("10.0.2.9", "eth9", None), None, "no address");
        let written = Some([10, 9, 9, 9].into());
        assert_eq!(local("10.0.2.9", "eth0", written).as_deref(), Some("10.9.9.9"));
    }

    #[test]
    fn every_interface_is_listed_and_a_second_address_of_a_subnet_is_passed_over() {
        assert!(own_addresses().expect("netlink").contains_key("lo"), "each namespace has one");
        let mut message = AddressMessage::default();
        assert!(is_sent_from(&message));
        message.header.flags = AddressHeaderFlags::Permanent;
        assert!(is_sent_from(&message));
        message.header.flags |= AddressHeaderFlags::Secondary;
        assert!(!is_sent_from(&message));
    }
}
