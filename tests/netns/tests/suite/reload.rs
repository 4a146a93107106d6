//! Changes of the configuration under traffic: their cost, and their rollback.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common;
use recoded_api::v1::Session;
use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::traffic::{Fetch, WEB_PORT, WebServer, sha256, write_random_file};
use recoded_netns::{AuthPlan, Bed, CodePlan, Daemon, FlowPlan, LinePlan, Loss};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const RATE_MBIT: f64 = 100.0;
const SERVER: [u8; 4] = [10, 99, 0, 1];
const SINK: [u8; 4] = [10, 99, 0, 2];

/// Exit codes of recodectl.
pub(crate) const DONE: i32 = 0;
pub(crate) const FAILED: i32 = 1;
pub(crate) const REFUSED: i32 = 4;

/// A source, a relay and a sink over links without loss, each with a history on disk.
pub(crate) fn line() -> (Bed, Vec<Daemon>) {
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let daemons = (0..=2).map(|index| start(&bed, index)).collect();
    (bed, daemons)
}

fn start(bed: &Bed, index: usize) -> Daemon {
    let state = state_directory(bed, index).display().to_string();
    start_in(bed, index, vec![("STATE_DIRECTORY", state)])
}

pub(crate) fn start_in(
    bed: &Bed,
    index: usize,
    environment: Vec<(&'static str, String)>,
) -> Daemon {
    let mut plan = LinePlan { pace_mbit: Some(0.97 * RATE_MBIT), ..LinePlan::protected(2) };
    for flow in &mut plan.flows {
        *flow = FlowPlan { code: CodePlan::Auto, field: 256, ..flow.clone() };
    }
    plan.environment = environment;
    Daemon::start(bed, index, &plan).unwrap()
}

fn state_directory(bed: &Bed, index: usize) -> PathBuf {
    bed.directory().join(format!("state{index}"))
}

/// Exit code and output of recodectl.
pub(crate) fn recodectl(daemon: &Daemon, arguments: &str) -> (i32, String) {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let output = daemon.control(&arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

/// Rewrites a daemon's file with `change`; returns its previous content.
pub(crate) fn rewrite(daemon: &Daemon, change: impl Fn(&str) -> String) -> String {
    let text = fs::read_to_string(daemon.config()).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text);
    fs::write(daemon.config(), changed).unwrap();
    text
}

pub(crate) fn probe(bed: &Bed, seconds: u64) -> Probe {
    let plan = ProbePlan {
        to: SocketAddr::from((SINK, 7000)),
        payload_bytes: 200,
        packets_per_second: 500.0,
        length: Duration::from_secs(seconds),
        grace: Duration::from_secs(2),
        buffer_bytes: Some(1 << 20),
    };
    Probe::start(bed.source(), bed.sink(), &plan).unwrap()
}

/// The rate of the first link of a daemon.
fn rate(daemon: &Daemon) -> Option<f64> {
    daemon.show().unwrap().links[0].rate_mbit
}

pub(crate) fn wait_for(what: &str, daemon: &Daemon, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}:\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

const RELAYED: &str = "
[[flow]]
id = 77
role = \"relay\"
upstream = { link = \"west\", address = \"10.77.1.1\" }
next_hops = [{ link = \"east\", address = \"10.77.2.2\" }]
";

/// A download through the tunnel that has begun.
pub(crate) struct Download {
    pub(crate) file: PathBuf,
    pub(crate) copy: PathBuf,
    pub(crate) fetch: Fetch,
    pub(crate) _server: WebServer,
}

impl Download {
    pub(crate) fn begin(bed: &Bed) -> Download {
        let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
        write_random_file(&file, 24 << 20).unwrap();
        let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
        let limit = Duration::from_secs(60);
        let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        Download { file, copy, fetch, _server }
    }
}

#[test]
fn reload_under_traffic_costs_no_packet_of_an_unchanged_flow() {
    let Some(_turn) = common::daemons() else { return };
    let (bed, daemons) = line();
    let (relay, sink) = (&daemons[1], &daemons[2]);
    let processes = [relay.dataplane_pid().unwrap(), sink.dataplane_pid().unwrap()];
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    write_random_file(&file, 5 << 20).unwrap();
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    let mut download = bed.sink().command("curl");
    download.args(["--silent", "--fail", "--limit-rate", "1M", "--output"]).arg(&copy);
    let download =
        download.arg(format!("http://{}/file", SocketAddr::from((SERVER, WEB_PORT)))).spawn();
    let stream = probe(&bed, 6);
    std::thread::sleep(Duration::from_millis(500));
    for round in 0..4 {
        // A flow is added and removed, the pace changes, and so does the return flow.
        let before =
            rewrite(relay, |text| text.replace("rate_mbit = 97.0", "rate_mbit = 91.5") + RELAYED);
        let (code, said) = recodectl(relay, "reload --diff");
        assert_eq!(code, DONE, "{said}");
        assert!(said.contains("live") && said.contains("flow 77 is new"), "{said}");
        assert!(said.contains("costs no packet\nnothing was changed"), "{said}");
        assert_eq!(rate(relay), Some(97.0), "{round}");
        let (code, said) = recodectl(relay, "reload");
        assert_eq!(code, DONE, "{said}");
        assert!(said.contains("rate_mbit = 97.0 becomes 91.5"), "{said}");
        let state = relay.show().unwrap();
        assert_eq!(state.links[0].rate_mbit, Some(91.5));
        assert!(state.flows.iter().any(|flow| flow.id == 77));
        fs::write(relay.config(), before).unwrap();
        let (code, said) = recodectl(relay, "reload");
        assert_eq!(code, DONE, "{said}");
        assert!(said.contains("flow 77 is taken away"), "{said}");
        let before =
            rewrite(sink, |text| text.replacen("id = 2\n", "id = 2\ntarget_loss = 0.01\n", 1));
        let (code, said) = recodectl(sink, "reload");
        assert_eq!(code, DONE, "{said}");
        assert!(said.contains("flow 2: target_loss = 0.0001 becomes 0.01"), "{said}");
        fs::write(sink.config(), before).unwrap();
        assert_eq!(recodectl(sink, "reload").0, DONE);
    }
    let outcome = stream.finish().unwrap();
    println!("{} sent, {} lost, overrun {}", outcome.sent, outcome.lost(), outcome.overrun);
    assert_eq!(outcome.lost(), outcome.overrun, "{} sent", outcome.sent);
    assert!(outcome.sent > 2000);
    assert!(download.unwrap().wait().unwrap().success(), "the connection broke");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
    let now = [relay.dataplane_pid().unwrap(), sink.dataplane_pid().unwrap()];
    assert_eq!(now, processes, "no other process was needed");
}

#[test]
fn reload_that_needs_another_process_costs_a_gap_and_no_connection() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line();
    let relay = &daemons[1];
    let Download { file, copy, fetch, _server } = Download::begin(&bed);
    let before = relay.dataplane_pid().unwrap();
    rewrite(relay, |text| text.replacen("frames = ", "memory = \"256 MiB\"\nframes = ", 1));
    let (code, said) = recodectl(relay, "reload --diff");
    assert_eq!(code, DONE, "{said}");
    assert!(said.starts_with("gap      line ") && said.contains("memory"), "{said}");
    assert!(said.contains("costs a gap of about 0.1 s"), "{said}");
    let stream = probe(&bed, 3);
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, DONE, "{said}\n{}", relay.log());
    assert!(said.contains("in a new process"), "{said}");
    println!("done after {:?}", begun.elapsed());
    assert_ne!(relay.dataplane_pid().unwrap(), before);
    let outcome = stream.finish().unwrap();
    println!(
        "longest gap of UDP {:.0} ms, {} of {} came",
        outcome.longest_gap_millis(),
        outcome.came,
        outcome.sent
    );
    assert!(outcome.longest_gap_millis() < 2000.0);
    let download = fetch.finish().unwrap();
    assert!(download.complete, "the connection broke: {download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());

    // Neighbours can be changed: the relay gets a wrong one, then the right one again.
    let right = rewrite(relay, |text| text.replace("10.77.2.2", "10.77.2.77"));
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, DONE, "{said}");
    assert!(said.contains("10.77.2.77"), "{said}");
    fs::write(relay.config(), right).unwrap();
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, DONE, "{said}");
    let outcome = probe(&bed, 2).finish().unwrap();
    assert!(outcome.came > outcome.sent / 2, "{} of {}", outcome.came, outcome.sent);

    // A key file that cannot be read is found before anything is replaced.
    let pid = relay.dataplane_pid().unwrap();
    rewrite(relay, |text| {
        text.replacen("frames = ", "private_key = \"/nonexistent\"\nauth = \"hop\"\nframes = ", 1)
    });
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, REFUSED, "{said}");
    assert_eq!(relay.dataplane_pid().unwrap(), pid);
}

/// One box after the other: in between they cannot understand each other.
#[test]
fn reload_to_other_keys_on_both_boxes_costs_a_gap_and_no_connection() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), RATE_MBIT);
    let of = |auth: AuthPlan| {
        let pace_mbit = Some(0.97 * RATE_MBIT);
        let mut plan = LinePlan { auth: Some(auth), pace_mbit, ..LinePlan::protected(1) };
        for flow in &mut plan.flows {
            *flow = FlowPlan { code: CodePlan::Auto, field: 256, ..flow.clone() };
        }
        plan
    };
    let daemons = Daemon::start_line(&bed, &of(AuthPlan::new("full", 1))).unwrap();
    let Download { file, copy, fetch, _server } = Download::begin(&bed);

    let keys = AuthPlan::new("full", 1);
    let plan = of(keys.clone());
    let mut before = Vec::new();
    for (index, daemon) in daemons.iter().enumerate() {
        let socket = daemon.socket().display().to_string();
        let key = AuthPlan::key_file(&format!("{socket}.other"));
        fs::write(&key, keys.private(index)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let text = plan.config(index, &socket).replace(&AuthPlan::key_file(&socket), &key);
        before.push(rewrite(daemon, |_| text.clone()));
    }
    for daemon in &daemons {
        let (code, said) = recodectl(daemon, "reload");
        println!("{said}");
        assert_eq!(code, DONE, "{said}\n{}", daemon.log());
        assert!(said.contains("private_key") && said.contains("public_key"), "{said}");
    }
    for (index, daemon) in daemons.iter().enumerate() {
        let neighbour = keys.public(1 - index);
        wait_for("keys with the neighbour's other one", daemon, || {
            let sessions = daemon.show().map(|state| state.sessions).unwrap_or_default();
            let is_made = |it: &Session| it.key == neighbour && it.age_seconds.is_some();
            !sessions.is_empty() && sessions.iter().all(is_made)
        });
    }
    let outcome = probe(&bed, 2).finish().unwrap();
    assert!(outcome.came > outcome.sent / 2, "{} of {}", outcome.came, outcome.sent);
    let download = fetch.finish().unwrap();
    assert!(download.complete, "the connection broke: {download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
    older_keys_open_nothing(&bed, &daemons, &before[0]);
}

/// The first box gets its previous keys back, as from a copy of its disk: the other one refuses it
/// and accepts none of its packets.
fn older_keys_open_nothing(bed: &Bed, daemons: &[Daemon], before: &str) {
    let refused = |daemon: &Daemon| {
        let sessions = daemon.show().map(|state| state.sessions).unwrap_or_default();
        sessions.iter().map(|session| session.refused).sum::<u64>()
    };
    let refused_before = refused(&daemons[1]);
    let newer = rewrite(&daemons[0], |_| before.to_owned());
    let (code, said) = recodectl(&daemons[0], "reload");
    assert_eq!(code, DONE, "{said}");
    let outcome = probe(bed, 1).finish().unwrap();
    assert_eq!(outcome.came, 0, "of {}", outcome.sent);
    let is_refused = || refused(&daemons[1]) > refused_before;
    wait_for("a refused handshake of the older key", &daemons[1], is_refused);
    rewrite(&daemons[0], |_| newer.clone());
    let (code, said) = recodectl(&daemons[0], "reload");
    assert_eq!(code, DONE, "{said}");
    wait_for("keys again", &daemons[0], || {
        let sessions = daemons[0].show().map(|state| state.sessions).unwrap_or_default();
        !sessions.is_empty() && sessions.iter().all(|it| it.age_seconds.is_some())
    });
    let outcome = probe(bed, 2).finish().unwrap();
    assert!(outcome.came > outcome.sent / 2, "{} of {}", outcome.came, outcome.sent);
}

#[test]
fn wrong_file_is_refused_by_line_and_rule_and_nothing_changes() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let relay = start(&bed, 1);
    let before = relay.show().unwrap().config;
    let wrongs = [
        ("rate_mbit = 97.0", "rate_mbit = -1.0", "rate_mbit = -1.0 is out of range"),
        ("rate_mbit = 97.0", "rate_mbit = 50.0\ncolour = 3", "unknown key colour"),
        ("[[link]]", "[[link", "this is not valid TOML"),
        ("h1.sock", "h9.sock", "a running daemon keeps its control socket"),
        ("id = 1", "id = 2", "is taken"),
    ];
    for (from, to, rule) in wrongs {
        let file = rewrite(&relay, |text| text.replacen(from, to, 1));
        let (code, said) = recodectl(&relay, "reload");
        assert_eq!(code, REFUSED, "{to}: {said}");
        assert!(said.contains(rule), "{to}: {said}");
        assert!(said.contains("nothing was changed"), "{to}: {said}");
        let has_line = said.contains("h1.toml:") || said.contains("line ");
        assert!(has_line, "{to}: {said}");
        assert_eq!(relay.show().unwrap().config, before, "{to}");
        fs::write(relay.config(), file).unwrap();
    }
    let (code, said) = recodectl(&relay, "reload");
    assert_eq!(
        (code, said.as_str()),
        (DONE, "nothing to change: the configuration is applied already\n")
    );
}

