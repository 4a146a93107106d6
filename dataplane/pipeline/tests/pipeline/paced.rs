//! Generations and batches at the pace of the slowest link: sources take from their tunnel
//! as much as the path carries, without a configured rate, while links become slower and faster.

#[cfg(feature = "bats")]
use crate::common::blocks;
use crate::common::rlnc;
use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::{FlowParams, Nanos};

/// Greedy datagrams.
const GREEDY: Load = Load { bytes: 1300, rate: None, ordered: false };

type Code = fn(&mut FlowParams);

/// Codes, and the least share of a link that they fill while it becomes slower and faster.
const CODES: &[(&str, Code, f64)] = &[
    ("rlnc", rlnc, 0.5),
    #[cfg(feature = "bats")]
    ("bats", blocks, 0.6),
];

/// Results of a line over two seconds.
struct Seen {
    /// Delivered packets, as a share of a link's capacity.
    share: f64,
    /// Packets that found a full queue, as a share of those sent over the slowest link.
    dropped: f64,
    /// Delay since they entered: the median, and the 99th percentile.
    delays: [Nanos; 2],
}

fn see(line: &mut Line, hops: usize, place: usize, link: Link) -> Seen {
    let overflowed = |line: &Line| -> u64 { (0..hops).map(|hop| line.sent(hop).2).sum() };
    let (since, before, sent) = (line.now, overflowed(line), line.sent(place).0);
    line.run(2 * SECOND);
    let dropped = overflowed(line) - before;
    Seen {
        share: line.goodput(since) / link.limit(GREEDY.bytes),
        dropped: dropped as f64 / (line.sent(place).0 - sent) as f64,
        delays: [0.5, 0.99].map(|share| line.delay(since, share) / MILLI),
    }
}

/// A link that became slower once took a flow down permanently: packets dropped by its queue were
/// taken for losses of the link, and answered with more packets. A code's share of a link of 300
/// Mbit/s is limited by its redundancy: `rlnc` sends a fifth proactively here.
#[test]
fn a_link_that_becomes_slower_and_faster_again_is_followed() {
    let link = Link::new(0.05, 5);
    let slow = Link { rate: 50e6, ..link };
    for (name, code, least) in CODES {
        for place in [0, 1, 2] {
            let mut line = Line::with(&[link; 3], GREEDY, 1, code);
            line.run(SECOND);
            for changed in [link, slow, link] {
                line.set(place, changed);
                line.run(2 * SECOND);
                let Seen { share, dropped, delays } = see(&mut line, 3, place, changed);
                println!(
                    "{name}, link {place} at {} Mbit/s: {share:.3} of the limit, {dropped:.4} found \
                     a full queue, {delays:?} ms",
                    changed.rate / 1e6
                );
                assert!(share > *least, "{share} of the limit");
                let most = if changed.rate < link.rate { 0.2 } else { 0.001 };
                assert!(dropped < most, "{dropped} found a full queue");
            }
        }
    }
}

/// Without a configured rate, a source once sent everything that its tunnel brought, and relays
/// lost the excess over their links.
#[test]
fn a_path_is_filled_and_no_more_where_no_node_is_told_its_rate() {
    let lines = [
        (1, 0.1, 0, (0.75, 0.001)),
        (4, 0.1, 0, (0.9, 0.001)),
        // Generations take 1.44 packets for each symbol here.
        (4, 0.1, 10, (0.45, 0.2)),
        (1, 0.02, 270, (0.4, 0.001)),
    ];
    for (hops, loss, delay, (least, most)) in lines {
        let link = Link::new(loss, delay);
        for (name, code, _) in CODES {
            let mut line = Line::with(&vec![link; hops], GREEDY, 1, code);
            line.run(2 * SECOND + 20 * link.delay);
            let Seen { share, dropped, delays } = see(&mut line, hops, 0, link);
            println!(
                "{name}, {hops} hops of {loss}, {delay} ms: {share:.3} of the limit, {dropped:.4} \
                 found a full queue, {delays:?} ms"
            );
            assert!(share > least, "{share} of the limit");
            assert!(dropped < most, "{dropped} found a full queue");
        }
    }
}

/// TCP inside a tunnel does not always have more to send: pauses must not be taken for queues. The
/// least shares are those of the codes in turn. With long round trips, CUBIC starts slowly. BBR
/// mistakes block-fill time for queueing delay, most visibly on a path without delay.
#[test]
fn a_stream_of_tcp_inside_fills_the_path() {
    let lines = [
        (1, 0.1, 0, "cubic", [0.8, 0.7]),
        (4, 0.1, 0, "cubic", [0.8, 0.6]),
        (4, 0.1, 0, "bbr", [0.8, 0.05]),
        (6, 0.2, 0, "bbr", [0.7, 0.02]),
        (4, 0.1, 10, "bbr", [0.5, 0.7]),
        (3, 0.03, 50, "bbr", [0.4, 0.4]),
    ];
    for (hops, loss, delay, control, least) in lines {
        let link = Link::new(loss, delay);
        for ((name, code, _), least) in CODES.iter().zip(least) {
            let load = Load { ordered: true, ..GREEDY };
            let mut line = Line::with(&vec![link; hops], load, 1, code);
            line.inside(control);
            line.run(2 * SECOND + 20 * hops as Nanos * link.delay);
            let Seen { share, dropped, delays } = see(&mut line, hops, 0, link);
            println!(
                "{name}, {control} over {hops} hops of {loss}, {delay} ms: {share:.3} of the \
                 limit, {dropped:.4} found a full queue, {delays:?} ms"
            );
            assert!(share > least, "{share} of the limit");
        }
    }
}
