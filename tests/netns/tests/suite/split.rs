//! TCP connections that `recoded-split` ends at both edges of a tunnel.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::{self, Background};
use recoded_netns::stream::Stream;
use recoded_netns::{
    Bed, BedConfig, CodePlan, Daemon, DirectionConfig, LinePlan, LinkConfig, Loss, Namespace,
    binary,
};

const RATE_MBIT: f64 = 100.0;

/// Until something on a busy machine is as it should be.
const PATIENCE: Duration = Duration::from_secs(30);

/// Addresses of the edges in the tunnel.
const EDGES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

/// A host behind an edge; its namespace ends with the test.
pub struct Host(pub Namespace);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = process::run(Command::new("ip").args(["netns", "delete", self.0.name()]));
    }
}

/// Number of the host behind an edge, in its addresses.
pub fn v4(edge: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 61 + edge as u8, 0, 5)
}

fn v6(edge: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd61 + edge as u16, 0, 0, 0, 0, 0, 0, 5)
}

/// A line with daemons, a host behind each edge, and the programs that split connections.
pub struct Line {
    pub hosts: [Host; 2],
    splits: Vec<Background>,
    _daemons: Vec<Daemon>,
    pub bed: Bed,
}

impl Line {
    /// Without the programs that split.
    pub fn start(bed: Bed) -> Line {
        let mut plan = LinePlan::protected(bed.hops());
        plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
        let daemons = Daemon::start_line(&bed, &plan).unwrap();
        let hosts = [0, 1].map(|edge| host(&bed, edge));
        Line { hosts, splits: Vec::new(), _daemons: daemons, bed }
    }

    /// Starts the program at one edge.
    fn split(&self, edge: usize) -> Background {
        let host = if edge == 0 { self.bed.source() } else { self.bed.sink() };
        let mut command = host.command(binary("recoded-split"));
        command.args(["rec0", "--address", EDGES[edge], "--peer", EDGES[1 - edge]]);
        command.args(["--user", "65534", "--log", "debug"]);
        Background::start(&mut command, &self.log(edge)).unwrap()
    }

    fn log(&self, edge: usize) -> std::path::PathBuf {
        self.bed.directory().join(format!("split-{edge}.log"))
    }

    pub fn logs(&self) -> String {
        [0, 1].map(|edge| std::fs::read_to_string(self.log(edge)).unwrap_or_default()).concat()
    }

    /// Starts both programs, and waits until they are connected.
    pub fn split_both(&mut self) {
        self.splits = [0, 1].map(|edge| self.split(edge)).into();
        self.wait_until_connected(1, [1, 1]);
    }

    /// Waits until each edge has connected `times` and has set the rules of each of its starts.
    fn wait_until_connected(&self, times: usize, starts: [usize; 2]) {
        let is_so = |edge| {
            let log = std::fs::read_to_string(self.log(edge)).unwrap_or_default();
            log.matches("leave by the tunnel are split").count() >= starts[edge]
                && log.matches("connected to the other edge").count() >= times
        };
        self.wait("connections", || (0..2).all(is_so));
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what} does not come: {}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A server behind the second edge.
    fn listen(&self, address: IpAddr) -> (TcpListener, SocketAddr) {
        let bound = self.hosts[1].0.inside(|| TcpListener::bind((address, 0)));
        let listener = bound.unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        (listener, at)
    }

