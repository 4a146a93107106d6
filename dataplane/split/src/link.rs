//! The connections to the other edge: one made for the hosts here, and one that is served.
//!
//! The tunnel has authenticated both edges and encrypts what is between them. QUIC needs TLS
//! nevertheless; its keys are made at the start and trusted without a check. What authenticates the
//! other edge is its address in the tunnel, at which it has to answer, and its port, which only
//! root may use there.

use crate::carry::RESET;
use crate::connections::{CONNECTIONS_MAX, Connections};
use crate::far;
use crate::tls::{client, server};
use crate::window::Windows;
use quinn::{
    Connection, Endpoint, EndpointConfig, IdleTimeout, Incoming, RecvStream, SendStream,
    TokioRuntime, TransportConfig, VarInt,
};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// A silent edge is given up after this; a path may be down for that long.
const SILENCE: VarInt = VarInt::from_u32(120_000);
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Longest wait for the other edge to answer, and pauses between attempts.
const ATTEMPT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Bytes in flight to this edge, of one connection and of all whose hosts read them. Those of a
/// host that does not read stay here and do not count: 256 MiB at most (`STALLED_MAX`).
const STREAM_BYTES: u32 = 8 << 20;
const ALL_BYTES: u32 = 32 << 20;

/// Interval of looks at hosts that do not read.
const LOOK: Duration = Duration::from_millis(250);

/// Bytes that wait here for acknowledgements of the other edge.
const SEND_BYTES: u64 = 32 << 20;

/// The tunnel delivers packets out of order, so packets are lost when time is over.
const PACKETS_OUT_OF_ORDER: u32 = 1 << 20;
const TIME_OUT_OF_ORDER: f32 = 4.0;

/// Bytes of IPv6 and UDP headers, and the least that QUIC can use.
const HEADERS: u16 = 48;
const PACKET_LEAST: u16 = 1200;

/// Streams to the other edge, and from it.
#[derive(Debug)]
pub(crate) struct Link {
    endpoint: Endpoint,
    peer: SocketAddr,
    connections: Arc<Connections>,
    /// The connection that this edge made, while there is one.
    made: watch::Sender<Option<Connection>>,
    /// The other edge has restarted.
    again: Notify,
    /// Name of this life of the edge.
    life: String,
}

impl Link {
    /// Opens the link, which makes the other edge's `connections` to servers here.
    pub(crate) fn open_at(
        socket: UdpSocket,
        peer: SocketAddr,
        mtu: u16,
        connections: Arc<Connections>,
    ) -> io::Result<Link> {
        let transport = Arc::new(transport(mtu)?);
        let mut serving = server()?;
        serving.transport_config(Arc::clone(&transport));
        let config = EndpointConfig::default();
        let runtime = Arc::new(TokioRuntime);
        let mut endpoint = Endpoint::new(config, Some(serving), socket, runtime)?;
        let mut dialing = client()?;
        dialing.transport_config(transport);
        endpoint.set_default_client_config(dialing);
        let life = format!("life-{:016x}", random()?);
        let (made, again) = (watch::Sender::new(None), Notify::new());
        Ok(Link { endpoint, peer, connections, made, again, life })
    }

    /// A stream to the other edge, when there is a connection.
    pub(crate) async fn open(&self) -> io::Result<(SendStream, RecvStream)> {
        let mut made = self.made.subscribe();
        let connection = made.wait_for(Option::is_some).await.map_err(io::Error::other)?.clone();
        let Some(connection) = connection else { return Err(io::ErrorKind::NotConnected.into()) };
        Ok(connection.open_bi().await?)
    }

    /// Whether the other edge answers.
    pub(crate) fn is_connected(&self) -> bool {
        self.made.borrow().is_some()
    }

