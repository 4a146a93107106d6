//! Connections of hosts on this side: taken in their servers' place, and requested of the other
//! edge, mostly before (`held.rs`).

use crate::carry::{self, carry, prepare};
use crate::connections::Connections;
use crate::held::Held;
use crate::link::Link;
use crate::request::Request;
use crate::server::{Requested, count, request};
use crate::sockets::is_of_this_box;
use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Pause after an error of accepting: descriptors or memory are used up.
const PAUSE: Duration = Duration::from_millis(20);

/// Takes connections, without end.
pub(crate) async fn take(
    listener: TcpListener,
    held: Arc<Held>,
    link: Arc<Link>,
    connections: Arc<Connections>,
) {
    let own = listener.local_addr().map_or(0, |own| own.port());
    loop {
        let Ok((socket, host)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let server = socket.local_addr();
        let request = server.map(|server| Request { host: plain(host), server: plain(server) });
        // One that came to the listener itself has no server.
        let request = request
            .ok()
            .filter(|Request { server, .. }| server.port() != own || !is_of_this_box(server.ip()));
        let (Some(request), Ok(())) = (request, prepare(&SockRef::from(&socket))) else {
            carry::reset(socket);
            continue;
        };
        let Some(socket) = held.give(&request, socket) else { continue };
        let Some(place) = connections.place() else {
            connections.count().counters.full += 1;
            carry::reset(socket);
            continue;
        };
        let (link, connections) = (Arc::clone(&link), Arc::clone(&connections));
        tokio::spawn(async move {
            connect(socket, request, &link, &connections).await;
            drop(place);
        });
    }
}

/// An address of a socket for both families as that of IPv4, if it is one.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Connects a host whose connection Linux has answered already.
async fn connect(socket: TcpStream, wanted: Request, link: &Link, connections: &Connections) {
    match request(wanted, link).await {
        Ok(Requested { out, back }) => {
            connections.count().counters.opened += 1;
            carry(socket, out, back, &connections.turns[0], connections).await;
        }
        Err(answer) => {
            count(connections, &wanted, answer);
            carry::reset(socket);
        }
    }
}
