//! Daemons on a line of hosts, under real traffic: invariants that hold under any fault.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common;
use recoded_api::v1::State;
use recoded_netns::process;
use recoded_netns::traffic::{Fetch, Iperf, UdpLoad, WebServer, sha256, write_random_file};
use recoded_netns::{Bed, CodePlan, Daemon, FlowPlan, LinePlan, Loss};

/// Rate of the links: any two cores carry a line of three daemons at this.
const RATE_MBIT: f64 = 100.0;

/// The web server through the tunnel.
const SERVER: [u8; 4] = [10, 99, 0, 1];

/// The sink through the tunnel.
const SINK: [u8; 4] = [10, 99, 0, 2];

/// A line of hosts with daemons and a file to download.
struct Line {
    daemons: Vec<Daemon>,
    _server: WebServer,
    file: PathBuf,
    bed: Bed,
}

impl Line {
    fn start(hops: usize, loss: f64, file_bytes: u64) -> Line {
        Line::protected_by(CodePlan::Rlnc, 16, hops, loss, file_bytes)
    }

    /// A line whose code the daemon chooses.
    fn automatic(hops: usize, loss: f64, file_bytes: u64) -> Line {
        Line::protected_by(CodePlan::Auto, 256, hops, loss, file_bytes)
    }

    /// A line that protects the file's direction with `code`; acknowledgements return in
    /// generations.
    fn protected_by(code: CodePlan, field: u16, hops: usize, loss: f64, file_bytes: u64) -> Line {
        let bed = common::bed(hops, Loss::independent(loss), RATE_MBIT);
        let file = bed.directory().join("file");
        write_random_file(&file, file_bytes).unwrap();
        let server = WebServer::start(bed.source(), bed.directory()).unwrap();
        let mut plan = LinePlan { pace_mbit: Some(0.97 * RATE_MBIT), ..LinePlan::protected(hops) };
        plan.flows[0] = FlowPlan { code, field, ..plan.flows[0].clone() };
        let daemons = Daemon::start_line(&bed, &plan).unwrap();
        Line { daemons, _server: server, file, bed }
    }

    fn copy(&self) -> PathBuf {
        self.bed.directory().join("copy")
    }

    fn fetch(&self) -> Fetch {
        let limit = Duration::from_secs(60);
        Fetch::start(self.bed.sink(), SERVER.into(), "file", &self.copy(), limit).unwrap()
    }

    fn udp(&self, mbit: f64, seconds: u64) -> Iperf {
        let load = UdpLoad { to: SINK.into(), payload_bytes: 1200, mbit, seconds };
        Iperf::start(self.bed.source(), self.bed.sink(), &load, self.bed.directory()).unwrap()
    }

    /// The download ended with the whole file, unharmed.
    fn assert_whole(&self, fetch: Fetch) {
        let download = fetch.finish().unwrap();
        println!("{download:?}, {:.1} Mbit/s", download.mbit());
        assert!(download.complete, "{download:?}");
        assert_eq!(sha256(&self.file).unwrap(), sha256(&self.copy()).unwrap());
    }

    /// Every frame is somewhere, and every packet had one fate.
    fn assert_nothing_vanished(&self) {
        for daemon in &self.daemons {
            for worker in daemon.show().unwrap().workers {
                let frames = worker.frames;
                let places = frames.free + frames.fill + frames.held + frames.tx;
                assert_eq!(frames.total, places, "frames leak on {}", daemon.name());
                let fates =
                    worker.forwarded + worker.consumed + worker.handed_over + worker.dropped;
                assert_eq!(worker.received, fates, "packets vanish on {}", daemon.name());
            }
        }
    }

