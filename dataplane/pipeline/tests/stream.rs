//! Streams over links with a rate, a queue and a delay: how much they carry, how long it takes,
//! what becomes of them where links change.

mod timed;

use recoded_pipeline::params::Nanos;
use timed::{Line, Link, Load, MILLI, SECOND};

/// TCP that always has more to send.
const GREEDY: Load = Load { bytes: 1400, rate: None, ordered: true };

/// 100 Mbit/s of datagrams.
fn steady(ordered: bool) -> Load {
    Load { bytes: 1300, rate: Some(100e6 / 8.0 / 1300.0), ordered }
}

/// Lets time pass, and says which part of the limit of `link` was delivered in it.
fn share(line: &mut Line, link: &Link, nanos: Nanos) -> f64 {
    line.run(nanos);
    let share = line.goodput(line.now - nanos) / link.limit(line.load.bytes);
    println!("{:.3} of the limit", share);
    share
}

/// Packets on a link for each symbol, so far.
fn packets(line: &Line, hop: usize) -> f64 {
    line.sent(hop).0 as f64 / line.flow(0).counters.source_symbols as f64
}

/// What was delivered is what entered, once each, and in order where that is asked for.
fn assert_delivery(line: &Line) {
    let mut seen = vec![false; line.entered()];
    let mut newest = None;
    for packet in &line.delivered {
        assert!(!std::mem::replace(&mut seen[packet.number as usize], true), "{packet:?} again");
        assert!(!line.load.ordered || newest < Some(packet.number), "{packet:?} after {newest:?}");
        newest = Some(packet.number);
    }
}

#[test]
fn short_hops_carry_what_their_losses_leave() {
    for (hops, loss) in [(1, 0.0), (1, 0.1), (4, 0.1), (6, 0.05), (6, 0.2), (10, 0.2)] {
        println!("{hops} hops, {loss} lost");
        let link = Link::new(loss, 0);
        let mut line = Line::new(&vec![link; hops], GREEDY, 1);
        line.run(SECOND);
        assert!(share(&mut line, &link, 2 * SECOND) > 0.95);
        for hop in 0..hops {
            let packets = packets(&line, hop);
            assert!(packets < 1.02 / (1.0 - loss), "{packets} for a symbol on link {hop}");
        }
        assert_delivery(&line);
        assert_eq!(line.flow(hops).counters.generations_failed, 0);
    }
}

#[test]
fn long_hops_carry_it_too_after_a_start() {
    for (hops, loss, delay, least) in [(4, 0.1, 10, 0.93), (3, 0.03, 50, 0.9)] {
        println!("{hops} hops of {delay} ms, {loss} lost");
        let link = Link::new(loss, delay);
        let mut line = Line::new(&vec![link; hops], GREEDY, 1);
        line.run(4 * SECOND);
        assert!(share(&mut line, &link, 5 * SECOND) > least);
        assert_delivery(&line);
    }
}

#[test]
fn losses_are_not_taken_for_congestion() {
    let heavy = Link::new(0.3, 0);
    let bursts = Link { burst: 8.0, ..Link::new(0.1, 0) };
    for (hops, link, least) in [(1, heavy, 0.95), (4, bursts, 0.85)] {
        println!("{link:?}");
        let mut line = Line::new(&vec![link; hops], GREEDY, 1);
        line.run(SECOND);
        assert!(share(&mut line, &link, 4 * SECOND) > least);
        assert_delivery(&line);
    }
}

#[test]
fn late_and_doubled_packets_cost_little() {
    let link = Link { reordered: (0.05, 3 * MILLI), duplicated: 0.01, ..Link::new(0.1, 5) };
    let mut line = Line::new(&[link; 4], GREEDY, 1);
    line.run(SECOND);
    assert!(share(&mut line, &link, 4 * SECOND) > 0.9);
    assert_delivery(&line);
}