#[test]
fn reload_that_is_not_confirmed_is_taken_back_even_after_a_death() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let mut relay = start(&bed, 1);
    let slow = |text: &str| text.replacen("rate_mbit = 97.0", "rate_mbit = 50.0", 1);
    rewrite(&relay, slow);
    for dies in [false, true] {
        let (code, said) = recodectl(&relay, "reload --confirm 10s");
        assert_eq!(code, DONE, "{said}");
        assert!(said.contains("rolling back in 10 s"), "{said}");
        assert_eq!(rate(&relay), Some(50.0));
        let (code, said) = recodectl(&relay, "reload");
        assert_eq!(code, REFUSED, "{said}");
        assert!(said.contains("waits to be confirmed"), "{said}");
        if dies {
            relay.signal_dataplane(Signal::KILL).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            relay.wait_until_it_answers().unwrap();
            assert_eq!(rate(&relay), Some(50.0), "the next process has it, too");
        }
        wait_for("it is taken back", &relay, || {
            relay.show().is_ok_and(|state| state.links[0].rate_mbit == Some(97.0))
        });
        let (code, said) = recodectl(&relay, "history");
        assert_eq!(code, DONE, "{said}");
        assert!(said.contains("unconfirmed (active)"), "{said}");
    }
    assert_eq!(recodectl(&relay, "reload --confirm 2s").0, DONE);
    let (code, said) = recodectl(&relay, "confirm");
    assert_eq!(code, DONE, "{said}");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(rate(&relay), Some(50.0), "it stays");
    let (code, said) = recodectl(&relay, "confirm");
    assert_eq!(code, REFUSED, "{said}");
    // A change of the process is rolled back, too.
    rewrite(&relay, |text| text.replacen("frames = ", "memory = \"256 MiB\"\nframes = ", 1));
    let (code, said) = recodectl(&relay, "reload --confirm 2s");
    assert_eq!(code, DONE, "{said}");
    let has = |daemon: &Daemon| {
        daemon.show().is_ok_and(|state| state.config.contains("memory = \"256 MiB\""))
    };
    assert!(has(&relay), "{}", relay.show().unwrap().config);
    wait_for("it is taken back", &relay, || relay.show().is_ok() && !has(&relay));
}

