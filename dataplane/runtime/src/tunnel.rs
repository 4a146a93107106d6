//! TUN interfaces: where plain IP packets enter and leave.
//!
//! Created at start, removed with the last descriptor, when the process stops or is killed. One
//! created by a supervisor persists ([`crate::privileged`]): only an orderly stop removes it. While
//! no process reads from it, Linux drops packets routed into it.
//! One queue per worker. If Linux offers offloads, a virtio header precedes the bytes of each read
//! and write, and one read or write carries many packets ([`crate::segments`], [`crate::merge`]).
//!
//! Reads and writes never block. [`crate::watch`] recreates a deleted interface; a [`Tunnel`] is
//! one instance of it.

use crate::error::StartError;
use crate::netlink::Netlink;
use crate::report::TunnelStatus;
use crate::topology::{Topology, TunnelConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// The settings of a tunnel.
#[derive(Clone, Debug)]
pub(crate) struct TunnelPlan {
    pub(crate) config: TunnelConfig,
    /// One per worker.
    pub(crate) queues: usize,
    /// Packets that Linux may leave to be split in one read; `None` is its own limit.
    pub(crate) segments_max: Option<u32>,
}

/// All tunnels of a node, by `TunnelId`.
pub(crate) type Tunnels = Vec<std::sync::Arc<Tunnel>>;

/// One TUN interface, from its creation to its deletion.
pub(crate) struct Tunnel {
    name: String,
    /// By worker.
    queues: Vec<OwnedFd>,
    offload: Offload,
    /// Fallback reason.
    reason: String,
    /// Set by the thread that notices that the interface is gone. Relaxed: it guards no other
    /// memory, and every thread notices by itself eventually.
    is_gone: AtomicBool,
    /// Set by the thread that follows paths. Relaxed: it is only reported.
    has_carrier: AtomicBool,
    /// Likewise.
    mtu: AtomicU16,
}

/// How long an interface stays, and whether it existed before.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Extent {
    /// As long as a process has a queue of it.
    Process,
    /// Until it is removed.
    Lasting,
    /// It exists, created by a killed process.
    Left,
}

/// Offloads used in both directions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Offload {
    /// One packet per read and write.
    None,
    /// TCP packets are merged, UDP packets are not (Linux before 6.2).
    Tcp,
    /// Both.
    TcpAndUdp,
}

impl Offload {
    /// Name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Offload::None => "none",
            Offload::Tcp => "tcp",
            Offload::TcpAndUdp => "tcp+udp",
        }
    }
}

/// The result of a read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    /// This many bytes, including a virtio header with offloads.
    Bytes(usize),
    /// No packet is waiting.
    Empty,
    /// Linux refused.
    Failed,
    /// The interface does not exist any more.
    Gone,
}

impl Tunnel {
    /// Creates the interface, sets its address and MTU and brings it up, or has the privileged
    /// process do so.
    pub(crate) fn open(plan: &TunnelPlan, netlink: &Netlink) -> Result<Tunnel, StartError> {
        if let Some(privileged) = netlink.privileged() {
            return privileged.tunnel(plan);
        }
        wait_until_free(&plan.config.name, netlink)?;
        Tunnel::create_with_offloads(plan, Extent::Process, netlink)
    }