    /// Keeps a connection to the other edge, without end.
    pub(crate) async fn dial(&self) {
        let mut pause = PAUSE;
        let mut is_said = false;
        loop {
            let attempt = async { Ok::<_, io::Error>(self.connect()?.await?) };
            match timeout(ATTEMPT, attempt).await.unwrap_or_else(|late| Err(late.into())) {
                Ok(connection) => {
                    tracing::info!(peer = %self.peer, "connected to the other edge");
                    (pause, is_said) = (PAUSE, false);
                    self.made.send_replace(Some(connection.clone()));
                    tokio::select! {
                        error = connection.closed() => {
                            tracing::warn!(peer = %self.peer, %error, "the other edge is gone");
                        }
                        () = self.again.notified() => connection.close(RESET, b"restarted"),
                        () = report(&connection) => {}
                        () = make_room(&connection, &self.connections) => {}
                    }
                    self.made.send_replace(None);
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_said, true) {
                        tracing::warn!(
                            peer = %self.peer, %error,
                            "the other edge does not answer: does recoded-split run there?"
                        );
                    }
                    sleep(pause).await;
                    pause = (2 * pause).min(PAUSE_MAX);
                }
            }
        }
    }

    fn connect(&self) -> io::Result<quinn::Connecting> {
        self.endpoint.connect(self.peer, &self.life).map_err(io::Error::other)
    }

    /// Serves connections of the other edge, without end. The newest one replaces its predecessor.
    pub(crate) async fn serve(&self) {
        let mut served: Option<(Connection, String)> = None;
        while let Some(incoming) = self.endpoint.accept().await {
            let Some((connection, life)) = self.admit(incoming).await else { continue };
            if let Some((before, its_life)) = served.replace((connection.clone(), life.clone())) {
                before.close(RESET, b"replaced");
                if its_life != life {
                    self.again.notify_one();
                }
            }
            let connections = Arc::clone(&self.connections);
            tokio::spawn(async move {
                tokio::select! {
                    () = far::serve(&connection, &connections) => {}
                    () = make_room(&connection, &connections) => {}
                }
            });
        }
    }

    /// A connection of the other edge, and its life.
    async fn admit(&self, incoming: Incoming) -> Option<(Connection, String)> {
        if incoming.remote_address() != self.peer {
            incoming.ignore();
            return None;
        }
        // Cheap before expensive: the sender must also receive at that address.
        if !incoming.remote_address_validated() {
            let _ = incoming.retry();
            return None;
        }
        let connection = timeout(ATTEMPT, incoming).await.ok()?.ok()?;
        let data = connection.handshake_data()?;
        let data = data.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?;
        Some((connection, data.server_name?))
    }

    /// Tells the other edge that this one ends.
    pub(crate) async fn end(&self) {
        self.endpoint.close(RESET, b"ends");
        let _ = timeout(Duration::from_millis(500), self.endpoint.wait_idle()).await;
    }
}

/// Keeps room for bytes of hosts that read, whatever others leave unread; without end.
async fn make_room(connection: &Connection, connections: &Connections) {
    let mut before = 0;
    loop {
        let stalled = connections.stalled_count() as u32;
        if std::mem::replace(&mut before, stalled) != stalled {
            connection.set_receive_window(VarInt::from_u32(ALL_BYTES + stalled * STREAM_BYTES));
        }
        sleep(LOOK).await;
    }
}

/// Logs the state of a connection every second, without end.
async fn report(connection: &Connection) {
    loop {
        sleep(Duration::from_secs(1)).await;
        let path = connection.stats().path;
        tracing::debug!(
            window = path.cwnd, round_trip = ?path.rtt, signals = path.congestion_events,
            sent = path.sent_packets, lost = path.lost_packets, mtu = path.current_mtu, "path"
        );
    }
}

fn transport(mtu: u16) -> io::Result<TransportConfig> {
    let streams = VarInt::from_u32(CONNECTIONS_MAX as u32);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(streams)
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(IdleTimeout::from(SILENCE)))
        .keep_alive_interval(Some(KEEPALIVE))
        .stream_receive_window(VarInt::from_u32(STREAM_BYTES))
        .receive_window(VarInt::from_u32(ALL_BYTES))
        .send_window(SEND_BYTES)
        .packet_threshold(PACKETS_OUT_OF_ORDER)
        .time_threshold(TIME_OUT_OF_ORDER)
        .initial_mtu(mtu.saturating_sub(HEADERS).max(PACKET_LEAST))
        .congestion_controller_factory(Arc::new(Windows));
    Ok(transport)
}

/// A random number of the system.
fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(u64::from_ne_bytes(bytes))
}
