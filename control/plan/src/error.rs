//! Reasons for a failed measurement, each with its fix.

use std::io;
use std::net::SocketAddr;

use crate::packet::VERSION;

/// Why a path could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The name has no address.
    #[error(
        "{host} has no address ({source}): write the name or address of the far end, such as \
         192.0.2.2 or [2001:db8::2]:{port}"
    )]
    Resolve {
        /// The name as given.
        host: String,
        /// The default port.
        port: u16,
        /// The resolver's error.
        source: io::Error,
    },
    /// A port that cannot be.
    #[error("port {0} is above 65535: write a port of 1 to 65535, as in 192.0.2.2:9428")]
    Port(String),
    /// No socket.
    #[error("cannot open a UDP socket: {0}")]
    Socket(#[from] io::Error),
    /// ICMP reports that the port is closed.
    #[error(
        "{0} answers \"port unreachable\": no listener runs there; run `recodectl plan --listen` on \
         the far end, and compare the port"
    )]
    NotListening(SocketAddr),
    /// ICMP or ARP reports that the host is unreachable.
    #[error("{0} cannot be reached ({1}): check that it is up, and the route to it (ip route get)")]
    Unreachable(SocketAddr, io::ErrorKind),
    /// A filter on this host.
    #[error(
        "this host may not send to {0} ({1}): look for a firewall rule here (nft list ruleset), or \
         a security module"
    )]
    Forbidden(SocketAddr, io::Error),
    /// No response at all.
    #[error(
        "nothing answers at {0}, not even an error: run `recodectl plan --listen` on the far end, \
         and let UDP port {port} through the firewalls and NAT in front of it",
        port = .0.port()
    )]
    Silent(SocketAddr),
    /// A different version.
    #[error(
        "{from} has version {theirs} of these measurements, and this recodectl {VERSION}: install \
         the same version of recodectl on both ends"
    )]
    Version {
        /// The listener.
        from: SocketAddr,
        /// Its version.
        theirs: u8,
    },
    /// Another client is being served.
    #[error("{0} serves another client: try again when that is done, in {1} s at the latest")]
    Busy(SocketAddr, u32),
    /// It answered, and then stopped.
    #[error(
        "{0} stopped answering while {1}: its time (--for) may be over, it was stopped, or the \
         path is down; see there, and measure again"
    )]
    Lost(SocketAddr, &'static str),
    /// Its answers are impossible.
    #[error("what {0} answers cannot be: install the same version of recodectl on both ends")]
    Nonsense(SocketAddr),
    /// Packets of one size vanish.
    #[error(
        "of trains {1} nothing arrives, although single packets do: a firewall or a policer on the \
         path drops them; measure from a host next to it"
    )]
    NoTrains(SocketAddr, &'static str),
}
