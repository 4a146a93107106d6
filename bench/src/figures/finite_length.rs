//! Blocks of finite length: how much three graphs decode, and how much rank the profiles need.
//!
//! 20 batches of 16 over ten hops that lose 10 % deliver a rank of about 248. A structured graph
//! covers every symbol equally often. The same degrees placed at random, or degrees that are
//! optimal for infinite blocks, leave symbols uncovered. The last panel shows the rank that this
//! project's profiles need.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use recoded_code::bats::{Code, Decoder, Limits, PAPER_ROW_DEGREES, ParamsError, Profile};
use recoded_code::degrees;

use crate::error::BenchError;
use crate::figures::blocks::{self, BATCH_SIZE, Decoded, Decoders, LOSS, Nothing};
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::work::{Mean, Work, merged};

/// Name of the figure.
pub const NAME: &str = "finite-length";

/// Computes it.
///
/// # Errors
/// A code is refused.
pub fn compute(work: Work) -> Result<Figure, BenchError> {
    let runs = work.runs(RUNS);
    let results = work.map(NAME, runs, |_, random| run(random));
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut panels = panels(&merged(&results));
    panels.push(rank_panel(work)?);
    Ok(Figure {
        name: NAME,
        title: "Blocks of finite length".into(),
        source: "independent simulation; Recoded's own targets",
        about: format!(
            "{runs} runs; batches of {BATCH_SIZE}, {HOPS} hops, {} % loss per hop; first three: \
             {BATCHES} batches",
            LOSS * 100.0
        ),
        panels,
    })
}

/// One run of every graph and block size: shares by belief propagation, inactivation, whole blocks.
fn run(random: &mut ChaCha8Rng) -> Result<Vec<Mean>, BenchError> {
    let behind = blocks::arrivals(BATCHES, HOPS, random);
    let mut decoders = Decoders::new(SYMBOLS[SYMBOLS.len() - 1], BATCHES);
    let mut means = Vec::new();
    for graph in GRAPHS {
        for symbols in SYMBOLS {
            // Random graphs differ by batch id; a structured one begins with its first batch.
            let first_id = if graph.is_random() { random.next_u32() as u16 } else { 0 };
            let Decoded { inactivation, belief_propagation } =
                decoders.decode(|| graph.code(symbols), first_id, &behind[HOPS - 1])?;
            let whole = Decoded { inactivation, belief_propagation }.is_whole();
            let shares = [belief_propagation, inactivation, whole];
            means.extend(shares.map(|share| [share].into_iter().collect::<Mean>()));
        }
    }
    Ok(means)
}

fn panels(means: &[Mean]) -> Vec<Panel> {
    let measures = [
        ("belief propagation", "share of symbols decoded"),
        ("inactivation", "share of symbols decoded"),
        ("inactivation, whole blocks", "share of blocks decoded"),
    ];
    let panels = measures.iter().enumerate().map(|(measure, (title, label))| {
        let series = GRAPHS.iter().enumerate().map(|(index, graph)| {
            let points = SYMBOLS.iter().enumerate().map(|(place, &symbols)| {
                let mean = &means[(index * SYMBOLS.len() + place) * MEASURES + measure];
                let point = Point::estimate(symbols as f64, mean.share());
                point.against_any(oracle(*graph, place, measure))
            });
            Series { name: graph.name().into(), style: Style::Line, points: points.collect() }
        });
        Panel {
            title: (*title).into(),
            x: Axis::linear("source symbols K", &[190.0, 200.0, 210.0, 220.0, 230.0]),
            y: Axis::share(label),
            series: series.collect(),
        }
    });
    panels.collect()
}

fn oracle(graph: Graph, place: usize, measure: usize) -> Option<Reference> {
    let rows = match graph {
        Graph::Structured => &ORACLE_STRUCTURED,
        Graph::Optimal => &ORACLE_OPTIMAL,
        Graph::SameDegrees => &ORACLE_SAME_DEGREES,
        Graph::Family | Graph::Ours => return None,
    };
    let value = rows[place][measure];
    let more = (value * ORACLE_RUNS + 1.0) / (ORACLE_RUNS + 2.0);
    let error = (more * (1.0 - more) / (ORACLE_RUNS + 2.0)).sqrt();
    // Blocks are decoded or not. Symbols of a block are decoded together: an error at most as
    // large.
    Some(Reference::oracle(value).with_error(error))
}

