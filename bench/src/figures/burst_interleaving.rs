//! Bursts of loss, and what interleaving makes of them.
//!
//! Losses follow the Gilbert-Elliott model (all packets are lost in the bad state, none in the good
//! one). At depth d the packets of d batches take turns. Lines are this project's theory, exact;
//! crosses run real nodes, d batches at a time, over one channel whose state carries over from one
//! group to the next.

use rand_chacha::ChaCha8Rng;
use recoded_code::theory::{self, LossModel, Recoding};
use recoded_gf::FieldOrder;

use crate::error::BenchError;
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::line::{Holding, Relay, uniform};
use crate::figures::work::{Mean, Work};

/// Name of the figure.
pub const NAME: &str = "burst-interleaving";

/// Computes it.
///
/// # Errors
/// None.
pub fn compute(work: Work) -> Result<Figure, BenchError> {
    let replicas = work.runs(REPLICAS);
    let cells: Vec<(f64, usize, usize)> = LOSSES
        .iter()
        .flat_map(|&loss| {
            let bursts = BURSTS.iter();
            bursts.flat_map(move |&burst| DEPTHS.map(move |depth| (loss, burst, depth)))
        })
        .collect();
    let results = work.map(NAME, cells.len() * replicas, |task, random| {
        let (loss, burst, depth) = cells[task / replicas];
        simulate(loss, burst, depth, random)
    });
    // Consecutive batches share bursts: only the means of whole replicas are independent.
    let means: Vec<Mean> =
        results.chunks(replicas).map(|chunk| chunk.iter().copied().collect()).collect();
    let panels = LOSSES.map(|loss| {
        let of_loss: Vec<(usize, usize, Mean)> = cells
            .iter()
            .zip(&means)
            .filter(|(cell, _)| cell.0 == loss)
            .map(|((_, burst, depth), mean)| (*burst, *depth, *mean))
            .collect();
        panel(loss, &of_loss, replicas)
    });
    Ok(Figure {
        name: NAME,
        title: "Bursts and interleaving: rank after ten hops".into(),
        source: "table of an independent program, 6000 batches per value",
        about: format!(
            "batches of {SIZE} over GF(256); lines: theory; crosses: {} batches each",
            replicas * REPLICA_BATCHES
        ),
        panels: panels.into(),
    })
}