/// An operator behind the tunnel makes the relay forget the flow: commands cannot reach it any
/// more, and none is needed for packets to flow again.
#[test]
fn change_that_cuts_the_operator_off_ends_at_its_deadline_and_packets_come_again() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, daemons) = line();
    let relay = &daemons[1];
    let stream = probe(&bed, 6);
    std::thread::sleep(Duration::from_secs(1));
    rewrite(relay, |text| text.replacen("id = 1\n", "id = 9\n", 1));
    let (code, said) = recodectl(relay, "reload --confirm 2s");
    assert_eq!(code, DONE, "{said}");
    let outcome = stream.finish().unwrap();
    let (gap, after) = (outcome.longest_gap_millis(), outcome.rate_between(4500.0, 5900.0));
    println!(
        "{} of {} came, {gap:.0} ms without any, {after:.0} a second after",
        outcome.came, outcome.sent
    );
    assert!((1500.0..3300.0).contains(&gap), "{gap} ms:\n{}", relay.log());
    assert!(after > 450.0, "{after} a second:\n{}", relay.log());
}

#[test]
fn undo_save_and_hangup_change_what_they_say() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, mut daemons) = line();
    let source = &daemons[0];
    let shown = |daemon: &Daemon| {
        let parameters = daemon.show().unwrap().flows[0].parameters.clone();
        (parameters.redundancy.unwrap(), parameters.target_loss.unwrap())
    };
    let (code, said) = recodectl(source, "undo");
    assert_eq!((code, said.contains("no previous configuration")), (REFUSED, true), "{said}");
    let first = shown(source);
    assert_eq!(recodectl(source, "set 1 redundancy=1.5").0, DONE);
    let (code, said) = recodectl(source, "undo");
    assert_eq!(code, DONE, "{said}");
    assert!(said.contains("redundancy = 1.5 becomes \"auto\""), "{said}");
    assert_eq!(shown(source), first);
    assert_eq!(recodectl(source, "undo").0, DONE);
    assert_eq!(shown(source).0, "1.5", "a second undo takes the first one back");
    assert_eq!(recodectl(source, "undo 1").0, DONE);
    assert_eq!(shown(source), first);

    // Saved settings outlive the daemon, together with their comments.
    let commented = |text: &str| text.replacen("id = 1\n", "id = 1 # towards the sink\n", 1);
    rewrite(source, commented);
    let (code, said) = recodectl(source, "set 1 redundancy=1.25 --save");
    assert_eq!(code, REFUSED, "{said}");
    assert!(said.contains("was changed since the daemon read it"), "{said}");
    assert_eq!(shown(source), first, "neither of both");
    assert_eq!(recodectl(source, "reload").0, DONE);
    let (code, said) = recodectl(source, "set 1 redundancy=1.25 target_loss=0.01 --save");
    assert_eq!(code, DONE, "{said}");
    let file = fs::read_to_string(source.config()).unwrap();
    assert!(file.contains("id = 1 # towards the sink"), "{file}");
    assert!(file.contains("redundancy = 1.25\n"), "{file}");
    let (code, said) = recodectl(source, "reload");
    assert_eq!(
        (code, said.as_str()),
        (DONE, "nothing to change: the configuration is applied already\n")
    );

    // SIGHUP is a reload.
    rewrite(source, |text| text.replacen("redundancy = 1.25", "redundancy = 1.75", 1));
    let pid = Pid::from_raw(i32::try_from(source.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    wait_for("SIGHUP", source, || shown(source).0 == "1.75");
    rewrite(source, |text| text.replacen("redundancy = 1.75", "redundancy = 0.1", 1));
    kill_process(pid, Signal::HUP).unwrap();
    wait_for("SIGHUP", source, || source.log().contains("redundancy = 0.1"));
    assert_eq!(shown(source).0, "1.75");
    rewrite(source, |text| text.replacen("redundancy = 0.1", "redundancy = 1.25", 1));

    daemons[0].spawn_again().unwrap();
    daemons[0].wait_until_it_answers().unwrap();
    let source = &daemons[0];
    assert_eq!(shown(source), ("1.25".to_owned(), 0.01));
    let (code, said) = recodectl(source, "history");
    assert_eq!(code, DONE, "{said}");
    for cause in ["start", "set", "undo", "reload"] {
        assert!(said.contains(cause), "{cause}: {said}");
    }
    let directory = state_directory(&bed, 0);
    assert!(said.contains(&directory.display().to_string()), "{said}");
    assert!(fs::read_dir(directory).unwrap().count() > 3);
}

/// A small file system, removed when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf) -> SmallDisk {
        fs::create_dir(&path).unwrap();
        mount(&["-t", "tmpfs", "-o", "size=64k", "tmpfs"], &path);
        SmallDisk(path)
    }

    /// Leaves no room.
    fn fill(&self) {
        let filled = fs::write(self.0.join("filler"), vec![7; 1 << 20]);
        assert!(filled.is_err(), "the disk is small");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], path: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(path).status().unwrap();
    assert!(mounted.success(), "mount {arguments:?}");
}

