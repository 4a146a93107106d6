//! What on this host keeps a configuration from working, and what to do about it.
//!
//! Place: beside the packet path. `recoded --check` and `recodectl doctor` ask; nothing is changed.

#![forbid(unsafe_code)]

mod finding;

mod netlink;

mod facts;

mod surroundings;

mod own;

pub mod firewall;

mod rules;

mod fit;

mod unit;

pub use facts::{Address, Face, Facts, FactsError, Route, shares_prefix};
pub use finding::{Finding, Level};
pub use own::{OwnAddresses, own_addresses};
pub use rules::judge;
pub use surroundings::{Holder, ReturnPath, Surroundings, Tracking};

use std::net::IpAddr;

/// What a configuration needs of its host.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// Links.
    pub links: Vec<Link>,
    /// Names of tunnels.
    pub tunnels: Vec<String>,
    /// Addresses of tunnels.
    pub networks: Vec<Network>,
    /// UDP port of coded packets, where it is known.
    pub port: Option<u16>,
    /// Bytes of packet buffers, which are locked in memory.
    pub locked_bytes: u64,
    /// Bytes that each buffer of a UDP socket is asked to have, where it is known.
    pub socket_bytes: Option<u64>,
    /// The longest IP packet that is received, where it is known.
    pub packet_bytes_max: Option<u32>,
    /// Whether a daemon runs by this configuration: then its tunnels and programs are there.
    pub is_running: bool,
}

/// An address of a tunnel, with the network that is reached through it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Name of the tunnel.
    pub tunnel: String,
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
}

/// An interface with its neighbours.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Link {
    /// Name in the configuration.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Our address on it.
    pub local: Option<IpAddr>,
    /// Next hops and upstream nodes.
    pub neighbours: Vec<IpAddr>,
    /// What carries its packets.
    pub sockets: Sockets,
}

/// What carries the packets of a link.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Sockets {
    /// AF_XDP sockets.
    Xdp,
    /// UDP sockets: nothing of XDP is needed.
    Udp,
    /// AF_XDP sockets if they can be had, and UDP sockets if not.
    #[default]
    Either,
}

/// Looks at this host, in the network namespace of the calling thread.
///
/// # Errors
///
/// Linux does not answer questions about its interfaces.
pub fn check(plan: &Plan) -> Result<Vec<Finding>, FactsError> {
    let links = own::with_own_addresses(&plan.links, &own_addresses()?);
    let plan = Plan { links, ..plan.clone() };
    Ok(judge(&plan, &facts::ask(&plan)?))
}
