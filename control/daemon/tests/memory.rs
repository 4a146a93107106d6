//! A daemon under traffic stays within its configured memory.

#![forbid(unsafe_code)]

use recoded::config::{Config, budget};
use recoded_api::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The program's memory in addition to `memory`, as documented in `recoded.toml`.
const PROGRAM_KIB: u64 = 32 << 10;

/// Source and sink of one flow, with oversized tables.
const ENDS: [(&str, u8); 2] = [
    (
        "role = \"source\"\nnext_hops = [{ link = \"link\", address = \"10.7.0.2\" }]\n\
         code = \"rlnc\"\ngeneration_size = 128\nfield = 256\nredundancy = 1.2\n",
        1,
    ),
    ("role = \"sink\"\nupstream = { link = \"link\", address = \"10.7.0.1\" }\n", 2),
];

/// Two namespaces joined by a veth pair, and the processes in them.
struct Bed {
    names: [String; 2],
    daemons: Vec<Child>,
}

impl Bed {
    fn new() -> Bed {
        let names = ["a", "b"].map(|end| format!("rcm{}{end}", std::process::id()));
        let bed = Bed { names, daemons: Vec::new() };
        let [left, right] = &bed.names;
        ip(&format!("netns add {left}"));
        ip(&format!("netns add {right}"));
        ip(&format!("-n {left} link add eth0 type veth peer name eth0 netns {right}"));
        for (name, host) in bed.names.iter().zip(1..) {
            ip(&format!("-n {name} addr add 10.7.0.{host}/24 dev eth0"));
            ip(&format!("-n {name} link set eth0 up"));
        }
        bed
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // Graceful shutdown, since packets keep flowing after a supervisor is killed.
            let pid = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw).expect("a process");
            let _ = kill_process(pid, Signal::TERM);
            let _ = daemon.wait();
        }
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2");
    assert!(done.success(), "ip {arguments}");
}

/// The configuration with `memory`, such as `512 MiB`.
fn text(end: usize, socket: &Path, memory: &str) -> String {
    let (flow, host) = ENDS[end];
    format!(
        "[daemon]\nsocket = \"{}\"\ngenerations = 512\nmemory = \"{memory}\"\n\
         [[link]]\nname = \"link\"\ninterface = \"eth0\"\nlocal = \"10.7.0.{host}\"\n\
         [[tunnel]]\nname = \"rec0\"\naddress = \"10.99.0.{host}/24\"\n\
         [[flow]]\nid = 1\ntunnel = \"rec0\"\n{flow}",
        socket.display()
    )
}

/// Packets that fill all generations of the tables.
const TABLE_PACKETS: u64 = 600 * 128;

/// The smallest budget that this configuration accepts, in MiB.
fn least_memory(end: usize) -> u64 {
    let parse = |memory: &str| {
        let text = text(end, Path::new("/run/x.sock"), memory);
        Config::parse("x", &text, &|_| Some(1500)).map(|(_, _, config)| config)
    };
    let config = parse("64 GiB").expect("valid");
    let needed = budget::needed(config.base(), &config.flows);
    let least = needed.div_ceil(1 << 20);
    assert!(parse(&format!("{least} MiB")).is_ok());
    assert!(parse(&format!("{} MiB", least - 1)).is_err());
    least
}

fn start(bed: &mut Bed, folder: &Path, end: usize) -> (PathBuf, u64) {
    // State that packets announce comes on top of the least; more than that must not be allocated.
    let memory = least_memory(end) + if end == 1 { 16 } else { 0 };
    let socket = folder.join(format!("{end}.sock"));
    let file = folder.join(format!("{end}.toml"));
    std::fs::write(&file, text(end, &socket, &format!("{memory} MiB"))).expect("write");
    let daemon = Command::new("ip")
        .args(["netns", "exec", &bed.names[end], env!("CARGO_BIN_EXE_recoded"), "--config"])
        .arg(&file)
        .spawn()
        .expect("starts");
    bed.daemons.push(daemon);
    let begin = Instant::now();
    while Client::connect(&socket).and_then(|mut client| client.version()).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10), "the daemon does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    (socket, memory)
}

fn resident_kib(daemon: &Child) -> u64 {
    // The supervisor's child handles packets.
    let pid = daemon.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let path = format!("/proc/{}/status", children.expect("it runs").trim());
    let status = std::fs::read_to_string(path).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Sends packets into the tunnel until `is_enough`, for at most half a minute, from within the
/// namespace.
fn send(namespace: &str, is_enough: &AtomicBool) {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).expect("it is there");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root");
    let socket = UdpSocket::bind("10.99.0.1:0").expect("the tunnel has this address");
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end && !is_enough.load(Ordering::Relaxed) {
        for _ in 0..32 {
            let _ = socket.send_to(&[7; 1300], "10.99.0.2:5000");
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn daemons_under_traffic_stay_within_the_memory_they_declare() {
    if !rustix::process::geteuid().is_root() {
        let reason = "network namespaces need root";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"), "{reason}");
        println!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let mut bed = Bed::new();
    let ends: Vec<(PathBuf, u64)> = (0..2).map(|end| start(&mut bed, folder.path(), end)).collect();
    let namespace = bed.names[0].clone();
    let is_enough = Arc::new(AtomicBool::new(false));
    let enough = is_enough.clone();
    let sender = std::thread::spawn(move || send(&namespace, &enough));
    let delivered = |socket: &Path| {
        let state = Client::connect(socket).and_then(|mut client| client.state()).expect("state");
        state.flows[0].count("delivered_packets")
    };
    let mut most = [0; 2];
    let mut arrived = 0;
    while !sender.is_finished() {
        for (most, daemon) in most.iter_mut().zip(&bed.daemons) {
            *most = resident_kib(daemon).max(*most);
        }
        std::thread::sleep(Duration::from_millis(100));
        arrived = delivered(&ends[1].0);
        // Twice as many generations as the tables hold.
        is_enough.store(arrived > 2 * TABLE_PACKETS, Ordering::Relaxed);
    }
    sender.join().expect("it sends");
    println!("{arrived} packets delivered");
    assert!(arrived > TABLE_PACKETS, "{arrived} packets delivered");
    for ((_, memory), most) in ends.iter().zip(most) {
        println!("{memory} MiB declared, {} MiB resident at most", most >> 10);
        assert!(most <= (memory << 10) + PROGRAM_KIB, "{most} KiB with {memory} MiB declared");
        // Frames are locked, so a smaller figure cannot be the memory of this process.
        assert!(most > 32 << 10, "{most} KiB");
    }
}
