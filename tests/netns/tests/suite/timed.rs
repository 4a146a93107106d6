//! Timed links: compared with the untimed emulator, and with their own settings.
//!
//! Everything random comes from the seed that each test prints. Delays are medians or trimmed means
//! of the best of a few tries: on a shared machine late scheduling only ever adds to them.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common;
use recoded_netns::probe::{Probe, ProbeOutcome, ProbePlan};
use recoded_netns::{Bed, BedConfig, DirectionConfig, DirectionCounters, LinkConfig, Loss};

/// Attempts, because a busy machine can spoil one.
const TRIES: usize = 5;

/// Tolerance of the mean delay.
const DELAY_TOLERANCE_MILLIS: f64 = 0.2;

/// Room for all packets that arrive while the receiver has no core.
const BUFFER_BYTES: Option<usize> = Some(64 << 20);

fn lossless(rate_mbit: f64) -> DirectionConfig {
    DirectionConfig::new(Loss::independent(0.0), rate_mbit)
}

/// A link that stays busy although its sender pauses while it waits for a core.
fn long_queue(rate_mbit: f64) -> DirectionConfig {
    DirectionConfig { queue: Duration::from_millis(100), ..lossless(rate_mbit) }
}

/// A bed of one timed link, whatever its settings.
fn timed(direction: DirectionConfig) -> Bed {
    bed(LinkConfig { timed: true, ..LinkConfig::both(direction) })
}

fn bed(link: LinkConfig) -> Bed {
    let config = BedConfig::uniform(1, link);
    println!("seed {}", config.seed);
    Bed::build(&config).expect("the bed builds")
}

fn eastward(bed: &Bed, payload_bytes: usize, packets_per_second: f64, millis: u64) -> ProbePlan {
    ProbePlan {
        to: SocketAddr::new(bed.sink_address(), 7000),
        payload_bytes,
        packets_per_second,
        length: Duration::from_millis(millis),
        grace: Duration::from_millis(300),
        buffer_bytes: BUFFER_BYTES,
    }
}

/// Sends datagrams of `payload_bytes` eastward.
fn probe(bed: &Bed, payload_bytes: usize, packets_per_second: f64, millis: u64) -> ProbeOutcome {
    let plan = eastward(bed, payload_bytes, packets_per_second, millis);
    Probe::start(bed.source(), bed.sink(), &plan).unwrap().finish().unwrap()
}

/// Attempts, because chance spoils one in 370.
const DRAWS: usize = 3;

/// Three standard deviations of the share of `packets` with this probability.
fn three_sigma(share: f64, packets: u64) -> f64 {
    3.0 * (share * (1.0 - share) / packets as f64).sqrt()
}

/// A stream that measures the rate: the payload of full packets, and the packets per second that
/// make up a Mbit/s with their headers.
const FULL_PAYLOAD_BYTES: usize = 1400;
const FULL_PACKETS: f64 = 1e6 / 8.0 / (FULL_PAYLOAD_BYTES + 42) as f64;

#[test]
fn delay_of_a_timed_link_is_what_it_was_given_in_each_direction() {
    let Some(_turn) = common::namespaces() else { return };
    for (east, west) in [(5, 40), (120, 0)] {
        let way =
            |millis| DirectionConfig { delay: Duration::from_millis(millis), ..lossless(300.0) };
        let link = LinkConfig { eastward: way(east), westward: way(west), timed: true };
        let bed = bed(link);
        // 242 bytes take 6 us at this rate.
        let airtime = 242.0 * 8e-3 / 300.0;
        let off = |outcome: &ProbeOutcome, millis: u64| {
            let mean = outcome.trimmed_mean_millis();
            let median = outcome.quantile_millis(0.5);
            println!(
                "{millis} ms: mean {mean:.3}, median {median:.3}, p99 {:.3}, {} packets",
                outcome.quantile_millis(0.99),
                outcome.came
            );
            (mean - airtime - millis as f64).abs()
        };
        let best = |measure: &dyn Fn() -> f64| {
            (0..TRIES).map(|_| measure()).find(|off| *off < DELAY_TOLERANCE_MILLIS)
        };
        assert!(best(&|| off(&probe(&bed, 200, 500.0, 500), east)).is_some(), "{east} ms east");
        let westward = || {
            let plan = ProbePlan {
                to: SocketAddr::new(bed.source_address(), 7001),
                payload_bytes: 200,
                packets_per_second: 500.0,
                length: Duration::from_millis(500),
                grace: Duration::from_millis(300),
                buffer_bytes: BUFFER_BYTES,
            };
            Probe::start(bed.sink(), bed.source(), &plan).unwrap().finish().unwrap()
        };
        assert!(best(&|| off(&westward(), west)).is_some(), "{west} ms west");
    }
}

