use super::ahead::AHEAD_LEAST;
use super::*;
use crate::peer::sample::AROUND_BYTES;

const ROUND_TRIP: Nanos = 20_000_000;

/// A sample of 20 ms, of 60 bytes a packet.
fn sample(packets: u32, queue: Nanos, backlog: Nanos, is_limited: bool) -> Sample {
    let (bytes, nanos) = (60 * packets, ROUND_TRIP);
    Sample { bytes, packets, sent: packets, nanos, took: nanos, queue, backlog, is_limited }
}

/// Acknowledgements of TCP: once, a pause of the machine brought their rate down to what they
/// took at that time, and they, and what they acknowledged, stayed slow.
#[test]
fn a_flow_that_sends_little_is_not_slowed_down_for_long() {
    let mut rate = Rate::new();
    for now in 1..100 {
        rate.sample(&sample(40, 0, 0, false), ROUND_TRIP, now * ROUND_TRIP);
    }
    let before = rate.bytes_per_second();
    assert!(before >= FIRST);
    rate.sample(&sample(40, 30_000_000, 30_000_000, false), ROUND_TRIP, 100 * ROUND_TRIP);
    assert!(rate.bytes_per_second() < before, "a neighbour that is behind is obeyed");
    for now in 101..105 {
        rate.sample(&sample(40, 0, 0, false), ROUND_TRIP, now * ROUND_TRIP);
    }
    let sent = 40.0 * (60 + AROUND_BYTES) as f64 * 1e9 / ROUND_TRIP as f64;
    assert!(rate.bytes_per_second() > 3.0 * sent, "{} of {before}", rate.bytes_per_second());
}

#[test]
fn a_queue_of_others_is_no_reason_to_send_less() {
    let mut rate = Rate::new();
    for now in 1..200 {
        rate.sample(&sample(40, 20_000_000, 0, false), ROUND_TRIP, now * ROUND_TRIP);
    }
    assert!(rate.bytes_per_second() >= FIRST);
}

/// Over 100 ms, bursts of a start that left four times as fast as the link was lost a thousand
/// packets of its queue, and TCP took what came late for congestion.
#[test]
fn a_burst_that_arrives_slower_than_it_left_ends_the_start() {
    const LONG: Nanos = 100_000_000;
    let burst = |took: Nanos| Sample { nanos: 20_000_000, took, ..sample(500, 0, 0, true) };
    let arrived = burst(1).received();
    let mut rate = Rate::new();
    rate.sample(&burst(20_000_000), LONG, LONG);
    let ahead = rate.bytes_per_second();
    assert!(ahead <= FIRST.max(AHEAD_LEAST * arrived) * 1.001, "{ahead} of {arrived}");
    rate.sample(&burst(5_000_000), LONG, 2 * LONG);
    assert_eq!(rate.phase, Phase::Steady);
    assert!((rate.bytes_per_second() / arrived - 1.0).abs() < 0.05, "{arrived}");
}

/// A start floods the queue: what that drops was once taken for what the link loses, and hid
/// every later drop.
#[test]
fn what_a_link_loses_is_never_more_than_what_is_lost_with_a_queue() {
    let mut rate = Rate::new();
    let flooded = Sample { sent: 1000, took: ROUND_TRIP / 4, ..sample(500, 0, 0, true) };
    rate.usual_loss = Some(0.0);
    for now in 1..4 {
        rate.sample(&flooded, ROUND_TRIP, now * ROUND_TRIP);
    }
    assert_eq!(rate.usual_loss(), Some(0.0));
    rate.usual_loss = Some(0.1);
    for now in 4..100 {
        rate.sample(&sample(1000, 9_000_000, 0, true), ROUND_TRIP, now * ROUND_TRIP);
    }
    assert!(rate.usual_loss().unwrap() < 0.02, "{:?}", rate.usual_loss());
}

/// Reports come from the network: one that says that nothing came must not stop a hop for good.
#[test]
fn a_hop_of_which_nothing_is_said_to_come_is_still_sent_to() {
    const LONG: Nanos = 100_000_000;
    let none = |queue| Sample { bytes: 0, packets: 0, nanos: LONG, ..sample(500, queue, 0, true) };
    let mut rate = Rate::new();
    for now in 1..100 {
        let queue = if now < 3 { 13_000_000 } else { 0 };
        rate.sample(&none(queue), LONG, now * LONG);
        let nanos = rate.spend(1500);
        assert!(nanos as f64 <= 1500e9 / LEAST * 1.001, "{nanos} ns in round trip {now}");
    }
}

