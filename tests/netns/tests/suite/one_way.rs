//! Paths without a return path, with keys: packets arrive, recorded packets are refused across
//! restarts of either side, and a mismatched pre-shared key is counted.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common;
use crate::numbered::{receive, send};
use recoded_api::v1::State;
use recoded_netns::process::output;
use recoded_netns::{
    AuthPlan, Bed, BedConfig, Capture, Daemon, DirectionConfig, LinePlan, LinkConfig, Loss,
};
use recoded_wire::DEFAULT_PORT;

/// As many milliseconds.
const PACKETS: u32 = 4000;

/// The first packets go where there are no keys yet.
const SETTLED: usize = 1000;

/// Timeout for events that take ten seconds.
const PATIENCE: Duration = Duration::from_secs(40);

const RATE_MBIT: f64 = 100.0;

/// Links with this loss eastward that drop everything westward.
fn bed(hops: usize, loss: f64) -> Bed {
    let eastward = DirectionConfig::new(Loss::independent(loss), RATE_MBIT);
    let westward = DirectionConfig { loss: Loss::ALL, ..eastward };
    let link = LinkConfig { eastward, westward, timed: false };
    Bed::build(&BedConfig::uniform(hops, link)).expect("the bed builds")
}

/// A line from host 0 to the last one.
struct Line<'a> {
    bed: &'a Bed,
    auth: AuthPlan,
    /// Code of the flow.
    code: &'static str,
    /// Backend of all links.
    backend: &'static str,
    /// The first host with another pre-shared key.
    other_key_from: usize,
}

