//! Effect of recoding on whole blocks: 20 batches over 1 to 20 hops, with nodes that recode and
//! with nodes that forward.
//!
//! 192 source symbols in batches of 16, cyclic-shift codes with the paper's row degrees and with
//! this project's, inactivation decoding. No code can decode a block if less rank arrives than it
//! has symbols: the theory computes that bound.

use rand_chacha::ChaCha8Rng;
use recoded_code::bats::{Code, PAPER_ROW_DEGREES, ParamsError, Profile};
use recoded_code::theory::batches::BatchCount;
use recoded_code::theory::{self, LossModel, Recoding};
use recoded_gf::FieldOrder;

use crate::error::BenchError;
use crate::figures::blocks::{self, BATCH_SIZE, Decoders};
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::work::{Mean, Work, merged};

/// Name of the figure.
pub const NAME: &str = "recoding-blocks";

/// Computes it.
///
/// # Errors
/// A code is refused.
pub fn compute(work: Work) -> Result<Figure, BenchError> {
    let runs = work.runs(RUNS);
    let results = work.map(NAME, runs, |_, random| run(random));
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let means = merged(&results);
    let panels = LOSSES.iter().enumerate().flat_map(|(loss, _)| {
        let means = &means;
        (0..MEASURES).map(move |measure| panel(loss, measure, means))
    });
    Ok(Figure {
        name: NAME,
        title: format!("Blocks over hops, {BATCHES} batches: recoding and forwarding"),
        source: "independent simulation; theory",
        about: format!("{runs} runs; K = {SYMBOLS}, batches of {BATCH_SIZE}, inactivation"),
        panels: panels.collect(),
    })
}

/// One run of everything: shares of symbols and of blocks by loss, way of sending, code and hop.
fn run(random: &mut ChaCha8Rng) -> Result<Vec<Mean>, BenchError> {
    let mut decoders = Decoders::new(SYMBOLS, BATCHES);
    let mut means = Vec::new();
    for loss in LOSSES {
        for recodes in [true, false] {
            let behind = blocks::travel(BATCHES, HOPS, loss, recodes, random);
            for is_paper in [true, false] {
                for hops in LISTED {
                    let decoded = decoders.decode(|| code(is_paper), 0, &behind[hops - 1])?;
                    let shares = [decoded.inactivation, decoded.is_whole()];
                    means.extend(shares.map(|share| [share].into_iter().collect::<Mean>()));
                }
            }
        }
    }
    Ok(means)
}

fn code(is_paper: bool) -> Result<Code, ParamsError> {
    let params = blocks::params(SYMBOLS, Profile::CyclicShift, 8);
    match is_paper {
        true => Code::with_row_degrees(params, &PAPER_ROW_DEGREES),
        false => Code::new(params),
    }
}

fn panel(loss: usize, measure: usize, means: &[Mean]) -> Panel {
    let mut series = Vec::new();
    for (way, &recodes) in [true, false].iter().enumerate() {
        for (degrees, name) in ["paper's degrees", "Recoded's degrees"].into_iter().enumerate() {
            let first = ((loss * 2 + way) * 2 + degrees) * LISTED.len();
            let points = LISTED.iter().enumerate().map(|(place, &hops)| {
                let mean = &means[(first + place) * MEASURES + measure];
                let reference = match (degrees, measure) {
                    (0, _) => oracle(loss, recodes, hops, measure),
                    // These codes need no more than the rank.
                    (_, WHOLE) => Some(Reference::theory(enough_rank(LOSSES[loss], recodes, hops))),
                    _ => None,
                };
                Point::estimate(hops as f64, mean.share()).against_any(reference)
            });
            let way = if recodes { "recoding" } else { "forwarding" };
            let name = format!("{way}, {name}");
            series.push(Series { name, style: Style::Line, points: points.collect() });
        }
        if measure == WHOLE {
            let enough = |hops| enough_rank(LOSSES[loss], recodes, hops);
            let points = (1..=HOPS).map(|hops| Point::exact(hops as f64, enough(hops)));
            let name = "enough rank arrives (theory)".into();
            series.push(Series { name, style: Style::Context, points: points.collect() });
        }
    }
    let measure = if measure == WHOLE { "blocks" } else { "symbols" };
    Panel {
        title: format!("{:.0} % loss per hop, {measure}", LOSSES[loss] * 100.0),
        x: Axis::linear("hops", &[1.0, 5.0, 10.0, 15.0, 20.0]),
        y: Axis::share(if measure == "blocks" { BLOCKS } else { SYMBOLS_DECODED }),
        series,
    }
}

/// Probability that as much rank arrives as the block has symbols.
fn enough_rank(loss: f64, recodes: bool, hops: usize) -> f64 {
    // Without recoding, a line acts like one hop with the combined loss.
    let lost = 1.0 - (1.0 - loss).powi(hops as i32);
    let line = if recodes { vec![loss; hops] } else { vec![lost] };
    let line: Vec<LossModel> = line.into_iter().map(LossModel::independent).collect();
    let sent = vec![BATCH_SIZE; line.len()];
    let field = FieldOrder::TwoFiftySix;
    let ranks = theory::rank_distributions(BATCH_SIZE, field, &sent, &line, Recoding::Systematic);
    1.0 - BatchCount::new(&ranks[line.len() - 1], SYMBOLS, BATCHES).short(BATCHES)
}

fn oracle(loss: usize, recodes: bool, hops: usize, measure: usize) -> Option<Reference> {
    let place = ORACLE_HOPS.iter().position(|listed| *listed == hops)?;
    let value = ORACLE[loss][usize::from(!recodes)][place][measure];
    let more = (value * ORACLE_RUNS + 1.0) / (ORACLE_RUNS + 2.0);
    // For shares of symbols this is an upper bound on the error; for blocks, the error.
    let error = (more * (1.0 - more) / (ORACLE_RUNS + 2.0)).sqrt();
    Some(Reference::oracle(value).with_error(error))
}

const SYMBOLS: usize = 192;
const BATCHES: usize = 20;
const HOPS: usize = 20;
const LOSSES: [f64; 2] = [0.1, 0.2];
/// Numbers of hops after which blocks are decoded.
const LISTED: [usize; 11] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20];
/// Symbols, whole blocks.
const MEASURES: usize = 2;
const WHOLE: usize = 1;
const SYMBOLS_DECODED: &str = "share of symbols decoded";
const BLOCKS: &str = "share of blocks decoded";
const RUNS: usize = 500;

const ORACLE_HOPS: [usize; 8] = [1, 2, 4, 6, 8, 10, 15, 20];
/// By loss, recoding or forwarding, and hops: symbols, whole blocks.
#[rustfmt::skip]
const ORACLE: [[[[f64; MEASURES]; 8]; 2]; 2] = [
    [
        [[1.0; 2]; 8],
        [[1.0, 1.0], [0.9996, 0.99], [0.9399, 0.84], [0.0656, 0.0], [0.008, 0.0], [0.0023, 0.0], [0.0; 2], [0.0; 2]],
    ],
    [
        [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.9996, 0.99], [1.0, 1.0], [0.9902, 0.98], [0.8885, 0.83], [0.6378, 0.57]],
        [[1.0, 1.0], [0.9104, 0.77], [0.0057, 0.0], [0.0006, 0.0], [0.0; 2], [0.0; 2], [0.0; 2], [0.0; 2]],
    ],
];
/// Runs behind each of these values.
const ORACLE_RUNS: f64 = 100.0;
