//! Live changes without end: `recodectl set` many times a second, of every kind of key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::processes::{line_plan, probe};
use recoded_api::client::Client;
use recoded_netns::Daemon;

/// Changes requested from a source in turn.
type Changes = &'static [&'static [(&'static str, &'static str)]];

const CHANGES: [(&str, Changes); 5] = [
    ("profile", &[&[("stream_profile", "interactive")], &[("stream_profile", "balanced")]]),
    ("redundancy", &[&[("redundancy_max", "2")], &[("redundancy_max", "3")]]),
    ("two codes", &[&[("code", "rlnc")], &[("code", "stream")]]),
    (
        "window of a stream",
        &[
            &[("code", "stream"), ("stream_symbols", "1024")],
            &[("code", "stream"), ("stream_symbols", "2048")],
        ],
    ),
    (
        "size of generations",
        &[
            &[("code", "rlnc"), ("generation_size", "16")],
            &[("code", "rlnc"), ("generation_size", "64")],
        ],
    ),
];

#[test]
fn changes_without_end_cost_few_packets() {
    let Some(_turn) = common::daemons_beside() else { return };
    let mut failed = Vec::new();
    for (name, changes) in CHANGES {
        let (bed, plan) = line_plan(None, 1);
        let daemons = Daemon::start_line(&bed, &plan).unwrap();
        let is_over = AtomicBool::new(false);
        let (outcome, made, refused) = std::thread::scope(|scope| {
            let hammer = scope.spawn(|| {
                let mut client = Client::connect(daemons[0].socket()).unwrap();
                let (mut made, mut refused) = (0, 0);
                let begun = Instant::now();
                while !is_over.load(Ordering::Relaxed) {
                    let asked = changes[(made + refused) % changes.len()].iter();
                    let change = asked.map(|(key, value)| (key.to_string(), value.to_string()));
                    let change = change.collect();
                    match client.set(1, &change) {
                        Ok(_) => made += 1,
                        Err(error) => {
                            if refused == 0 {
                                println!("{name}: {error}");
                            }
                            refused += 1;
                        }
                    }
                    std::thread::sleep(Duration::from_millis(12));
                }
                println!("{name}: {:.0} changes/s", made as f64 / begun.elapsed().as_secs_f64());
                (made, refused)
            });
            let outcome = probe(&bed, 3).finish().unwrap();
            is_over.store(true, Ordering::Relaxed);
            let (made, refused) = hammer.join().unwrap();
            (outcome, made, refused)
        });
        println!("{name}: {made} changes, {refused} refused, {:.2} % lost", outcome.loss() * 100.0);
        if outcome.loss() >= 0.01 {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "lost packets: {failed:?}");
}
