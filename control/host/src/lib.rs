//! Detects conditions on this host that prevent a configuration from working, and suggests fixes.
//!
//! Place: off the packet path, called by `recoded --check` and `recodectl doctor`. Changes nothing.

#![forbid(unsafe_code)]

mod finding;

mod netlink;

mod facts;

mod surroundings;

mod own;

pub mod firewall;

mod rules;

mod exit;

mod fit;

mod unit;

pub use facts::{Address, Face, Facts, FactsError, Route, shares_prefix};
pub use finding::{Finding, Level};
pub use own::{EXIT_TABLE, OwnAddresses, all_own_addresses, outgoing, own_addresses};
pub use rules::{LINUX_MIN_XDP, judge};
pub use surroundings::{Holder, ReturnPath, Surroundings, Tracking};

use std::net::IpAddr;

/// Requirements of a configuration on its host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HostPlan {
    /// Links.
    pub links: Vec<Link>,
    /// Names of tunnels.
    pub tunnels: Vec<String>,
    /// Addresses of tunnels.
    pub networks: Vec<Network>,
    /// UDP port of coded packets, if known.
    pub port: Option<u16>,
    /// Bytes of packet buffers, which are locked in memory.
    pub locked_bytes: u64,
    /// Requested buffer size of each UDP socket in bytes, if known.
    pub socket_bytes: Option<u64>,
    /// The longest IP packet received, if known.
    pub packet_bytes_max: Option<u32>,
    /// Tunnels whose other ends send to any destination by this host.
    pub exits: Vec<Exit>,
    /// Whether a daemon runs with this configuration: its tunnels and programs then exist.
    pub is_running: bool,
}

/// An address of a tunnel, with the network reachable through it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Name of the tunnel.
    pub tunnel: String,
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
}

/// A tunnel whose other end sends to any destination by this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exit {
    /// Name of the tunnel.
    pub tunnel: String,
    /// Families: IPv4, IPv6.
    pub families: [bool; 2],
}

/// An interface with its neighbours.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Link {
    /// Name in the configuration.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// The local address on it.
    pub local: Option<IpAddr>,
    /// Next hops and upstream nodes.
    pub neighbours: Vec<IpAddr>,
    /// Socket type that carries its packets.
    pub sockets: Sockets,
}

/// Socket types of a link.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Sockets {
    /// AF_XDP sockets.
    Xdp,
    /// UDP sockets: no XDP support needed.
    Udp,
    /// AF_XDP sockets if available, otherwise UDP sockets.
    #[default]
    Either,
}

/// Checks this host, in the network namespace of the calling thread.
///
/// # Errors
///
/// Linux does not answer queries about its interfaces.
pub fn check(plan: &HostPlan) -> Result<Vec<Finding>, FactsError> {
    let known = plan.links.iter().map(|link| Link {
        neighbours: link.neighbours.iter().copied().filter(|it| !is_placeholder(*it)).collect(),
        ..link.clone()
    });
    let links = own::with_own_addresses(&known.collect::<Vec<_>>(), &own_addresses()?);
    let plan = HostPlan { links, ..plan.clone() };
    Ok(judge(&plan, &facts::ask(&plan)?))
}

/// Whether no host has this address (RFC 1122, section 3.2.1.3; RFC 6666), which then replaces one
/// that is not known yet.
pub fn is_placeholder(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.segments()[..4] == [0x100, 0, 0, 0],
    }
}
