//! Broken offloads: a NIC that drops packets which it should segment (`UDP_SEGMENT`) but sends
//! single ones. Here nftables drops every whole burst that leaves the host.

use std::process::Output;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::output;
use recoded_netns::traffic::{Fetch, WebServer, write_random_file};
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss};

const RATE_MBIT: f64 = 60.0;
const SERVER: [u8; 4] = [10, 99, 0, 1];

/// Maximum time of traffic until bursts end.
const PATIENCE: Duration = Duration::from_secs(120);

/// One hop of UDP sockets, with flows of this code.
fn plan(code: CodePlan) -> LinePlan {
    let mut plan =
        LinePlan { pace_mbit: Some(0.97 * RATE_MBIT), udp: vec![0, 1], ..LinePlan::protected(1) };
    plan.flows.iter_mut().for_each(|flow| flow.code = code);
    plan
}

fn nft(bed: &Bed, rules: &str) -> Option<String> {
    let Output { status, stdout, .. } = bed.source().command("nft").arg(rules).output().ok()?;
    status.success().then(|| String::from_utf8_lossy(&stdout).into_owned())
}

/// Makes the source's host drop bursts longer than a packet. Returns false, with the reason
/// printed, if that is impossible.
fn lose_bursts(bed: &Bed) -> bool {
    let rules = "add table netdev liar; \
        add chain netdev liar out { type filter hook egress device east priority 0; }; \
        add rule netdev liar out meta length > 2000 counter drop";
    let can = nft(bed, rules).is_some();
    if !can {
        let reason = "`nft` is not installed, or Linux has no egress hook (5.16)";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
        println!("skipped: {reason}");
    }
    can
}

/// Bursts that were lost.
fn lost_bursts(bed: &Bed) -> u64 {
    let listed = nft(bed, "list table netdev liar").unwrap();
    let count = listed.split("counter packets ").nth(1).unwrap();
    count.split(' ').next().unwrap().parse().unwrap()
}

/// How often bursts were ended on the link of the source.
fn ended(daemon: &Daemon) -> u64 {
    daemon.show().unwrap().links[0].faults["tx_bursts_ended"]
}

/// Downloads through the tunnel until bursts end, at most for `limit`. Returns the time it took.
fn load_until_ended(bed: &Bed, daemon: &Daemon, limit: Duration) -> Option<Duration> {
    let (file, copy) = (bed.directory().join("file"), bed.directory().join("copy"));
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    write_random_file(&file, 1 << 30).unwrap();
    let _fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit + PATIENCE).unwrap();
    let start = Instant::now();
    while start.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(100));
        if ended(daemon) > 0 {
            return Some(start.elapsed());
        }
    }
    None
}

/// Rate of a download of `bytes` bytes, in Mbit/s.
fn download(bed: &Bed, bytes: u64) -> f64 {
    let (file, copy) = (bed.directory().join("small"), bed.directory().join("copied"));
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    write_random_file(&file, bytes).unwrap();
    let fetch = Fetch::start(bed.sink(), SERVER.into(), "small", &copy, PATIENCE).unwrap();
    let download = fetch.finish().unwrap();
    assert!(download.complete, "{download:?}");
    download.mbit()
}

/// The source of such a line stops sending bursts, and reports it.
fn bursts_end(code: CodePlan, loss: f64) {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(loss), RATE_MBIT);
    let daemons = Daemon::start_line(&bed, &plan(code)).unwrap();
    if !lose_bursts(&bed) {
        return;
    }
    let took = load_until_ended(&bed, &daemons[0], PATIENCE);
    println!("{code:?}, {loss}: ended after {took:?}, {} bursts lost", lost_bursts(&bed));
    assert!(took.is_some(), "{} bursts lost\n{}", lost_bursts(&bed), daemons[0].log());
    // A burst may be in flight.
    std::thread::sleep(Duration::from_millis(300));
    let before = lost_bursts(&bed);
    assert!(before > 0);
    println!("{:.1} Mbit/s without bursts", download(&bed, 8 << 20));
    assert_eq!(lost_bursts(&bed), before, "bursts are sent still");
    let words = "segmented bursts do not arrive: packets are sent one by one";
    let link = daemons[0].show().unwrap().links[0].clone();
    assert!(link.reason.contains(words), "{}", link.reason);
    let deadline = Instant::now() + PATIENCE;
    while daemons[0].log().matches(words).count() != 1 {
        assert!(Instant::now() < deadline, "{}", daemons[0].log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let doctor = output(&mut daemons[0].control(&["doctor"])).unwrap().stdout;
    let words: Vec<&str> = doctor.split_whitespace().collect();
    assert!(words.join(" ").contains("segmented bursts do not arrive"), "{doctor}");
    assert_eq!(ended(&daemons[0]), 1);
}

#[test]
fn bursts_that_the_nic_loses_end_within_seconds_and_are_said_to() {
    bursts_end(CodePlan::Stream, 0.0);
}

#[test]
fn bursts_that_the_nic_loses_end_on_a_link_that_loses_a_tenth_besides() {
    bursts_end(CodePlan::Stream, 0.1);
}

#[test]
fn bursts_of_generations_that_the_nic_loses_end() {
    bursts_end(CodePlan::Rlnc, 0.0);
}

/// The same link without the liar.
#[test]
fn bursts_on_a_link_that_loses_a_tenth_stay() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.1), RATE_MBIT);
    let daemons = Daemon::start_line(&bed, &plan(CodePlan::Stream)).unwrap();
    let ended = load_until_ended(&bed, &daemons[0], Duration::from_secs(15));
    assert_eq!(ended, None, "{}", daemons[0].log());
    let link = daemons[0].show().unwrap().links[0].clone();
    assert!(!link.reason.contains("bursts"), "{}", link.reason);
}
