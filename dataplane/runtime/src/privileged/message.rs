//! Requests from the dataplane process to the privileged half, and the replies.

use crate::channel::Channel;
use crate::error::shortened;
use crate::memory::{Newest, WayId};
use crate::other_versions::OtherVersions;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// A request. Each gets one [`Reply`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Attaches the program of an interface, with empty tables.
    Attach { interface: String },
    /// Detaches the program.
    Detach { interface: String },
    /// Directs the packets of a queue to the attached socket.
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
    /// The neighbours whose packets it refused as of another version.
    OtherVersions { interface: String },
    /// The queues of a tunnel, which is created if it is gone.
    Tunnel { name: String },
    /// Sets the MTU of a tunnel.
    SetMtu { tunnel: String, mtu: u16 },
    /// Sets or removes the carrier of a tunnel.
    SetCarrier { tunnel: String, carrier: bool },
    /// Makes Linux resolve a neighbour on one of this node's interfaces.
    Resolve { interface: u32, address: IpAddr },
    /// The same after Linux has dropped its entry.
    ResolveAgain { interface: u32, address: IpAddr },
    /// The newest epoch of a way, for a path without a return path.
    Recall { way: WayId },
    /// Keeps it across a restart.
    Keep { way: WayId, newest: Newest },
    /// The stamp that no earlier handshake has reached.
    RecallStamp,
    /// Keeps it across a restart.
    KeepStamp { stamp: u64 },
    /// The last address of a neighbour.
    RecallPlace { name: String },
    /// Keeps it across a restart.
    KeepPlace { name: String, at: SocketAddr },
}

/// A reply.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It is done.
    Done,
    /// The program is attached; its mode, the fallback reason, and this node's address that it
    /// accepts packets for. Includes a descriptor of its `bpf_link`, if there is one.
    Attached { native: bool, reason: String, local: IpAddr },
    /// The link uses UDP sockets, and the reason.
    Unattached { reason: String },
    /// Queues for receiving and for sending.
    Queues { receive: u32, transmit: u32 },
    /// There is no such interface at present, or it has no address.
    Absent,
    /// Includes the socket.
    Socket,
    /// Packets by verdict.
    Verdicts(Vec<u64>),
    /// Addresses.
    NotNeighbours(Vec<IpAddr>),
    /// Neighbours, and their packets.
    OtherVersions(OtherVersions),
    /// Includes the queues.
    Tunnel { offload: Offload, reason: String },
    /// The recorded epoch.
    Recalled(Option<Newest>),
    /// A stamp.
    Stamp(u64),
    /// An address, if one is known.
    Place(Option<SocketAddr>),
    /// The request failed.
    Refused { reason: String },
}

impl Reply {
    /// A refusal whose reason fits a message: what Linux says of a program may be much longer.
    pub(super) fn refused(reason: &str) -> Reply {
        Reply::Refused { reason: shortened(reason) }
    }

    /// Sends it. A reply that is too long for a message is refused in words: its error would end
    /// the service of the process that asks.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn send(&self, channel: &Channel, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        match channel.send(self, fds) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                channel.send(&Reply::refused("the reply does not fit a message"), &[])
            }
            sent => sent,
        }
    }
}

/// Offloads of a tunnel.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Offload {
    None,
    Tcp,
    TcpAndUdp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    /// Regression: what the verifier of Linux 5.4 says of the XDP program was no message, and the
    /// process that asked was served no more.
    #[test]
    fn reply_of_any_length_gets_an_answer() {
        let (ours, theirs) = Channel::pair().unwrap();
        // Of as many processors as there may be; and characters that JSON escapes.
        let addresses = vec![IpAddr::V6(Ipv6Addr::from(u128::MAX)); 1024];
        let replies = [
            Reply::NotNeighbours(addresses),
            Reply::refused(&"\u{1}".repeat(1 << 20)),
            Reply::Unattached { reason: "a".repeat(1 << 20) },
        ];
        for reply in replies {
            reply.send(&ours, &[]).unwrap();
            let (answer, _) = theirs.receive::<Reply>().unwrap().expect("an answer");
            assert!(matches!(answer, Reply::Refused { .. }), "{answer:?}");
        }
    }
}
