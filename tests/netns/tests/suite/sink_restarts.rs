//! Sinks that restart under traffic. Streams lose no more packets with keys than without; open
//! loops and the other codes lose no packet but those of the gap.

use std::time::Duration;

use crate::common;
use crate::processes::{RATE_MBIT, probe, wait_for_another};
use recoded_netns::probe::ProbeOutcome;
use recoded_netns::{AuthPlan, Bed, CodePlan, Daemon, LinePlan, Loss};
use rustix::process::Signal;

/// How a sink ends.
#[derive(Copy, Clone, Debug)]
enum End {
    /// The dataplane process is killed; the supervisor starts another one.
    Killed,
    /// The service is stopped and started, as by `systemctl restart`.
    Restarted,
}

/// Seconds of a flow with a restart in it.
const SECONDS: u64 = 6;

/// A source, a relay and a sink.
struct Line {
    bed: Bed,
    daemons: Vec<Daemon>,
}

fn start(code: CodePlan, has_keys: bool, loss: f64) -> Line {
    let bed = common::bed(2, Loss::independent(loss), RATE_MBIT);
    let auth = has_keys.then(|| AuthPlan::new("full", 2));
    let pace_mbit = Some(0.97 * RATE_MBIT);
    let mut plan = LinePlan { pace_mbit, auth, ..LinePlan::protected(2) };
    for flow in &mut plan.flows {
        (flow.code, flow.field) = (code, 256);
    }
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    Line { bed, daemons }
}

impl Line {
    /// A flow of 500 datagrams per second during which the sink ends and restarts.
    fn restart_sink(&mut self, end: End) -> ProbeOutcome {
        let stream = probe(&self.bed, SECONDS);
        std::thread::sleep(Duration::from_secs(1));
        let sink = &mut self.daemons[2];
        match end {
            End::Killed => {
                let before = sink.dataplane_pid().unwrap();
                sink.signal_dataplane(Signal::KILL).unwrap();
                wait_for_another(sink, before);
            }
            End::Restarted => {
                assert!(sink.stop(), "{}", sink.log());
                sink.spawn_again().unwrap();
                sink.wait_until_it_answers().unwrap();
            }
        }
        stream.finish().unwrap()
    }

    /// Packets that nodes refused as forged, anywhere on the line.
    fn accusations(&self) -> u64 {
        let states = self.daemons.iter().map(|daemon| daemon.show().unwrap());
        states
            .map(|state| {
                let refused = state.flows.iter().map(|flow| flow.count("tag_refused"));
                state.drops["wrong_symbol_tag"] + refused.sum::<u64>()
            })
            .sum()
    }
}

/// Packets lost in each round, and received duplicates.
fn rounds(has_keys: bool, loss: f64, end: End) -> Vec<u64> {
    let mut line = start(CodePlan::Stream, has_keys, loss);
    let mut lost = Vec::new();
    for round in 1..=ROUNDS {
        let outcome = line.restart_sink(end);
        println!(
            "{end:?}, keys {has_keys}, loss {loss}, round {round}: {} of {} lost, {} twice, \
             gap {:.0} ms",
            outcome.lost(),
            outcome.sent,
            outcome.duplicates,
            outcome.longest_gap_millis()
        );
        lost.push(outcome.lost());
    }
    assert_eq!(line.accusations(), 0, "an honest node is accused");
    lost
}

const ROUNDS: usize = 4;

#[test]
fn killed_sink_loses_no_more_with_keys_than_without() {
    let Some(_turn) = common::daemons_beside() else { return };
    compare(End::Killed);
}

#[test]
fn restarted_sink_loses_no_more_with_keys_than_without() {
    let Some(_turn) = common::daemons_beside() else { return };
    compare(End::Restarted);
}

fn compare(end: End) {
    let loss = 0.02;
    let without: u64 = rounds(false, loss, end).iter().sum();
    let with: u64 = rounds(true, loss, end).iter().sum();
    println!("{end:?}: {with} lost with keys, {without} without, in {ROUNDS} rounds");
    assert!(with <= without + 2 * ROUNDS as u64, "{with} lost with keys, {without} without");
}

#[test]
fn killed_sink_of_generations_loses_the_packets_of_the_gap_only() {
    loses_the_gap_only(CodePlan::Rlnc);
}

#[test]
fn killed_sink_of_batches_loses_the_packets_of_the_gap_only() {
    loses_the_gap_only(CodePlan::Bats { block_symbols: 64, interleave: None, adaptive: true });
}

#[test]
fn killed_sink_of_an_open_loop_loses_the_packets_of_the_gap_only() {
    loses_the_gap_only(CodePlan::OpenLoop);
}

/// Sources of these flows do not retransmit packets that were lost while the sink was down.
fn loses_the_gap_only(code: CodePlan) {
    let Some(_turn) = common::daemons_beside() else { return };
    for has_keys in [false, true] {
        let mut line = start(code, has_keys, 0.02);
        for round in 1..=2 {
            let outcome = line.restart_sink(End::Killed);
            let (lost, gap) = (outcome.lost(), outcome.longest_gap_millis());
            println!("{code:?}, keys {has_keys}, round {round}: {lost} lost, gap {gap:.0} ms");
            // 500 packets per second, and units that were incomplete when the sink ended.
            assert!(lost as f64 <= 0.5 * gap + 40.0, "{lost} lost, gap {gap} ms");
        }
        assert_eq!(line.accusations(), 0, "an honest node is accused");
    }
}