/// How batches are formed.
#[derive(Copy, Clone, PartialEq)]
enum Graph {
    /// Cyclically shifted, with the paper's row degrees.
    Structured,
    /// Random, with degrees that are optimal for long blocks.
    Optimal,
    /// Random, with this project's variant of the optimal degrees: up to 256.
    Family,
    /// Random, with the paper's row degrees.
    SameDegrees,
    /// Cyclically shifted, with this project's row degrees.
    Ours,
}

impl Graph {
    fn code(self, symbols: usize) -> Result<Code, ParamsError> {
        let random = blocks::params(symbols, Profile::Baseline, 8);
        let structured = blocks::params(symbols, Profile::CyclicShift, 8);
        match self {
            Graph::Structured => Code::with_row_degrees(structured, &PAPER_ROW_DEGREES),
            Graph::Optimal => Code::with_distribution(random, &OPTIMAL_DISTRIBUTION),
            Graph::Family => Code::with_distribution(random, degrees::family(BATCH_SIZE)),
            Graph::SameDegrees => Code::with_distribution(random, &PAPER_DISTRIBUTION),
            Graph::Ours => Code::new(structured),
        }
    }

    fn is_random(self) -> bool {
        matches!(self, Graph::Optimal | Graph::Family | Graph::SameDegrees)
    }

    fn name(self) -> &'static str {
        match self {
            Graph::Structured => "structured, paper's degrees",
            Graph::Optimal => "random, optimal degrees",
            Graph::Family => "random, Recoded's optimal degrees",
            Graph::SameDegrees => "random, paper's degrees",
            Graph::Ours => "structured, Recoded's degrees",
        }
    }
}

/// Whole blocks over the rank received, for the profiles designed to need no more than that.
fn rank_panel(work: Work) -> Result<Panel, BenchError> {
    let runs = work.runs(RANK_RUNS);
    let results = work.map("finite-length, rank", runs, |_, random| rank_run(random));
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let means = merged(&results);
    let series = RANK_CODES.iter().enumerate().map(|(index, &(profile, symbols))| {
        let points = RANK_SHARES.iter().enumerate().map(|(place, &share)| {
            let estimate = means[index * RANK_SHARES.len() + place].share();
            let is_target = share == 1.05 && profile == Profile::Precoded;
            let target = is_target.then(|| Reference::target(0.99).at_least());
            Point::estimate(share, estimate).against_any(target)
        });
        let name = format!("{profile}, K = {symbols}");
        Series { name, style: Style::Line, points: points.collect() }
    });
    Ok(Panel {
        title: format!("inactivation, {runs} whole blocks by rank"),
        x: Axis::linear("rank received / K", &[1.0, 1.01, 1.02, 1.03, 1.04, 1.05]),
        y: Axis::linear("share of blocks decoded", &[0.9, 0.92, 0.94, 0.96, 0.98, 1.0]),
        series: series.collect(),
    })
}

/// One block of each code: whether it is decoded at each rank.
fn rank_run(random: &mut ChaCha8Rng) -> Result<Vec<Mean>, BenchError> {
    let mut means = Vec::new();
    for (profile, symbols) in RANK_CODES {
        let mut decoder = Decoder::new(Limits::of(symbols, BATCH_SIZE));
        let most = symbols as f64 * RANK_SHARES[RANK_SHARES.len() - 1];
        let batches = (most / BATCH_SIZE as f64 * 1.5) as usize + 4;
        let arrived = &blocks::arrivals(batches, HOPS, random)[HOPS - 1];
        let first_id = if profile == Profile::CyclicShift { 0 } else { random.next_u32() as u16 };
        for share in RANK_SHARES {
            decoder.reset(blocks::params(symbols, profile, 8))?;
            let enough = (share * symbols as f64).floor() as usize;
            let vectors = (0_u16..).zip(arrived).flat_map(|(number, batch)| {
                batch.vectors().map(move |vector| (first_id.wrapping_add(number), vector))
            });
            for (id, vector) in vectors.take(enough) {
                decoder.insert(id, vector)?;
            }
            let Ok(()) = decoder.advance(&mut Nothing, |_| ());
            let whole = f64::from(u8::from(decoder.is_complete()));
            means.push([whole].into_iter().collect());
        }
    }
    Ok(means)
}

const HOPS: usize = 10;
const BATCHES: usize = 20;
const SYMBOLS: [usize; 5] = [192, 203, 211, 217, 229];
const GRAPHS: [Graph; 5] =
    [Graph::Structured, Graph::Optimal, Graph::Family, Graph::SameDegrees, Graph::Ours];
/// Belief propagation, inactivation, whole blocks.
const MEASURES: usize = 3;

