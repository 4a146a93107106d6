//! Runs the pipeline over AF_XDP: everything between the network and pure packet processing.
//!
//! Place on the path: around `pipeline`. [`Resources::open`] does what needs privilege (XDP
//! programs, frames, sockets, tunnels). [`Runtime::start`] starts one pinned thread per receive
//! queue, and passes each packet from `xsk` to `pipeline` and back. The control
//! side publishes snapshots and reads reports; it is never called from here.
//!
//! ```text
//!  topology -> Resources (attach, sockets, tunnels, netlink) -> Runtime
//!                                                |               |- neighbour thread: MACs of hops
//!                                                |               |- key thread: handshakes
//!                                                |               `- workers: rx -> pipeline -> tx
//!                                                `- tunnel thread: creates deleted tunnels again
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "xdp"), allow(dead_code, reason = "for XDP alone"))]

pub mod topology;

pub mod channel;

mod bpf_link;

mod privileged;

mod suspension;

mod attach;

#[cfg_attr(not(feature = "xdp"), path = "xdp_absent.rs")]
mod xdp;

mod choice;

mod netlink;

mod own;

mod host_changes;

mod tunnel;

mod watch;

mod resources;

mod reserve;

mod arrived;

mod other_versions;

mod caught_panics;

mod capabilities;

mod worker;

mod port;

mod udp;

mod segmentation;

mod intake;

mod segments;

mod queue;

mod accelerator;

mod outbox;

mod merge;

mod shape;

pub mod encap;

mod checksum;

#[cfg(test)]
mod inner;

pub mod pacing;

mod neighbours;

mod roaming;

mod guard;

mod memory;

mod keyring;

mod mailbox;

mod keyer;

mod planning;

mod opening;

mod handover;

mod wake;

mod slot;

mod sockets;

mod shared;

mod snapshot;

mod steering;

mod node;

mod links;

mod icmp;

mod paths;

mod sent_stream;

mod mtus;

mod talk;

mod runtime;

pub mod report;

pub mod error;

pub use bpf_link::LeftPrograms;
pub use caught_panics::is_panic_caught;
pub use choice::{LINUX_MIN_XDP, why_udp};
pub use error::{SnapshotError, StartError};
pub use host_changes::HostChanges;
pub use keyring::{SessionReport, Sessions};
pub use memory::Ways;
pub use netlink::{EXIT_TABLE, Interface};
pub use privileged::{
    Client, Destinations, Inherited, KillSwitch, Left, Privileged, RoutePlan, TunnelAddresses,
    TunnelQueues, TunnelRoutes,
};
/// Bytes that each worker allocates for the waiting packets of one tunnel.
pub use queue::memory_bytes as tunnel_queue_bytes;
/// The offload queue, for code that opens accelerators and sets the mode.
pub use recoded_offload as offload;
/// Keys, for code that reads them.
pub use recoded_secure as secure;
/// The parts of `xsk` that the control side needs; it must not depend on that crate.
pub use recoded_xsk::{
    FrameGauge, FrameSize, HAS_AF_XDP, ModePreference, NO_AF_XDP, NO_AF_XDP_CURE, SocketStatistics,
};
pub use report::RuntimeReport;
pub use reserve::Reserve;
pub use resources::Resources;
pub use runtime::{Acceleration, Runtime};
pub use snapshot::{
    frame_size, ip_packet_bytes, ip_packet_bytes_max, symbol_bytes_max, worker_memory_bytes,
};
pub use talk::{Disagreement, Talked};
pub use topology::{
    Address, Backend, EdgeConfig, GroupConfig, GroupPart, HopConfig, Idle, LinkConfig, PeerKey,
    RelayedConfig, TUNNEL_ADDRESSES_MAX, TUNNEL_MTU_MIN_V4, TUNNEL_MTU_MIN_V6, Topology,
    TopologyError, TunnelConfig, tunnel_mtu_min,
};
pub use udp::ROOM_BYTES as UDP_SOCKET_BYTES;