fn panel(loss: f64, cells: &[(usize, usize, Mean)], replicas: usize) -> Panel {
    let mut series = Vec::new();
    for burst in BURSTS {
        let (mut exact, mut crosses) = (Vec::new(), Vec::new());
        for (_, depth, mean) in cells.iter().filter(|cell| cell.0 == burst) {
            let (x, expected) = (*depth as f64, expected(loss, burst, *depth));
            let estimate = mean.estimate();
            // The reference is an estimate, too, from as many batches as a number of replicas here.
            let share = ORACLE_BATCHES / (replicas * REPLICA_BATCHES) as f64;
            let oracle = oracle(loss, burst, *depth).map(|value| {
                Reference::oracle(value).with_error(estimate.standard_error / share.sqrt())
            });
            exact.push(Point::exact(x, expected).against_any(oracle));
            crosses.push(Point::estimate(x, estimate).against(Reference::theory(expected)));
        }
        let name = format!("mean burst {burst}");
        series.push(Series { name: name.clone(), style: Style::Line, points: exact });
        series.push(Series { name, style: Style::Crosses, points: crosses });
    }
    let independent = expected(loss, 1, 1);
    let points = DEPTHS.map(|depth| Point::exact(depth as f64, independent)).into();
    series.push(Series { name: "independent losses".into(), style: Style::Context, points });
    Panel {
        title: format!("{:.0} % loss per hop", loss * 100.0),
        x: Axis::log("depth of interleaving", &DEPTHS.map(|depth| depth as f64)),
        y: Axis::linear("expected rank / M", &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        series,
    }
}

fn expected(loss: f64, burst: usize, depth: usize) -> f64 {
    let hop = LossModel { loss, burst_mean: burst as f64 }.interleaved(depth);
    let hops = [hop; HOPS];
    let field = FieldOrder::TwoFiftySix;
    let ranks = theory::rank_distributions(SIZE, field, &[SIZE; HOPS], &hops, Recoding::Systematic);
    let mean: f64 = ranks[HOPS - 1].iter().enumerate().map(|(rank, p)| rank as f64 * p).sum();
    mean / SIZE as f64
}

/// Mean rank after ten hops as a share of the batch size.
fn simulate(loss: f64, burst: usize, depth: usize, random: &mut ChaCha8Rng) -> f64 {
    let mut relay = Relay::new(SIZE, FieldOrder::TwoFiftySix, Recoding::Systematic);
    let mut held = vec![Holding::source(SIZE); REPLICA_BATCHES];
    for _ in 0..HOPS {
        let mut channel = Channel::new(loss, burst, random);
        for group in held.chunks_mut(depth) {
            let mut arrivals = vec![[false; SIZE]; group.len()];
            for packet in 0..SIZE {
                for batch in &mut arrivals {
                    batch[packet] = channel.passes(random);
                }
            }
            for (held, arrivals) in group.iter_mut().zip(arrivals) {
                *held = relay.send(held, arrivals.into_iter(), random);
            }
        }
    }
    let sum: usize = held.iter().map(Holding::rank).sum();
    sum as f64 / (REPLICA_BATCHES * SIZE) as f64
}

/// A channel that is in one of two states.
struct Channel {
    good_to_bad: f64,
    bad_to_good: f64,
    is_bad: bool,
}

impl Channel {
    fn new(loss: f64, burst: usize, random: &mut ChaCha8Rng) -> Channel {
        let bad_to_good = 1.0 / burst as f64;
        let good_to_bad = loss * bad_to_good / (1.0 - loss);
        Channel { good_to_bad, bad_to_good, is_bad: uniform(random) < loss }
    }

    /// Whether the next packet gets through.
    fn passes(&mut self, random: &mut ChaCha8Rng) -> bool {
        let passes = !self.is_bad;
        let leaves = if self.is_bad { self.bad_to_good } else { self.good_to_bad };
        self.is_bad ^= uniform(random) < leaves;
        passes
    }
}

/// Value from an independent program, with rank = min(previous rank, packets that arrive).
fn oracle(loss: f64, burst: usize, depth: usize) -> Option<f64> {
    let lines = LOSSES.iter().position(|listed| *listed == loss)?;
    let line = BURSTS.iter().position(|listed| *listed == burst)?;
    let column = DEPTHS.iter().position(|listed| *listed == depth)?;
    Some(ORACLE[lines][line][column])
}

const SIZE: usize = 16;
const HOPS: usize = 10;
const LOSSES: [f64; 2] = [0.1, 0.2];
const BURSTS: [usize; 4] = [2, 4, 8, 16];
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

const ORACLE: [[[f64; 6]; 4]; 2] = [
    [
        [0.682, 0.740, 0.769, 0.773, 0.773, 0.774],
        [0.565, 0.660, 0.727, 0.764, 0.773, 0.774],
        [0.464, 0.559, 0.656, 0.725, 0.765, 0.776],
        [0.389, 0.449, 0.543, 0.642, 0.719, 0.760],
    ],
    [
        [0.550, 0.609, 0.635, 0.637, 0.638, 0.637],
        [0.409, 0.521, 0.592, 0.628, 0.637, 0.639],
        [0.267, 0.390, 0.504, 0.587, 0.628, 0.637],
        [0.173, 0.266, 0.387, 0.504, 0.588, 0.629],
    ],
];
/// Batches behind each of these values.
const ORACLE_BATCHES: f64 = 6000.0;

/// Replicas per cross, and batches in each: whole groups at every depth.
const REPLICAS: usize = 64;
const REPLICA_BATCHES: usize = 256;