    /// Like [`Tunnel::open`], for a process with privileges, and with an interface that stays when
    /// that process is killed. With `is_left`, an existing one is adopted as it is: up or down,
    /// with its addresses and all routes.
    pub(crate) fn open_lasting(
        plan: &TunnelPlan,
        is_left: bool,
        netlink: &Netlink,
    ) -> Result<Tunnel, StartError> {
        let name = &plan.config.name;
        if !(is_left && netlink.exists(name)?) {
            wait_until_free(name, netlink)?;
            return Tunnel::create_with_offloads(plan, Extent::Lasting, netlink);
        }
        // Linux removes the queues of a killed process a moment later.
        let end = Instant::now() + RELEASE_TIMEOUT;
        loop {
            match Tunnel::create_with_offloads(plan, Extent::Left, netlink) {
                Err(StartError::TunnelExists { .. }) if Instant::now() < end => {
                    std::thread::sleep(RELEASE_PAUSE);
                }
                // The number of workers changed: single-queue and multi-queue interfaces do not
                // mix.
                Err(StartError::Tunnel { action: CREATE, source, .. })
                    if source.raw_os_error() == Some(EINVAL) =>
                {
                    tracing::warn!(tunnel = name, "it is recreated: add other routes again");
                    netlink.delete(name)?;
                    return Tunnel::create_with_offloads(plan, Extent::Lasting, netlink);
                }
                Ok(tunnel) => {
                    // It may have followed a path.
                    tunnel.set_mtu(plan.config.mtu, netlink)?;
                    return Ok(tunnel);
                }
                refused => return refused,
            }
        }
    }

    fn create_with_offloads(
        plan: &TunnelPlan,
        extent: Extent,
        netlink: &Netlink,
    ) -> Result<Tunnel, StartError> {
        let tunnel = match Tunnel::create(plan, extent, true, String::new(), netlink) {
            Err(StartError::Tunnel { action: CREATE, source, .. })
                if source.raw_os_error() == Some(EINVAL) =>
            {
                let reason = format!("Linux refused offloads ({source})");
                Tunnel::create(plan, extent, false, reason, netlink)?
            }
            outcome => outcome?,
        };
        if tunnel.offload != Offload::TcpAndUdp {
            tracing::warn!(
                tunnel = tunnel.name,
                offload = tunnel.offload.name(),
                "{}: other packets are read and written singly, which costs processor time",
                tunnel.reason
            );
        }
        Ok(tunnel)
    }

    fn create(
        plan: &TunnelPlan,
        extent: Extent,
        offload: bool,
        reason: String,
        netlink: &Netlink,
    ) -> Result<Tunnel, StartError> {
        let config = &plan.config;
        let failed = |action| {
            move |source: io::Error| match source.raw_os_error() {
                Some(EBUSY) => StartError::TunnelExists { tunnel: config.name.clone() },
                _ => StartError::Tunnel { tunnel: config.name.clone(), action, source },
            }
        };
        let builder = DeviceBuilder::new()
            .name(&config.name)
            .layer(Layer::L3)
            .multi_queue(plan.queues > 1)
            .offload(offload);
        let builder = match extent {
            Extent::Left => builder.inherit_enable_state(),
            _ => setting(builder, config.mtu),
        };
        let mut queues = vec![builder.build_sync().map_err(failed(CREATE))?];
        for _ in 1..plan.queues {
            let queue = queues[0].try_clone().map_err(failed("open a queue of"))?;
            queues.push(queue);
        }
        for queue in &queues {
            queue.set_nonblocking(true).map_err(failed("unblock"))?;
        }
        if extent == Extent::Lasting {
            queues[0].persist().map_err(failed("keep"))?;
        }
        if extent != Extent::Left {
            set_ipv6(config);
            promote_secondaries(&config.name);
            // Linux sends from the first address of a family.
            for address in &config.addresses {
                netlink.add_address(&config.name, *address)?;
            }
        }
        limit_segments(plan, netlink);
        if extent != Extent::Left {
            queues[0].enabled(true).map_err(failed("bring up"))?;
        }
        let (offload, reason) = granted(&queues[0], reason);
        let queues = queues.iter().map(|queue| queue.as_fd().try_clone_to_owned());
        let queues = queues.collect::<Result<_, _>>().map_err(failed("keep a queue of"))?;
        Ok(Tunnel::of_queues(config.name.clone(), queues, offload, reason).with_mtu(config.mtu))
    }

    /// A tunnel that is up, with its address and carrier, behind these descriptors.
    pub(crate) fn of_queues(
        name: String,
        queues: Vec<OwnedFd>,
        offload: Offload,
        reason: String,
    ) -> Tunnel {
        Tunnel {
            name,
            queues,
            offload,
            reason,
            is_gone: AtomicBool::new(false),
            has_carrier: AtomicBool::new(true),
            mtu: AtomicU16::new(0),
        }
    }

