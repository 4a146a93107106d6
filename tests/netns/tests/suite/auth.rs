//! Lines whose hosts have keys: packets of others are dropped at the first host, packets of hosts
//! arrive, across restarts and with losses.

use std::time::{Duration, Instant};

use crate::common;
use recoded_api::v1::{Session, State};
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
use recoded_netns::{
    AuthPlan, Bed, BedConfig, CodePlan, Daemon, DirectionConfig, FlowPlan, LinePlan, LinkConfig,
    Loss,
};

/// Rate of the links: any two cores carry a line of three daemons at this.
const RATE_MBIT: f64 = 100.0;

/// The web server through the tunnel.
const SERVER: [u8; 4] = [10, 99, 0, 1];

/// Timeout for hosts to agree on keys.
const PATIENCE: Duration = Duration::from_secs(10);

fn plan(level: &'static str, code: CodePlan, hops: usize) -> LinePlan {
    let mut plan = LinePlan {
        pace_mbit: Some(0.97 * RATE_MBIT),
        auth: Some(AuthPlan::new(level, hops)),
        ..LinePlan::protected(hops)
    };
    for flow in &mut plan.flows {
        *flow = FlowPlan { code, field: 256, ..flow.clone() };
    }
    plan
}

/// A counter of all links of a host.
fn links(state: &State, name: &str) -> u64 {
    let of = |link: &recoded_api::v1::Link| {
        link.counters.get(name).or(link.faults.get(name)).copied().unwrap_or_default()
    };
    state.links.iter().map(of).sum()
}

/// A counter of all flows of a host.
fn flows(state: &State, name: &str) -> u64 {
    state.flows.iter().map(|flow| flow.count(name)).sum()
}

/// Waits until `holds`.
fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Downloads a file over a line and compares it.
fn download(bed: &Bed, bytes: u64) {
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    write_random_file(&file, bytes).unwrap();
    let limit = Duration::from_secs(60);
    let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
    let download = fetch.finish().unwrap();
    println!("{download:?}, {:.1} Mbit/s", download.mbit());
    assert!(download.complete, "{download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
}

#[test]
fn downloads_of_every_code_arrive_over_hops_with_keys() {
    downloads_arrive("hop", &[]);
}

#[test]
fn downloads_of_every_code_arrive_encrypted() {
    downloads_arrive("full", &[]);
}

#[test]
fn downloads_of_every_code_arrive_with_strict_tags() {
    downloads_arrive("full", &[0, 2]);
}

/// Symbol sizes depend on tag sizes, so such ends cannot exchange data.
#[test]
fn ends_with_tags_of_other_lengths_both_say_so_and_agree_on_nothing() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.05), RATE_MBIT);
    let mut plan = plan("full", CodePlan::Auto, 2);
    plan.auth.as_mut().unwrap().strict = vec![2];
    // Started one by one: starting a line waits for all sessions.
    let start = |index| Daemon::start(&bed, index, &plan).unwrap();
    let daemons: Vec<Daemon> = (0..3).map(start).collect();
    for end in [0, 2] {
        let edges = || {
            let sessions = daemons[end].show().map(|state| state.sessions).unwrap_or_default();
            sessions.into_iter().filter(|session| session.with.starts_with("flow "))
        };
        let says = |session: Session| session.refusal.contains("edge_profile must be the same");
        wait("an end does not say why there are no keys", || edges().any(says));
        assert!(edges().all(|session| session.age_seconds.is_none()), "there are keys");
    }
}

fn downloads_arrive(level: &'static str, strict: &[usize]) {
    let Some(_turn) = common::daemons_beside() else { return };
    let bats = CodePlan::Bats { block_symbols: 256, interleave: None, adaptive: true };
    for code in [CodePlan::Auto, CodePlan::Rlnc, bats] {
        let mut plan = plan(level, code, 2);
        plan.auth.as_mut().unwrap().strict = strict.to_vec();
        println!("{code:?}");
        let bed = common::bed(2, Loss::independent(0.05), RATE_MBIT);
        let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
        let daemons = Daemon::start_line(&bed, &plan).unwrap();
        download(&bed, 4_000_000);
        for daemon in &daemons {
            let state = daemon.show().unwrap();
            assert!(links(&state, "rx_handshakes") > 0, "{}", daemon.name());
            assert_eq!(links(&state, "rx_wrong_tag"), 0, "{}", daemon.name());
            assert_eq!(links(&state, "rx_copies"), 0, "{}", daemon.name());
        }
        let sink = daemons[daemons.len() - 1].show().unwrap();
        let has_tags = level == "full";
        let [verified, refused] = ["tag_verified", "tag_refused"].map(|name| flows(&sink, name));
        println!("{code:?}, {level}: {verified} symbols verified, {refused} refused");
        assert_eq!((verified > 1000, refused), (has_tags, 0), "{code:?}");
        let relay = daemons[1].show().unwrap();
        let [verified, refused] = ["tag_verified", "tag_refused"].map(|name| flows(&relay, name));
        println!("relay: {verified} symbols verified, {refused} refused");
        assert_eq!((verified > 1000, refused), (has_tags, 0), "{code:?}: relay");
        let granted = |session: &&Session| session.with.starts_with("source of flow");
        let granted: Vec<_> = relay.sessions.iter().filter(granted).collect();
        assert_eq!(granted.len(), if level == "full" { 2 } else { 0 });
        assert!(granted.iter().all(|it| it.age_seconds.is_some() && it.refused == 0));
    }
}

/// Packets duplicated in flight, or recorded and replayed, are dropped by the tag check.
#[test]
fn copies_of_packets_are_refused() {
    let Some(_turn) = common::daemons_beside() else { return };
    let copying = DirectionConfig {
        duplicate: 0.2,
        ..DirectionConfig::new(Loss::independent(0.02), RATE_MBIT)
    };
    let bed = Bed::build(&BedConfig::uniform(2, LinkConfig::both(copying))).unwrap();
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    let daemons = Daemon::start_line(&bed, &plan("full", CodePlan::Auto, 2)).unwrap();
    download(&bed, 8_000_000);
    for daemon in &daemons {
        let state = daemon.show().unwrap();
        let copies = links(&state, "rx_copies");
        println!("{}: {copies} copies", daemon.name());
        assert!(copies > 100, "{}: {copies}", daemon.name());
        assert_eq!(state.drops["replayed"], 0, "{}: the tag refuses them", daemon.name());
        assert_eq!(links(&state, "rx_wrong_tag"), 0, "{}", daemon.name());
    }
}

#[test]
fn a_host_with_another_key_is_not_heard_and_named() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), RATE_MBIT);
    let good = plan("hop", CodePlan::Auto, 1);
    let other = LinePlan { auth: Some(AuthPlan::new("hop", 1)), ..good.clone() };
    let source = Daemon::start(&bed, 0, &good).unwrap();
    let sink = Daemon::start(&bed, 1, &other).unwrap();
    let refused = |daemon: &Daemon| links(&daemon.show().unwrap(), "rx_handshakes");
    wait("no handshake came", || refused(&source) > 0 && refused(&sink) > 0);
    let state = sink.show().unwrap();
    let received: u64 = state.workers.iter().map(|worker| worker.received).sum();
    assert_eq!(received, 0, "nothing of the other reaches a pipeline");
}