#[test]
fn delay_of_a_timed_link_holds_while_it_is_loaded() {
    let Some(_turn) = common::namespaces() else { return };
    let bed = timed(DirectionConfig { delay: Duration::from_millis(10), ..lossless(300.0) });
    let airtime = 1342.0 * 8e-3 / 300.0;
    let off = || {
        let outcome = probe(&bed, 1300, 10_000.0, 500);
        let mean = outcome.trimmed_mean_millis();
        println!("mean {mean:.3}, p99 {:.3}", outcome.quantile_millis(0.99));
        assert_eq!(outcome.overtaken, 0);
        (mean - airtime - 10.0).abs()
    };
    assert!((0..TRIES).any(|_| off() < DELAY_TOLERANCE_MILLIS));
}

#[test]
fn timed_link_loses_and_shapes_like_one_without_time() {
    let Some(_turn) = common::namespaces() else { return };
    let rate = 50.0;
    let mut losses = Vec::new();
    let mut rates = Vec::new();
    for timed in [false, true] {
        let direction = DirectionConfig { loss: Loss::independent(0.1), ..long_queue(rate) };
        let mut bed = bed(LinkConfig { timed, ..LinkConfig::both(direction) });
        // Small packets, far below the rate: only the loss is left.
        let mut before = DirectionCounters::default();
        let drawn = (0..DRAWS).map(|_| {
            let outcome = probe(&bed, 100, 10_000.0, 2000);
            let total = bed.counters().unwrap()[0].eastward;
            let link = total.since(&before);
            before = total;
            println!("timed {timed}: {link:?}, {} of {} came", outcome.came, outcome.sent);
            assert_eq!((link.seen, link.merged, link.refused), (outcome.sent, 0, 0));
            assert_eq!(link.dropped, outcome.lost());
            link
        });
        let drawn: Vec<DirectionCounters> = drawn.collect();
        let near =
            |link: &&DirectionCounters| (link.loss() - 0.1).abs() < three_sigma(0.1, link.seen);
        assert!(drawn.iter().find(near).is_some(), "timed {timed}: {drawn:?}");
        losses.push(before);
        bed.set_loss(Loss::independent(0.0)).unwrap();
        // One and a half times the capacity; the bucket and the queue have filled after 300 ms.
        let found = (0..TRIES).map(|_| {
            let outcome = probe(&bed, FULL_PAYLOAD_BYTES, 1.5 * rate * FULL_PACKETS, 1000);
            outcome.rate_between(300.0, 1000.0) / FULL_PACKETS
        });
        let found: Vec<f64> = found.collect();
        println!("timed {timed}: {found:.2?} Mbit/s");
        let best = found.into_iter().find(|mbit| (mbit / rate - 1.0).abs() < 0.01);
        rates.push(best.expect("one try without a late core"));
    }
    // Over all draws; chance exceeds this once in 15,000 times.
    let sigma = three_sigma(0.1, losses[0].seen) / 3.0 * 2f64.sqrt();
    assert!((losses[0].loss() - losses[1].loss()).abs() < 4.0 * sigma, "{losses:?}");
    assert!((rates[0] / rates[1] - 1.0).abs() < 0.01, "{rates:?}");
}

#[test]
fn bursty_timed_link_has_the_loss_and_the_mean_burst_it_was_given() {
    let Some(_turn) = common::namespaces() else { return };
    let loss = Loss { share: 0.1, burst_mean: 8.0 };
    let bed = timed(DirectionConfig::new(loss, 1000.0));
    let outcome = probe(&bed, 100, 20_000.0, 4000);
    let link = bed.counters().unwrap()[0].eastward;
    println!("{link:?}, mean burst {:.2}", link.burst_mean());
    assert_eq!((link.seen, link.dropped), (outcome.sent, outcome.lost()));
    // 80,000 packets hold 1000 bursts. Lengths are geometric: one standard deviation of their mean
    // is 3 %, of the share lost 0.4 points; this allows more than three.
    assert!((link.loss() - 0.1).abs() < 0.016, "{link:?}");
    assert!((link.burst_mean() - 8.0).abs() < 1.0, "{link:?}");
}

