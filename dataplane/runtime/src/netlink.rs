//! Queries Linux over rtnetlink: interfaces, routes, the neighbour table.
//!
//! Blocking calls over a private single-threaded executor, for start and for the control thread;
//! never called by a worker. The socket belongs to the network namespace of the thread that opened
//! it, wherever it is used later.

use crate::encap::Mac;
use crate::error::StartError;
use crate::privileged::{AskError, Client};
use crate::topology::Address;
use futures_util::FutureExt;
use futures_util::stream::{Stream, StreamExt};
use recoded_xsk::{Ethtool, Queues, XdpMode};
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::link::{
    LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp, XdpAttached,
};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteVia};
use rtnetlink::{Error, Handle, LinkUnspec, MulticastGroup, RouteMessageBuilder};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

mod routes;
mod rules;

pub(crate) use routes::Prefix;
pub use rules::EXIT_TABLE;
pub(crate) use rules::{Rule, Selector};

/// Properties of an interface.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Interface {
    /// Linux's index of it.
    pub index: u32,
    /// Its Ethernet address; `None` if its packets have no Ethernet header (PPP, raw-IP modems,
    /// VPNs).
    pub mac: Option<Mac>,
    /// Largest IP packet in bytes.
    pub mtu: usize,
    /// Id of the XDP program attached to it, if any.
    pub program: Option<u32>,
    /// How that is attached; `None` if there is none, or it is offloaded to the card.
    pub mode: Option<XdpMode>,
    /// Whether it is set up (`ip link set ... up`).
    pub is_up: bool,
    /// Kind of a virtual interface (veth, bridge); `None` for hardware.
    pub kind: Option<String>,
}

impl Interface {
    /// Looks an interface up in the current network namespace. The control side uses it to find
    /// the largest symbol.
    ///
    /// # Errors
    /// [`StartError::NoSuchInterface`], [`StartError::Netlink`].
    pub fn query(name: &str) -> Result<Interface, StartError> {
        Netlink::open()?.interface(name)
    }
}

/// An entry of Linux's neighbour table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Neighbour {
    pub(crate) interface: u32,
    pub(crate) address: IpAddr,
    pub(crate) mac: Option<Mac>,
    pub(crate) state: NeighbourState,
}

/// A netlink socket and the executor that drives it.
pub(crate) struct Netlink {
    executor: tokio::runtime::Runtime,
    handle: Handle,
    ethtool: Ethtool,
    /// The process that makes changes, if not this one.
    privileged: Option<Arc<Client>>,
}

impl Netlink {
    pub(crate) fn open() -> Result<Netlink, StartError> {
        let refused = |error: std::io::Error| StartError::Netlink { reason: error.to_string() };
        let executor =
            tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(refused)?;
        let (connection, handle, _) = {
            let _inside = executor.enter();
            rtnetlink::new_connection().map_err(refused)?
        };
        executor.spawn(connection);
        let ethtool = Ethtool::open().map_err(refused)?;
        Ok(Netlink { executor, handle, ethtool, privileged: None })
    }

    /// A socket for queries; changes are left to `privileged`, if there is one.
    pub(crate) fn open_beside(privileged: Option<&Arc<Client>>) -> Result<Netlink, StartError> {
        Ok(Netlink { privileged: privileged.cloned(), ..Netlink::open()? })
    }

    /// The process with the privileges that this one lacks.
    pub(crate) fn privileged(&self) -> Option<&Arc<Client>> {
        self.privileged.as_ref()
    }

    /// Looks an interface up by name.
    pub(crate) fn interface(&self, name: &str) -> Result<Interface, StartError> {
        let message = self.link(name)?;
        let message =
            message.ok_or_else(|| StartError::NoSuchInterface { interface: name.to_owned() })?;
        Ok(read_interface(&message))
    }

    /// Names of the interfaces whose packets are passed to this one: members of a bond, or the
    /// hardware behind a virtual card.
    pub(crate) fn members(&self, interface: u32) -> Result<Vec<String>, StartError> {
        let dumped = self.executor.block_on(async {
            let mut names = Vec::new();
            let mut answers = pin!(self.handle.link().get().execute());
            while let Some(message) = answers.next().await {
                names.extend(read_member(&message?, interface));
            }
            Ok::<_, Error>(names)
        });
        dumped.map_err(|error| StartError::Netlink { reason: error.to_string() })
    }

