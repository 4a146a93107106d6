//! `tcp_split` in the file: the daemon runs `recoded-split`, shows its connections and replaces it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::common;
use recoded_api::v1::Split;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss, Namespace, process};

const RATE_MBIT: f64 = 100.0;

/// Until something on a busy machine is as it should be.
const PATIENCE: Duration = Duration::from_secs(40);

/// Addresses of the edges in the tunnel.
const EDGES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

/// A line of two boxes.
struct Line {
    bed: Bed,
    daemons: Vec<Daemon>,
}

impl Line {
    fn start() -> Line {
        let bed = common::bed(1, Loss::independent(0.02), RATE_MBIT);
        let mut plan = LinePlan::protected(bed.hops());
        plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
        let daemons = Daemon::start_line(&bed, &plan).unwrap();
        Line { bed, daemons }
    }

    fn box_of(&self, edge: usize) -> &Namespace {
        if edge == 0 { self.bed.source() } else { self.bed.sink() }
    }

    /// Writes or removes the key at both ends, and reloads the files.
    fn set(&self, is_on: bool) {
        [0, 1].into_iter().for_each(|edge| self.set_at(edge, is_on));
    }

    fn set_at(&self, edge: usize, is_on: bool) {
        if let Some(daemon) = if edge == 0 { self.daemons.first() } else { self.daemons.last() } {
            let text = std::fs::read_to_string(daemon.config()).unwrap();
            let key = format!("name = \"rec0\"\ntcp_split = \"{}\"\n", EDGES[1 - edge]);
            let plain = "name = \"rec0\"\n";
            let (from, to) = if is_on { (plain, key.as_str()) } else { (key.as_str(), plain) };
            assert!(text.contains(from), "{text}");
            std::fs::write(daemon.config(), text.replacen(from, to, 1)).unwrap();
            let reloaded = process::run(&mut daemon.control(&["reload"])).unwrap();
            assert!(reloaded.contains("tcp_split"), "{reloaded}");
        }
    }