#[test]
fn late_packets_and_duplicates_are_the_shares_asked_for() {
    let Some(_turn) = common::namespaces() else { return };
    let bed = timed(DirectionConfig {
        delay: Duration::from_millis(2),
        reorder: 0.05,
        reorder_by: Duration::from_millis(3),
        duplicate: 0.02,
        ..lossless(300.0)
    });
    let mut before = DirectionCounters::default();
    let good = (0..DRAWS).any(|_| {
        let outcome = probe(&bed, 200, 5000.0, 2000);
        let total = bed.counters().unwrap()[0].eastward;
        let link = total.since(&before);
        before = total;
        println!("{} duplicates, {} overtaken, {link:?}", outcome.duplicates, outcome.overtaken);
        assert_eq!((outcome.came, outcome.duplicates), (outcome.sent, link.duplicated));
        // A late packet is overtaken by the fifteen behind it, unless they are late, too. A
        // duplicate of a late packet may arrive in time.
        let expected = link.reordered as f64 * (1.0 - 0.02);
        assert!((outcome.overtaken as f64 / expected - 1.0).abs() < 0.1, "{outcome:?}");
        let late = outcome.delays_millis.iter().filter(|delay| **delay > 4.5).count();
        assert!(late as f64 >= 0.95 * outcome.overtaken as f64, "{late} are late by 3 ms");
        let near = |count: u64, wanted: f64| {
            let share = count as f64 / link.seen as f64;
            (share - wanted).abs() < three_sigma(wanted, link.seen)
        };
        near(link.reordered, 0.05) && near(link.duplicated, 0.02)
    });
    assert!(good, "shares are off in each of {DRAWS} draws");
}

#[test]
fn jitter_spreads_delays_and_keeps_the_order() {
    let Some(_turn) = common::namespaces() else { return };
    let (delay, jitter) = (Duration::from_millis(10), Duration::from_millis(4));
    let bed = timed(DirectionConfig { delay, jitter, ..lossless(300.0) });
    // A packet every 5 ms: none waits for another, so delays are as drawn.
    let spread = || {
        let outcome = probe(&bed, 200, 200.0, 2000);
        let quantiles = [0.05, 0.5, 0.95].map(|share| outcome.quantile_millis(share));
        println!("{quantiles:.2?}");
        let wanted = [10.2, 12.0, 13.8];
        let worst = quantiles.iter().zip(wanted).map(|(found, wanted)| (found - wanted).abs());
        (outcome.came == outcome.sent).then(|| worst.fold(0.0, f64::max))
    };
    // 400 packets: the median is known to 0.1 ms.
    assert!((0..TRIES).filter_map(|_| spread()).any(|worst| worst < 0.5));
    let dense = probe(&bed, 200, 5000.0, 500);
    assert_eq!(dense.overtaken, 0, "{} of {}", dense.overtaken, dense.came);
}

#[test]
fn queue_is_as_long_as_it_was_given_and_drops_the_rest() {
    let Some(_turn) = common::namespaces() else { return };
    let queue = Duration::from_millis(15);
    let bed = timed(DirectionConfig { queue, ..lossless(50.0) });
    // 1.5 times the rate: the queue is full after 30 ms, and a third is dropped from then on.
    let mut before = DirectionCounters::default();
    let mut shares = Vec::new();
    for _ in 0..TRIES {
        let outcome = probe(&bed, FULL_PAYLOAD_BYTES, 75.0 * FULL_PACKETS, 1000);
        let total = bed.counters().unwrap()[0].eastward;
        let link = total.since(&before);
        before = total;
        println!("{link:?}");
        assert_eq!(link.queue_drops, outcome.lost());
        assert_eq!(link.dropped + link.refused, 0);
        shares.push(link.queue_drops as f64 / link.seen as f64);
    }
    assert!(shares.iter().any(|share| (share - 0.32).abs() < 0.02), "{shares:?} dropped");
    let link = before;
    assert_eq!(bed.queue_drops().unwrap(), link.queue_drops);
    // Up to the limit, and one packet's airtime more or less.
    let longest = link.sojourn_max.as_secs_f64() * 1e3;
    assert!((14.0..15.3).contains(&longest), "{longest} ms");
    bed.reset_sojourns().unwrap();
    assert_eq!(bed.counters().unwrap()[0].eastward.sojourn_max, Duration::ZERO);
    let idle = probe(&bed, 200, 100.0, 200);
    assert_eq!(idle.lost(), 0);
    let after = bed.counters().unwrap()[0].eastward.since(&link);
    assert!(after.sojourn_max < Duration::from_millis(5), "{after:?}");
}

