//! Whole paths of BATS flows: blocks in at the source, packets whole and in order out at the sink.

mod common;

use common::{Line, bats, ip_packet};
use recoded_pipeline::params::{BatsParams, FlowCode, FlowParams, Interleave};
use recoded_pipeline::report::FlowCounters;

/// Changes the code of a flow.
fn with(params: &mut FlowParams, change: impl Fn(&mut BatsParams)) {
    let FlowCode::Bats(mut bats) = params.code else { panic!("not a BATS flow") };
    change(&mut bats);
    params.code = FlowCode::Bats(bats);
}

/// A line of BATS nodes with blocks of `source_symbols`.
fn line(
    hops: usize,
    loss: f64,
    seed: u64,
    source_symbols: usize,
    change: impl Fn(&mut FlowParams),
) -> Line {
    Line::new(hops, loss, seed, |params| {
        params.code = bats(source_symbols);
        params.hold_timeout_nanos = 400_000_000;
        change(params);
    })
}

/// Sends packets of mixed sizes and checks that all arrive in order, but for `missing_max`.
fn transfer(line: &mut Line, count: u32, missing_max: usize) {
    let size = |number: u32| 24 + (number as usize * 37) % 500;
    for number in 0..count {
        line.send(&ip_packet(size(number), number));
        if number % 8 == 0 {
            line.pass(1);
        }
    }
    line.pass(700);
    let delivered: Vec<u32> = line
        .delivered()
        .iter()
        .map(|packet| {
            let number = u32::from_be_bytes(packet[20..24].try_into().unwrap());
            assert_eq!(*packet, ip_packet(size(number), number), "packet {number} was altered");
            number
        })
        .collect();
    assert!(delivered.is_sorted(), "packets out of order");
    let missing = count as usize - delivered.len();
    assert!(missing <= missing_max, "{missing} of {count} packets missing");
}

fn source(line: &Line) -> FlowCounters {
    line.nodes[0].flow().counters
}

fn sink(line: &Line) -> FlowCounters {
    line.nodes[line.nodes.len() - 1].flow().counters
}

/// Packets sent per source symbol.
fn overhead(counters: &FlowCounters) -> f64 {
    counters.sent_coded as f64 / counters.source_symbols as f64
}

#[test]
fn lossless_line_delivers_everything() {
    let mut line = line(3, 0.0, 1, 64, |_| ());
    transfer(&mut line, 2000, 0);
    println!("{:?}", line.nodes[0].flow());
    println!("{:?}", sink(&line));
    line.check();
}

#[test]
fn ten_hops_of_a_tenth_lost_deliver_everything() {
    let mut line = line(10, 0.1, 2, 192, |params| params.flush_timeout_nanos = 100_000_000);
    transfer(&mut line, 20_000, 0);
    println!("{:?}", line.nodes[0].flow());
    println!("{:?}", sink(&line));
    println!("overhead {}", overhead(&source(&line)));
    line.check();
}

#[test]
fn bursts_are_met_by_interleaving() {
    let mut delivered = Vec::new();
    for interleave in [Interleave::Fixed(1), Interleave::Fixed(16)] {
        let mut line = line(6, 0.1, 3, 192, |params| {
            params.flush_timeout_nanos = 100_000_000;
            params.repair = false;
            params.redundancy = recoded_pipeline::params::Redundancy::Fixed(1.7);
            with(params, |bats| bats.interleave = interleave);
        });
        line.burst_mean = 8.0;
        transfer(&mut line, 10_000, 10_000);
        println!("{interleave:?}: {:?}", sink(&line));
        delivered.push(line.delivered().len());
        line.check();
    }
    assert!(delivered[0] < delivered[1], "{delivered:?}");
}