#[test]
fn a_link_that_becomes_slower_and_faster_again_is_followed() {
    let link = Link::new(0.05, 5);
    let slow = Link { rate: 50e6, ..link };
    let mut line = Line::new(&[link; 3], GREEDY, 1);
    line.run(3 * SECOND);
    for changed in [slow, link] {
        line.set(1, changed);
        line.run(2 * SECOND);
        line.longest_wait(1);
        assert!(share(&mut line, &changed, 2 * SECOND) > 0.85);
    }
}

/// The losses of a hop are paid for on that hop alone.
#[test]
fn good_hops_do_not_pay_for_a_bad_one() {
    let (good, bad) = (Link::new(0.01, 5), Link::new(0.2, 5));
    let mut line = Line::new(&[good, good, bad, good, good], GREEDY, 1);
    line.run(3 * SECOND);
    assert!(share(&mut line, &bad, 3 * SECOND) > 0.9);
    for hop in [0, 1, 3, 4] {
        let packets = packets(&line, hop);
        assert!(packets < 1.08, "{packets} for a symbol on link {hop}");
    }
}

#[test]
fn datagrams_below_the_rate_arrive_soon_and_all_of_them() {
    let link = Link::new(0.1, 0);
    let mut line = Line::new(&[link; 4], steady(false), 1);
    line.run(4 * SECOND);
    let late = line.delay(2 * SECOND, 0.99);
    println!("p99 {} us", late / 1000);
    assert!(late < 3 * MILLI, "{late} ns");
    assert!(
        line.delivered.len() + 64 > line.entered(),
        "{} missing",
        line.entered() - line.delivered.len()
    );
    assert_delivery(&line);
}

#[test]
fn packets_of_one_tcp_flow_keep_their_order() {
    let link = Link { reordered: (0.1, 2 * MILLI), ..Link::new(0.1, 2) };
    let mut line = Line::new(&[link; 3], steady(true), 1);
    line.run(3 * SECOND);
    assert!(line.delivered.len() > 20_000, "{}", line.delivered.len());
    assert_delivery(&line);
}

#[test]
fn sparse_traffic_costs_few_packets() {
    let link = Link::new(0.1, 10);
    let mut line = Line::new(&[link; 4], Load { bytes: 200, rate: Some(50.0), ordered: false }, 1);
    line.run(40 * SECOND);
    let entered = line.entered() as f64;
    for hop in 0..4 {
        let (down, up, _) = line.sent(hop);
        let (down, up) = (down as f64 / entered, up as f64 / entered);
        println!("link {hop}: {down:.2} packets one way for each, {up:.2} the other");
        assert!(down < 2.5, "{down}");
    }
    assert!(line.delivered.len() + 16 > line.entered());
    assert!(line.delay(SECOND, 0.99) < 140 * MILLI, "{}", line.delay(SECOND, 0.99));
}

#[test]
fn a_relay_that_restarts_costs_a_moment() {
    let link = Link::new(0.05, 2);
    let mut line = Line::new(&[link; 3], steady(false), 1);
    line.run(2 * SECOND);
    for relay in [1, 2] {
        line.restart(relay);
        line.run(SECOND);
        let before = line.delivered.len();
        line.run(SECOND);
        let delivered = (line.delivered.len() - before) as f64 / line.load.rate.unwrap();
        assert!(delivered > 0.99, "{delivered} of what came in the second after");
    }
    assert_delivery(&line);
}

/// Nothing is held, and nothing is sent any more, once all is delivered.
#[test]
fn everything_comes_to_rest() {
    let link = Link::new(0.1, 5);
    let mut line = Line::new(&[link; 3], steady(false), 1);
    line.run(2 * SECOND);
    line.load.rate = Some(1e-3);
    line.run(40 * SECOND);
    let sent = |line: &Line| (0..3).map(|hop| line.sent(hop).0 + line.sent(hop).1).sum::<u64>();
    let before = sent(&line);
    line.run(20 * SECOND);
    assert_eq!(sent(&line), before);
    assert_eq!(line.delivered.len(), line.entered());
}
