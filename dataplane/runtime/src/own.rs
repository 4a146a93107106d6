//! This node's address on a link whose configuration leaves it out (`local` is unspecified):
//! Linux's source address towards the neighbours of the link.
//!
//! Looked up when sockets are opened and whenever an address changes (`links`). UDP sockets are
//! bound to no address, so Linux follows by itself; an XDP program accepts packets for one address
//! and is replaced. A link without an address is not used: Linux would send from an address of
//! another interface, and neighbours would follow it there.

use crate::error::StartError;
use crate::netlink::{Interface, Netlink};
use crate::topology::{Address, Topology, is_known};
use std::net::IpAddr;

/// The reason why a link has no address to send from.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Lacks {
    /// Its interface has no address.
    #[error("{interface} has no {family} address: give it one")]
    Address { interface: String, family: &'static str },
    /// Its interface has the address of a neighbour.
    #[error("{interface} has the address of the neighbour {neighbour}: correct one of the two")]
    Neighbour { interface: String, neighbour: IpAddr },
}

/// This node's address on a link: the configured one, or that of its interface.
///
/// # Errors
/// [`StartError::NoOwnAddress`], [`StartError::Netlink`].
pub(crate) fn address(
    topology: &Topology,
    link: usize,
    netlink: &Netlink,
    interface: &Interface,
) -> Result<IpAddr, StartError> {
    let config = &topology.links[link];
    if !config.local.is_unspecified() {
        return Ok(config.local);
    }
    let own = netlink.own_addresses(interface.index)?;
    let hops = topology.hops.iter().filter(|hop| hop.link == link && is_known(hop.address));
    let hops: Vec<IpAddr> = hops.map(|hop| hop.address).collect();
    let preferred = hops.first().and_then(|hop| netlink.source(interface.index, *hop));
    let is_ipv4 = config.local.is_ipv4();
    let chosen = choose(&config.interface, &own, &hops, is_ipv4, preferred);
    chosen.map_err(|lacks| StartError::NoOwnAddress { reason: lacks.to_string() })
}

/// The address that Linux prefers, if the interface has it; otherwise the first.
fn choose(
    interface: &str,
    own: &[Address],
    hops: &[IpAddr],
    is_ipv4: bool,
    preferred: Option<IpAddr>,
) -> Result<IpAddr, Lacks> {
    let is_own = |hop: &&IpAddr| own.iter().any(|(address, _)| address == *hop);
    if let Some(neighbour) = hops.iter().find(is_own).copied() {
        return Err(Lacks::Neighbour { interface: interface.to_owned(), neighbour });
    }
    // Neighbours behind a router have no route to a link-local address.
    let is_near = !hops.is_empty() && hops.iter().all(|hop| is_link_local(*hop));
    let suits = |address: IpAddr| {
        address.is_ipv4() == is_ipv4 && (is_ipv4 || is_link_local(address) == is_near)
    };
    let suitable: Vec<Address> = own.iter().filter(|(own, _)| suits(*own)).copied().collect();
    let found = suitable.iter().find(|(own, _)| Some(*own) == preferred);
    let family = if is_ipv4 { "IPv4" } else { "IPv6" };
    let lacks = || Lacks::Address { interface: interface.to_owned(), family };
    found.or(suitable.first()).map(|(address, _)| *address).ok_or_else(lacks)
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(texts: &[&str]) -> Vec<Address> {
        let address = |text: &&str| {
            let (address, prefix) = text.split_once('/').expect("a prefix");
            (address.parse().expect("an address"), prefix.parse().expect("a length"))
        };
        texts.iter().map(address).collect()
    }

    fn chosen(own_texts: &[&str], hops: &[&str], preferred: Option<&str>) -> Result<String, Lacks> {
        let hops: Vec<IpAddr> = hops.iter().map(|hop| hop.parse().expect("an address")).collect();
        let is_ipv4 = hops.first().is_none_or(IpAddr::is_ipv4);
        let preferred = preferred.map(|it| it.parse().expect("an address"));
        choose("eth0", &own(own_texts), &hops, is_ipv4, preferred).map(|it| it.to_string())
    }

    #[test]
    fn address_is_the_one_linux_prefers_or_the_first_of_its_family() {
        let two = &["192.0.2.1/24", "10.0.1.2/24"];
        assert_eq!(chosen(two, &["10.0.1.1"], Some("10.0.1.2")).as_deref(), Ok("10.0.1.2"));
        assert_eq!(chosen(two, &["203.0.113.9"], None).as_deref(), Ok("192.0.2.1"));
        // Linux prefers an address of another interface.
        assert_eq!(chosen(two, &["10.0.1.1"], Some("10.99.0.1")).as_deref(), Ok("192.0.2.1"));
        assert_eq!(chosen(two, &[], None).as_deref(), Ok("192.0.2.1"));
        let six = &["fe80::1/64", "2001:db8:1::1/64"];
        assert_eq!(chosen(six, &["2001:db8::9"], None).as_deref(), Ok("2001:db8:1::1"));
        assert_eq!(chosen(six, &["fe80::9"], None).as_deref(), Ok("fe80::1"));
    }

    #[test]
    fn interface_without_a_suitable_address_or_with_a_neighbours_is_not_used() {
        let lacks = |family| Err(Lacks::Address { interface: "eth0".into(), family });
        assert_eq!(chosen(&[], &["10.0.1.1"], Some("10.99.0.1")), lacks("IPv4"));
        assert_eq!(chosen(&["fd00::1/64"], &["10.0.1.1"], None), lacks("IPv4"));
        assert_eq!(chosen(&["fe80::1/64"], &["2001:db8::9"], None), lacks("IPv6"));
        let neighbour = "10.0.1.1".parse().expect("an address");
        let taken = Lacks::Neighbour { interface: "eth0".into(), neighbour };
        assert_eq!(chosen(&["10.0.1.1/24"], &["10.0.1.1"], None), Err(taken));
    }
}
