//! A box that follows an etcd of three members, each in a namespace of its own, with links that are
//! cut. The quorum's configuration becomes active within seconds, and etcd failures do not affect
//! the box's traffic.
//!
//! ```text
//!   box h0 ──────────── far h1        daemons and traffic
//!      │
//!   hub h5 ── members h2, h3, h4      a link that is cut drops every packet;
//!                                     what passes between members, the hub can drop
//! ```

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::{Background, Finished, output};
use recoded_netns::{Bed, BedConfig, CodePlan, Daemon, LinePlan, LinkConfig, Loss, binary};

const BOX: usize = 0;
const FAR: usize = 1;
const MEMBERS: [usize; 3] = [2, 3, 4];
const HUB: usize = 5;

/// Rate of every link.
const RATE_MBIT: f64 = 100.0;
/// Initial rate of the link in the box's file.
const PACE: &str = "rate_mbit = 97.0";

/// Timeout until a quorum accepts it, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// From the quorum's acceptance of a configuration until it is active.
const IN_FORCE_MAX: Duration = Duration::from_secs(2);
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Between two datagrams.
const SEND_PAUSE: Duration = Duration::from_millis(5);
/// Grace period after the last one, for datagrams in flight.
const LAST_WAIT: Duration = Duration::from_secs(3);

/// The network of a box and its etcd.
fn bed() -> Bed {
    let link = LinkConfig::new(Loss::independent(0.0), RATE_MBIT);
    let mut links = vec![(BOX, FAR, link), (BOX, HUB, link)];
    links.extend(MEMBERS.map(|member| (member, HUB, link)));
    Bed::build(&BedConfig::graph(&links)).expect("the bed builds")
}

/// Number of the link of a member.
fn link(member: usize) -> usize {
    member + 1
}

fn url(member: usize, port: u16) -> String {
    format!("http://{}", SocketAddr::from((Bed::west_address(link(member)), port)))
}

fn endpoints(quote: &str) -> String {
    MEMBERS.map(|member| format!("{quote}{}{quote}", url(member, 2379))).join(",")
}

fn start_member(bed: &Bed, member: usize) -> Background {
    let initial = MEMBERS.map(|member| format!("m{member}={}", url(member, 2380))).join(",");
    let data = bed.directory().join(format!("m{member}")).display().to_string();
    let (client, peer, name) = (url(member, 2379), url(member, 2380), format!("m{member}"));
    let mut etcd = bed.hosts()[member].command("etcd");
    etcd.args(["--name", &name, "--data-dir", &data]);
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &initial, "--initial-cluster-state", "new"]);
    let log = bed.directory().join(format!("m{member}.log"));
    Background::start(&mut etcd, &log).expect("etcd was found before")
}

