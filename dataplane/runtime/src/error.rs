//! Reasons why a node does not start or does not apply a snapshot: one sentence each, with the
//! cure.

use crate::topology::TopologyError;
use recoded_wire::steer::FLOWS_MAX;
use recoded_xsk::XskError;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;

/// The reason why the runtime could not be opened or started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The topology breaks a rule.
    #[error(transparent)]
    Topology(#[from] TopologyError),

    /// The first snapshot does not fit the topology.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),

    /// The process lacks privilege.
    #[error(
        "not permitted to use XDP, missing {missing}: run as root or grant CAP_NET_ADMIN, \
         CAP_NET_RAW, CAP_BPF and CAP_PERFMON; or set backend = \"udp\" in each [[link]], which needs \
         none of these"
    )]
    NotPermitted {
        /// Names of the missing capabilities.
        missing: String,
    },

    /// The process lacks the privilege that tunnels need; XDP is not involved.
    #[error("not permitted to create tunnels: run as root or grant CAP_NET_ADMIN")]
    NoTunnels,

    /// A UDP socket of a link could not be opened.
    #[error(
        "cannot open a UDP socket at {local} on `{interface}` ({source}): see that nothing else has \
         the port (`ss -ulnp`), and use Linux 5.7 or newer"
    )]
    Udp {
        /// The interface.
        interface: String,
        /// This node's address and port on it.
        local: SocketAddr,
        /// Linux's error.
        source: io::Error,
    },

    /// No interface has this name in the current network namespace.
    #[error("no interface named `{interface}` here: check the name and the network namespace")]
    NoSuchInterface {
        /// The requested name.
        interface: String,
    },

    /// The interface of a link has no address to send from.
    #[error("{reason}")]
    NoOwnAddress {
        /// The interface and the cure.
        reason: String,
    },

    /// AF_XDP sockets are requested on an interface whose packets have no Ethernet header.
    #[error(
        "packets of `{interface}` have no Ethernet header, which AF_XDP sockets need: set backend = \
         \"udp\" in its [[link]], or leave backend out"
    )]
    NotEthernet {
        /// The interface.
        interface: String,
    },

    /// An XDP program of another owner is attached.
    #[error("another XDP program ({program}) is attached to `{interface}`: {cure}")]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// The known facts about the program: id and name.
        program: String,
        /// How to remove it.
        cure: String,
    },

    /// The interface passes on packets of other interfaces, whose queues its AF_XDP sockets do not
    /// serve.
    #[error(
        "`{interface}` is {kind}: its packets arrive on the queues of its members, which AF_XDP \
         sockets on `{interface}` do not serve: set backend = \"udp\" in its [[link]], or make a \
         member its interface"
    )]
    Stacked {
        /// The interface.
        interface: String,
        /// Its kind, in words.
        kind: String,
    },

    /// Native XDP is required and the driver refused it.
    #[error(
        "`{interface}` cannot do native XDP ({reason}): configure the mode `auto` or `generic`"
    )]
    NoNativeXdp {
        /// The interface.
        interface: String,
        /// Linux's error.
        reason: String,
    },

    /// The XDP program could not be loaded or attached at all.
    #[error(
        "Linux refused the XDP program on `{interface}` ({reason}): use Linux 5.10 or newer with \
         CONFIG_BPF_SYSCALL, and see `dmesg`; or set backend = \"udp\" in its [[link]]"
    )]
    Program {
        /// The interface.
        interface: String,
        /// Linux's error.
        reason: String,
    },

    /// A socket or its frames could not be opened.
    #[error(transparent)]
    Socket(#[from] XskError),

    /// An interface with the tunnel's name exists.
    #[error(
        "an interface named `{tunnel}` exists already: choose another tunnel name or remove it \
         (`ip link delete {tunnel}`)"
    )]
    TunnelExists {
        /// Name of the tunnel.
        tunnel: String,
    },

    /// The tunnel could not be created or set up.
    #[error(
        "cannot {action} tunnel `{tunnel}` ({source}): load the tun module (`modprobe tun`) and run \
         with CAP_NET_ADMIN"
    )]
    Tunnel {
        /// Name of the tunnel.
        tunnel: String,
        /// The failed action.
        action: &'static str,
        /// Linux's error.
        source: io::Error,
    },

    /// IPv6 is disabled on this host.
    #[error(
        "tunnel `{tunnel}` does not get the address {address}: IPv6 is disabled on this host: \
         enable it (`sysctl -w net.ipv6.conf.default.disable_ipv6=0`, no `ipv6.disable=1` on \
         Linux's command line), or remove the address"
    )]
    NoIpv6 {
        /// Name of the tunnel.
        tunnel: String,
        /// The address.
        address: IpAddr,
    },

    /// Linux does not answer questions about its interfaces.
    #[error("cannot ask Linux about its interfaces ({reason}): check that netlink is permitted")]
    Netlink {
        /// The cause.
        reason: String,
    },

    /// The privileged process refuses a request of this one.
    #[error("the supervisor refuses {what} ({reason}): see its log")]
    Privileged {
        /// The request.
        what: String,
        /// Its answer.
        reason: String,
    },

    /// The process dropped its privileges and would need them.
    #[error("opening sockets needs the privileges that this process gave up: it starts again")]
    Sealed,

    /// The offload queue could not be started.
    #[error("cannot start the offload queue: {0}: raise the process's limits (`ulimit -u`)")]
    Offload(recoded_offload::StartError),

    /// A thread or descriptor could not be created.
    #[error("cannot create {what} ({source}): raise the process's limits (`ulimit -n -u`)")]
    Limit {
        /// The thread or descriptor.
        what: &'static str,
        /// Linux's error.
        source: io::Error,
    },
}