#[test]
fn full_and_read_only_disks_cost_a_message_and_no_change() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let disk = SmallDisk::mount(bed.directory().join("disk"));
    for name in ["h1.toml", "state1"] {
        std::os::unix::fs::symlink(disk.0.join(name), bed.directory().join(name)).unwrap();
    }
    fs::create_dir(disk.0.join("state1")).unwrap();
    let relay = start(&bed, 1);
    let process = relay.dataplane_pid().unwrap();
    let recoding = || relay.show().unwrap().flows[0].parameters.recoding.clone().unwrap();
    assert_eq!(recodectl(&relay, "set 1 recoding=random --save").0, DONE);
    let file = fs::read_to_string(relay.config()).unwrap();

    disk.fill();
    let refused = |cause: &str| {
        let (code, said) = recodectl(&relay, "set 1 recoding=systematic --save");
        assert_eq!(code, FAILED, "{said}");
        assert!(said.contains(cause) && said.contains("let the daemon write"), "{said}");
        assert!(said.contains("nothing was changed"), "{said}");
        assert_eq!(recoding(), "random");
        assert_eq!(fs::read_to_string(relay.config()).unwrap(), file);
    };
    refused("No space left on device");
    // Without the file it works, and the history reports that it is in memory.
    assert_eq!(recodectl(&relay, "set 1 recoding=systematic").0, DONE);
    let (code, said) = recodectl(&relay, "history");
    assert_eq!(code, DONE, "{said}");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("No space left on device") && said.contains("in memory only"), "{said}");
    assert_eq!(recodectl(&relay, "undo").0, DONE);
    assert_eq!(recoding(), "random");

    fs::remove_file(disk.0.join("filler")).unwrap();
    mount(&["-o", "remount,ro"], &disk.0);
    refused("Read-only file system");
    mount(&["-o", "remount,rw"], &disk.0);
    let (code, said) = recodectl(&relay, "set 1 recoding=systematic --save");
    assert_eq!(code, DONE, "{said}");
    assert!(fs::read_to_string(relay.config()).unwrap().contains("recoding = \"systematic\""));
    let (_, said) = recodectl(&relay, "history");
    assert!(said.contains("kept"), "{said}");
    assert!(!said.contains("not kept"), "what could not be written is written later: {said}");
    assert_eq!(relay.dataplane_pid().unwrap(), process, "{}", relay.log());
}