/// The paper's row degrees, equally likely.
const PAPER_DISTRIBUTION: [(u16, u32); 6] = [
    (11, sevenths(1)),
    (12, sevenths(2)),
    (14, sevenths(4)),
    (19, sevenths(5)),
    (20, sevenths(6)),
    (27, u32::MAX),
];

/// Optimal for infinite blocks, ranks after ten hops and degrees of any size, as computed and used
/// by the independent program.
#[rustfmt::skip]
const OPTIMAL_DISTRIBUTION: [(u16, u32); 25] = [
    (14, 0x135022c7), (15, 0x3c727aaa), (18, 0x4575b674), (19, 0x6936269f),
    (24, 0x7f39c42c), (25, 0x8e5998b8), (32, 0xa46a28fe), (33, 0xab688a50),
    (43, 0xc1928f43), (57, 0xc5e10799), (58, 0xd263d884), (78, 0xded33b57),
    (79, 0xdf017e5c), (106, 0xe6c0c0b4), (107, 0xe88c8e8b), (146, 0xec8103a8),
    (147, 0xefd2a023), (206, 0xf288042f), (207, 0xf56927f6), (301, 0xf57bcccf),
    (302, 0xf9b65181), (467, 0xfa488aae), (468, 0xfcfe18d6), (821, 0xfdc2691b),
    (822, 0xffffffff),
];

const fn sevenths(count: u32) -> u32 {
    u32::MAX / 7 * count
}

/// By K: belief propagation, inactivation, whole blocks.
const ORACLE_STRUCTURED: [[f64; MEASURES]; 5] = [
    [0.8646, 1.0, 1.0],
    [0.9554, 0.9986, 0.975],
    [0.8491, 0.9914, 0.845],
    [0.7034, 0.9636, 0.615],
    [0.6729, 0.8606, 0.0],
];
const ORACLE_OPTIMAL: [[f64; MEASURES]; 5] = [
    [0.0705, 0.9929, 0.75],
    [0.0609, 0.9910, 0.785],
    [0.0335, 0.9839, 0.665],
    [0.0486, 0.9778, 0.635],
    [0.0376, 0.9605, 0.53],
];
const ORACLE_SAME_DEGREES: [[f64; MEASURES]; 5] = [
    [0.8248, 0.8336, 0.0],
    [0.8108, 0.8220, 0.0],
    [0.7976, 0.8086, 0.0],
    [0.7915, 0.7999, 0.0],
    [0.7669, 0.7799, 0.0],
];
/// Runs behind each of these values.
const ORACLE_RUNS: f64 = 200.0;

const RUNS: usize = 2000;
const RANK_RUNS: usize = 400;
const RANK_CODES: [(Profile, usize); 4] = [
    (Profile::Precoded, 256),
    (Profile::Precoded, 1024),
    (Profile::CyclicShift, 256),
    (Profile::CyclicShift, 1024),
];
const RANK_SHARES: [f64; 6] = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05];

#[cfg(test)]
mod tests {
    use recoded_code::bats::Batch;

    use super::*;

    /// The most symbols of one batch that are in no other.
    fn alone_in_one_batch(graph: Graph, symbols: usize) -> usize {
        let code = graph.code(symbols).expect("a code");
        let mut batch = Batch::new();
        let batches: Vec<Vec<u16>> = (0..BATCHES)
            .map(|id| {
                code.batch(id as u16, &mut batch);
                batch.indices().to_vec()
            })
            .collect();
        let mut times = vec![0; symbols];
        batches.iter().flatten().for_each(|&symbol| times[usize::from(symbol)] += 1);
        let alone =
            |batch: &Vec<u16>| batch.iter().filter(|&&s| times[usize::from(s)] == 1).count();
        batches.iter().map(alone).max().unwrap_or_default()
    }

    #[test]
    fn symbols_of_one_batch_alone_are_as_many_as_the_explanation_says() {
        let alone = SYMBOLS.map(|symbols| alone_in_one_batch(Graph::Structured, symbols));
        assert_eq!(alone, [8, 15, 18, 18, 26]);
        assert!(SYMBOLS.iter().all(|&symbols| alone_in_one_batch(Graph::Ours, symbols) <= 2));
    }

    #[test]
    fn optimal_degrees_are_a_distribution() {
        assert!(OPTIMAL_DISTRIBUTION.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        assert!((degrees::mean(&OPTIMAL_DISTRIBUTION) - 58.7).abs() < 0.1);
        assert!((degrees::mean(&PAPER_DISTRIBUTION) - 117.0 / 7.0).abs() < 0.01);
    }
}