    /// The same, with this MTU.
    pub(crate) fn with_mtu(self, mtu: u16) -> Tunnel {
        self.mtu.store(mtu, Relaxed);
        self
    }

    /// Whether this tunnel, whose queues the previous program left, still matches `plan`. If so,
    /// resets its MTU, carrier and limits to those of a start.
    pub(crate) fn adopts(&self, plan: &TunnelPlan, netlink: &Netlink) -> Result<bool, StartError> {
        let config = &plan.config;
        if self.queues() != plan.queues || self.look() || !netlink.exists(&config.name)? {
            return Ok(false);
        }
        // It may have followed a path.
        self.set_mtu(config.mtu, netlink)?;
        if let Err(error) = self.set_carrier(true, netlink) {
            tracing::debug!(%error, tunnel = config.name, "its carrier stays what it is");
        }
        limit_segments(plan, netlink);
        Ok(true)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes it end with its last descriptor, in whichever namespace it is.
    pub(crate) fn end_with_descriptors(&self) -> io::Result<()> {
        recoded_xsk::end_with_descriptors(self.queue_fd(0))
    }

    pub(crate) fn offload(&self) -> Offload {
        self.offload
    }

    /// Fallback reason of the offloads; empty if all are used.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// Number of queues.
    pub(crate) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// A queue, to wait on.
    pub(crate) fn queue_fd(&self, queue: usize) -> BorrowedFd<'_> {
        self.queues[queue].as_fd()
    }

    /// Whether a thread noticed that the interface is gone.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Whether the interface has a carrier.
    pub(crate) fn has_carrier(&self) -> bool {
        self.has_carrier.load(Relaxed)
    }

    /// Sets or removes the carrier of the interface. Without one, Linux sends nothing into the
    /// tunnel, and hosts may route around it. Packets arriving for the tunnel are still delivered.
    pub(crate) fn set_carrier(&self, carrier: bool, netlink: &Netlink) -> Result<(), StartError> {
        netlink.set_carrier(&self.name, carrier)?;
        self.has_carrier.store(carrier, Relaxed);
        Ok(())
    }

    /// Its present MTU.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu.load(Relaxed)
    }

    /// Sets the MTU of the interface: Linux reports it to senders on this host and behind it, and
    /// fragments packets that permit it.
    pub(crate) fn set_mtu(&self, mtu: u16, netlink: &Netlink) -> Result<(), StartError> {
        netlink.set_mtu(&self.name, mtu)?;
        self.mtu.store(mtu, Relaxed);
        Ok(())
    }

    /// Status of its interface.
    pub(crate) fn status(&self) -> TunnelStatus {
        match (self.is_gone(), self.has_carrier()) {
            (true, _) => TunnelStatus::Gone,
            (false, true) => TunnelStatus::Present,
            (false, false) => TunnelStatus::NoCarrier,
        }
    }

    /// Queries whether the interface is gone.
    pub(crate) fn look(&self) -> bool {
        let mut polled = [PollFd::new(&self.queues[0], PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error means that the query failed, not that the interface is gone.
        let _ = poll(&mut polled, Some(&at_once));
        if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            self.is_gone.store(true, Relaxed);
        }
        self.is_gone()
    }

    /// Reads from a queue once.
    #[inline]
    pub(crate) fn read(&self, queue: usize, buffer: &mut [u8]) -> Read {
        match rustix::io::read(&self.queues[queue], buffer) {
            Ok(0) | Err(Errno::WOULDBLOCK) => Read::Empty,
            Ok(len) => Read::Bytes(len),
            Err(error) if self.note(error) => Read::Gone,
            Err(_) => Read::Failed,
        }
    }

    /// Writes one packet, merged or not; false if Linux refused it.
    #[inline]
    pub(crate) fn write(&self, queue: usize, virtio: &[u8], packet: &[u8]) -> bool {
        let device = &self.queues[queue];
        let written = match self.offload {
            Offload::None => rustix::io::write(device, packet),
            _ => rustix::io::writev(device, &[IoSlice::new(virtio), IoSlice::new(packet)]),
        };
        match written {
            Ok(_) => true,
            Err(error) => {
                self.note(error);
                false
            }
        }
    }

    /// Whether an error means that the interface is gone.
    #[cold]
    fn note(&self, error: Errno) -> bool {
        if error == Errno::BADFD {
            self.is_gone.store(true, Relaxed);
        }
        self.is_gone()
    }
}

