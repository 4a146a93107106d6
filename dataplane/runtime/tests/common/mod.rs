//! Two namespaces joined by a veth pair, and helpers for tests of nodes in them.
#![allow(dead_code)] // each test binary uses its own part

use recoded_pipeline::params::{FlowParams, PeerId, Role, Snapshot, TunnelId};
use recoded_runtime::{
    Backend, HopConfig, Idle, LinkConfig, Resources, Runtime, StartError, Topology, TunnelConfig,
};
use recoded_xsk::{FrameSize, ModePreference};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Two namespaces joined by a veth pair: `eth0` in each, 10.7.0.1 and 10.7.0.2, fd07::1 and
/// fd07::2.
pub struct Bed {
    pub left: String,
    pub right: String,
    queues: usize,
    /// Tests take turns: they measure time and own the names of the namespaces.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Bed {
    /// Two queues each way, for tests that have two workers. `None`, with the reason printed,
    /// without root.
    pub fn new() -> Option<Bed> {
        Bed::of_queues(2)
    }

    /// As [`Bed::new`], with this many queues each way. A veth delivers to the queue with the
    /// number of the sending core, and a node has one queue for each worker.
    pub fn of_queues(queues: usize) -> Option<Bed> {
        if !rustix::process::geteuid().is_root() {
            let reason = "needs root to create network namespaces";
            assert!(std::env::var("RECODED_REQUIRE_ALL").as_deref() != Ok("1"), "{reason}");
            eprintln!("skipped: {reason}");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        let (left, right) = (format!("rt{pid}l"), format!("rt{pid}r"));
        let bed = Bed { left, right, queues, _turn: turn };
        let (left, right) = (&bed.left, &bed.right);
        for name in [left, right] {
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
        }
        bed.connect();
        Some(bed)
    }

    /// Creates the pair; deleting either end removes it.
    pub fn connect(&self) {
        let (left, right) = (&self.left, &self.right);
        let queues = format!("numrxqueues {0} numtxqueues {0}", self.queues);
        ip(&format!(
            "-n {left} link add eth0 {queues} type veth peer name eth0 {queues} netns {right}"
        ));
        for (name, host) in [(left, 1), (right, 2)] {
            ip(&format!("-n {name} addr add 10.7.0.{host}/24 dev eth0"));
            ip(&format!("-n {name} addr add fd07::{host}/64 dev eth0 nodad"));
            ip(&format!("-n {name} link set eth0 up"));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for name in [&self.left, &self.right] {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether it succeeds.
pub fn try_ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).output().expect("iproute2").status.success()
}

/// Runs `work` on a thread inside a namespace.
pub fn inside<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> R {
    let enter = || {
        let file = std::fs::File::open(format!("/run/netns/{name}")).unwrap();
        let kind = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(kind))
            .unwrap();
        work()
    };
    std::thread::scope(|scope| match scope.spawn(enter).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A neighbour on the link, without a key.
pub fn hop(address: &str) -> HopConfig {
    HopConfig { link: 0, address: address.parse().unwrap(), key: None, roams: false, path: 0 }
}

pub fn topology(local: &str, neighbour: &str, tunnel: &str) -> Topology {
    Topology {
        private_key: None,
        edges: Vec::new(),
        groups: Vec::new(),
        relayed: Vec::new(),
        workers: 1,
        tunnel_queues: 1,
        flow_memory_bytes: 1 << 30,
        cores: None,
        idle: Idle::Adaptive,
        frames_per_worker: 4096,
        frame_size: FrameSize::SMALL,
        port: 9426,
        xdp_mode: ModePreference::Auto,
        links: vec![LinkConfig {
            name: "link".into(),
            interface: "eth0".into(),
            local: local.parse().unwrap(),
            backend: Backend::Xdp,
            rate_mbit: None,
        }],
        hops: vec![hop(neighbour)],
        tunnels: vec![TunnelConfig {
            name: "rec0".into(),
            addresses: vec![(tunnel.parse().unwrap(), 24)],
            mtu: 1400,
        }],
    }
}

pub fn flow(id: u32, role: Role) -> FlowParams {
    let next_hops = match role {
        Role::Source { .. } => vec![PeerId(0)],
        _ => vec![],
    };
    FlowParams::new(id, role, next_hops)
}

pub fn source(id: u32) -> FlowParams {
    flow(id, Role::Source { tunnel: TunnelId(0) })
}

pub fn sink(id: u32) -> FlowParams {
    flow(id, Role::Sink { tunnel: TunnelId(0), upstream: PeerId(0) })
}

pub fn snapshot(edition: u64, flows: Vec<FlowParams>) -> Snapshot {
    Snapshot { edition, flows }
}

pub fn start(topology: &Topology, flows: Vec<FlowParams>) -> Result<Runtime, StartError> {
    Runtime::start(Resources::open(topology)?, snapshot(1, flows), None)
}

pub fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !is_true() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// CPU time of this process's worker threads.
pub fn worker_cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let nanos = tasks.filter_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        name.starts_with("recoded-").then(|| times.split(' ').next()?.parse::<u64>().ok())?
    });
    Duration::from_nanos(nanos.sum())
}

/// Sends numbered datagrams from the left tunnel to the right one; returns how many arrived.
pub fn exchange(bed: &Bed, from: &str, to: &str, count: u32) -> u32 {
    let receiver = inside(&bed.right, || UdpSocket::bind((to, 5000)).unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let sender = inside(&bed.left, || UdpSocket::bind((from, 0)).unwrap());
    let (mut arrived, mut buffer) = (0, [0; 2048]);
    for number in 0..count {
        let mut payload = vec![number as u8; 100 + (900 + number as usize * 7) % 1200];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        sender.send_to(&payload, (to, 5000)).unwrap();
        while let Ok((len, _)) = receiver.recv_from(&mut buffer) {
            // A datagram that timed out arrives late.
            if buffer[..4] < payload[..4] {
                continue;
            }
            assert_eq!(buffer[..len], payload[..], "delivered in order and unharmed");
            arrived += 1;
            break;
        }
    }
    arrived
}
