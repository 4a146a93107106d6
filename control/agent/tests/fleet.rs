//! Two hundred agents on one etcd: time until all have applied a quorum's value, and the cost.
//! Printed as JSON; `RECODED_WRITE_FLEET=1` writes it to `bench/results/fleet.json`.

#![forbid(unsafe_code)]

mod common;

use common::etcd::Cluster;
use common::{Node, bundle, until};
use recoded_agent::agent::Agent;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 200;

/// Size of the configuration of a box with some flows.
const CONFIGURATION_BYTES: usize = 4096;

/// Processor time of a process so far.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, after) = stat.rsplit_once(')').expect("a name in brackets");
    // user and system, fields 14 and 15, in hundredths of a second.
    let fields = after.split_whitespace().skip(11).take(2);
    Duration::from_millis(fields.map(|field| field.parse::<u64>().expect("a number") * 10).sum())
}

/// Puts version `version` for all, and waits until all have it. Returns the time of each, in
/// milliseconds since its own bundle was put.
fn roll_out(cluster: &Cluster, nodes: &[Node], version: u64) -> Vec<u128> {
    let text = format!("# {version}\n{}", "#".repeat(CONFIGURATION_BYTES));
    let mut client = cluster.client();
    let bundles: Vec<_> =
        nodes.iter().map(|node| (node, bundle(&node.name, version, &text))).collect();
    let put: Vec<Instant> = bundles
        .iter()
        .map(|(node, bundle)| {
            client.put(&format!("/recoded/{}", node.name), bundle).expect("etcd runs");
            Instant::now()
        })
        .collect();
    let mut took = vec![None; nodes.len()];
    until("all have it", || {
        for ((node, put), took) in nodes.iter().zip(&put).zip(&mut took) {
            if took.is_none() && node.daemon.get().confirmed == version {
                *took = Some(put.elapsed().as_millis());
            }
        }
        took.iter().all(Option::is_some)
    });
    let mut took: Vec<u128> = took.into_iter().flatten().collect();
    took.sort_unstable();
    took
}

fn summary(took: &[u128]) -> Value {
    json!({ "median": took[took.len() / 2], "p99": took[took.len() * 99 / 100], "max": took.last() })
}

#[test]
fn two_hundred_agents_on_one_etcd_all_get_each_change() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut nodes: Vec<Node> =
        (0..NODES).map(|index| Node::new(&format!("node-{index}"))).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let agents: Vec<_> = nodes
        .iter_mut()
        .map(|node| {
            node.start();
            let settings = node.settings(&cluster.source(), "");
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut agent = Agent::open(settings).expect("it starts");
                while !stop.load(Ordering::Relaxed) {
                    agent.step();
                    agent.wait();
                }
                agent.status().version
            })
        })
        .collect();
    let first = roll_out(&cluster, &nodes, 1);
    let (etcd, own) = (cluster.members[0].process(), std::process::id());
    let (before, own_before) = (processor_time(etcd), processor_time(own));
    let idle = Duration::from_secs(5);
    std::thread::sleep(idle);
    let share =
        |since: Duration, pid| (processor_time(pid) - since).as_secs_f64() / idle.as_secs_f64();
    let (etcd_share, agents_share) = (share(before, etcd), share(own_before, own));
    let before = processor_time(etcd);
    let second = roll_out(&cluster, &nodes, 2);
    let result = json!({
        "benchmark": "fleet",
        "nodes": NODES,
        "etcd_members": 1,
        "configuration_bytes": CONFIGURATION_BYTES,
        "poll_seconds": 1,
        "first_millis": summary(&first),
        "change_millis": summary(&second),
        "change_etcd_processor_millis": (processor_time(etcd) - before).as_millis(),
        "idle_etcd_cores": etcd_share,
        "idle_agents_and_daemons_cores": agents_share,
        "etcd_memory_bytes": cluster.members[0].memory_bytes(),
        "agents_and_daemons_memory_bytes": common::memory_bytes(own as i32),
        "load_average": fs::read_to_string("/proc/loadavg").expect("load").split(' ').next(),
    });
    let text = bench_json::to_string(&result).expect("JSON");
    println!("{text}");
    if std::env::var_os("RECODED_WRITE_FLEET").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
        fs::write(folder.join("fleet.json"), text).expect("written");
    }
    stop.store(true, Ordering::Relaxed);
    for agent in agents {
        assert_eq!(agent.join().expect("it does not panic"), Some(2));
    }
}