impl StartError {
    /// Whether the cause is an interface that is missing or has no address.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, StartError::NoSuchInterface { .. } | StartError::NoOwnAddress { .. })
    }
}

/// The reason why a snapshot cannot be applied. The active one stays.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// More flows than the XDP program's table holds.
    #[error("{0} flows: at most {FLOWS_MAX} are possible")]
    Flows(usize),

    /// A flow id used twice.
    #[error("flow {0} appears twice: every flow needs its own id")]
    DuplicateFlow(u32),

    /// A hop that the topology does not have.
    #[error("flow {flow} names hop {hop}, which does not exist: add it and restart")]
    Hop {
        /// Id of the flow.
        flow: u32,
        /// Index of the hop.
        hop: u16,
    },

    /// A tunnel that the topology does not have.
    #[error("flow {flow} names tunnel {tunnel}, which does not exist: add it and restart")]
    Tunnel {
        /// Id of the flow.
        flow: u32,
        /// Index of the tunnel.
        tunnel: u16,
    },

    /// Two sources read from one tunnel.
    #[error("flows {first} and {second} both read from tunnel `{tunnel}`: one source per tunnel")]
    SharedTunnel {
        /// Id of one flow.
        first: u32,
        /// Id of the other.
        second: u32,
        /// Name of the tunnel.
        tunnel: String,
    },

    /// Coded packets of a source would not fit through a link.
    #[error(
        "flow {flow} makes IP packets of {needed} bytes and `{interface}` carries {mtu}: lower \
         symbol_bytes or raise the interface's MTU"
    )]
    MtuTooSmall {
        /// Id of the flow.
        flow: u32,
        /// Interface of the link.
        interface: String,
        /// Bytes needed, IP header included.
        needed: usize,
        /// MTU of the interface.
        mtu: usize,
    },

    /// Packets formed by a flow would not fit a frame.
    #[error(
        "flow {flow} may form packets that take {needed} bytes of a frame, and a frame has \
         {frame_bytes}: lower symbol_bytes ({symbol_bytes}) or the generation size \
         ({generation_size})"
    )]
    FrameTooSmall {
        /// Id of the flow.
        flow: u32,
        /// Bytes of a frame.
        frame_bytes: usize,
        /// Bytes of its symbols.
        symbol_bytes: usize,
        /// Symbols of its generations.
        generation_size: usize,
        /// Bytes needed, from the start of the frame.
        needed: usize,
    },

    /// Sources would take more memory than relays, sinks and replaced sources leave.
    #[error(
        "sources would take {} MiB, and of the {} MiB for flows {} are in use besides: choose \
         smaller sizes or raise memory under [daemon]",
        sources >> 20,
        budget >> 20,
        stages >> 20
    )]
    Memory {
        /// Bytes that sources would take.
        sources: usize,
        /// Bytes that relays and sinks hold, and for 2 s those of replaced sources.
        stages: usize,
        /// Bytes for flows.
        budget: usize,
    },

    /// The XDP program's flow table could not be changed.
    #[error("cannot change the flow table of `{interface}` ({reason}): restart the daemon")]
    FlowTable {
        /// The interface.
        interface: String,
        /// Linux's error.
        reason: String,
    },
}

/// Longest reason that is passed on whole, in characters.
const REASON_CHARACTERS_MAX: usize = 1000;

/// A reason on one line: of a longer one its begin and its end.
pub(crate) fn shortened(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let characters: Vec<char> = line.join(" ").chars().collect();
    if characters.len() <= REASON_CHARACTERS_MAX {
        return characters.into_iter().collect();
    }
    let part = REASON_CHARACTERS_MAX / 2;
    let [begin, end] = [&characters[..part], &characters[characters.len() - part..]];
    [begin.iter().collect::<String>(), " ... ".into(), end.iter().collect()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reason_keeps_begin_and_end_on_one_line() {
        assert_eq!(shortened("a\n b"), "a b");
        let lines: Vec<String> = (0..5000).map(|line| format!("{line}: (bf) r1 = ä")).collect();
        let text = shortened(&lines.join("\n"));
        assert!(text.starts_with("0: (bf)") && text.ends_with("4999: (bf) r1 = ä"), "{text}");
        assert!(text.chars().count() <= REASON_CHARACTERS_MAX + 5 && text.contains(" ... "));
    }
}