impl Line<'_> {
    /// The folder of a host's persistent state.
    fn folder(&self, host: usize) -> PathBuf {
        self.bed.directory().join(format!("h{host}.state"))
    }

    /// Starts a host.
    fn start(&self, host: usize) -> Daemon {
        let folder = self.folder(host).to_string_lossy().into_owned();
        let plan = LinePlan {
            auth: Some(self.auth.clone()),
            environment: vec![("STATE_DIRECTORY", folder)],
            ..LinePlan::protected(self.bed.hops())
        };
        Daemon::start_as(self.bed, host, &plan, |socket| self.config(host, socket)).unwrap()
    }

    /// Writes the pre-shared key to a file next to the host's file, and returns the latter.
    fn config(&self, host: usize, socket: &str) -> String {
        let last = self.bed.hops();
        let secret = if host >= self.other_key_from { "AQ" } else { "AA" };
        let file = format!("{socket}.psk");
        fs::write(&file, format!("{secret}IDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let key = AuthPlan::key_file(socket);
        let mut text =
            format!("[daemon]\nsocket = \"{socket}\"\nprivate_key = \"{key}\"\nframes = 8192\n");
        let (west, east) = (Bed::west_address, Bed::east_address);
        let mut next = |name: &str, own, address, other: usize| {
            let hop = format!("link = \"{name}\"\naddress = \"{address}\"\n");
            text += &format!(
                "[[link]]\nname = \"{name}\"\ninterface = \"{name}\"\nlocal = \"{own}\"\n\
                 backend = \"{}\"\n[[neighbour]]\n{hop}public_key = \"{}\"\n\
                 preshared_key = \"{file}\"\none_way = true\n",
                self.backend,
                self.auth.public(other)
            );
            format!("{{ link = \"{name}\", address = \"{address}\" }}")
        };
        let upstream = (host > 0).then(|| next("west", east(host), west(host), host - 1));
        let onward = host + 1;
        let next_hop = (host < last).then(|| next("east", west(onward), east(onward), onward));
        let edge = |other: usize| {
            format!(
                "tunnel = \"rec0\"\nrepair = false\nedge_key = \"{}\"\n\
                 edge_preshared_key = \"{file}\"\nedge_one_way = true\n",
                self.auth.public(other)
            )
        };
        let flow = match (upstream, next_hop) {
            (None, Some(next)) => {
                let relays = (1..last).map(|relay| format!("\"{}\"", self.auth.public(relay)));
                let relays = relays.collect::<Vec<_>>().join(", ");
                let relays = if last > 1 { format!("relay_keys = [{relays}]\n") } else { relays };
                format!(
                    "role = \"source\"\nnext_hops = [{next}]\ncode = \"{}\"\nredundancy = 2.0\n\
                     {relays}{}",
                    self.code,
                    edge(last)
                )
            }
            (Some(upstream), Some(next)) => format!(
                "role = \"relay\"\nupstream = {upstream}\nnext_hops = [{next}]\n\
                 source_key = \"{}\"\n",
                self.auth.public(0)
            ),
            (upstream, _) => {
                format!("role = \"sink\"\nupstream = {}\n{}", upstream.unwrap(), edge(0))
            }
        };
        if host == 0 || host == last {
            let number = if host == 0 { 1 } else { 2 };
            text += &format!("[[tunnel]]\nname = \"rec0\"\naddress = \"10.99.0.{number}/24\"\n");
        }
        text + "[[flow]]\nid = 1\n" + &flow
    }

    /// Sends numbered datagrams; returns which of them arrive, and their number.
    fn datagrams(&self) -> (Vec<bool>, usize) {
        let to = SocketAddr::from(([10, 99, 0, 2], 7000));
        let receiving = receive(self.bed.sink().udp_socket(to).unwrap(), PACKETS);
        let sender = self.bed.source().udp_socket(([10, 99, 0, 1], 0).into()).unwrap();
        send(sender, to, PACKETS).join().unwrap();
        let (came, _) = receiving.join().unwrap();
        let number = came.iter().filter(|came| **came).count();
        (came, number)
    }
}

/// A counter of all links of a host.
fn links(state: &State, name: &str) -> u64 {
    let of = |link: &recoded_api::v1::Link| {
        link.counters.get(name).or(link.faults.get(name)).copied().unwrap_or_default()
    };
    state.links.iter().map(of).sum()
}

/// Packets that a pipeline got.
fn received(daemon: &Daemon) -> u64 {
    daemon.show().unwrap().workers.iter().map(|worker| worker.received).sum()
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn datagrams_arrive_encrypted_though_nothing_comes_back() {
    datagrams_arrive_encrypted("rlnc");
}

/// With a fixed redundancy, a stream is an open loop.
#[test]
fn datagrams_of_a_stream_arrive_encrypted_though_nothing_comes_back() {
    datagrams_arrive_encrypted("stream");
}

fn datagrams_arrive_encrypted(code: &'static str) {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = bed(2, 0.05);
    let auth = AuthPlan::new("full", 2);
    let line = Line { bed: &bed, auth, code, backend: "xdp", other_key_from: 9 };
    // The sink starts first, so an announcement must be repeated.
    let daemons: Vec<Daemon> = [2, 1, 0].map(|host| line.start(host)).into();
    daemons.iter().for_each(|daemon| daemon.wait_until_it_has_sessions().unwrap());
    let (came, number) = line.datagrams();
    let lost = came[SETTLED..].iter().filter(|came| !**came).count();
    println!("{number} of {PACKETS} came, {lost} lost after the first second");
    assert!(lost <= (came.len() - SETTLED) / 50, "{lost} lost");
    for daemon in &daemons {
        let state = daemon.show().unwrap();
        let [wrong, copies] = ["rx_wrong_tag", "rx_copies"].map(|name| links(&state, name));
        assert_eq!((wrong, copies), (0, 0), "{}", daemon.name());
        assert!(state.sessions.iter().filter(|it| it.one_way).count() > 0);
        let shown = output(&mut daemon.control(&["show", "-v"])).unwrap();
        assert!(shown.stdout.contains("one-way by PSK or of a group"), "{}", shown.stdout);
    }
    for daemon in &daemons[..2] {
        let state = daemon.show().unwrap();
        let [verified, refused] = ["tag_verified", "tag_refused"]
            .map(|name| state.flows.iter().map(|flow| flow.count(name)).sum::<u64>());
        println!("{}: {verified} symbols verified, {refused} refused", daemon.name());
        assert!(verified > 1000 && refused == 0, "{}: {verified}, {refused}", daemon.name());
    }
}

/// Replays everything that was recorded to the sink, as its neighbour.
fn replay(line: &Line<'_>, recorded: &[Vec<u8>]) {
    let socket: UdpSocket = line.bed.source().udp_socket(([0; 4], 0).into()).unwrap();
    let sink = SocketAddr::new(Bed::east_address(1), DEFAULT_PORT);
    for (number, packet) in recorded.iter().enumerate() {
        socket.send_to(packet, sink).unwrap();
        if number % 16 == 0 {
            sleep(Duration::from_millis(1));
        }
    }
    sleep(Duration::from_millis(500));
}

#[test]
fn what_was_recorded_is_refused_after_restarts_of_either_side() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = bed(1, 0.0);
    let auth = AuthPlan::new("full", 1);
    let line = Line { bed: &bed, auth, code: "rlnc", backend: "udp", other_key_from: 9 };
    let mut sink = line.start(1);
    let capture = Capture::start(bed.sink(), "west", DEFAULT_PORT).unwrap();
    let mut source = line.start(0);
    sink.wait_until_it_has_sessions().unwrap();
    let (_, before) = line.datagrams();
    let recorded = capture.finish();
    println!("{before} of {PACKETS} came, {} packets recorded", recorded.len());
    assert!(before as u32 > PACKETS / 2 && recorded.len() > PACKETS as usize / 4);
    // The sink has only the recorded packets and its persistent state.
    source.kill();
    sink.spawn_again().unwrap();
    sink.wait_until_it_answers().unwrap();
    replay(&line, &recorded);
    let state = sink.show().unwrap();
    let [no_keys, told] = ["rx_no_keys", "rx_handshakes"].map(|name| links(&state, name));
    println!("{no_keys} packets without keys, {told} openings heard");
    assert!(told > 0 && no_keys as usize > recorded.len() / 2, "{told}, {no_keys}");
    assert_eq!(received(&sink), 0, "nothing that was recorded reaches a pipeline");
    assert!(state.sessions.iter().all(|session| session.age_seconds.is_none()));
    // The source starts again and is accepted at once; recorded packets are still refused.
    let source = line.start(0);
    sink.wait_until_it_has_sessions().unwrap();
    let (_, after) = line.datagrams();
    assert!(after as u32 > PACKETS / 2, "{after} came");
    let taken = received(&sink);
    replay(&line, &recorded);
    let more = received(&sink) - taken;
    assert!(more < 50, "{more} packets were taken, and the source sends almost nothing");
    // The sink restarts, and receives the next keys of a source that does not know about it.
    sink.spawn_again().unwrap();
    sink.wait_until_it_answers().unwrap();
    let has_keys = || sink.show().unwrap().sessions.iter().all(|it| it.age_seconds.is_some());
    wait("no other keys came", has_keys);
    let (_, again) = line.datagrams();
    println!("{after}, {again} of {PACKETS} came after restarts");
    assert!(again as u32 > PACKETS / 2, "{again} came");
    // Without its state file the sink accepts recorded keys: the file is the replay protection.
    drop(source);
    sink.kill();
    fs::remove_file(line.folder(1).join("one-way.json")).unwrap();
    sink.spawn_again().unwrap();
    sink.wait_until_it_answers().unwrap();
    replay(&line, &recorded);
    assert!(received(&sink) > 100, "recorded packets are not what is tested");
}

#[test]
fn another_pre_shared_key_is_refused_and_counted() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = bed(1, 0.0);
    let auth = AuthPlan::new("full", 1);
    let line = Line { bed: &bed, auth, code: "rlnc", backend: "auto", other_key_from: 1 };
    let (sink, _source) = (line.start(1), line.start(0));
    let refused = |with: &str| {
        let sessions = sink.show().unwrap().sessions;
        let session = sessions.into_iter().find(|it| it.with.starts_with(with)).unwrap();
        (session.refused, session.refusal, session.age_seconds)
    };
    wait("nothing was refused", || refused("west").0 > 4);
    let (_, why, age) = refused("west");
    assert_eq!((why.as_str(), age), ("the tag is wrong", None));
    let (_, came) = line.datagrams();
    assert_eq!((came, received(&sink)), (0, 0));
    let shown = output(&mut sink.control(&["show"])).unwrap();
    let words: Vec<&str> = shown.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("refused (the tag is wrong)"), "{}", shown.stdout);
}