/// The plans for the tunnels of a topology.
pub(crate) fn plans(topology: &Topology) -> Vec<TunnelPlan> {
    let slowest = topology.links.iter().filter_map(|link| link.rate_mbit).reduce(f64::min);
    let plan = |config: &TunnelConfig| TunnelPlan {
        config: config.clone(),
        queues: topology.tunnel_queues.max(topology.workers),
        segments_max: slowest.map(|rate| segments_max(rate, config.mtu)),
    };
    topology.tunnels.iter().map(plan).collect()
}

/// Packets that the link carries in the time of one place of the tunnel's queue.
fn segments_max(rate_mbit: f64, mtu: u16) -> u32 {
    let bytes = rate_mbit * 1e6 / 8.0 * PLACE_SECONDS;
    // The cast saturates.
    ((bytes / f64::from(mtu)) as u32).clamp(1, SEGMENTS_MAX)
}

/// Limits the packets that Linux leaves to be split in one read to those of `plan`.
fn limit_segments(plan: &TunnelPlan, netlink: &Netlink) {
    let name = &plan.config.name;
    if let Some(segments) = plan.segments_max
        && let Err(error) = netlink.limit_segments(name, segments)
    {
        tracing::debug!(%error, tunnel = name, "Linux keeps its own limit of segments");
    }
}

/// Settings of a newly created interface; it is brought up later.
fn setting(builder: DeviceBuilder, mtu: u16) -> DeviceBuilder {
    builder.mtu(mtu).tx_queue_len(QUEUE_PLACES).enable(false)
}

fn granted(device: &SyncDevice, reason: String) -> (Offload, String) {
    match (device.tcp_gso(), device.udp_gso()) {
        (false, _) => (Offload::None, reason),
        (true, false) => (Offload::Tcp, "Linux before 6.2 does not merge UDP packets".to_owned()),
        (true, true) => (Offload::TcpAndUdp, reason),
    }
}

/// Waits until Linux has released the name of a daemon that was just killed.
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

/// Keeps the other addresses of a prefix when its first one is removed.
fn promote_secondaries(name: &str) {
    let path = format!("/proc/sys/net/ipv4/conf/{name}/promote_secondaries");
    if let Err(error) = std::fs::write(&path, "1") {
        tracing::debug!(%error, path, "an address that goes takes others of its prefix with it");
    }
}

/// Keeps router solicitations and multicast reports of an unused IPv6 link-local address out of an
/// IPv4 tunnel: coded packets would carry them on an idle tunnel. Addresses added by hand still
/// work. A tunnel with IPv6 keeps its addresses while it is down, as it is briefly when it is put
/// into a VRF; Linux keeps those of IPv4 anyway.
fn set_ipv6(config: &TunnelConfig) {
    let is_ipv4 = config.addresses.iter().all(|(address, _)| address.is_ipv4());
    let key = if is_ipv4 { "addr_gen_mode" } else { "keep_addr_on_down" };
    let path = format!("/proc/sys/net/ipv6/conf/{}/{key}", config.name);
    if let Err(error) = std::fs::write(&path, "1") {
        tracing::debug!(%error, path, "the tunnel has IPv6 as Linux has it by default");
    }
}

