//! The port of an open invitation. Connections without the secret cost a task and two
//! multiplications each, for some seconds, and are bounded in number for each address and in all.

use super::exchange::{self, ExchangeError};
use recoded_secure::{Entropy, Invitation, Joining};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Time for the first message: it follows the connection at once.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that may wait for their first message: about 1 MB of memory.
const WAITING_MAX: usize = 128;

/// Of these, from one address: several boxes may be behind one NAT.
const WAITING_PER_ADDRESS_MAX: usize = 4;

/// Pause after an error of `accept`, such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// A box that has the secret.
pub struct Arrival {
    pub stream: TcpStream,
    pub joining: Joining,
    pub from: IpAddr,
}

/// An open port.
pub struct Listener {
    runtime: tokio::runtime::Runtime,
    socket: tokio::net::TcpListener,
    /// The port itself.
    pub port: u16,
}

impl Listener {
    /// Listens at a port of all addresses; 0 is any free one.
    pub fn open(port: u16) -> io::Result<Listener> {
        // Hosts without IPv6 have no such address.
        let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
        let socket =
            TcpListener::bind(SocketAddr::new(all[0], port)).or_else(|error| {
                match error.kind() {
                    io::ErrorKind::AddrInUse => Err(error),
                    _ => TcpListener::bind(SocketAddr::new(all[1], port)),
                }
            })?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(socket)?
        };
        Ok(Listener { runtime, socket, port })
    }

    /// The next box that has the secret; none before `deadline`, by the monotonic clock.
    pub fn next(&self, invitation: &Arc<Invitation>, deadline: Instant) -> Option<Arrival> {
        let arrivals = self.arrivals(invitation);
        self.runtime.block_on(async { timeout_at(deadline, arrivals).await }).ok()
    }

    async fn arrivals(&self, invitation: &Arc<Invitation>) -> Arrival {
        let mut waiting: BTreeMap<IpAddr, usize> = BTreeMap::new();
        let mut tasks: JoinSet<(IpAddr, Option<Arrival>)> = JoinSet::new();
        loop {
            tokio::select! {
                Some(ended) = tasks.join_next() => {
                    let Ok((from, arrival)) = ended else { continue };
                    if let Some(count) = waiting.get_mut(&from) {
                        *count -= 1;
                    }
                    waiting.retain(|_, count| *count > 0);
                    if let Some(arrival) = arrival {
                        return arrival;
                    }
                }
                accepted = self.socket.accept(), if tasks.len() < WAITING_MAX => {
                    let Ok((stream, from)) = accepted else {
                        tokio::time::sleep(ERROR_PAUSE).await;
                        continue;
                    };
                    let from = from.ip().to_canonical();
                    let count = waiting.entry(from).or_default();
                    if *count < WAITING_PER_ADDRESS_MAX {
                        *count += 1;
                        let invitation = Arc::clone(invitation);
                        tasks.spawn(async move {
                            let first = timeout(FIRST_TIMEOUT, first(stream, &invitation, from));
                            (from, first.await.ok().and_then(Result::ok))
                        });
                    }
                }
            }
        }
    }
}

/// Reads the first message of a connection, and tells senders that lack the secret.
async fn first(
    mut stream: tokio::net::TcpStream,
    invitation: &Invitation,
    from: IpAddr,
) -> Result<Arrival, ExchangeError> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut frame = vec![0; exchange::length(head)?];
    stream.read_exact(&mut frame).await?;
    let entropy = Entropy::fresh().map_err(|_| ExchangeError::Message)?;
    match invitation.receive(exchange::content(&frame)?, &entropy) {
        Ok(joining) => {
            let stream = stream.into_std()?;
            stream.set_nonblocking(false)?;
            Ok(Arrival { stream, joining, from })
        }
        Err(_) => {
            stream.write_all(&exchange::unknown()).await?;
            // The sender reads the answer before the connection is reset.
            stream.shutdown().await?;
            Err(ExchangeError::Unknown)
        }
    }
}