    /// A connection of the host behind the first edge.
    fn connect(&self, to: SocketAddr) -> TcpStream {
        let stream = self.hosts[0].0.inside(|| TcpStream::connect_timeout(&to, PATIENCE));
        let stream = stream.unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

/// A host behind the first or the last node, with IPv4 and IPv6.
fn host(bed: &Bed, edge: usize) -> Host {
    let router = if edge == 0 { bed.source() } else { bed.sink() };
    let host = Host(Namespace::create(format!("{}-lan{edge}", bed.prefix())).unwrap());
    let name = host.0.name();
    for space in [&host.0, router] {
        for set in ["all", "default"] {
            space.sysctl(&format!("net.ipv6.conf.{set}.disable_ipv6"), "0").unwrap();
            space.sysctl(&format!("net.ipv6.conf.{set}.accept_dad"), "0").unwrap();
        }
    }
    router.ip(&format!("link add lan type veth peer name eth0 netns {name}")).unwrap();
    let (network, other) = (61 + edge, 62 - edge);
    for (space, device, last) in [(router, "lan", 1), (&host.0, "eth0", 5)] {
        space.ip(&format!("address add 10.{network}.0.{last}/24 dev {device}")).unwrap();
        space.ip(&format!("address add fd{network}::{last}/64 dev {device}")).unwrap();
        space.ip(&format!("link set {device} up")).unwrap();
    }
    host.0.ip(&format!("route add default via 10.{network}.0.1")).unwrap();
    host.0.ip(&format!("-6 route add default via fd{network}::1")).unwrap();
    router.sysctl("net.ipv4.ip_forward", "1").unwrap();
    router.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    router.ip(&format!("route add 10.{other}.0.0/24 dev rec0")).unwrap();
    router.ip(&format!("-6 route add fd{other}::/64 dev rec0")).unwrap();
    host
}

/// What of a stream arrives, to its end.
fn read_all(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map(|_| bytes)
}

/// Closes a connection by RST.
fn reset(stream: TcpStream) {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
}

#[test]
fn connections_are_split_with_their_addresses_and_end_as_they_should() {
    let Some(_turn) = common::daemons_beside() else { return };
    let mut line = Line::start(common::bed(2, Loss::independent(0.05), RATE_MBIT));
    line.split_both();
    for (host, address) in [(v4(0).into(), v4(1).into()), (v6(0).into(), IpAddr::from(v6(1)))] {
        let (listener, at) = line.listen(address);
        // Half closed: the server answers when it has read everything.
        let mut client = line.connect(at);
        let (mut server, from) = listener.accept().unwrap();
        assert_eq!(from, SocketAddr::new(host, client.local_addr().unwrap().port()));
        client.write_all(&[7; 100_000]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let asked = read_all(&mut server).unwrap();
        assert_eq!(asked, [7; 100_000]);
        server.write_all(b"answer").unwrap();
        drop(server);
        assert_eq!(read_all(&mut client).unwrap(), b"answer");
        // Reset by the server, while the host waits.
        let mut client = line.connect(at);
        let (server, _) = listener.accept().unwrap();
        reset(server);
        assert_eq!(read_all(&mut client).unwrap_err().kind(), ErrorKind::ConnectionReset);
        // No program listens: that is the answer to the SYN.
        drop(listener);
        let refused = line.hosts[0].0.inside(|| TcpStream::connect_timeout(&at, PATIENCE)).unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // A server that does not answer: nor does the edge.
        let silence = line.hosts[1].0.inside(|| TcpListener::bind((address, 7))).unwrap().unwrap();
        let quiet = "add table inet quiet; add chain inet quiet in { type filter hook input \
                     priority 0; }; add rule inet quiet in tcp dport 7 drop";
        line.hosts[1].0.run("nft", quiet).unwrap();
        let at = silence.local_addr().unwrap();
        let silent =
            line.hosts[0].0.inside(|| TcpStream::connect_timeout(&at, Duration::from_secs(4)));
        assert_eq!(silent.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        line.hosts[1].0.run("nft", "delete table inet quiet").unwrap();
    }
    // Programs of the edges themselves.
    let (listener, at) = line.listen(v4(1).into());
    let own = line.bed.source().inside(|| TcpStream::connect_timeout(&at, PATIENCE));
    let mut own = own.unwrap().unwrap();
    let (mut server, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), EDGES[0]);
    server.write_all(b"to the edge").unwrap();
    drop(server);
    assert_eq!(read_all(&mut own).unwrap(), b"to the edge");
    let established = line.bed.sink().run("ss", "-Htn state established").unwrap();
    println!("{established}");
    // At each edge, the process that handles connections is confined.
    let (filters, privileges) = (of_processes(&line, "Seccomp"), of_processes(&line, "NoNewPrivs"));
    assert_eq!(filters.iter().filter(|mode| **mode == 2).count(), 2, "{filters:?}");
    assert_eq!(privileges.iter().sum::<u64>(), 2, "{privileges:?}");
}

#[test]
fn connections_of_an_edge_that_begins_anew_are_reset_and_new_ones_pass() {
    let Some(_turn) = common::daemons_beside() else { return };
    let mut line = Line::start(common::bed(1, Loss::independent(0.02), RATE_MBIT));
    line.split_both();
    let (listener, at) = line.listen(v4(1).into());
    for edge in [0, 1] {
        let mut client = line.connect(at);
        let (mut server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        // Killed, so that it says nothing to the other one.
        process::children(line.splits[edge].pid()).into_iter().for_each(process::end);
        line.splits[edge].kill();
        line.splits[edge] = line.split(edge);
        // Each restart makes both connect again. Without the new rules, the connections below
        // would not be split.
        line.wait_until_connected(2 + edge, [2, 1 + edge]);
        for stream in [&mut client, &mut server] {
            let ended = read_all(stream).map_err(|error| error.kind());
            assert_ne!(ended, Err(ErrorKind::WouldBlock), "it hangs: {}", line.logs());
        }
        let mut client = line.connect(at);
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"new").unwrap();
        drop(server);
        assert_eq!(read_all(&mut client).unwrap(), b"new");
    }
    // Without the programs, the rules are gone: connections pass by themselves.
    line.splits.iter_mut().for_each(|split| assert!(split.terminate(PATIENCE)));
    for host in [line.bed.source(), line.bed.sink()] {
        line.wait("an end of the rules", || {
            !host.run("nft", "list ruleset").unwrap().contains("recoded-split")
        });
    }
    let mut client = line.connect(at);
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(b"plain").unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).unwrap(), b"plain");
}

/// The window between the edges stays from one connection to the next, so a new one does not begin
/// with ten packets a round trip.
#[test]
fn new_connections_fill_a_long_path_at_once_where_they_are_split() {
    const SECONDS: f64 = 2.5;
    let Some(_turn) = common::daemons() else { return };
    let link = LinkConfig::new(Loss::independent(0.02), RATE_MBIT);
    let delay = Duration::from_millis(150);
    let link = LinkConfig {
        eastward: DirectionConfig { delay, ..link.eastward },
        westward: DirectionConfig { delay, ..link.westward },
        ..link
    };
    let bed = Bed::build(&BedConfig::uniform(1, link)).unwrap();
    let mut line = Line::start(bed);
    let [first, second] = [&line.hosts[0].0, &line.hosts[1].0].map(Clone::clone);
    let run = |port, seconds| {
        let to = SocketAddr::from((v4(1), port));
        let stream = Stream::start(&first, to, &second, to, "cubic").unwrap();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stream.finish().mbit_between(0.0, seconds)
    };
    // The first run teaches the line its loss and rate.
    let plain = [run(7000, 6.0), run(7001, SECONDS)];
    line.split_both();
    let split = [run(7002, 6.0), run(7003, SECONDS)];
    println!("Mbit/s of 6 s, then of {SECONDS} s: plain {plain:.1?}, split {split:.1?}");
    assert!(split[1] > 1.3 * plain[1], "{plain:?}, {split:?}: {}", line.logs());
}

/// Jain's index of shares: 1 if all are equal, 1/n if one has all.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum.powi(2) / (shares.len() as f64 * squares)
}

