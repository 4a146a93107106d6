//! Contenders that carry a TCP stream over two paths, and their setup.

use std::net::{IpAddr, SocketAddr};

use recoded_netns::process::Background;
use recoded_netns::stream::{Stream, Transport};
use recoded_netns::topology::{RECEIVER, Topology};
use recoded_netns::{Bed, BedError, Daemon, mptcp};

use crate::error::BenchError;
use crate::line::case::{PAYLOAD_CODED, PAYLOAD_PLAIN};
use crate::line::proxy;

/// Port of streams and of the proxy.
const PORT: u16 = 5202;

/// Links of the two paths, and the host between.
pub const FAST_LINK: usize = 1;
pub const SLOW_LINK: usize = 3;
const RELAY: usize = 1;

/// A contender that carries a stream.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Contender {
    /// Linux over the faster path.
    Fast,
    /// Linux over the slower path.
    Slow,
    /// Linux over the slower path, with a proxy on its relay.
    Split,
    /// Linux over both.
    Mptcp,
    /// A Recoded tunnel over both, with this congestion control inside.
    Tunnel(&'static str),
}

/// A contender that is ready. Ends when dropped.
pub struct Running {
    contender: Contender,
    /// Destination address.
    to: SocketAddr,
    /// Listening address.
    listen: SocketAddr,
    /// The daemons, if any.
    pub daemons: Vec<Daemon>,
    _proxy: Option<Background>,
}

impl Contender {
    /// Name in tables.
    pub fn name(self) -> String {
        match self {
            Contender::Fast => "bbr, the faster path".into(),
            Contender::Slow => "bbr, the slower path".into(),
            Contender::Split => "split-bbr, the slower path".into(),
            Contender::Mptcp => "mptcp, bbr".into(),
            Contender::Tunnel(control) => format!("recoded, {control} inside"),
        }
    }

    /// The congestion control of the sender.
    fn control(self) -> &'static str {
        match self {
            Contender::Tunnel(control) => control,
            _ => "bbr",
        }
    }

    /// Bytes of TCP payload in a full packet.
    pub fn payload_bytes(self) -> f64 {
        if matches!(self, Contender::Tunnel(_)) { PAYLOAD_CODED } else { PAYLOAD_PLAIN }
    }

    /// Sets it up.
    ///
    /// # Errors
    /// [`BenchError`] if a program does not start, or Linux lacks a feature it needs.
    pub fn start(self, bed: &Bed, topology: &Topology) -> Result<Running, BenchError> {
        let (fast, slow) = (Bed::east_address(FAST_LINK), Bed::east_address(SLOW_LINK));
        let ready = |address: IpAddr| Running {
            contender: self,
            to: SocketAddr::new(address, PORT),
            listen: SocketAddr::new(address, PORT),
            daemons: Vec::new(),
            _proxy: None,
        };
        match self {
            Contender::Fast => Ok(ready(fast)),
            Contender::Slow => Ok(ready(slow)),
            Contender::Split => {
                let relay = &bed.hosts()[RELAY];
                let arrives = SocketAddr::new(slow, PORT);
                let proxy = proxy::start(bed, relay, PORT, arrives, self.control())?;
                let to = SocketAddr::new(Bed::east_address(RELAY + 1), PORT);
                Ok(Running { to, _proxy: Some(proxy), ..ready(slow) })
            }
            Contender::Mptcp => {
                if let Some(reason) = mptcp::obstacle(bed.source()) {
                    let (program, detail) = ("mptcp".into(), reason.to_owned());
                    return Err(BenchError::Bed(BedError::Output { program, detail }));
                }
                let [_, interface] = bed.interfaces(SLOW_LINK);
                mptcp::prepare(bed.source(), bed.sink(), slow, &interface)
                    .map_err(BenchError::Bed)?;
                // The second path arrives at another address.
                let listen = SocketAddr::from(([0, 0, 0, 0], PORT));
                Ok(Running { listen, ..ready(fast) })
            }
            Contender::Tunnel(_) => {
                let daemons = topology.start(bed).map_err(BenchError::Bed)?;
                Ok(Running { daemons, ..ready(RECEIVER.into()) })
            }
        }
    }
}

impl Running {
    /// Opens the stream.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self, bed: &Bed) -> Result<Stream, BenchError> {
        let transport = match self.contender {
            Contender::Mptcp => Transport::Mptcp,
            _ => Transport::Tcp,
        };
        let (source, sink, control) = (bed.source(), bed.sink(), self.contender.control());
        Stream::start_over(transport, source, self.to, sink, self.listen, control)
            .map_err(BenchError::Bed)
    }

    /// Destination of datagrams.
    pub fn datagrams(&self, port: u16) -> SocketAddr {
        let to = if self.contender == Contender::Mptcp { self.to } else { self.listen };
        SocketAddr::new(to.ip(), port)
    }
}