/// Where nearly all was lost for a while, what our own pace dropped later was once taken for loss
/// of a link that is twenty times faster: the rate stayed there, and nearly all was dropped.
#[test]
fn what_our_own_pace_drops_is_not_loss_of_a_faster_link() {
    const PACE: f64 = 7e6;
    let carried = |rate: f64, most: f64| {
        let packets = |rate: f64| (rate * ROUND_TRIP as f64 / 1e9) as u32 / 1042;
        let (packets, sent) = (packets(rate.min(most)), packets(rate));
        Sample { bytes: 1000 * packets, packets, sent, ..sample(0, 0, 0, true) }
    };
    let mut rate = Rate::new();
    rate.usual_loss = Some(0.98);
    rate.is_loss_known = true;
    for now in 1..500 {
        rate.limit(Some(PACE));
        let paced = carried(rate.bytes_per_second(), PACE);
        rate.sample(&paced, ROUND_TRIP, now * ROUND_TRIP);
        assert!(rate.bytes_per_second() <= PACE_PARTS * PACE, "{}", rate.bytes_per_second());
    }
    assert!(rate.usual_loss().unwrap() < 0.25, "{:?}", rate.usual_loss());
    rate.limit(None);
    for now in 500..600 {
        let all = carried(rate.bytes_per_second(), MOST);
        rate.sample(&all, ROUND_TRIP, now * ROUND_TRIP);
    }
    assert!(rate.bytes_per_second() > PACE_PARTS * PACE, "there is no pace any more");
}

/// A start overflows the queue of a slow link: its loss was once taken for that of the link, which
/// then seemed ten times as fast.
#[test]
fn what_a_start_overflows_is_not_loss_of_a_faster_link() {
    let flooded = Sample { sent: 1000, ..sample(100, 19_000_000, 0, true) };
    let arrived = flooded.received();
    let mut rate = Rate::new();
    rate.sample(&flooded, ROUND_TRIP, ROUND_TRIP);
    let next = rate.bytes_per_second();
    assert!(next < 1.3 * arrived, "{next} where {arrived} arrived");
}

/// The bursts of a flow with pauses find room in an empty queue, but not all of them.
#[test]
fn a_start_whose_bursts_are_lost_keeps_to_what_arrives() {
    let bursts = Sample { sent: 100, ..sample(50, 0, 0, false) };
    let mut rate = Rate::new();
    rate.sample(&bursts, ROUND_TRIP, ROUND_TRIP);
    let ahead = ahead::AHEAD * 2.0 * bursts.received();
    let next = rate.bytes_per_second();
    assert!((FIRST_LOSSY..=ahead).contains(&next), "{next}");
    let mut rate = Rate::new();
    rate.sample(&sample(100, 0, 0, false), ROUND_TRIP, ROUND_TRIP);
    assert!(rate.bytes_per_second() >= FIRST, "nothing is lost");
}

/// The least loss of any sample is none: a lossy link that is rarely calm was once left without
/// redundancy, and its rate did not rise where the gain is less than the loss.
#[test]
fn loss_of_a_link_that_is_rarely_calm_is_not_the_least_of_its_samples() {
    let queued = Sample { sent: 1000, ..sample(980, 9_000_000, 0, true) };
    let mut rate = Rate::new();
    for now in 1..50 {
        rate.sample(&queued, ROUND_TRIP, now * ROUND_TRIP);
        rate.sample(&sample(50, 9_000_000, 0, true), ROUND_TRIP, now * ROUND_TRIP);
    }
    assert!(rate.usual_loss().unwrap() > 0.005, "{:?}", rate.usual_loss());
}

/// Redundancy for what a start dropped took half of a slow link for seconds.
#[test]
fn redundancy_forgets_what_a_start_overflows_once_a_sample_refutes_it() {
    let flooded = Sample { sent: 1000, took: ROUND_TRIP / 4, ..sample(200, 9_000_000, 0, true) };
    let mut rate = Rate::new();
    rate.sample(&flooded, ROUND_TRIP, ROUND_TRIP);
    assert_eq!(rate.usual_loss(), Some(0.8));
    rate.sample(&sample(32, 9_000_000, 0, true), ROUND_TRIP, 2 * ROUND_TRIP);
    assert_eq!(rate.usual_loss(), Some(0.0));
}