/// A number that Linux shows of each of the four processes.
fn of_processes(line: &Line, name: &str) -> Vec<u64> {
    let children = line.splits.iter().flat_map(|split| process::children(split.pid()));
    let number = |pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.and_then(|it| it.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    children.map(number).collect()
}

/// Writes and reads what is possible without waiting; the bytes that each client read in `time`.
fn share(servers: &[TcpStream], clients: &[TcpStream], time: Duration) -> Vec<u64> {
    let chunk = [1; 4096];
    let mut buffer = [0; 16 << 10];
    let mut read = vec![0; clients.len()];
    let begun = Instant::now();
    while begun.elapsed() < time {
        for (index, (mut server, mut client)) in servers.iter().zip(clients).enumerate() {
            let _ = server.write(&chunk);
            read[index] += client.read(&mut buffer).unwrap_or(0) as u64;
        }
    }
    read
}

/// 2000 connections at once share the path, need little memory at rest, and none hangs.
#[test]
fn many_connections_share_a_path() {
    let Some(_turn) = common::daemons() else { return };
    const CONNECTIONS: usize = 2000;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: files.maximum, ..files };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).unwrap();
    let mut line = Line::start(common::bed(1, Loss::independent(0.02), RATE_MBIT));
    line.split_both();
    let (listener, at) = line.listen(v4(1).into());
    let begun = Instant::now();
    let (clients, servers) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| -> Vec<TcpStream> {
            (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect()
        });
        let clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| line.connect(at)).collect();
        (clients, serving.join().unwrap())
    });
    let opened = begun.elapsed();
    let resident = of_processes(&line, "VmRSS");
    println!("open after {opened:.1?}; resident KiB of the processes: {resident:?}");
    assert!(resident.iter().all(|kib| *kib < 64 * CONNECTIONS as u64), "{resident:?}");
    // Pairs by the port of the client.
    let mut servers = servers;
    servers.sort_by_key(|server| server.peer_addr().unwrap().port());
    let mut clients = clients;
    clients.sort_by_key(|client| client.local_addr().unwrap().port());
    clients.iter().chain(&servers).for_each(|it| it.set_nonblocking(true).unwrap());
    share(&servers, &clients, Duration::from_secs(4));
    let read = share(&servers, &clients, Duration::from_secs(12));
    let (sum, index) = (read.iter().sum::<u64>(), jain(&read));
    println!("Jain {index:.3}, {:.1} Mbit/s", sum as f64 * 8e-6 / 12.0);
    // 0.34 where the newest writers have what room there is, 0.99 where they take turns.
    assert!(index >= 0.9, "{index}: {:?}", &read[..50]);
    servers.into_iter().for_each(reset);
    for mut client in clients {
        client.set_nonblocking(false).unwrap();
        let ended = client.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert_ne!(ended, Err(ErrorKind::WouldBlock), "it hangs: {}", line.logs());
    }
}

