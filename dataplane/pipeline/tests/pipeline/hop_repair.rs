//! Generations and batches over links with a rate, a queue and a delay, whose hops recover their
//! own losses: packets per symbol on every link, deliveries, and delays.

#[cfg(feature = "bats")]
use crate::common::blocks;
use crate::common::rlnc;
use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::FlowParams;

/// 150 Mbit/s of datagrams, over links of 300.
const STEADY: Load = Load { bytes: 1300, rate: Some(150e6 / 8.0 / 1300.0), ordered: true };

/// Runs a line for two seconds and ignores the first. Returns packets per symbol on each link.
fn packets(line: &mut Line, hops: usize) -> Vec<f64> {
    let counts = |line: &Line| -> Vec<u64> {
        let symbols = line.flow(0).counters.source_symbols;
        (0..hops).map(|hop| line.sent(hop).0).chain([symbols]).collect()
    };
    line.run(SECOND);
    let before = counts(line);
    line.run(SECOND);
    let mut grown: Vec<f64> =
        counts(line).iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
    let symbols = grown.pop().expect("there are symbols");
    let packets = grown.iter().map(|packets| packets / symbols).collect();
    let since = line.now - SECOND;
    let delays = [0.5, 0.99].map(|share| line.delay(since, share) / MILLI);
    println!("{packets:.3?} packets per symbol, median and 99 % after {delays:?} ms");
    packets
}

/// Everything that entered is delivered, once each and in order, except up to `missing_max`.
fn assert_delivery(line: &mut Line, missing_max: usize) {
    line.stop(SECOND);
    let numbers: Vec<u32> = line.delivered.iter().map(|packet| packet.number).collect();
    if let Some(pair) = numbers.windows(2).find(|pair| pair[0] >= pair[1]) {
        panic!("{pair:?} in this order");
    }
    let missing = line.entered() - numbers.len();
    assert!(missing <= missing_max, "{missing} of {} are missing", line.entered());
}

/// Over short hops nothing is sent proactively: it once took 1.44 packets per symbol.
fn costs_what_losses_take(code: fn(&mut FlowParams), most: f64) {
    for (hops, loss) in [(1, 0.1), (4, 0.1), (6, 0.1), (4, 0.01), (2, 0.3)] {
        println!("{hops} hops, {loss} lost");
        let mut line = Line::with(&vec![Link::new(loss, 0); hops], STEADY, 1, code);
        for packets in packets(&mut line, hops) {
            assert!(packets < most / (1.0 - loss), "{packets} packets per symbol");
        }
        assert_delivery(&mut line, 0);
        assert!(line.flow(0).is_mended);
    }
}

#[test]
fn generations_over_short_hops_cost_what_their_losses_take() {
    costs_what_losses_take(rlnc, 1.02);
}

#[cfg(feature = "bats")]
#[test]
fn batches_over_short_hops_cost_what_their_losses_take() {
    // Blocks need a symbol or two more than they have.
    costs_what_losses_take(blocks, 1.035);
}

#[test]
fn generations_over_long_hops_seldom_wait_for_a_report() {
    let mut line = Line::with(&[Link::new(0.1, 10); 4], STEADY, 1, rlnc);
    for packets in packets(&mut line, 4) {
        assert!(packets < 1.46, "{packets} packets per symbol");
    }
    let (median, late) = (line.delay(line.now - SECOND, 0.5), line.delay(line.now - SECOND, 0.99));
    assert!(median < 50 * MILLI && late < 100 * MILLI, "{median} and {late} ns");
    assert_delivery(&mut line, 0);
}

/// Batches were once not recovered on such hops: 1.26 packets per symbol on each, 200 blocks
/// requested end to end, and over 50 ms most received blocks were abandoned.
#[cfg(feature = "bats")]
#[test]
fn batches_over_long_hops_are_made_up_for() {
    for (hops, loss, delay, most, late_millis) in
        [(4, 0.1, 10, 1.24, 145), (3, 0.03, 50, 1.09, 400)]
    {
        let mut line = Line::with(&vec![Link::new(loss, delay); hops], STEADY, 1, blocks);
        line.run(SECOND);
        for packets in packets(&mut line, hops) {
            assert!(packets < most, "{packets} packets per symbol");
        }
        let late = line.delay(line.now - SECOND, 0.99);
        assert!(late < late_millis * MILLI, "{late} ns");
        assert_delivery(&mut line, 0);
        let repairs = line.flow(hops).counters.repairs;
        assert!(repairs < 120, "{repairs} requests from end to end");
    }
}

