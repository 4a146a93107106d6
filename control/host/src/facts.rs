//! State of this host as reported by Linux: interfaces, addresses, routes, limits, capabilities.

use crate::netlink::all;
use crate::surroundings::{self, Surroundings};
use crate::{HostPlan, Link, unit};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Error, Handle, RouteMessageBuilder};
use rustix::net::{AddressFamily as SocketFamily, SocketType, socket};
use rustix::process::{Resource, getrlimit};
use rustix::system::uname;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Routes that are examined: a host with a full Internet table has a million.
const ROUTES_MAX: usize = 4_000_000;

/// Linux does not answer.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask Linux about its interfaces ({0}): check that netlink is permitted")]
pub struct FactsError(String);

/// State of a host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    /// Interfaces.
    pub faces: Vec<Face>,
    /// Addresses of interfaces.
    pub addresses: Vec<Address>,
    /// Routes, if they were needed.
    pub routes: Vec<Route>,
    /// Bytes that may be locked in memory; `None` if unlimited.
    pub memlock_bytes: Option<u64>,
    /// The same for the service of the package; `None` also if systemd has no such unit.
    pub unit_memlock_bytes: Option<u64>,
    /// Largest receive and send buffers of a socket for an unprivileged program, in bytes; `None`
    /// if unknown.
    pub socket_bytes_max: [Option<u64>; 2],
    /// Effective capabilities, as bits.
    pub capabilities: u64,
    /// Version of Linux.
    pub linux: (u32, u32),
    /// Whether AF_XDP sockets are supported; `None` if unknown without privileges.
    pub has_af_xdp: Option<bool>,
    /// Whether TUN devices are supported.
    pub has_tun: bool,
    /// Firewall, ports, return paths, connection tracking, offloads.
    pub surroundings: Surroundings,
}

/// An interface.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Face {
    /// Its name.
    pub name: String,
    /// Its index in Linux.
    pub index: u32,
    /// Whether it carries Ethernet frames.
    pub is_ethernet: bool,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether it has a carrier.
    pub has_carrier: bool,
    /// Its MTU.
    pub mtu: u32,
    /// The XDP program on it.
    pub program: Option<u32>,
    /// Whether it is a bond.
    pub is_bond: bool,
    /// For a macvlan, the index of the interface below it.
    pub macvlan_parent: Option<u32>,
}

/// An address of an interface.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The interface.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
}

/// A route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The outgoing interface.
    pub index: u32,
    /// Destination addresses.
    pub to: IpAddr,
    /// Length of their prefix.
    pub prefix: u8,
}

/// Whether two addresses share a prefix.
pub fn shares_prefix(left: IpAddr, right: IpAddr, prefix: u8) -> bool {
    let differ = match (left, right) {
        (IpAddr::V4(left), IpAddr::V4(right)) => {
            (u128::from(u32::from(left) ^ u32::from(right)) << 96, 32)
        }
        (IpAddr::V6(left), IpAddr::V6(right)) => (u128::from(left) ^ u128::from(right), 128),
        _ => return false,
    };
    let (differ, bits) = differ;
    differ.leading_zeros() >= u32::from(prefix).min(bits)
}

/// Collects the facts that the rules need.
pub fn ask(plan: &HostPlan) -> Result<Facts, FactsError> {
    let mut facts = with_handle(async |handle| interfaces(plan, &handle).await)?;
    facts.memlock_bytes = getrlimit(Resource::Memlock).current;
    facts.unit_memlock_bytes = unit::memlock_bytes();
    facts.socket_bytes_max = ["rmem_max", "wmem_max"].map(socket_bytes_max);
    facts.capabilities = capabilities();
    facts.linux = version();
    facts.has_af_xdp = has_af_xdp();
    facts.has_tun = Path::new("/dev/net/tun").exists();
    facts.surroundings.look(plan, &facts.faces);
    Ok(facts)
}

/// Queries Linux over netlink, with a separate executor.
pub fn with_handle<T>(ask: impl AsyncFnOnce(Handle) -> Result<T, Error>) -> Result<T, FactsError> {
    let failed = |error: std::io::Error| FactsError(error.to_string());
    let executor =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    executor.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(failed)?;
        tokio::spawn(connection);
        ask(handle).await.map_err(|error| FactsError(error.to_string()))
    })
}

/// One of Linux's limits of socket buffers.
fn socket_bytes_max(name: &str) -> Option<u64> {
    std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?.trim().parse().ok()
}

async fn interfaces(plan: &HostPlan, handle: &Handle) -> Result<Facts, Error> {
    let mut facts = Facts::default();
    let links = all(handle.link().get().execute(), usize::MAX).await?;
    facts.faces = links.iter().filter_map(face).collect();
    let addresses = all(handle.address().get().execute(), usize::MAX).await?;
    facts.addresses = addresses.iter().filter_map(address).collect();
    if plan.links.iter().any(|link| needs_routes(link, &facts)) {
        let v4 = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let v6 = RouteMessageBuilder::<Ipv6Addr>::new().build();
        for message in [v4, v6] {
            let routes = all(handle.route().get(message).execute(), ROUTES_MAX).await?;
            facts.routes.extend(routes.iter().flat_map(routes_of));
        }
    }
    facts.surroundings.return_paths = surroundings::return_paths(plan, handle).await;
    Ok(facts)
}

