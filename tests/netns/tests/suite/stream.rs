//! Streams between daemons: hops mend themselves and find their rate by themselves.

use std::time::Duration;

use crate::common;
use recoded_netns::traffic::{Fetch, WebServer, sha256, write_random_file};
use recoded_netns::{CodePlan, Daemon, LinePlan, Loss};

const SERVER: [u8; 4] = [10, 99, 0, 1];
const RATE_MBIT: f64 = 100.0;

/// Nothing is told of the links: neither rate nor loss.
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
        // What the other direction reports goes this way, too.
        assert!(packets < 1.3, "{packets} on link {number}");
    }
    let sink = daemons[4].show().unwrap().flows.remove(0);
    assert_eq!(sink.count("generations_failed"), 0);
}