/// A first packet of a connection, from an address that no host has.
fn forged(number: u32, to: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(server) = to.ip() else { panic!("IPv4") };
    let host = [10, 61, 1 + (number >> 8) as u8 % 200, number as u8];
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(host);
    packet.extend(server.octets());
    packet.extend((1024 + (number % 60_000) as u16).to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(number.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let words = packet[12..].chunks(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
    let mut sum = words.sum::<u32>() + 20 + 6;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[36..38].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

/// Sends ten thousand of them a second.
fn flood(host: &Namespace, to: SocketAddr, time: Duration) -> u32 {
    use nix::sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
    };
    let socket = host.inside(|| {
        let flags = SockFlag::empty();
        socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw).unwrap()
    });
    let socket = socket.unwrap();
    let SocketAddr::V4(server) = to else { panic!("IPv4") };
    let server = SockaddrIn::from(server);
    let (begun, mut sent) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let due = (begun.elapsed().as_secs_f64() * 10_000.0) as u32;
        while sent < due {
            let packet = forged(sent, to);
            let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
            let _ = sendto(raw, &packet, &server, MsgFlags::empty());
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    sent
}

/// First packets from forged addresses, 10 000 a second, cost others little: few of them wait, and
/// Linux answers the rest by SYN cookies.
#[test]
fn flood_of_first_packets_leaves_the_path_to_others() {
    let Some(_turn) = common::daemons() else { return };
    const SECONDS: f64 = 8.0;
    let mut line = Line::start(common::bed(1, Loss::independent(0.02), RATE_MBIT));
    line.split_both();
    let [first, second] = [&line.hosts[0].0, &line.hosts[1].0].map(Clone::clone);
    let run = |port| {
        let to = SocketAddr::from((v4(1), port));
        let stream = Stream::start(&first, to, &second, to, "cubic").unwrap();
        std::thread::sleep(Duration::from_secs_f64(SECONDS));
        stream.finish().mbit_between(2.0, SECONDS)
    };
    run(7000);
    let quiet = run(7001);
    let (_listener, at) = line.listen(v4(1).into());
    let (flooded, sent, opened) = std::thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&first, at, Duration::from_secs_f64(SECONDS + 4.0)));
        std::thread::sleep(Duration::from_secs(1));
        let opening = scope.spawn(|| {
            let times = (0..5).map(|_| {
                let begun = Instant::now();
                drop(line.connect(at));
                begun.elapsed()
            });
            times.collect::<Vec<_>>()
        });
        let flooded = run(7002);
        (flooded, flooding.join().unwrap(), opening.join().unwrap())
    });
    println!(
        "Mbit/s: {quiet:.1}, next to {sent} first packets {flooded:.1}; others open after {opened:.1?}"
    );
    assert!(flooded > 0.7 * quiet, "{flooded} of {quiet}: {}", line.logs());
    let resident = of_processes(&line, "VmRSS");
    assert!(resident.iter().all(|kib| *kib < 128 << 10), "{resident:?}");
}

/// Hosts that read nothing once took all bytes in flight: no other connection had any left.
#[test]
fn connections_that_stall_or_vanish_hold_up_no_other_one() {
    let Some(_turn) = common::daemons() else { return };
    const STALLED: usize = 8;
    const BYTES: usize = 4 << 20;
    let mut line = Line::start(common::bed(1, Loss::independent(0.02), RATE_MBIT));
    line.split_both();
    let (listener, at) = line.listen(v4(1).into());
    let pairs: Vec<_> = (0..STALLED)
        .map(|_| {
            let client = line.connect(at);
            let (server, _) = listener.accept().unwrap();
            server.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
            (client, server)
        })
        .collect();
    // Each server writes until nothing of it is taken for some seconds.
    std::thread::scope(|scope| {
        for (_, server) in &pairs {
            let mut server = server;
            scope.spawn(move || while server.write(&[1; 65_536]).is_ok() {});
        }
    });
    let mut client = line.connect(at);
    let (mut server, _) = listener.accept().unwrap();
    let writing = std::thread::spawn(move || server.write_all(&vec![2; BYTES]));
    assert_eq!(read_all(&mut client).unwrap().len(), BYTES, "{}", line.logs());
    writing.join().unwrap().unwrap();
    // One of them reads on, and gets all; another one is gone.
    let mut pairs = pairs;
    let (mut client, server) = pairs.remove(0);
    drop(server);
    assert!(read_all(&mut client).unwrap().len() > BYTES);
    let (client, mut server) = pairs.remove(0);
    drop(client);
    assert!(server.read(&mut [0]).is_err(), "unread bytes: the host resets");
}
