//! `bench`: how many peers this computer serves, as JSON.

use std::time::Duration;

use recoded_swarm::{Error, Layout, LoadOptions, encoding, load};
use serde_json::json;

use crate::arguments::Bench;

/// Peers at 768 kbit/s in the papers: a GeForce 8800 GT (Nuclei), and a GTX 280 with loops, with
/// tables in shared memory, and with the best tables (Extreme Network Coding). They are rates of
/// encoding, divided by the rate of a peer.
const PAPERS: [u32; 4] = [870, 1385, 1844, 3050];

/// Duration of the measurement of encoding.
const ENCODING: Duration = Duration::from_secs(2);

pub(crate) fn run(arguments: &Bench) -> Result<(), Error> {
    let Bench { rate, blocks, block_bytes, workers, .. } = *arguments;
    let segment_bytes = u64::from(blocks) * u64::from(block_bytes);
    let layout = Layout::new(blocks, block_bytes, u64::from(arguments.segments) * segment_bytes)?;
    let peer_bytes = f64::from(rate) * 125.0;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut report = json!({
        "rate_kbit": rate,
        "blocks": blocks,
        "block_bytes": block_bytes,
        "workers": workers,
        "segments": arguments.segments,
        "segments_ahead": arguments.ahead,
        "burst_kib": arguments.burst,
        "cores": cores,
        "papers": PAPERS,
    });
    if let Some(encoding) = encoding(&layout, workers.into(), ENCODING) {
        let bytes = encoding.bytes as f64 / encoding.cpu.as_secs_f64();
        let peers = bytes * cores as f64 / peer_bytes;
        report["encoding"] = json!({
            "mbytes_per_core_second": (bytes / 1e6).round(),
            "peers_of_all_cores": peers.floor(),
            "ratio_to_papers": PAPERS.map(|paper| ratio(peers, f64::from(paper))),
        });
    }
    let mut loads = Vec::new();
    for &peers in &arguments.peers {
        let options = LoadOptions {
            peers,
            rate_kbit: rate,
            time: Duration::from_secs(arguments.seconds.into()),
            workers: workers.into(),
            layout,
            segments_ahead: arguments.ahead.into(),
            burst_bytes: u64::from(arguments.burst) << 10,
        };
        let load = load(&options)?;
        let bytes = load.bytes as f64 / load.time.as_secs_f64();
        loads.push(json!({
            "peers": peers,
            "joined": load.joined,
            "sustained": load.sustained,
            "mbit_per_second": (bytes * 8.0 / 1e6).round(),
            "fraction_of_rate": ratio(bytes, peer_bytes * f64::from(peers)),
            "cpu_seconds_per_second": ratio(load.cpu.as_secs_f64(), load.time.as_secs_f64()),
            "ratio_to_papers": PAPERS.map(|paper| ratio(load.sustained.into(), paper.into())),
            "combinations_per_block":
                ratio(load.counters.combinations as f64, load.counters.blocks as f64),
            "verified_segments": load.verified_segments,
            "wrong": load.wrong,
            "unsent": load.counters.unsent,
        }));
    }
    report["loads"] = loads.into();
    crate::print(&format!("{report:#}"));
    Ok(())
}

/// A quotient with three digits.
fn ratio(a: f64, b: f64) -> f64 {
    (a / b.max(1.0) * 1000.0).round() / 1000.0
}