/// The file of an end, with the link name used here.
fn text(index: usize, socket: &str) -> String {
    let mut plan = LinePlan { pace_mbit: Some(97.0), ..LinePlan::protected(1) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let text = plan.config(index, socket);
    let text = ["east", "west"].iter().fold(text, |text, name| {
        text.replace(&format!("interface = \"{name}\""), "interface = \"l1\"")
    });
    assert!(text.contains(PACE) && text.contains("\"l1\""), "{text}");
    text
}

fn start_daemon(bed: &Bed, index: usize) -> Daemon {
    let plan = LinePlan::protected(1);
    Daemon::start_as(bed, index, &plan, |socket| text(index, socket)).expect("it starts")
}

/// Numbered datagrams through the tunnel until stopped.
struct Traffic {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<(u64, Duration)>,
}

impl Traffic {
    fn start(bed: &Bed) -> Traffic {
        let [from, to] =
            [(1, 0), (2, 7000)].map(|(host, port)| SocketAddr::from(([10, 99, 0, host], port)));
        let (source, sink) = (&bed.hosts()[BOX], &bed.hosts()[FAR]);
        let (out, into) = (source.udp_socket(from).unwrap(), sink.udp_socket(to).unwrap());
        into.set_read_timeout(Some(LAST_WAIT)).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = is_over.clone();
        let sender = std::thread::spawn(move || {
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                sent += u64::from(out.send_to(&[0; 200], to).is_ok());
                std::thread::sleep(SEND_PAUSE);
            }
            sent
        });
        let receiver = std::thread::spawn(move || {
            let (mut came, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
            while into.recv(&mut [0; 2048]).is_ok() {
                longest = if came == 0 { longest } else { longest.max(last.elapsed()) };
                (came, last) = (came + 1, Instant::now());
            }
            (came, longest)
        });
        Traffic { is_over, sender, receiver }
    }

    /// Datagrams sent and received, and the longest gap between two received ones.
    fn finish(self) -> (u64, u64, Duration) {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().expect("it does not panic");
        let (came, longest) = self.receiver.join().expect("it does not panic");
        (sent, came, longest)
    }
}

/// A box and its agent, the other end of its path, an etcd, and an operator at the hub. Processes
/// end before the namespaces do.
struct Fleet {
    agent: Background,
    near: Daemon,
    _far: Daemon,
    _members: [Background; 3],
    folder: PathBuf,
    changes: u32,
    bed: Bed,
}

impl Fleet {
    fn start(bed: Bed) -> Fleet {
        let _members = MEMBERS.map(|member| start_member(&bed, member));
        let (near, _far) = (start_daemon(&bed, BOX), start_daemon(&bed, FAR));
        let folder = bed.directory().join("fleet");
        fs::create_dir_all(folder.join("boxes")).unwrap();
        let agent = Background::default();
        let mut fleet = Fleet { agent, near, _far, _members, folder, changes: 0, bed };
        let settings = fleet.settings();
        fs::write(fleet.folder.join("agent.toml"), settings).unwrap();
        let mut agent = fleet.bed.hosts()[BOX].command(binary("recoded-agent"));
        agent.args(["run", "--config", "agent.toml", "--status", "status.json"]);
        let log = fleet.folder.join("log");
        fleet.agent = Background::start(agent.current_dir(&fleet.folder), &log).unwrap();
        fleet
    }

    /// Makes the operator's key, and settings for an agent that believes it.
    fn settings(&self) -> String {
        let key = self.folder.join("key");
        fs::write(&key, self.operator(&["genkey"]).stdout).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let public = self.operator(&["pubkey", "key"]).stdout;
        let shown = |path: &Path| path.display().to_string();
        format!(
            "node = \"a\"\npublic_key = \"{}\"\netcd = [{}]\npoll_seconds = 1\n\
             confirm_seconds = 30\nconfig = \"{}\"\nsocket = \"{}\"\nrecoded = \"{}\"\n\
             state = \"{}\"\n",
            public.trim(),
            endpoints("\""),
            shown(self.near.config()),
            shown(self.near.socket()),
            shown(&binary("recoded")),
            shown(&self.folder.join("state")),
        )
    }

    /// Runs the operator's program.
    fn operator(&self, arguments: &[&str]) -> Finished {
        let mut agent = self.bed.hosts()[HUB].command(binary("recoded-agent"));
        output(agent.args(arguments).current_dir(&self.folder)).unwrap()
    }

    /// Writes a configuration for the box once; whether a quorum took it.
    fn sign(&self, rate: f64) -> bool {
        let text = text(BOX, &self.near.socket().to_string_lossy());
        let text = text.replace(PACE, &format!("rate_mbit = {rate:?}"));
        fs::write(self.folder.join("boxes/a.toml"), text).unwrap();
        self.operator(&["sign", "boxes", "--key", "key", "--etcd", &endpoints("")]).success
    }

    /// Has a quorum accept another configuration, and checks that it becomes active in time.
    fn change(&mut self, what: &str) {
        self.changes += 1;
        let rate = 60.0 + f64::from(self.changes);
        let begun = Instant::now();
        while !self.sign(rate) {
            assert!(begun.elapsed() < PATIENCE, "no quorum takes it: {what}\n{}", self.log());
        }
        let at = Instant::now();
        while self.rate() != Some(rate) {
            assert!(at.elapsed() < PATIENCE, "not active: {what}\n{}", self.log());
            std::thread::sleep(LOOK_PAUSE);
        }
        let took = at.elapsed();
        println!("{what}: active {} ms after a quorum had it", took.as_millis());
        assert!(took <= IN_FORCE_MAX, "{what}\n{}", self.log());
        // The next one would be refused while this one waits to be confirmed.
        self.wait_for("the confirmation", || {
            let status = self.status();
            status["version"] == status["newest"] && status["refusal"].is_null()
        });
    }

    fn rate(&self) -> Option<f64> {
        self.near.show().ok().and_then(|state| state.links[0].rate_mbit)
    }

    fn status(&self) -> serde_json::Value {
        let text = fs::read_to_string(self.folder.join("status.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what} does not come:\n{}", self.log());
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        format!("{}\n{log}", self.status())
    }

    /// Sets the loss of a member's link.
    fn lose(&mut self, member: usize, loss: Loss) {
        let config = self.bed.link_config(link(member)).with_loss(loss);
        self.bed.set_link(link(member), config).unwrap();
    }

    /// Has the hub drop packets between a member and the others, but not to the box.
    fn part(&self, member: usize) {
        let address = |member| Bed::west_address(link(member)).to_string();
        let others = MEMBERS.into_iter().filter(|it| *it != member).map(address);
        let (one, others) = (address(member), others.collect::<Vec<_>>().join(", "));
        self.rules(&format!(
            "add rule inet fleet forward ip saddr {one} ip daddr {{ {others} }} drop; \
             add rule inet fleet forward ip daddr {one} ip saddr {{ {others} }} drop"
        ));
    }

    fn rules(&self, rules: &str) {
        let mut nft = self.bed.hosts()[HUB].command("nft");
        let ended = output(nft.arg(rules)).unwrap();
        assert!(ended.success, "{rules}: {ended:?}");
    }
}

/// Reason why the test cannot run here, or `None`; creates the table of the hub's rules.
fn missing(bed: &Bed) -> Option<&'static str> {
    let table = "add table inet fleet; \
                 add chain inet fleet forward { type filter hook forward priority 0; }";
    if !binary("recoded-agent").is_file() {
        Some("`recoded-agent` is not built (cargo build --workspace --bins builds it)")
    } else if Command::new("etcd").arg("--version").output().is_err() {
        Some("`etcd` is not installed (package etcd-server)")
    } else if !output(bed.hosts()[HUB].command("nft").arg(table)).is_ok_and(|it| it.success) {
        Some("`nft` is not installed, or Linux has no nf_tables")
    } else {
        None
    }
}

#[test]
fn cut_links_of_etcd_delay_no_news_of_a_quorum_and_cost_the_box_no_packet() {
    let Some(_turn) = common::daemons() else { return };
    let bed = bed();
    if let Some(reason) = missing(&bed) {
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
        return println!("skipped: {reason}");
    }
    let mut fleet = Fleet::start(bed);
    fleet.wait_for("the path", || common::answers(&fleet.bed.hosts()[BOX], "10.99.0.2"));
    fleet.change("all members are reached");
    let process = fleet.near.dataplane_pid().unwrap();
    let traffic = Traffic::start(&fleet.bed);

    // One after the other, including the agent's member and the leader.
    for member in MEMBERS {
        fleet.lose(member, Loss::ALL);
        fleet.change("a member is cut off from all");
        fleet.lose(member, Loss::independent(0.0));
    }
    for member in MEMBERS {
        fleet.part(member);
        fleet.change("a member is cut off from the others, not from the box");
        fleet.rules("flush chain inet fleet forward");
    }

    // Without quorum nothing changes, and the box keeps running.
    let alone = [MEMBERS[0], MEMBERS[2]];
    alone.into_iter().for_each(|member| fleet.lose(member, Loss::ALL));
    fleet.wait_for("words about it", || !fleet.status()["trouble"].is_null());
    // Not before: a change whose answer was lost was signed twice, and is taken twice.
    let (rate, version) = (fleet.rate(), fleet.status()["version"].clone());
    assert!(!fleet.sign(59.0), "no quorum, and yet it was taken");
    assert_eq!((fleet.rate(), fleet.status()["version"].clone()), (rate, version));
    alone.into_iter().for_each(|member| fleet.lose(member, Loss::independent(0.0)));
    fleet.change("a quorum is back");
    fleet.wait_for("no more words", || fleet.status()["trouble"].is_null());

    let (sent, came, longest) = traffic.finish();
    println!("{came} of {sent} datagrams came, at most {} ms apart", longest.as_millis());
    assert!(sent > 500 && came == sent, "{came} of {sent}");
    assert_eq!(fleet.near.dataplane_pid().unwrap(), process, "it was replaced");
    assert!(fleet.agent.is_running(), "{}", fleet.log());
}