/// Whether a neighbour of a link is outside all networks of its interface.
fn needs_routes(link: &Link, facts: &Facts) -> bool {
    let face = facts.faces.iter().find(|face| face.name == link.interface);
    let is_on = |own: &&Address| face.is_some_and(|face| face.index == own.index);
    let is_near = |address: &IpAddr| {
        let mut own = facts.addresses.iter().filter(is_on);
        own.any(|own| shares_prefix(own.address, *address, own.prefix))
    };
    !link.neighbours.iter().all(is_near)
}

/// The interface in a message.
pub fn face(message: &LinkMessage) -> Option<Face> {
    let kind = message.header.link_layer_type;
    let flags = message.header.flags;
    let mut face = Face {
        index: message.header.index,
        is_ethernet: matches!(kind, LinkLayerType::Ether | LinkLayerType::Loopback),
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        ..Face::default()
    };
    let (mut parent, mut is_macvlan) = (None, false);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => face.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => face.mtu = *mtu,
            LinkAttribute::Xdp(xdp) => face.program = program(xdp),
            LinkAttribute::LinkInfo(infos) => {
                let is = |kind: InfoKind| infos.contains(&LinkInfo::Kind(kind));
                face.is_bond = is(InfoKind::Bond);
                is_macvlan = is(InfoKind::MacVlan) || is(InfoKind::MacVtap);
            }
            LinkAttribute::Link(index) => parent = Some(*index),
            _ => {}
        }
    }
    face.macvlan_parent = parent.filter(|_| is_macvlan);
    (!face.name.is_empty()).then_some(face)
}

fn program(attributes: &[LinkXdp]) -> Option<u32> {
    attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id)
        | LinkXdp::DrvProgId(id)
        | LinkXdp::SkbProgId(id)
        | LinkXdp::HwProgId(id) => Some(*id).filter(|id| *id != 0),
        _ => None,
    })
}

/// The address in a message.
pub fn address(message: &AddressMessage) -> Option<Address> {
    let find = |local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) if local => Some(*address),
            AddressAttribute::Address(address) if !local => Some(*address),
            _ => None,
        })
    };
    // On a point-to-point link, `Address` is the peer's.
    let address = find(true).or_else(|| find(false))?;
    Some(Address { index: message.header.index, address, prefix: message.header.prefix_len })
}

fn routes_of(message: &RouteMessage) -> Vec<Route> {
    if message.header.kind != RouteType::Unicast {
        return Vec::new();
    }
    let (mut to, mut out) = (None, Vec::new());
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(v4)) => to = Some(IpAddr::V4(*v4)),
            RouteAttribute::Destination(RouteAddress::Inet6(v6)) => to = Some(IpAddr::V6(*v6)),
            RouteAttribute::Oif(index) => out.push(*index),
            RouteAttribute::MultiPath(hops) => {
                out.extend(hops.iter().map(|hop| hop.interface_index))
            }
            _ => {}
        }
    }
    // The default route has no destination, and on a point-to-point link no gateway either.
    let any = match message.header.address_family {
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let prefix = message.header.destination_prefix_length;
    out.into_iter().map(|index| Route { index, to: to.unwrap_or(any), prefix }).collect()
}

fn capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// Major and minor number of Linux; zeros if unknown.
fn version() -> (u32, u32) {
    let name = uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (next(), next())
}

fn has_af_xdp() -> Option<bool> {
    match socket(SocketFamily::XDP, SocketType::RAW, None) {
        Ok(_) => Some(true),
        Err(rustix::io::Errno::AFNOSUPPORT) => Some(false),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_route_between_two_points_has_no_gateway_and_is_of_its_family() {
        for (family, any) in [(AddressFamily::Inet, "0.0.0.0"), (AddressFamily::Inet6, "::")] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            message.header.kind = RouteType::Unicast;
            message.attributes = vec![RouteAttribute::Oif(7)];
            let to = any.parse().unwrap();
            assert_eq!(routes_of(&message), [Route { index: 7, to, prefix: 0 }]);
        }
    }

    /// A network of another interface does not count.
    #[test]
    fn routes_are_asked_for_where_a_neighbour_is_in_no_network_of_its_own_interface() {
        let face = |name: &str, index| Face { name: name.into(), index, ..Face::default() };
        let address =
            |index, address: [u8; 4], prefix| Address { index, address: address.into(), prefix };
        let facts = Facts {
            faces: vec![face("eth0", 2), face("ppp0", 3)],
            addresses: vec![address(2, [10, 0, 0, 1], 8), address(3, [10, 9, 0, 1], 32)],
            ..Facts::default()
        };
        let link = |interface: &str| Link {
            name: "up".into(),
            interface: interface.into(),
            local: None,
            neighbours: vec![[10, 9, 0, 2].into()],
            sockets: crate::Sockets::Udp,
        };
        assert!(!needs_routes(&link("eth0"), &facts) && needs_routes(&link("ppp0"), &facts));
    }
}
