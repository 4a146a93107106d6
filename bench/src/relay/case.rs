//! Ways to carry packets through the host in the middle.

use std::net::IpAddr;

use clap::ValueEnum;
use recoded_runtime::Backend;

use crate::error::BenchError;
use crate::relay::bed::{Bed, IN, SINK};
use crate::relay::bounce::Bounce;
use crate::relay::load::{Output, Progress};
use crate::relay::packets::symbol_bytes;
use crate::relay::placement::Cores;
use crate::relay::recoder::{Account, Recoder};
use crate::relay::xdp::Attached;

/// What is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Case {
    /// The recoding relay.
    Relay,
    /// The same with UDP sockets instead of AF_XDP.
    RelayUdp,
    /// AF_XDP in, AF_XDP out, nothing between: what the relay would cost without recoding.
    Bounce,
    /// Linux's own IPv4 forwarding.
    IpForward,
    /// Redirection inside XDP, without user space.
    XdpRedirect,
}

impl Case {
    /// All, in the order of the table.
    pub const ALL: [Case; 5] =
        [Case::Relay, Case::RelayUdp, Case::Bounce, Case::IpForward, Case::XdpRedirect];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Case::Relay => "recoding relay",
            Case::RelayUdp => "recoding relay, UDP sockets",
            Case::Bounce => "AF_XDP bounce",
            Case::IpForward => "Linux ip_forward",
            Case::XdpRedirect => "XDP redirect",
        }
    }

    /// Key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Case::Relay => "relay",
            Case::RelayUdp => "relay_udp",
            Case::Bounce => "bounce",
            Case::IpForward => "ip_forward",
            Case::XdpRedirect => "xdp_redirect",
        }
    }

    /// Number of packets that leave the host.
    pub fn output(self) -> Output {
        match self {
            Case::Relay | Case::RelayUdp => Output::PerGeneration,
            Case::Bounce | Case::IpForward | Case::XdpRedirect => Output::PerPacket,
        }
    }

    /// Destination address of packets: the relay itself; in other cases the host behind it.
    pub fn destination(self) -> IpAddr {
        match self {
            Case::Relay | Case::RelayUdp => IN.address,
            Case::Bounce | Case::IpForward | Case::XdpRedirect => SINK.address,
        }
    }

    /// Whether it has a core of its own. Cases inside Linux run on the sending core, because a
    /// virtual cable has no interrupts.
    pub fn has_core(self) -> bool {
        matches!(self, Case::Relay | Case::RelayUdp | Case::Bounce)
    }

    /// Starts it in the middle of the row.
    ///
    /// # Errors
    /// [`BenchError`] if Linux refuses a resource it needs.
    pub fn start(
        self,
        bed: &Bed,
        cores: &Cores,
        packet_bytes: usize,
    ) -> Result<Running, BenchError> {
        let in_linux = |program| Running::InLinux { _program: program };
        Ok(match self {
            Case::Relay | Case::RelayUdp => {
                let symbol_bytes =
                    symbol_bytes(packet_bytes).ok_or(BenchError::PacketBytes(packet_bytes))?;
                let backend = if self == Case::Relay { Backend::Xdp } else { Backend::Udp };
                Running::Relay(Recoder::start(bed, cores, symbol_bytes, backend)?)
            }
            Case::Bounce => Running::Bounce(Bounce::start(bed, cores.relay[0])?),
            Case::IpForward => in_linux(bed.r.inside(|| Attached::pass(&IN))?),
            Case::XdpRedirect => in_linux(bed.r.inside(|| Attached::redirect(&IN))?),
        })
    }
}

/// One of them, running.
pub enum Running {
    /// See [`Case::Relay`].
    Relay(Recoder),
    /// See [`Case::Bounce`].
    Bounce(Bounce),
    /// See [`Case::IpForward`] and [`Case::XdpRedirect`].
    InLinux {
        /// The attached program that forwards.
        _program: Attached,
    },
}

/// Final report of a case.
pub enum Ended {
    /// The relay's account, if it has one.
    Relay(Option<Box<Account>>),
    /// Packets that the bounce received.
    Bounce(u64),
    /// Linux reports nothing.
    Silent,
}

impl Running {
    /// Stops it.
    ///
    /// # Errors
    /// [`BenchError::Thread`].
    pub fn stop(self) -> Result<Ended, BenchError> {
        Ok(match self {
            Running::Relay(relay) => Ended::Relay(relay.stop().map(Box::new)),
            Running::Bounce(bounce) => Ended::Bounce(bounce.stop()?),
            Running::InLinux { .. } => Ended::Silent,
        })
    }
}

impl Ended {
    /// Packets it received, of those in `total`.
    pub fn received(&self, total: &Progress) -> u64 {
        match self {
            Ended::Relay(account) => account.as_ref().map_or(0, |account| account.received),
            Ended::Bounce(received) => *received,
            // No packet can be lost between receiving and sending without being counted at the end.
            Ended::Silent => total.arrived,
        }
    }
}
