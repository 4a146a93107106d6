//! TCP connections that `recoded-split` ends at both edges of a tunnel.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::{self, Background};
use recoded_netns::stream::Stream;
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
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
struct Host(Namespace);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = process::run(Command::new("ip").args(["netns", "delete", self.0.name()]));
    }
}

/// Number of the host behind an edge, in its addresses.
fn v4(edge: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 61 + edge as u8, 0, 5)
}

fn v6(edge: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd61 + edge as u16, 0, 0, 0, 0, 0, 0, 5)
}

/// A line with daemons, a host behind each edge, and the programs that split connections.
struct Line {
    hosts: [Host; 2],
    splits: Vec<Background>,
    _daemons: Vec<Daemon>,
    bed: Bed,
}

impl Line {
    /// Without the programs that split.
    fn start(bed: Bed) -> Line {
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

    fn logs(&self) -> String {
        [0, 1].map(|edge| std::fs::read_to_string(self.log(edge)).unwrap_or_default()).concat()
    }

    /// Starts both programs, and waits until they are connected.
    fn split_both(&mut self) {
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
        nix::sys::socket::setsockopt(
            &server,
            nix::sys::socket::sockopt::Linger,
            &nix::libc::linger { l_onoff: 1, l_linger: 0 },
        )
        .unwrap();
        drop(server);
        assert_eq!(read_all(&mut client).unwrap_err().kind(), ErrorKind::ConnectionReset);
        // No program listens.
        drop(listener);
        let refused = line.hosts[0].0.inside(|| TcpStream::connect_timeout(&at, PATIENCE)).unwrap();
        let refused = refused.and_then(|mut stream| read_all(&mut stream));
        let kind = refused.unwrap_err().kind();
        assert!([ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused].contains(&kind));
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

/// A thousand connections at once share the path, and none hangs.
#[test]
fn many_connections_share_a_path() {
    let Some(_turn) = common::daemons() else { return };
    const CONNECTIONS: usize = 1000;
    let mut line = Line::start(common::bed(1, Loss::independent(0.02), RATE_MBIT));
    line.split_both();
    let (listener, at) = line.listen(v4(1).into());
    let served = std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let accepted: Vec<TcpStream> =
                (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect();
            for mut stream in accepted {
                stream.write_all(&[1; 2000]).unwrap();
            }
        });
        let clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| line.connect(at)).collect();
        serving.join().unwrap();
        let resident: Vec<u64> = line
            .splits
            .iter()
            .flat_map(|split| process::children(split.pid()))
            .map(|pid| {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("0");
                line.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0)
            })
            .collect();
        println!("resident KiB of the processes: {resident:?}");
        let whole = |mut stream: TcpStream| read_all(&mut stream).unwrap().len() == 2000;
        (clients.into_iter().map(whole).filter(|whole| *whole).count(), resident)
    });
    let (whole, resident) = served;
    assert_eq!(whole, CONNECTIONS);
    assert!(resident.iter().all(|kib| *kib < 64 * CONNECTIONS as u64), "{resident:?}");
}

#[test]
fn file_behind_a_lossy_line_arrives_whole_through_split_connections() {
    let Some(_turn) = common::daemons_beside() else { return };
    let mut line = Line::start(common::bed(3, Loss::independent(0.1), RATE_MBIT));
    line.split_both();
    let file = line.bed.directory().join("file");
    write_random_file(&file, 24 << 20).unwrap();
    let _server = WebServer::start(&line.hosts[1].0, line.bed.directory()).unwrap();
    let copy = line.bed.directory().join("copy");
    let limit = Duration::from_secs(60);
    let fetch = Fetch::start(&line.hosts[0].0, v4(1).into(), "file", &copy, limit).unwrap();
    let download = fetch.finish().unwrap();
    println!("{download:?}, {:.1} Mbit/s", download.mbit());
    assert!(download.complete, "{download:?}: {}", line.logs());
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
}