    /// Waits until every daemon shows this code for the flow of the file.
    fn wait_for_code(&self, code: &str) {
        let deadline = Instant::now() + Duration::from_secs(5);
        let shown = |daemon: &Daemon| daemon.show().unwrap().flows.remove(0).code;
        while let Some(other) = self.daemons.iter().find(|daemon| shown(daemon) != code) {
            assert!(Instant::now() < deadline, "{}: {}, not {code}", other.name(), shown(other));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Packets dropped by any daemon for this reason.
    fn dropped(&self, reason: &str) -> u64 {
        self.daemons.iter().map(|daemon| daemon.show().unwrap().drops[reason]).sum()
    }
}

#[test]
fn download_over_two_lossy_hops_arrives_whole() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = Line::start(2, 0.1, 24 << 20);
    line.assert_whole(line.fetch());
    line.assert_nothing_vanished();
}

#[test]
fn download_in_bats_blocks_over_three_lossy_hops_arrives_whole() {
    let Some(_turn) = common::daemons_beside() else { return };
    let code = CodePlan::Bats { block_symbols: 128, interleave: None, adaptive: true };
    let line = Line::protected_by(code, 16, 3, 0.1, 12 << 20);
    line.assert_whole(line.fetch());
    line.assert_nothing_vanished();
    let source = line.daemons[0].show().unwrap().flows.remove(0);
    assert_eq!(source.parameters.code.as_deref(), Some("bats"));
    println!("{:?} packets per symbol, theory {:?}", source.overhead, source.overhead_theory);
    let theory = source.overhead_theory.expect("hops have reported");
    // Each hop adds redundancy for its own losses, as far as they are known.
    assert!((1.05..1.35).contains(&theory), "three hops at 10 %: {theory}");
    // TCP leaves blocks short at times; this test only requires that all of them decode.
    assert!(source.overhead.expect("something was sent") < 2.0 * theory);
    let sink = line.daemons[3].show().unwrap().flows.remove(0);
    assert_eq!(sink.count("generations_failed"), 0);
    assert!(sink.rank_histogram.iter().sum::<u64>() > 0, "the sink counts ranks of batches");
}

#[test]
fn download_in_an_open_loop_over_a_lossy_hop_arrives_whole() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = Line::protected_by(CodePlan::OpenLoop, 256, 1, 0.1, 12 << 20);
    line.assert_whole(line.fetch());
    line.assert_nothing_vanished();
    let source = line.daemons[0].show().unwrap().flows.remove(0);
    println!("{:?} packets per symbol", source.overhead);
    assert_eq!(source.parameters.code.as_deref(), Some("stream"));
    assert_eq!(source.parameters.redundancy.as_deref(), Some("1.4"));
    // Combinations replace retransmission.
    assert!(source.count("sent_coded") > 0);
    assert_eq!(source.count("sent_repair"), 0);
}

#[test]
fn daemon_that_is_told_to_stop_ends_and_removes_what_it_created() {
    let Some(_turn) = common::daemons_beside() else { return };
    let mut line = Line::automatic(1, 0.1, 1 << 20);
    line.assert_whole(line.fetch());
    for daemon in &mut line.daemons {
        assert!(daemon.stop(), "{} did not end by itself:\n{}", daemon.name(), daemon.log());
        assert!(!daemon.socket().exists(), "the socket of {} stays", daemon.name());
    }
    for host in line.bed.hosts() {
        let links = host.ip("-details link show").unwrap();
        assert!(!links.contains("rec0"), "the tunnel stays: {links}");
        assert!(!links.contains("xdp"), "the XDP program stays: {links}");
    }
}

#[test]
fn relay_killed_and_restarted_during_a_download_resumes_within_two_seconds() {
    let Some(_turn) = common::daemons() else { return };
    let mut line = Line::start(2, 0.1, 32 << 20);
    let fetch = line.fetch();
    wait_for_bytes(&fetch, 8 << 20, Duration::from_secs(30));
    line.daemons[1].kill();
    std::thread::sleep(Duration::from_millis(300));
    let restarted = Instant::now();
    line.daemons[1].spawn_again().unwrap();
    line.daemons[1].wait_until_it_answers().unwrap();
    let at_restart = fetch.bytes();
    wait_for_bytes(&fetch, at_restart + 1, Duration::from_secs(5));
    let pause = restarted.elapsed();
    println!("resumed {pause:?} after the restart");
    assert!(pause < Duration::from_secs(2), "{pause:?}");
    line.assert_whole(fetch);
}

#[test]
fn ends_killed_and_restarted_during_a_download_resume() {
    let Some(_turn) = common::daemons_beside() else { return };
    let mut line = Line::start(1, 0.1, 24 << 20);
    let fetch = line.fetch();
    for end in [0, 1] {
        wait_for_bytes(&fetch, fetch.bytes() + (4 << 20), Duration::from_secs(30));
        line.daemons[end].kill();
        line.daemons[end].spawn_again().unwrap();
        line.daemons[end].wait_until_it_answers().unwrap();
    }
    line.assert_whole(fetch);
}

#[test]
fn parameters_changed_under_traffic_lose_no_packet() {
    let Some(_turn) = common::daemons() else { return };
    let line = Line::start(2, 0.1, 8 << 20);
    // Lets the source learn the losses.
    line.assert_whole(line.fetch());
    let seconds = 8;
    let iperf = line.udp(20.0, seconds);
    let started = Instant::now();
    let changes = [
        ("field", "2"),
        ("generation_size", "32"),
        ("field", "256"),
        ("generation_size", "8"),
        ("redundancy", "2.5"),
        ("field", "4"),
        ("redundancy", "auto"),
        ("generation_size", "16"),
        ("field", "16"),
    ];
    let epoch = || line.daemons[0].show().unwrap().flows[0].epoch;
    let before = epoch();
    for (number, (key, value)) in changes.iter().enumerate() {
        let due = Duration::from_millis(1000 + 600 * number as u64);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        line.daemons[0].set(1, key, value).unwrap();
    }
    let outcome = iperf.finish().unwrap();
    println!("{outcome:?}");
    assert_eq!(line.dropped("mismatch"), 0);
    let flow = line.daemons[0].show().unwrap().flows.remove(0);
    // Epochs start at any number, modulo 256; a change of the number of packets starts none.
    let shaping = changes.iter().filter(|(key, _)| *key != "redundancy").count() as u64;
    assert_eq!((256 + epoch() - before) % 256, shaping, "epochs since {before}");
    assert_eq!((flow.field, flow.generation_size), (16, 16));
    // The plan allows 1e-4; losses due to a change would show as whole generations.
    assert!(
        outcome.lost - outcome.overrun.min(outcome.lost) <= outcome.packets / 2000,
        "{outcome:?}"
    );
}

