use super::startup_gain::AHEAD_LEAST;
use super::*;
use crate::hop::rate::sample::AROUND_BYTES;

const ROUND_TRIP: Nanos = 20_000_000;

/// A sample of 20 ms with 60 bytes per packet.
fn sample(packets: u32, queue: Nanos, backlog: Nanos, is_limited: bool) -> Sample {
    let (bytes, nanos) = (60 * packets, ROUND_TRIP);
    Sample {
        bytes,
        packets,
        sent: packets,
        nanos,
        took: nanos,
        queue,
        backlog,
        is_limited,
        is_spread: false,
    }
}

/// Regression: with TCP acknowledgements only, a pause of the machine lowered their rate to that of
/// the moment, and they and the data they acknowledged stayed slow.
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

/// Regression: over 100 ms, start bursts at four times the link rate overflowed its queue by a
/// thousand packets, and TCP took the late arrivals for congestion.
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

/// Regression: queue drops during a start counted as loss of the link, and hid every later drop.
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

/// Reports come from the network: one that claims no arrivals must not stop a hop for good.
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

/// Regression: after a period of nearly total loss, drops by the local pace counted as loss of a
/// link twenty times faster: the rate stayed there, and nearly everything was dropped.
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

/// A start overflows the queue of a slow link. Its drops were once mistaken for loss of the link,
/// which then appeared ten times as fast.
#[test]
fn drops_of_a_start_are_no_loss_of_a_faster_link() {
    let flooded = Sample { sent: 1000, ..sample(100, 19_000_000, 0, true) };
    let arrived = flooded.received();
    let mut rate = Rate::new();
    rate.sample(&flooded, ROUND_TRIP, ROUND_TRIP);
    let next = rate.bytes_per_second();
    assert!(next < 1.3 * arrived, "{next} where {arrived} arrived");
}

/// Bursts of a flow with pauses find an empty queue, but not room for all packets.
#[test]
fn start_whose_bursts_are_dropped_stays_near_the_received_rate() {
    let bursts = Sample { sent: 100, ..sample(50, 0, 0, false) };
    let mut rate = Rate::new();
    rate.sample(&bursts, ROUND_TRIP, ROUND_TRIP);
    rate.slow_lossy_start(&bursts);
    let ahead = startup_gain::AHEAD * 2.0 * bursts.received();
    let next = rate.bytes_per_second();
    assert!((FIRST_LOSSY..=ahead).contains(&next), "{next}");
    let (mut rate, whole) = (Rate::new(), sample(100, 0, 0, false));
    rate.sample(&whole, ROUND_TRIP, ROUND_TRIP);
    rate.slow_lossy_start(&whole);
    assert!(rate.bytes_per_second() >= FIRST, "nothing is lost");
}

/// The least loss of any sample is zero: a lossy link that is rarely calm was once left without
/// redundancy, and its rate did not rise when the gain was below the loss.
#[test]
fn loss_of_a_rarely_calm_link_is_not_the_least_of_its_samples() {
    let queued = Sample { sent: 1000, ..sample(980, 9_000_000, 0, true) };
    let mut rate = Rate::new();
    for now in 1..50 {
        rate.sample(&queued, ROUND_TRIP, now * ROUND_TRIP);
        rate.sample(&sample(50, 9_000_000, 0, true), ROUND_TRIP, now * ROUND_TRIP);
    }
    assert!(rate.usual_loss().unwrap() > 0.005, "{:?}", rate.usual_loss());
}

/// Redundancy for the drops of a start once took half of a slow link for seconds.
#[test]
fn redundancy_forgets_drops_of_a_start_once_a_sample_refutes_them() {
    let flooded = Sample { sent: 1000, took: ROUND_TRIP / 4, ..sample(200, 9_000_000, 0, true) };
    let mut rate = Rate::new();
    rate.sample(&flooded, ROUND_TRIP, ROUND_TRIP);
    assert_eq!(rate.usual_loss(), Some(0.8));
    rate.sample(&sample(32, 9_000_000, 0, true), ROUND_TRIP, 2 * ROUND_TRIP);
    assert_eq!(rate.usual_loss(), Some(0.0));
}
