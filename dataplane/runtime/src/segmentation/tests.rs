//! Links that lose packets by chance, in bursts, by congestion or because segments are lost, in
//! virtual time.

use super::*;

/// Packets per second, and the polling interval of a worker.
const RATE: u64 = 2000;
const LOOK_NANOS: Nanos = 50_000_000;
const SECOND: Nanos = 1_000_000_000;

/// A pseudorandom generator (SplitMix64).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The socket and the link of a sender, and the reports that arrive a round trip later.
struct Line {
    segmentation: Segmentation,
    random: Random,
    now: Nanos,
    /// Halves of comparisons, in packets.
    alternated: u64,
    pending: std::collections::VecDeque<(Nanos, bool)>,
}

const ROUND_TRIP: Nanos = 40_000_000;

impl Line {
    fn new(seed: u64) -> Line {
        let (segmentation, random) = (Segmentation::default(), Random(seed));
        Line { segmentation, random, now: seed % SECOND, alternated: 0, pending: [].into() }
    }

    /// When bursts end, within `seconds`. `loses` decides about a packet sent in a burst or singly.
    fn run(
        &mut self,
        seconds: u64,
        mut loses: impl FnMut(&mut Random, Nanos, bool) -> bool,
    ) -> Option<Nanos> {
        let (start, mut look_at) = (self.now, self.now);
        while self.now < start + seconds * SECOND {
            self.now += SECOND / RATE;
            let single = self.segmentation.is_single(self.now);
            self.alternated += u64::from(single);
            let lost = loses(&mut self.random, self.now, single);
            self.pending.push_back((self.now, lost));
            if self.now < look_at {
                continue;
            }
            look_at = self.now + LOOK_NANOS;
            let mut reported = Comparison::default();
            while let Some((at, lost)) = self.pending.pop_front_if(|it| it.0 + ROUND_TRIP < look_at)
            {
                let half =
                    if is_single(at) { &mut reported.single } else { &mut reported.segmented };
                let count = if lost { &mut half.lost } else { &mut half.arrived };
                *count += 1;
            }
            self.segmentation.note(&reported);
            if self.segmentation.look(self.now) {
                return Some(self.now - start);
            }
        }
        None
    }
}

#[test]
fn bursts_that_do_not_arrive_end_within_seconds_whatever_else_is_lost() {
    for (real, lies) in [(0.0, 1.0), (0.0, 0.11), (0.1, 0.6), (0.1, 0.3), (0.3, 0.67), (0.02, 0.2)]
    {
        for seed in 1..20 {
            let mut line = Line::new(seed);
            let ended = line.run(30, |random, _, single| {
                random.unit() < real || (!single && random.unit() < lies)
            });
            let ended = ended.unwrap_or_else(|| panic!("not within 30 s: {real}, {lies}, {seed}"));
            assert!(ended < 25 * SECOND, "{ended} ns: {real}, {lies}, seed {seed}");
        }
    }
    let mut line = Line::new(7);
    let ended = line.run(30, |random, _, single| !single && random.unit() < 0.5).unwrap();
    assert!(ended < 7 * SECOND, "{ended}");
}

#[test]
fn bursts_of_a_link_that_loses_packets_by_chance_stay() {
    for loss in [0.03, 0.1, 0.3, 0.6] {
        for seed in 1..20 {
            let mut line = Line::new(seed);
            let ended = line.run(600, |random, _, _| random.unit() < loss);
            assert_eq!(ended, None, "{loss}, seed {seed}");
            // Even under heavy loss, comparisons become rare.
            let share = line.alternated as f64 / (600 * RATE) as f64;
            assert!(share < 0.08, "{share} of the time without bursts");
        }
    }
}

/// Losses in bursts of 40 ms and longer fill one half and not the other.
#[test]
fn bursts_of_a_link_whose_losses_come_in_bursts_stay() {
    for (every, long) in [(300, 40), (150, 20), (1000, 300), (5000, 2000)] {
        for seed in 1..50 {
            let mut line = Line::new(seed);
            let (mut is_bad, every, long) = (false, f64::from(every), f64::from(long));
            let ended = line.run(120, |random, _, _| {
                let millis = 1e3 / RATE as f64;
                let turns = if is_bad { millis / long } else { millis / every };
                is_bad ^= random.unit() < turns;
                is_bad && random.unit() < 0.9
            });
            assert_eq!(ended, None, "{long} of {every} ms, seed {seed}");
        }
    }
}

/// Interference at a fixed interval, including that of the halves.
#[test]
fn bursts_of_a_link_with_losses_at_regular_intervals_stay() {
    for period_log2 in [25, 26, 27] {
        for stretch in [1.0, 1.01, 0.7] {
            let mut line = Line::new(3);
            let period = ((1u64 << period_log2) as f64 * stretch) as u64;
            let ended = line.run(300, |_, now, _| now % period < period / 2);
            assert_eq!(ended, None, "{period} ns");
        }
    }
}

#[test]
fn clean_link_is_never_compared() {
    let mut line = Line::new(1);
    assert_eq!(line.run(60, |random, _, _| random.unit() < 0.005), None);
    assert_eq!(line.alternated, 0);
}

/// A lying neighbour: the worst result is that bursts end.
#[test]
fn reports_of_nothing_or_of_everything_decide_nothing_and_do_not_panic() {
    let totals = |arrived, lost| Totals { arrived, lost };
    let many = totals(u32::MAX, u32::MAX);
    for (segmented, single) in [
        (totals(0, u32::MAX), totals(0, u32::MAX)),
        (many, many),
        (totals(0, 0), many),
        (many, totals(0, 0)),
    ] {
        let mut segmentation = Segmentation::default();
        for turn in 0..100_000 {
            segmentation.note(&Comparison { segmented, single });
            assert!(!segmentation.look(turn * LOOK_NANOS));
        }
    }
}

#[test]
fn comparison_with_too_few_packets_ends() {
    let mut segmentation = Segmentation::default();
    let few = Comparison {
        segmented: Totals { arrived: 0, lost: 1000 },
        single: Totals { arrived: 1, lost: 0 },
    };
    segmentation.note(&few);
    assert!(!segmentation.look(0) && segmentation.is_comparing());
    assert!(!segmentation.look(COMPARE_NANOS - 1) && segmentation.is_comparing());
    assert!(!segmentation.look(COMPARE_NANOS) && !segmentation.is_comparing());
}
