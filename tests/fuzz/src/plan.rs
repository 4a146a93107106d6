//! Input that `recodectl plan` reads from the other end: packets, and possibly false summaries of
//! trains.
//!
//! The first byte chooses, modulo 3: 0, the rest is a packet; 1, a train that arrives as the script
//! says; 2, a listener that answers questions about trains with summaries of the script.

use std::convert::Infallible;

use recoded_plan::measured::Sums;
use recoded_plan::packet::{BYTES_MAX, Body, Packet};
use recoded_plan::ramp::{self, Losses};
use recoded_plan::summary::Summary;
use recoded_plan::train::{Arrivals, PACKETS_MAX, TrainPlan};

use crate::Input;

/// Trains that a ramp may request whatever the answers: a measurement must end.
const QUESTIONS_MAX: u32 = 400;

/// Most packets of a script's train.
const NOTES_MAX: usize = 400;

/// Bits of a full packet.
const PACKET_BITS: f64 = 1514.0 * 8.0;

/// Any bytes.
pub fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() % 3 {
        0 => packet(&bytes[1.min(bytes.len())..]),
        1 => train(&mut input),
        _ => ramp(&mut input),
    }
}

/// A parsed packet is written back unchanged, and its requests are bounded.
fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let mut again = [0; BYTES_MAX];
    let length = packet.write(&mut again).expect("every packet fits");
    assert_eq!(Packet::parse(&again[..length]), Ok(packet));
    match packet.body {
        Body::Report(summary) => {
            if let Some(summary) = summary.plausible(summary.train, summary.sent) {
                believed(&summary);
            }
        }
        Body::Send { train, packets, payload_bytes, interval_nanos } => {
            let plan = TrainPlan {
                train,
                packets,
                payload_bytes: payload_bytes.into(),
                interval_nanos: interval_nanos.into(),
            };
            let bounded = plan.bounded(8000.0);
            assert!(bounded.packets <= packets.min(PACKETS_MAX), "{bounded:?}");
            assert!(bounded.interval_nanos >= 125_000, "faster than allowed: {bounded:?}");
        }
        _ => {}
    }
}

/// An accepted summary has finite figures.
fn believed(summary: &Summary) {
    let mut sums = Sums::default();
    sums.add(summary);
    sums.add(summary);
    let way = sums.way();
    for share in [way.loss, way.reordered, way.duplicated, way.good_to_bad, way.bad_to_good] {
        assert!((0.0..=1.0).contains(&share), "{way:?}");
    }
    assert!(way.burst_mean >= 1.0 && way.burst_mean.is_finite(), "{way:?}");
    assert!(way.loss_deviation.is_finite(), "{way:?}");
    let carried = ramp::carried(summary, PACKET_BITS, &Losses::default());
    assert!(carried.is_none_or(|mbit| mbit.is_finite() && mbit >= 0.0), "{carried:?}");
}

/// Packets may arrive in any order, with any clocks: a receiver trusts only its own.
fn train(input: &mut Input<'_>) {
    let mut arrivals = Arrivals::default();
    let number = input.u32();
    arrivals.begin(number);
    for _ in 0..NOTES_MAX {
        if input.is_empty() {
            break;
        }
        let packet = match input.below(4) {
            0 => input.u32(),
            _ => u32::from(input.byte()),
        };
        let mut time = || match input.below(3) {
            0 => u64::from(input.u16()) * 1_000,
            1 => u64::MAX - u64::from(input.u16()),
            _ => u64::from(input.u32()) << 32,
        };
        let (sent_at, came_at) = (time(), time());
        arrivals.note(packet, sent_at, came_at, u32::from(input.byte()));
    }
    for sent in [0, 1, 255, PACKETS_MAX, input.u32()] {
        let summary = arrivals.summary(sent);
        let sent = sent.min(PACKETS_MAX);
        assert_eq!(summary.plausible(number, sent), Some(summary), "it does not believe itself");
        believed(&summary);
    }
}

/// A listener that lies as far as it is believed.
fn ramp(input: &mut Input<'_>) {
    let (mut asked, mut losses) = (0, Losses::default());
    let cap = f64::from(input.u16()) / 16.0;
    let found = ramp::find(cap, PACKET_BITS, &mut losses, |shape| {
        asked += 1;
        assert!(asked <= QUESTIONS_MAX, "it asks without end");
        assert!(shape.mbit.is_finite() && shape.mbit > 0.0 && shape.packets > 0, "{shape:?}");
        let said = Summary { train: asked, ..summary(input, shape.packets) };
        let believed = said.plausible(asked, shape.packets);
        Ok::<_, Infallible>(believed.unwrap_or(Summary {
            train: asked,
            sent: shape.packets,
            received: shape.packets,
            ..Summary::default()
        }))
    });
    let Ok(found) = found;
    if let Some(rate) = found {
        assert!(rate.mbit.is_finite() && rate.mbit > 0.0, "{rate:?}");
    }
}

fn summary(input: &mut Input<'_>, sent: u32) -> Summary {
    let lost = input.u32() % (sent + 2);
    let runs = if lost > 0 { 1 + u32::from(input.byte()) % lost } else { 0 };
    let mut runs_by_length = [0; 8];
    runs_by_length[input.below(8)] = runs;
    Summary {
        sent,
        received: sent.saturating_sub(lost),
        duplicates: input.u32(),
        overtaken: u32::from(input.byte()),
        overrun: u32::from(input.byte() & 1),
        runs,
        runs_by_length,
        lost_late: u32::from(input.byte()),
        span_packets: u32::from(input.u16()),
        span_came_nanos: u64::from(input.u32()) << input.below(6),
        span_sent_nanos: u64::from(input.u32()) << input.below(6),
        way_min_nanos: i64::from(input.u32()) << input.below(30),
        queue_median_nanos: u64::from(input.u32()),
        queue_p99_nanos: u64::from(input.u32()),
        queue_max_nanos: u64::from(input.u32()) << input.below(6),
        queue_early_nanos: u64::from(input.u32()),
        queue_late_nanos: u64::from(input.u32()),
        ..Summary::default()
    }
}
