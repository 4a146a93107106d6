//! Connections that the other edge requests: made to the server, with the address of the host.

use crate::carry::{carry, prepare};
use crate::connections::Connections;
use crate::request::{Answer, Request};
use crate::sockets::{is_of_this_box, onward};
use quinn::{Connection, RecvStream, SendStream};
use socket2::SockRef;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for a request after its stream began, and for the server.
const REQUEST: Duration = Duration::from_secs(10);
const SERVER: Duration = Duration::from_secs(60);

/// Serves the streams of a connection until it ends.
pub(crate) async fn serve(connection: &Connection, connections: &Arc<Connections>) {
    while let Ok((out, back)) = connection.accept_bi().await {
        let (place, connections) = (connections.place(), Arc::clone(connections));
        tokio::spawn(async move {
            if let Err(error) = answer(out, back, place.is_some(), &connections).await {
                tracing::debug!(%error, "a stream ended without a connection");
            }
            drop(place);
        });
    }
}

async fn answer(
    mut out: SendStream,
    mut back: RecvStream,
    has_room: bool,
    connections: &Connections,
) -> io::Result<()> {
    let request = timeout(REQUEST, Request::receive(&mut back)).await??;
    let connected = match has_room {
        true => connect(request).await.map_err(|error| Answer::of(&error)),
        false => Err(Answer::Full),
    };
    match connected {
        Ok(socket) => {
            Answer::Connected.send(&mut out).await?;
            connections.count().counters.served += 1;
            carry(socket, out, back, &connections.turns[1], connections).await;
            Ok(())
        }
        Err(answer) => {
            answer.send(&mut out).await?;
            out.finish().map_err(io::Error::other)
        }
    }
}

async fn connect(request: Request) -> io::Result<TcpStream> {
    if !may_reach(request.server.ip()) || !may_act_for(request.host.ip()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let socket = onward(request.host)?;
    let connecting = tokio::net::TcpSocket::from_std_stream(socket.into());
    let stream = timeout(SERVER, connecting.connect(request.server)).await??;
    prepare(&SockRef::from(&stream))?;
    Ok(stream)
}

/// Whether a host of the other side could reach this address through the tunnel by itself.
fn may_reach(server: IpAddr) -> bool {
    let is_local = match server {
        IpAddr::V4(address) => {
            address.is_loopback() || address.is_link_local() || address.is_broadcast()
        }
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    };
    !is_local && !server.is_unspecified() && !server.is_multicast()
}

/// Whether a host of the other side may have this address: not one of this box.
fn may_act_for(host: IpAddr) -> bool {
    may_reach(host) && !is_of_this_box(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_box_and_of_no_host_are_out_of_reach() {
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
        ] {
            let address = address.parse().expect("an address");
            assert!(!may_reach(address) && !may_act_for(address), "{address}");
        }
        for address in ["192.0.2.1", "10.0.0.1", "2001:db8::1"] {
            let address = address.parse().expect("an address");
            assert!(may_reach(address) && may_act_for(address), "{address}");
        }
    }
}
