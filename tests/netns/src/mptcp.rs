//! Multipath TCP of Linux (RFC 8684): its availability, its sockets, and its second paths.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_reuseaddr, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};

use crate::{BedError, Namespace};

/// Whether a host may use it.
const ENABLED: &str = "net.mptcp.enabled";

/// Limits for additional paths of a connection.
const LIMITS: &str = "mptcp limits set subflow 2 add_addr_accepted 2";

/// Reason why a host cannot use MPTCP: the kernel may lack it, or `ip` may not support it.
pub fn obstacle(host: &Namespace) -> Option<&'static str> {
    if host.sysctl(ENABLED, "1").is_err() {
        return Some("this kernel has no MPTCP");
    }
    host.ip(LIMITS).is_err().then_some("this ip has no mptcp")
}

/// Lets connections from `source` to `sink` have a second path, to an address that the sink
/// announces once the first path is established. The route selects the path to it.
///
/// # Errors
/// When Linux refuses.
pub fn prepare(
    source: &Namespace,
    sink: &Namespace,
    second: IpAddr,
    interface: &str,
) -> Result<(), BedError> {
    for host in [source, sink] {
        host.sysctl(ENABLED, "1")?;
        host.ip(LIMITS)?;
    }
    sink.ip(&format!("mptcp endpoint add {second} dev {interface} signal"))?;
    Ok(())
}

/// A listening MPTCP socket; plain TCP is accepted, too.
///
/// # Errors
/// If Linux lacks MPTCP, or the address is in use.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(at)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &at)?;
    rustix::net::listen(&socket, 1)?;
    Ok(TcpListener::from(socket))
}

/// Connects within `patience`.
///
/// # Errors
/// If Linux lacks MPTCP, or nothing answers.
pub fn connect(to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = open(to)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    rustix::net::connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let protocol = Some(ipproto::MPTCP);
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?)
}