    /// The active queues of an interface. The privileged process queries them if there is one,
    /// since this one must not query drivers.
    pub(crate) fn queues(&self, name: &str) -> Result<Queues, StartError> {
        match &self.privileged {
            Some(privileged) => {
                privileged.queues(name).map_err(|error| refused("its queues", &error))
            }
            None => self.ethtool.queues(name).map_err(|error| StartError::Netlink {
                reason: format!("queues of {name}: {error}"),
            }),
        }
    }

    /// Whether an interface of any kind has this name.
    pub(crate) fn exists(&self, name: &str) -> Result<bool, StartError> {
        Ok(self.link(name)?.is_some())
    }

    fn link(&self, name: &str) -> Result<Option<LinkMessage>, StartError> {
        let request = self.handle.link().get().match_name(name).execute();
        match self.first(request) {
            Ok(message) => Ok(message),
            Err(Error::NetlinkError(error)) if error.raw_code() == -ENODEV => Ok(None),
            Err(error) => Err(StartError::Netlink { reason: error.to_string() }),
        }
    }

    /// Limits how many packets Linux may pass to an interface as one.
    pub(crate) fn limit_segments(&self, name: &str, segments: u32) -> Result<(), Error> {
        let message = LinkUnspec::new_with_name(name)
            .append_extra_attribute(LinkAttribute::GsoMaxSegs(segments))
            .build();
        self.executor.block_on(self.handle.link().set(message).execute())
    }

    /// Removes an interface.
    pub(crate) fn delete(&self, name: &str) -> Result<(), StartError> {
        let Some(message) = self.link(name)? else { return Ok(()) };
        let deleted =
            self.executor.block_on(self.handle.link().del(message.header.index).execute());
        deleted.map_err(|error| StartError::Netlink { reason: error.to_string() })
    }

