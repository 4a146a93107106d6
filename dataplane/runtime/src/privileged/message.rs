//! What the dataplane process asks of the privileged half, and the answers.

use crate::memory::{Newest, WayId};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// A request. Each gets one [`Reply`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The program of an interface, attached, with empty tables.
    Attach { interface: String },
    /// Takes the program off.
    Detach { interface: String },
    /// Directs the packets of a queue to the socket that comes along.
    SetSocket { interface: String, queue: u32 },
    /// Directs them nowhere.
    UnsetSocket { interface: String, queue: u32 },
    /// The number of queues of an interface.
    Queues { interface: String },
    /// Accepts packets of a flow, or refuses them.
    SetFlow { interface: String, flow: u32, accept: bool },
    /// A UDP socket on an interface, bound.
    Socket { interface: String },
    /// The counters of the program.
    Verdicts { interface: String },
    /// The addresses that its program refused last.
    NotNeighbours { interface: String },
    /// The queues of a tunnel, which is created if it is gone.
    Tunnel { name: String },
    /// Gives a tunnel an MTU.
    SetMtu { tunnel: String, mtu: u16 },
    /// Gives a tunnel a carrier, or takes it away.
    SetCarrier { tunnel: String, carrier: bool },
    /// Has Linux resolve a neighbour on one of our interfaces.
    Resolve { interface: u32, address: IpAddr },
    /// The same after Linux has forgotten what it knows of it.
    ResolveAgain { interface: u32, address: IpAddr },
    /// The newest epoch of a way without a way back.
    Recall { way: WayId },
    /// Keeps it over a restart.
    Keep { way: WayId, newest: Newest },
    /// The stamp that no earlier handshake has reached.
    RecallStamp,
    /// Keeps it over a restart.
    KeepStamp { stamp: u64 },
    /// The address at which a neighbour was last.
    RecallPlace { name: String },
    /// Keeps it over a restart.
    KeepPlace { name: String, at: SocketAddr },
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It is done.
    Done,
    /// The program is attached; how, the fallback reason, and our address that it accepts packets
    /// for. A descriptor of its `bpf_link` comes along, if there is one.
    Attached { native: bool, reason: String, local: IpAddr },
    /// The link is to have UDP sockets, and why.
    Unattached { reason: String },
    /// Queues for receiving and for sending.
    Queues { receive: u32, transmit: u32 },
    /// There is no such interface now, or it has no address.
    Absent,
    /// The socket comes along.
    Socket,
    /// Packets by verdict.
    Verdicts(Vec<u64>),
    /// Addresses.
    NotNeighbours(Vec<IpAddr>),
    /// The queues come along.
    Tunnel { offload: Offload, reason: String },
    /// What is remembered.
    Recalled(Option<Newest>),
    /// A stamp.
    Stamp(u64),
    /// An address, where one is known.
    Place(Option<SocketAddr>),
    /// It could not be done.
    Refused { reason: String },
}

/// Offloads of a tunnel.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Offload {
    None,
    Tcp,
    TcpAndUdp,
}