#[test]
fn rate_and_delay_change_while_traffic_runs() {
    let Some(_turn) = common::namespaces() else { return };
    for timed in [false, true] {
        let direction = long_queue(50.0);
        let mut bed = bed(LinkConfig { timed, ..LinkConfig::both(direction) });
        let change = |bed: &mut Bed, rate_mbit: f64, delay: u64| {
            let delay = Duration::from_millis(delay);
            let way = DirectionConfig { rate_mbit, delay, ..direction };
            bed.set_link(1, LinkConfig { timed, ..LinkConfig::both(way) })
        };
        for rate in [20.0, 80.0] {
            let found = (0..TRIES).map(|_| {
                change(&mut bed, 50.0, 0).unwrap();
                let plan = eastward(&bed, FULL_PAYLOAD_BYTES, 120.0 * FULL_PACKETS, 1500);
                let probe = Probe::start(bed.source(), bed.sink(), &plan).unwrap();
                std::thread::sleep(Duration::from_millis(800));
                change(&mut bed, rate, 0).unwrap();
                let outcome = probe.finish().unwrap();
                let before = outcome.rate_between(300.0, 790.0) / FULL_PACKETS;
                let after = outcome.rate_between(950.0, 1500.0) / FULL_PACKETS;
                println!("timed {timed}: {before:.2}, then {after:.2} Mbit/s");
                (before / 50.0 - 1.0).abs() < 0.01 && (after / rate - 1.0).abs() < 0.01
            });
            assert!(found.into_iter().any(|good| good), "timed {timed}: 50 then {rate}");
        }
        if timed {
            change(&mut bed, 50.0, 30).unwrap();
            let median = probe(&bed, 200, 200.0, 300).quantile_millis(0.5);
            assert!((29.9..35.0).contains(&median), "{median} ms");
        } else {
            assert!(change(&mut bed, 50.0, 30).is_err(), "it has no time");
        }
    }
}

#[test]
fn two_lines_of_hosts_share_a_link_and_do_not_see_each_other() {
    let Some(_turn) = common::namespaces() else { return };
    let rate = 50.0;
    let bed = timed(long_queue(rate));
    let beside = bed.build_beside().unwrap();
    let shares = || {
        let before = bed.counters().unwrap()[0].eastward;
        // Rates that are not multiples of each other or of the link's: if two senders are in step
        // with the link, one can get all of it.
        let probes = [(&bed, 0.83), (&beside, 0.61)].map(|(bed, share)| {
            let packets_per_second = share * rate * FULL_PACKETS;
            let plan = eastward(bed, FULL_PAYLOAD_BYTES, packets_per_second, 1000);
            Probe::start(bed.source(), bed.sink(), &plan).unwrap()
        });
        let outcomes = probes.map(|probe| probe.finish().unwrap());
        let link = bed.counters().unwrap()[0].eastward.since(&before);
        println!("{link:?}");
        assert_eq!(link.seen, outcomes.iter().map(|outcome| outcome.sent).sum::<u64>());
        assert_eq!(link.queue_drops, outcomes.iter().map(ProbeOutcome::lost).sum::<u64>());
        // Both number their packets alike, so packets of the other would count as duplicates.
        assert!(outcomes.iter().all(|outcome| outcome.duplicates == 0));
        outcomes.map(|outcome| outcome.rate_between(300.0, 1000.0) / FULL_PACKETS)
    };
    // A full queue is not fair by flow: each sender gets its share of the packets sent.
    let is_fair = |[one, other]: &[f64; 2]| {
        println!("{one:.2} and {other:.2} Mbit/s");
        ((one + other) / rate - 1.0).abs() < 0.01 && (1.0..1.9).contains(&(one / other))
    };
    assert!((0..TRIES).map(|_| shares()).find(is_fair).is_some());
    assert_eq!(beside.counters().unwrap(), bed.counters().unwrap());
}

#[test]
fn timed_link_carries_a_hundred_thousand_packets_a_second() {
    let Some(_turn) = common::namespaces() else { return };
    let bed = timed(DirectionConfig { delay: Duration::from_millis(5), ..lossless(2000.0) });
    // As fast as two threads can, small packets both ways.
    let plan = |to, port| ProbePlan {
        to: SocketAddr::new(to, port),
        payload_bytes: 100,
        packets_per_second: 60_000.0,
        length: Duration::from_secs(1),
        grace: Duration::from_millis(300),
        buffer_bytes: BUFFER_BYTES,
    };
    let east = plan(bed.sink_address(), 7000);
    let west = plan(bed.source_address(), 7001);
    let east = Probe::start(bed.source(), bed.sink(), &east).unwrap();
    let west = Probe::start(bed.sink(), bed.source(), &west).unwrap();
    let (east, west) = (east.finish().unwrap(), west.finish().unwrap());
    let link = bed.counters().unwrap()[0];
    println!("{} + {} packets in a second: {link:?}", east.sent, west.sent);
    // Packets that Linux dropped before a thread without a core read them were never seen.
    for (way, outcome) in [(link.eastward, &east), (link.westward, &west)] {
        assert_eq!((way.dropped, way.queue_drops, way.refused), (0, 0, 0));
        assert!(way.seen as f64 > 0.9 * outcome.sent as f64, "{way:?}");
    }
    assert!(east.sent > 10_000, "the senders got no core");
}