    /// Adds an address to an interface, unless it has it.
    pub(crate) fn add_address(&self, name: &str, address: Address) -> Result<(), StartError> {
        let Some(message) = self.link(name)? else { return Ok(()) };
        let mut request = self.handle.address().add(message.header.index, address.0, address.1);
        if address.0.is_ipv6() {
            // No other host on a tunnel can have it: it is usable at once.
            request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        let added = self.executor.block_on(request.replace().execute());
        added.map_err(|error| match error {
            Error::NetlinkError(error)
                if address.0.is_ipv6() && IPV6_OFF.contains(&-error.raw_code()) =>
            {
                StartError::NoIpv6 { tunnel: name.to_owned(), address: address.0 }
            }
            error => {
                let (address, prefix) = address;
                let reason = format!("{name} does not get the address {address}/{prefix}: {error}");
                StartError::Netlink { reason }
            }
        })
    }

    /// Removes an address from an interface, if it has it.
    pub(crate) fn remove_address(&self, name: &str, address: Address) -> Result<(), StartError> {
        let Some(message) = self.link(name)? else { return Ok(()) };
        let (index, (address, prefix)) = (message.header.index, address);
        let removed = self.executor.block_on(async {
            let request = self.handle.address().get().set_link_index_filter(index);
            let request = request.set_address_filter(address).set_prefix_length_filter(prefix);
            let mut found = pin!(request.execute());
            let mut removed = Vec::new();
            while let Some(message) = found.next().await {
                removed.push(message?);
            }
            for message in removed {
                self.handle.address().del(message).execute().await?;
            }
            Ok::<_, Error>(())
        });
        removed.map_err(|error| StartError::Netlink { reason: error.to_string() })
    }

    /// Sets or removes the carrier of an interface.
    pub(crate) fn set_carrier(&self, name: &str, carrier: bool) -> Result<(), StartError> {
        if let Some(privileged) = &self.privileged {
            let set = privileged.set_carrier(name, carrier);
            return set.map_err(|error| refused("a carrier", &error));
        }
        let message = LinkUnspec::new_with_name(name)
            .append_extra_attribute(LinkAttribute::Carrier(carrier.into()))
            .build();
        let set = self.executor.block_on(self.handle.link().set(message).execute());
        set.map_err(|error| StartError::Netlink { reason: error.to_string() })
    }

    /// Sets the MTU of an interface.
    pub(crate) fn set_mtu(&self, name: &str, mtu: u16) -> Result<(), StartError> {
        if let Some(privileged) = &self.privileged {
            return privileged.set_mtu(name, mtu).map_err(|error| refused("an MTU", &error));
        }
        let message = LinkUnspec::new_with_name(name).mtu(mtu.into()).build();
        let set = self.executor.block_on(self.handle.link().set(message).execute());
        set.map_err(|error| StartError::Netlink { reason: error.to_string() })
    }

    /// The whole neighbour table.
    pub(crate) fn neighbours(&self) -> Result<Vec<Neighbour>, Error> {
        self.executor.block_on(async {
            let mut table = Vec::new();
            let mut answers = pin!(self.handle.neighbours().get().execute());
            while let Some(message) = answers.next().await {
                table.extend(read_neighbour(&message?));
            }
            Ok(table)
        })
    }

    /// Makes Linux resolve a neighbour, or verify a stale entry.
    ///
    /// Not for permanent entries: `NTF_USE` would turn them into ordinary ones.
    pub(crate) fn resolve(&self, interface: u32, address: IpAddr) -> Result<(), StartError> {
        if let Some(privileged) = &self.privileged {
            let asked = privileged.resolve(interface, address);
            return asked.map_err(|error| refused("a neighbour", &error));
        }
        let request = self
            .handle
            .neighbours()
            .add(interface, address)
            .replace()
            .state(NeighbourState::None)
            .flags(NeighbourFlags::Use);
        let asked = self.executor.block_on(request.execute());
        asked.map_err(|error| StartError::Netlink { reason: error.to_string() })
    }

    /// Deletes the address of a neighbour and requests it by a new broadcast.
    pub(crate) fn resolve_again(&self, interface: u32, address: IpAddr) -> Result<(), StartError> {
        if let Some(privileged) = &self.privileged {
            let asked = privileged.resolve_again(interface, address);
            return asked.map_err(|error| refused("a neighbour", &error));
        }
        let failed = NeighbourState::Failed;
        let request = self.handle.neighbours().add(interface, address).replace().state(failed);
        let forgotten = self.executor.block_on(request.execute());
        forgotten.map_err(|error| StartError::Netlink { reason: error.to_string() })?;
        self.resolve(interface, address)
    }

    /// The gateway towards `address` out of `interface`; `None` when it is on-link, or when Linux
    /// knows no route and it can only be on-link.
    pub(crate) fn gateway(&self, interface: u32, address: IpAddr) -> Option<IpAddr> {
        read_gateway(&self.route(interface, address)?)
    }

    /// The source address that Linux uses towards `address` out of `interface`. It may belong to
    /// another interface.
    pub(crate) fn source(&self, interface: u32, address: IpAddr) -> Option<IpAddr> {
        read_source(&self.route(interface, address)?)
    }

    fn route(&self, interface: u32, address: IpAddr) -> Option<RouteMessage> {
        let prefix_bits = if address.is_ipv4() { 32 } else { 128 };
        let message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(address, prefix_bits)
            .ok()?
            .output_interface(interface)
            .build();
        self.first(self.handle.route().get(message).execute()).ok()?
    }

    /// The addresses of an interface that can be sent from, in Linux's order of preference.
    pub(crate) fn own_addresses(&self, interface: u32) -> Result<Vec<Address>, StartError> {
        let found = self.executor.block_on(async {
            let request = self.handle.address().get().set_link_index_filter(interface);
            let (mut found, mut messages) = (Vec::new(), pin!(request.execute()));
            while let Some(message) = messages.next().await {
                found.extend(read_own(&message?));
            }
            Ok::<_, Error>(found)
        });
        let mut found = found.map_err(|error| StartError::Netlink { reason: error.to_string() })?;
        found.sort_by_key(|(is_passed_over, _)| *is_passed_over);
        Ok(found.into_iter().map(|(_, address)| address).collect())
    }

    /// First reply to a request; the others are read and dropped.
    fn first<T>(&self, answers: impl Stream<Item = Result<T, Error>>) -> Result<Option<T>, Error> {
        self.executor.block_on(async {
            let mut answers = pin!(answers);
            let first = answers.next().await.transpose()?;
            while answers.next().await.is_some() {}
            Ok(first)
        })
    }
}

/// Reports that interfaces or their addresses appeared, disappeared or changed. It does not report
/// which: the caller queries that.
pub(crate) struct LinkEvents {
    executor: tokio::runtime::Runtime,
    messages: Pin<Box<dyn Stream<Item = ()> + Send>>,
}

impl LinkEvents {
    pub(crate) fn open() -> Result<LinkEvents, StartError> {
        let refused = |error: std::io::Error| StartError::Netlink { reason: error.to_string() };
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(refused)?;
        let (connection, _, messages) = {
            let _inside = executor.enter();
            let groups =
                [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
            rtnetlink::new_multicast_connection(&groups).map_err(refused)?
        };
        executor.spawn(connection);
        Ok(LinkEvents { executor, messages: Box::pin(messages.map(|_| ())) })
    }

    /// Waits for the next event, up to `patience`. False when `stop` came first.
    pub(crate) fn wait(&mut self, patience: Duration, stop: &mut oneshot::Receiver<()>) -> bool {
        let LinkEvents { executor, messages } = self;
        executor.block_on(async {
            tokio::select! {
                biased;
                _ = stop => return false,
                // Without messages the timer decides: an overflowed socket reports no more events.
                Some(_) = messages.next() => {}
                () = tokio::time::sleep(patience) => {}
            }
            while let Some(Some(_)) = messages.next().now_or_never() {}
            true
        })
    }
}

impl LinkEvents {
    /// Waits for `pause`. False when `stop` came first.
    pub(crate) fn wait_quietly(&self, pause: Duration, stop: &mut oneshot::Receiver<()>) -> bool {
        let waited = async { tokio::time::timeout(pause, stop).await };
        self.executor.block_on(waited).is_err()
    }
}

fn refused(what: &str, error: &AskError) -> StartError {
    StartError::Privileged { what: what.to_owned(), reason: error.to_string() }
}

fn read_interface(message: &LinkMessage) -> Interface {
    let is_up = message.header.flags.contains(LinkFlags::Up);
    let index = message.header.index;
    let mut interface = Interface { index, is_up, ..Interface::default() };
    // The loopback interface uses Ethernet frames with zero addresses. Others have their own kind
    // of address: a GRE tunnel the IPv4 address of its end.
    let is_ethernet =
        matches!(message.header.link_layer_type, LinkLayerType::Ether | LinkLayerType::Loopback);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Address(address) if is_ethernet => {
                interface.mac = address.as_slice().try_into().ok();
            }
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu as usize,
            LinkAttribute::LinkInfo(infos) => interface.kind = read_kind(infos),
            LinkAttribute::Xdp(xdp) => {
                interface.program = read_program(xdp);
                interface.mode = read_mode(xdp);
            }
            _ => {}
        }
    }
    interface
}

