//! TUN interfaces: where plain IP packets enter and leave.
//!
//! Created at start, gone with the last descriptor: when the daemon stops, and when it is killed.
//! Reads and writes never block.

use crate::error::StartError;
use crate::netlink::Netlink;
use crate::topology::TunnelConfig;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// One TUN interface.
pub(crate) struct Tunnel {
    name: String,
    device: SyncDevice,
}

/// How a read ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    /// A packet of this many bytes.
    Packet(usize),
    /// Nothing waits.
    Empty,
    /// Linux refused.
    Failed,
}

impl Tunnel {
    /// Creates the interface, gives it its address and MTU and brings it up.
    ///
    /// `multi_queue` lets further queues be opened later, one per worker.
    pub(crate) fn open(
        config: &TunnelConfig,
        multi_queue: bool,
        netlink: &Netlink,
    ) -> Result<Tunnel, StartError> {
        wait_until_free(&config.name, netlink)?;
        let failed = |action| {
            move |source: io::Error| match source.raw_os_error() {
                Some(EBUSY) => StartError::TunnelExists { tunnel: config.name.clone() },
                _ => StartError::Tunnel { tunnel: config.name.clone(), action, source },
            }
        };
        let (address, prefix) = config.address;
        let builder = DeviceBuilder::new()
            .name(&config.name)
            .layer(Layer::L3)
            .mtu(config.mtu)
            .multi_queue(multi_queue)
            .tx_queue_len(QUEUE_PACKETS)
            .enable(false);
        let builder = match address {
            IpAddr::V4(v4) => builder.ipv4(v4, prefix, None),
            IpAddr::V6(v6) => builder.ipv6(v6, prefix),
        };
        let device = builder.build_sync().map_err(failed("create"))?;
        device.set_nonblocking(true).map_err(failed("unblock"))?;
        if address.is_ipv4() {
            silence_ipv6(&config.name);
        }
        device.enabled(true).map_err(failed("bring up"))?;
        Ok(Tunnel { name: config.name.clone(), device })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A second descriptor of the same queue, to wait on.
    pub(crate) fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        self.device.as_fd().try_clone_to_owned()
    }

    /// Reads one packet.
    #[inline]
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Read {
        match self.device.recv(buffer) {
            Ok(0) => Read::Empty,
            Ok(len) => Read::Packet(len),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Read::Empty,
            Err(_) => Read::Failed,
        }
    }

    /// Writes one packet; false when Linux did not take it.
    #[inline]
    pub(crate) fn write(&self, packet: &[u8]) -> bool {
        self.device.send(packet).is_ok_and(|written| written == packet.len())
    }
}

/// Waits for a daemon that has just been killed to let go of the name.
fn wait_until_free(name: &str, netlink: &Netlink) -> Result<(), StartError> {
    let end = Instant::now() + RELEASE_TIMEOUT;
    while netlink.exists(name)? {
        if Instant::now() > end {
            return Err(StartError::TunnelExists { tunnel: name.to_owned() });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Keeps router solicitations and multicast reports of an unused IPv6 link-local address out of an
/// IPv4 tunnel: coded packets would carry them while nobody talks. Addresses given by hand still work.
fn silence_ipv6(name: &str) {
    let path = format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode");
    if let Err(error) = std::fs::write(&path, "1") {
        tracing::debug!(%error, path, "IPv6 keeps its link-local address on the tunnel");
    }
}

/// Packets Linux holds while pacing closes the tunnel: TCP fills it and then slows down. 1000 of
/// 1400 bytes are 37 ms at 300 Mbit/s; much more is delay, much less starves one fast sender.
const QUEUE_PACKETS: u32 = 1000;
/// Linux removes the interfaces of a killed process within milliseconds.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
/// TUNSETIFF: the name is a TUN interface that somebody else holds.
const EBUSY: i32 = 16;