const CREATE: &str = "create";
/// Places in Linux's queue, where packets wait until the worker's next read: 4 ms of its reading
/// pace while they cannot leave. Fewer would lose the bursts of a fast sender, more only serve a
/// sender that never slows down.
const QUEUE_PLACES: u32 = 1000;
/// A place of the queue holds one packet, or many that Linux leaves to be split. The slower the
/// link, the fewer they may be: up to the number that it carries in this time, so that a full queue
/// is 40 ms at any rate even when no worker reads. Slow links have time for a read per packet.
const PLACE_SECONDS: f64 = 40e-6;
/// Packets of 1 KiB in 64 KiB; Linux leaves no more bytes to be split.
const SEGMENTS_MAX: u32 = 64;
/// Linux removes the interfaces of a killed process within milliseconds, on a busy machine within
/// a second or two.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(2500);
const RELEASE_PAUSE: Duration = Duration::from_millis(1);
/// TUNSETIFF: the name is a TUN interface of another process.
const EBUSY: i32 = 16;
/// TUNSETIFF or TUNSETOFFLOAD: a flag that this Linux does not know.
const EINVAL: i32 = 22;

/// Runs `work` in a network namespace of its own, with its name; skipped without root.
#[cfg(test)]
pub(crate) fn in_namespace(work: impl FnOnce(&str) + Send) {
    use std::sync::atomic::AtomicU32;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root for a network namespace");
    }
    let name = format!("rt{}t{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let ip = |arguments: &[&str]| {
        let status = std::process::Command::new("ip").args(arguments).status();
        assert!(status.expect("iproute2").success(), "ip {arguments:?}");
    };
    ip(&["netns", "add", &name]);
    let enter = || {
        let file = std::fs::File::open(format!("/run/netns/{name}")).unwrap();
        let kind = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind)).unwrap();
        work(&name);
    };
    let result = std::thread::scope(|scope| scope.spawn(enter).join());
    ip(&["netns", "delete", &name]);
    result.unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_max_keeps_a_place_of_the_queue_at_forty_microseconds() {
        assert_eq!(segments_max(10.0, 1400), 1);
        assert_eq!(segments_max(300.0, 1400), 1);
        assert_eq!(segments_max(1000.0, 1400), 3);
        assert_eq!(segments_max(10_000.0, 1400), 35);
        assert_eq!(segments_max(1e12, 68), SEGMENTS_MAX);
    }

    #[test]
    fn tunnel_without_offloads_carries_plain_packets() {
        in_namespace(|_| {
            let config = TunnelConfig {
                name: "rec0".into(),
                addresses: vec![("10.99.0.1".parse().unwrap(), 24)],
                mtu: 1400,
            };
            let plan = TunnelPlan { config, queues: 1, segments_max: None };
            let netlink = Netlink::open().unwrap();
            let tunnel =
                Tunnel::create(&plan, Extent::Process, false, "old".into(), &netlink).unwrap();
            assert_eq!((tunnel.offload(), tunnel.reason()), (Offload::None, "old"));
            let socket = std::net::UdpSocket::bind("10.99.0.1:80").unwrap();
            socket.send_to(b"out", "10.99.0.2:1000").unwrap();
            let mut buffer = [0; 2000];
            let Read::Bytes(len) = tunnel.read(0, &mut buffer) else { panic!("nothing to read") };
            assert_eq!((buffer[0], &buffer[28..len]), (0x45, &b"out"[..]));
            assert_eq!(tunnel.read(0, &mut buffer), Read::Empty);
            let mut answer = crate::inner::Inner::udp(2, b"in").bytes();
            // To 10.99.0.1; the UDP checksum is omitted.
            answer[19] = 1;
            answer[26..28].fill(0);
            answer[10..12].fill(0);
            let checksum = !crate::checksum::fold(crate::checksum::sum(&answer[..20]));
            answer[10..12].copy_from_slice(&checksum.to_be_bytes());
            assert!(tunnel.write(0, &[], &answer));
            let (len, _) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"in");
            assert!(!tunnel.look());
        });
    }
}
