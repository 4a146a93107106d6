//! Connections of hosts on this side: taken in their servers' place, and requested of the other
//! edge.

use crate::carry::{self, carry, prepare};
use crate::connections::Connections;
use crate::link::Link;
use crate::request::{Answer, Request};
use crate::sockets::is_of_this_box;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Longest wait for the other edge, and for the answer of the server behind it.
const PATIENCE: Duration = Duration::from_secs(75);

/// Pause after an error of accepting: descriptors or memory are used up.
const PAUSE: Duration = Duration::from_millis(20);

/// Takes connections, without end.
pub(crate) async fn take(listener: TcpListener, link: Arc<Link>, connections: Arc<Connections>) {
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
        let Some(request) = request else {
            carry::reset(socket);
            continue;
        };
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

async fn connect(socket: TcpStream, request: Request, link: &Link, connections: &Connections) {
    let asked = async {
        prepare(&SockRef::from(&socket))?;
        let (mut out, mut back) = link.open().await?;
        request.send(&mut out).await?;
        let answer = Answer::receive(&mut back).await?;
        Ok::<_, io::Error>((out, back, answer))
    };
    let answer = match timeout(PATIENCE, asked).await {
        Ok(Ok((out, back, Answer::Connected))) => {
            connections.count().counters.opened += 1;
            return carry(socket, out, back, connections).await;
        }
        Ok(Ok((_, _, answer))) => answer,
        Ok(Err(error)) => {
            tracing::debug!(server = %request.server, %error, "the other edge has not answered");
            Answer::Silent
        }
        Err(_) => Answer::Silent,
    };
    tracing::debug!(host = %request.host, server = %request.server, ?answer, "not connected");
    match answer {
        Answer::Full => connections.count().counters.full += 1,
        _ => connections.count().counters.refused += 1,
    }
    carry::reset(socket);
}