#[test]
fn code_changed_under_a_download_lets_it_go_on() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = Line::start(2, 0.05, 160 << 20);
    let fetch = line.fetch();
    for code in ["bats", "stream", "rlnc"] {
        wait_for_bytes(&fetch, fetch.bytes() + (6 << 20), Duration::from_secs(20));
        line.daemons[0].set(1, "code", code).unwrap();
        wait_for_bytes(&fetch, fetch.bytes() + (1 << 20), Duration::from_secs(20));
        line.wait_for_code(code);
    }
    line.assert_whole(fetch);
    line.assert_nothing_vanished();
    let flow = line.daemons[2].show().unwrap().flows.remove(0);
    assert!(flow.count("generations_complete") > 0);
}

/// The source chooses by its keys; relay and sink see it by the packets.
#[test]
fn automatic_code_follows_the_keys_of_the_source_under_a_download() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = Line::automatic(2, 0.05, 40 << 20);
    let fetch = line.fetch();
    for (repair, code) in [("true", "stream"), ("false", "rlnc"), ("true", "stream")] {
        wait_for_bytes(&fetch, fetch.bytes() + (4 << 20), Duration::from_secs(20));
        line.daemons[0].set(1, "repair", repair).unwrap();
        wait_for_bytes(&fetch, fetch.bytes() + (2 << 20), Duration::from_secs(20));
        line.wait_for_code(code);
        let shown = process::run(&mut line.daemons[0].control(&["show", "flows"])).unwrap();
        assert!(shown.contains(&format!("code auto: {code},")), "{shown}");
    }
    line.assert_whole(fetch);
    line.assert_nothing_vanished();
}

#[test]
fn idle_daemon_uses_little_of_a_core() {
    let Some(_turn) = common::daemons() else { return };
    let line = Line::automatic(2, 0.1, 1 << 20);
    line.assert_whole(line.fetch());
    // Other load on this machine can only worsen a measurement.
    let quiet = (0..3).any(|_| busiest_share(&line) < 0.02);
    assert!(quiet, "a daemon uses more than 2 % of a core when idle");
}

/// CPU share of the busiest daemon over five seconds without traffic.
fn busiest_share(line: &Line) -> f64 {
    std::thread::sleep(Duration::from_secs(1));
    let times = || line.daemons.iter().map(|daemon| daemon.processor_time().unwrap());
    let before: Vec<_> = times().collect();
    let window = Duration::from_secs(5);
    std::thread::sleep(window);
    let mut busiest = 0.0_f64;
    for ((daemon, before), after) in line.daemons.iter().zip(before).zip(times()) {
        let used = after.checked_sub(before);
        let used = used.unwrap_or_else(|| panic!("it ended: {}", daemon.log()));
        let share = used.as_secs_f64() / window.as_secs_f64();
        let resident = daemon.resident_kib().unwrap();
        println!("{}: {:.2} % of a core, {resident} KiB resident", daemon.name(), share * 100.0);
        busiest = busiest.max(share);
    }
    busiest
}

#[test]
fn control_tool_shows_and_changes_a_running_daemon() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = Line::start(1, 0.0, 1 << 20);
    let daemon = &line.daemons[0];
    let shown = process::run(&mut daemon.control(&["--json", "show"])).unwrap();
    let state: State = serde_json::from_str(&shown).unwrap();
    assert_eq!(state.links[0].xdp_mode, "native");
    process::run(&mut daemon.control(&["set", "1", "generation_size=32", "field=4"])).unwrap();
    let parameters = daemon.show().unwrap().flows.remove(0).parameters;
    assert_eq!((parameters.generation_size, parameters.field), (Some(32), Some(4)));
    let refused = process::output(&mut daemon.control(&["set", "1", "field=3"])).unwrap();
    assert_eq!(refused.code, Some(4), "{refused:?}");
    line.assert_whole(line.fetch());
}

fn wait_for_bytes(fetch: &Fetch, bytes: u64, patience: Duration) {
    let deadline = Instant::now() + patience;
    while fetch.bytes() < bytes {
        assert!(Instant::now() < deadline, "{} of {bytes} bytes came in time", fetch.bytes());
        std::thread::sleep(Duration::from_millis(5));
    }
}
