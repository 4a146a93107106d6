//! Sockets with addresses of others (IP_TRANSPARENT), with the marks that rules of the firewall and
//! of routing go by.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Mark of packets that belong to sockets here though their addresses are of others.
pub(crate) const MARK_HERE: u32 = 0x52c1;

/// Mark of the sockets of this program.
pub(crate) const MARK_OURS: u32 = 0x52c2;

/// Marks of first packets that this program gives back to Linux, to be answered or refused, and the
/// bits that they have in common.
pub(crate) const MARK_ANSWERED: u32 = 0x52c8;
pub(crate) const MARK_REFUSED: u32 = 0x52c9;
pub(crate) const MARK_BACK: u32 = 0x52c8;
pub(crate) const MARK_BACK_MASK: u32 = 0xfffe;

/// Mark of first packets that go through the tunnel as they are.
pub(crate) const MARK_PASSED: u32 = 0x52ca;

/// Connections that wait to be taken.
const BACKLOG: i32 = 1024;

/// Buffers of the socket between the edges.
const EDGE_BYTES: usize = 4 << 20;

/// A socket that takes connections to any address, of both families if there is IPv6.
pub(crate) fn listener() -> io::Result<std::net::TcpListener> {
    let open = |domain: Domain| {
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        let any: IpAddr = if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        transparent(&socket, domain)?;
        socket.bind(&SocketAddr::new(any, 0).into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open(Domain::IPV6).or_else(|_: io::Error| open(Domain::IPV4))
}

/// A socket that will connect with the address of a host.
pub(crate) fn onward(host: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(host);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    transparent(&socket, domain)?;
    socket.set_reuse_address(true)?;
    socket.bind(&host.into())?;
    Ok(socket)
}

/// An address that no box has (RFC 5737): it can be bound if `ip_nonlocal_bind` is set.
const OF_NO_BOX: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

/// Whether this box has the address. Not known where any address can be bound: then `false`.
pub(crate) fn is_of_this_box(address: IpAddr) -> bool {
    let can_bind = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    can_bind(address) && !can_bind(OF_NO_BOX.into())
}

fn transparent(socket: &Socket, domain: Domain) -> io::Result<()> {
    socket.set_ip_transparent_v4(true)?;
    if domain == Domain::IPV6 {
        socket.set_ip_transparent_v6(true)?;
    }
    socket.set_mark(MARK_OURS)
}

/// The socket between the edges. Its address may come later, with the tunnel.
pub(crate) fn edge(address: SocketAddr) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    match domain {
        Domain::IPV6 => socket.set_freebind_v6(true)?,
        _ => socket.set_freebind_v4(true)?,
    }
    // As far as limits allow.
    let _ = socket.set_recv_buffer_size(EDGE_BYTES);
    let _ = socket.set_send_buffer_size(EDGE_BYTES);
    socket.bind(&address.into())?;
    Ok(socket.into())
}