    fn split(&self, edge: usize) -> Option<Split> {
        let daemon = if edge == 0 { self.daemons.first() } else { self.daemons.last() };
        daemon.unwrap().show().ok()?.tunnels.first()?.split.clone()
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut(&Line) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let seen = [0, 1].map(|edge| self.split(edge));
            let logs: String =
                self.daemons.iter().map(|daemon| process::tail(&daemon.log())).collect();
            assert!(begun.elapsed() < PATIENCE, "{what} does not come: {seen:?}\n{logs}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until both edges are connected, and the first one has opened none since its start.
    fn wait_until_connected(&self) {
        self.wait("a split", |line| {
            let is_connected = |edge| {
                let rules = line.box_of(edge).run("nft", "list ruleset").unwrap();
                rules.contains("chain complete")
                    && line.split(edge).is_some_and(|split| split.state == "connected")
            };
            (0..2).all(is_connected) && line.count(0, "opened") == Some(0)
        });
    }

    fn count(&self, edge: usize, name: &str) -> Option<u64> {
        self.split(edge).and_then(|split| split.counters.get(name).copied())
    }

    fn connect(&self, at: SocketAddr) -> std::io::Result<TcpStream> {
        let stream =
            self.box_of(0).inside(|| TcpStream::connect_timeout(&at, PATIENCE)).unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Both ends of a connection to a server at the far edge that is split.
    fn split_pair(&self, listener: &TcpListener) -> [TcpStream; 2] {
        let pair = self.pair(listener);
        self.wait("a split connection", |line| line.count(0, "opened") > Some(0));
        pair
    }

    /// Both ends of a connection to a server at the far edge.
    fn pair(&self, listener: &TcpListener) -> [TcpStream; 2] {
        let client = self.connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        [client, server]
    }

    /// The programs that a daemon runs for its tunnels.
    fn programs(&self, edge: usize) -> Vec<u32> {
        let daemon = if edge == 0 { self.daemons.first() } else { self.daemons.last() };
        let mut children = daemon.unwrap().children();
        children.retain(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == "recoded-split")
        });
        children
    }
}

/// Whether the end of a stream comes, in any way, instead of a hang.
fn ends(stream: &mut TcpStream) -> bool {
    let ended = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
    ended != Err(ErrorKind::WouldBlock)
}

#[test]
fn file_switches_the_split_on_and_off_and_show_counts_connections() {
    let Some(_turn) = common::daemons() else { return };
    let line = Line::start();
    assert_eq!(line.split(0), None);
    let bound = line.box_of(1).inside(|| TcpListener::bind((EDGES[1], 0))).unwrap();
    let listener = bound.unwrap();
    // While the other edge does not have it, connections pass as they are.
    line.set_at(0, true);
    line.wait("rules", |line| {
        let rules = line.box_of(0).run("nft", "list ruleset").unwrap();
        rules.contains("chain complete")
            && line.split(0).is_some_and(|split| split.state == "waiting")
    });
    let [mut client, mut server] = line.pair(&listener);
    server.write_all(b"plain").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    drop((client, server));
    line.set_at(1, true);
    line.wait_until_connected();
    let [mut client, mut server] = line.pair(&listener);
    server.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    // The server's refusal is the answer to the SYN: no connection is established first.
    let closed = SocketAddr::new(EDGES[1].parse().unwrap(), 9);
    assert_eq!(line.connect(closed).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    line.wait("counts", |line| {
        line.count(0, "opened") == Some(1)
            && line.count(0, "refused") == Some(1)
            && line.count(1, "served") == Some(1)
            && line.split(0).is_some_and(|split| split.open == 1)
    });
    let shown = process::run(&mut line.daemons[0].control(&["show"])).unwrap();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("TCP split: 1 open, 1 opened, 1 refused"), "{shown}");
    drop((client, server));
    line.wait("an end", |line| line.split(0).is_some_and(|split| split.open == 0));
    line.set(false);
    for edge in 0..2 {
        line.wait("an end of the rules", |line| {
            let rules = line.box_of(edge).run("nft", "list ruleset").unwrap();
            let is_gone = line.split(edge).is_none() && line.programs(edge).is_empty();
            is_gone && !rules.contains("recoded-split")
        });
    }
    let [mut client, mut server] = line.pair(&listener);
    server.write_all(b"plain").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn programs_that_end_and_supervisors_that_do_are_replaced_and_no_connection_hangs() {
    let Some(_turn) = common::daemons() else { return };
    let mut line = Line::start();
    line.set(true);
    line.wait_until_connected();
    let bound = line.box_of(1).inside(|| TcpListener::bind((EDGES[1], 0))).unwrap();
    let listener = bound.unwrap();
    // The program of the first edge.
    let [mut client, mut server] = line.split_pair(&listener);
    let programs = line.programs(0);
    programs.iter().for_each(|pid| process::end(*pid));
    line.wait("another program", |line| {
        let now = line.programs(0);
        !now.is_empty() && now.iter().all(|pid| !programs.contains(pid))
    });
    assert!(ends(&mut client) && ends(&mut server), "it hangs");
    line.wait_until_connected();
    // Its supervisor, while packets flow on; the next one starts a program of its own.
    let [mut client, mut server] = line.split_pair(&listener);
    line.daemons[0].kill_supervisor();
    assert!(ends(&mut client) && ends(&mut server), "it hangs");
    line.daemons[0].start_supervisor().unwrap();
    line.daemons[0].wait_until_it_answers().unwrap();
    line.wait_until_connected();
    let [mut client, mut server] = line.split_pair(&listener);
    server.write_all(b"again").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    // An orderly end leaves no rule and no program.
    assert!(line.daemons[0].stop());
    let rules = line.box_of(0).run("nft", "list ruleset").unwrap();
    assert!(!rules.contains("recoded-split"), "{rules}");
}