/// The name of an interface, if its packets are passed to `controller`.
fn read_member(message: &LinkMessage, controller: u32) -> Option<String> {
    let is_member = message.attributes.contains(&LinkAttribute::Controller(controller));
    let name = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    name.filter(|_| is_member)
}

fn read_kind(infos: &[LinkInfo]) -> Option<String> {
    infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

fn read_program(attributes: &[LinkXdp]) -> Option<u32> {
    attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id)
        | LinkXdp::DrvProgId(id)
        | LinkXdp::SkbProgId(id)
        | LinkXdp::HwProgId(id)
            if *id != 0 =>
        {
            Some(*id)
        }
        _ => None,
    })
}

fn read_mode(attributes: &[LinkXdp]) -> Option<XdpMode> {
    attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::Attached(XdpAttached::Driver) => Some(XdpMode::Native),
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(XdpMode::Generic),
        _ => None,
    })
}

fn read_neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some(IpAddr::V4(*v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some(IpAddr::V6(*v6));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    let header = &message.header;
    Some(Neighbour { interface: header.ifindex, address: address?, mac, state: header.state })
}

/// An address that can be sent from, and whether Linux gives it low priority: a second address of
/// an IPv4 subnet, a temporary IPv6 address (the same bit), a deprecated one.
fn read_own(message: &AddressMessage) -> Option<(bool, Address)> {
    let flags = message.header.flags;
    if flags.intersects(AddressHeaderFlags::Dadfailed | AddressHeaderFlags::Tentative) {
        return None;
    }
    let passed_over = AddressHeaderFlags::Secondary | AddressHeaderFlags::Deprecated;
    let find = |is_local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) if is_local => Some(*address),
            AddressAttribute::Address(address) if !is_local => Some(*address),
            _ => None,
        })
    };
    // On a point-to-point link, `Address` is the peer's.
    let address = find(true).or_else(|| find(false))?;
    Some((flags.intersects(passed_over), (address, message.header.prefix_len)))
}

fn read_source(message: &RouteMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::PrefSource(RouteAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        RouteAttribute::PrefSource(RouteAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })
}

fn read_gateway(message: &RouteMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(v4))
        | RouteAttribute::Via(RouteVia::Inet(v4)) => Some(IpAddr::V4(*v4)),
        RouteAttribute::Gateway(RouteAddress::Inet6(v6))
        | RouteAttribute::Via(RouteVia::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })
}

/// Linux's "no such device".
const ENODEV: i32 = 19;
/// EACCES, EOPNOTSUPP and EAFNOSUPPORT: IPv6 is disabled on an interface or in Linux.
const IPV6_OFF: [i32; 3] = [13, 95, 97];

#[cfg(test)]
mod tests;
