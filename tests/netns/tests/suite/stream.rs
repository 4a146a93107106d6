//! Streams between daemons: hops repair their own losses and find their rate.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common;
use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::stream::Stream;
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
use recoded_netns::{
    Bed, BedConfig, CodePlan, Daemon, DirectionConfig, LinePlan, LinkConfig, Loss,
};

const SERVER: [u8; 4] = [10, 99, 0, 1];
const CLIENT: [u8; 4] = [10, 99, 0, 2];
const RATE_MBIT: f64 = 100.0;
const SLOW_MBIT: f64 = 2.0;

/// Neither the rate nor the loss of the links is configured.
#[test]
fn download_in_a_stream_over_four_lossy_hops_arrives_whole() {
    let Some(_turn) = common::daemons() else { return };
    let bed = common::bed(4, Loss::independent(0.1), RATE_MBIT);
    let file = bed.directory().join("file");
    write_random_file(&file, 48 << 20).unwrap();
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    let mut plan = LinePlan::protected(4);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let copy = bed.directory().join("copy");
    let limit = Duration::from_secs(60);
    let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
    let download = fetch.finish().unwrap();
    println!("{download:?}, {:.1} Mbit/s", download.mbit());
    assert!(download.complete, "{download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
    let source = daemons[0].show().unwrap().flows.remove(0);
    let symbols = source.count("source_symbols") as f64;
    for (number, link) in bed.counters().unwrap().iter().enumerate() {
        let packets = link.eastward.seen as f64 / symbols;
        println!("link {number}: {packets:.3} packets a symbol");
        // Reports for the other direction share this direction.
        assert!(packets < 1.3, "{packets} on link {number}");
    }
    let sink = daemons[4].show().unwrap().flows.remove(0);
    assert_eq!(sink.count("generations_failed"), 0);
}

/// Packets of a sender that fills the line wait in the queue at the tunnel, which signals it to
/// slow down. A few concurrent datagrams have a flow queue of their own, and none of them is
/// dropped.
#[test]
fn datagrams_beside_a_greedy_stream_are_not_dropped_by_the_queue_that_slows_it_down() {
    let Some(_turn) = common::daemons() else { return };
    let bed = common::bed(2, Loss::independent(0.02), 20.0);
    let mut plan = LinePlan::protected(2);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let at = |port| SocketAddr::from((CLIENT, port));
    let to = at(7000);
    let stream = Stream::start(bed.source(), to, bed.sink(), to, "cubic").unwrap();
    let plan = ProbePlan {
        to: at(7001),
        payload_bytes: 200,
        packets_per_second: 50.0,
        length: Duration::from_secs(8),
        grace: Duration::from_secs(1),
        buffer_bytes: Some(1 << 20),
    };
    let probe = Probe::start(bed.source(), bed.sink(), &plan).unwrap().finish().unwrap();
    let mbit = stream.finish().mbit_between(1.0, 8.0);
    let tunnel = daemons[0].show().unwrap().tunnels.remove(0);
    let count = |name: &str| tunnel.counters.get(name).or(tunnel.faults.get(name)).copied();
    let [queued, delay, full] = ["queued_packets", "queue_delay", "queue_full"].map(count);
    let (p50, p99) = (probe.quantile_millis(0.5), probe.quantile_millis(0.99));
    println!("{mbit:.1} Mbit/s; probe: {p50:.1} ms, p99 {p99:.1} ms, {} lost", probe.lost());
    println!("queued {queued:?}, dropped for delay {delay:?}, for room {full:?}");
    assert!(queued.is_some_and(|packets| packets > 1000), "{tunnel:?}");
    assert!(delay.is_some_and(|packets| packets > 0), "{tunnel:?}");
    assert_eq!(probe.lost(), 0);
}

/// A start at 100 Mbit/s overflows the queue of an uplink of 2 Mbit/s. Its drops were once mistaken
/// for loss of the link, and nine of ten packets were dropped from then on.
#[test]
fn download_over_an_uplink_of_2_mbit_keeps_to_its_rate() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (delay, queue) = (Duration::from_millis(20), Duration::from_millis(40));
    let uplink =
        DirectionConfig { delay, queue, ..DirectionConfig::new(Loss::independent(0.0), SLOW_MBIT) };
    let bed = Bed::build(&BedConfig::uniform(1, LinkConfig::both(uplink))).unwrap();
    let file = bed.directory().join("file");
    write_random_file(&file, 2 << 20).unwrap();
    let _server = WebServer::start(bed.source(), bed.directory()).unwrap();
    let mut plan = LinePlan::protected(1);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let _daemons = Daemon::start_line(&bed, &plan).unwrap();
    let copy = bed.directory().join("copy");
    let limit = Duration::from_secs(60);
    let fetch = Fetch::start(bed.sink(), SERVER.into(), "file", &copy, limit).unwrap();
    let download = fetch.finish().unwrap();
    let share = download.mbit() / SLOW_MBIT;
    let link = bed.counters().unwrap()[0].eastward;
    let dropped = bed.queue_drops().unwrap() as f64 / link.seen as f64;
    println!("{share:.2} of the link, {dropped:.3} dropped");
    assert!(download.complete, "{download:?}");
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
    assert!(share > 0.6 && dropped < 0.3, "{share} of the link, {dropped} dropped");
}