/// If a report takes half a second, lost packets are not waited for. 0.3 to 1.5 % of generations
/// were once abandoned before their retransmission arrived, and five in six blocks, which their
/// sources had already released when they were requested.
fn loses_nothing_over_a_far_hop(code: fn(&mut FlowParams), most: f64) {
    let far = Link::new(0.02, 270);
    let near = Link::new(0.05, 5);
    for (links, mbit) in [(&[far][..], 20.0), (&[far], 150.0), (&[near, far, near], 100.0)] {
        let load = Load { rate: Some(mbit * 1e6 / 8.0 / 1300.0), ..STEADY };
        let mut line = Line::with(links, load, 1, code);
        // A source learns from blocks that request more that a hop behind the next one is far.
        line.run(4 * SECOND);
        let (hops, since) = (links.len(), line.now);
        let counts = |line: &Line| {
            let (source, sink) = (line.flow(0).counters, line.flow(hops).counters);
            let sent: u64 = (0..hops).map(|hop| line.sent(hop).0).max().unwrap();
            (sent, source.source_symbols, sink.generations_failed, sink.generations)
        };
        let before = counts(&line);
        line.run(6 * SECOND);
        let after = counts(&line);
        let packets = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
        let (failed, all) = (after.2 - before.2, after.3 - before.3);
        let way: u64 = links.iter().map(|link| link.delay).sum();
        // An abandoned one delays those that follow it by 200 ms.
        let late = line.delay(since, 0.9) - way;
        println!(
            "{hops} hops, {mbit} Mbit/s: {packets:.3} packets per symbol, {failed} of {all} given \
             up, 90 % {} ms after the way",
            late / MILLI
        );
        // One in ten thousand, by plan.
        assert!(failed <= 2 + all / 2000, "{failed} of {all} generations or blocks");
        assert!(late < 60 * MILLI, "{late} ns");
        // Generations of one or two symbols take more.
        assert!(mbit < 100.0 || packets < most, "{packets} packets per symbol");
    }
}

#[test]
fn generations_over_a_far_hop_wait_for_no_report() {
    loses_nothing_over_a_far_hop(rlnc, 1.45);
}

#[cfg(feature = "bats")]
#[test]
fn batches_over_a_far_hop_wait_for_no_report() {
    loses_nothing_over_a_far_hop(blocks, 1.34);
}

/// A socket with the default buffer of Linux holds 92 datagrams of 1300 bytes. Blocks of 256, and
/// packets waiting behind a generation, were once delivered at once: a quarter to a half was lost
/// there.
#[test]
fn deliveries_fit_the_buffer_of_a_socket() {
    let codes: &[fn(&mut FlowParams)] = &[
        rlnc,
        #[cfg(feature = "bats")]
        blocks,
    ];
    let load = Load { rate: Some(100e6 / 8.0 / 1300.0), ordered: false, ..STEADY };
    for (code, delay) in codes.iter().flat_map(|code| [0, 10].map(|delay| (code, delay))) {
        let mut line = Line::with(&[Link::new(0.1, delay); 4], load, 1, code);
        line.run(3 * SECOND);
        // The application reads 60 packets each millisecond: 620 Mbit/s.
        let most = line.most_waiting(2 * SECOND, 60.0);
        println!("{delay} ms: at most {most:.0} packets wait");
        assert!(most < 64.0, "{most} packets wait in the socket");
        line.stop(2 * SECOND);
        let missing = line.entered() - line.delivered.len();
        assert_eq!(missing, 0, "{delay} ms");
    }
}

/// Bursts on short hops once took three packets per symbol, or one end-to-end round trip each.
#[test]
fn generations_hit_by_bursts_are_made_up_for_hop_by_hop() {
    let link = Link { burst: 8.0, ..Link::new(0.1, 0) };
    let mut line = Line::with(&[link; 4], STEADY, 1, rlnc);
    for packets in packets(&mut line, 4) {
        assert!(packets < 1.2, "{packets} packets per symbol");
    }
    assert_delivery(&mut line, 0);
}

#[test]
fn last_packets_before_a_pause_are_made_up_for() {
    let load = Load { rate: Some(40.0), ..STEADY };
    let mut line = Line::with(&[Link::new(0.2, 1); 3], load, 2, rlnc);
    line.run(10 * SECOND);
    assert_delivery(&mut line, 0);
    let counters = line.flow(3).counters;
    assert!(counters.repairs < 12, "{} requests from end to end", counters.repairs);
}

#[test]
fn without_a_way_back_what_is_planned_is_sent() {
    let dead = Link::new(1.0, 0);
    let mut line = Line::with(&[Link::new(0.1, 0); 2], STEADY, 1, rlnc);
    (0..2).for_each(|hop| line.set_back(hop, dead));
    for packets in packets(&mut line, 2) {
        assert!(packets > 1.3, "{packets} packets per symbol");
    }
    let entered = line.entered();
    assert_delivery(&mut line, entered / 20);
    assert_eq!(line.flow(0).counters.sent_keepalive, 0);
    assert!(!line.flow(0).is_mended);
}

/// Reports stop while traffic runs, and resume.
#[test]
fn hop_that_falls_silent_is_sent_what_is_planned() {
    let link = Link::new(0.1, 0);
    let mut line = Line::with(&[link; 2], STEADY, 1, rlnc);
    line.run(SECOND);
    line.set_back(1, Link::new(1.0, 0));
    line.run(SECOND);
    let silent = packets(&mut line, 2);
    assert!(silent[0] < 1.14 && silent[1] > 1.3, "{silent:?} packets per symbol");
    line.set_back(1, link);
    line.run(SECOND);
    let heard = packets(&mut line, 2);
    assert!(heard[1] < 1.14, "{heard:?} packets per symbol");
    let entered = line.entered();
    assert_delivery(&mut line, entered / 20);
}

#[test]
fn relay_that_restarts_is_made_up_for_again() {
    let mut line = Line::with(&[Link::new(0.1, 0); 3], STEADY, 1, rlnc);
    line.run(SECOND);
    line.restart(1);
    line.run(SECOND);
    for packets in packets(&mut line, 3) {
        assert!(packets < 1.14, "{packets} packets per symbol");
    }
    assert_delivery(&mut line, 1000);
}
