//! Fig. 8 and Fig. 9: what is decoded of a block, over hops and over batches, by width of
//! coefficients.
//!
//! Experiment 1: 20 batches, 1 to 20 hops. Experiment 2: 10 hops, more and more batches. Batches of
//! 16, 10 % loss per hop, the paper's row degrees, 500 runs, two decoders. The paper's number of
//! source symbols is missing from the available text: 192 is the number in independent tables, 256
//! the one the paper calls frequently used. The supports of its base graph are not published
//! either, so this project's are used.

use recoded_code::bats::{Code, PAPER_ROW_DEGREES, ParamsError, Profile};
use recoded_code::theory::batches::BatchCount;
use recoded_code::theory::{self, LossModel, Recoding};
use recoded_gf::FieldOrder;

use crate::error::BenchError;
use crate::figures::blocks::{self, BATCH_SIZE, Decoded, Decoders, LOSS};
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::work::{Estimate, Mean, Work, merged};

/// Name of Fig. 8.
pub const NAME_8: &str = "seed003-fig8";
/// Name of Fig. 9.
pub const NAME_9: &str = "seed003-fig9";

/// Computes Fig. 8: over hops.
///
/// # Errors
/// A code is refused.
pub fn over_hops(work: Work) -> Result<Figure, BenchError> {
    let places: Vec<usize> = (1..=HOPS).collect();
    let runs = work.runs(RUNS);
    let results = work.map(NAME_8, runs, |_, random| {
        let behind = blocks::arrivals(BATCHES, HOPS, random);
        let mut decoders = Decoders::new(SYMBOLS[1], BATCHES);
        run(|variant, hops| decoders.decode(|| variant.code(), 0, &behind[hops - 1]), &places)
    });
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let x = Axis::linear("hops", &[1.0, 5.0, 10.0, 15.0, 20.0]);
    let grid = Grid { places, x, means: merged(&results), is_over_hops: true };
    Ok(Figure {
        name: NAME_8,
        title: format!("Decoding rate over hops, {BATCHES} batches"),
        source: "seed 003, Fig. 8 (claims); independent simulation, K = 192",
        about: about(runs),
        panels: grid.panels(),
    })
}

/// Computes Fig. 9: over batches.
///
/// # Errors
/// A code is refused.
pub fn over_batches(work: Work) -> Result<Figure, BenchError> {
    let places: Vec<usize> = (12..=BATCHES_MAX).step_by(2).collect();
    let runs = work.runs(RUNS);
    let results = work.map(NAME_9, runs, |_, random| {
        let behind = blocks::arrivals(BATCHES_MAX, HOPS_9, random);
        let mut decoders = Decoders::new(SYMBOLS[1], BATCHES_MAX);
        let sent = |batches: usize| &behind[HOPS_9 - 1][..batches];
        run(|variant, batches| decoders.decode(|| variant.code(), 0, sent(batches)), &places)
    });
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let x = Axis::linear("batches", &[12.0, 16.0, 20.0, 24.0, 28.0, 32.0]);
    let grid = Grid { places, x, means: merged(&results), is_over_hops: false };
    Ok(Figure {
        name: NAME_9,
        title: format!("Decoding rate over batches, {HOPS_9} hops"),
        source: "seed 003, Fig. 9 (claims); independent simulation, K = 192",
        about: about(runs),
        panels: grid.panels(),
    })
}

fn about(runs: usize) -> String {
    let loss = LOSS * 100.0;
    format!(
        "{runs} runs; batches of {BATCH_SIZE}, {loss} % loss per hop; 2 and 4 bits lie under the whole field"
    )
}

/// One run of everything: per variant and place, each decoder's share and whether all is decoded.
fn run(
    mut decode: impl FnMut(&Variant, usize) -> Result<Decoded, BenchError>,
    places: &[usize],
) -> Result<Vec<Mean>, BenchError> {
    let mut means = Vec::new();
    for variant in VARIANTS {
        for &place in places {
            let decoded = decode(&variant, place)?;
            let shares = [decoded.belief_propagation, decoded.inactivation, decoded.is_whole()];
            means.extend(shares.map(|share| [share].into_iter().collect::<Mean>()));
        }
    }
    Ok(means)
}

/// A code that is compared.
#[derive(Copy, Clone, PartialEq)]
struct Variant {
    symbols: usize,
    bits: u8,
    /// Uses the paper's row degrees instead of this project's.
    is_paper: bool,
}

impl Variant {
    fn code(&self) -> Result<Code, ParamsError> {
        let params = blocks::params(self.symbols, Profile::CyclicShift, self.bits);
        match self.is_paper {
            true => Code::with_row_degrees(params, &PAPER_ROW_DEGREES),
            false => Code::new(params),
        }
    }

    fn name(&self) -> String {
        match (self.is_paper, self.bits) {
            (false, _) => "whole field, Recoded's degrees".into(),
            (_, 8) => FULL.into(),
            (_, 1) => "1 bit".into(),
            (_, bits) => format!("{bits} bits"),
        }
    }
}

/// Everything that was decoded.
struct Grid {
    places: Vec<usize>,
    x: Axis,
    means: Vec<Mean>,
    is_over_hops: bool,
}

impl Grid {
    fn panels(&self) -> Vec<Panel> {
        let measures = ["belief propagation", "inactivation", "inactivation, whole blocks"];
        let panels = measures.iter().enumerate().flat_map(|(measure, name)| {
            SYMBOLS.map(|symbols| Panel {
                title: format!("K = {symbols}, {name}"),
                x: self.x.clone(),
                y: Axis::share(if measure == WHOLE {
                    "share of blocks decoded"
                } else {
                    "share of symbols decoded"
                }),
                series: self.series(symbols, measure),
            })
        });
        panels.collect()
    }

    fn series(&self, symbols: usize, measure: usize) -> Vec<Series> {
        let variants = VARIANTS.iter().filter(|variant| variant.symbols == symbols);
        let mut series: Vec<Series> = variants
            .map(|variant| {
                let points = self.places.iter().map(|&place| self.point(variant, place, measure));
                Series { name: variant.name(), style: Style::Line, points: points.collect() }
            })
            .collect();
        if measure == WHOLE {
            series.push(self.enough_rank(symbols));
        }
        series
    }

    fn point(&self, variant: &Variant, place: usize, measure: usize) -> Point {
        let estimate = self.estimate(variant, place, measure);
        let point = Point::estimate(place as f64, estimate);
        let full = Variant { bits: 8, ..*variant };
        // "Nearly identical" is the paper's claim for two bits and more.
        let claim = (variant.is_paper && matches!(variant.bits, 2 | 4))
            .then(|| Reference::other_series(self.estimate(&full, place, measure)));
        point.against_any(claim).against_any(self.oracle(variant, place, measure))
    }

    fn estimate(&self, variant: &Variant, place: usize, measure: usize) -> Estimate {
        let variant = VARIANTS.iter().position(|other| other == variant).unwrap_or_default();
        let place = self.places.iter().position(|other| *other == place).unwrap_or_default();
        self.means[(variant * self.places.len() + place) * MEASURES + measure].share()
    }

    fn oracle(&self, variant: &Variant, place: usize, measure: usize) -> Option<Reference> {
        let (hops, batches) = if self.is_over_hops { (place, BATCHES) } else { (HOPS_9, place) };
        if !variant.is_paper || variant.symbols != SYMBOLS[0] || batches != BATCHES {
            return None;
        }
        let value = match (variant.bits, measure) {
            (8, 0) => ORACLE.iter().find(|row| row.0 == hops)?.1,
            // Inactivation decodes every run at all of them.
            (8, _) => ORACLE.iter().find(|row| row.0 == hops).map(|_| 1.0)?,
            (bits, 2) => ORACLE_BITS.iter().find(|row| (row.0, row.1) == (bits, hops))?.2,
            _ => return None,
        };
        let more = (value * ORACLE_RUNS + 1.0) / (ORACLE_RUNS + 2.0);
        // For shares of symbols this is an upper bound on the error; for blocks, the error.
        let error = (more * (1.0 - more) / (ORACLE_RUNS + 2.0)).sqrt();
        let error = if measure == 0 { 0.0 } else { error };
        Some(Reference::oracle(value).with_error(error))
    }

    /// Probability that as much rank arrives as the block has symbols, an upper bound for any code.
    fn enough_rank(&self, symbols: usize) -> Series {
        let field = FieldOrder::TwoFiftySix;
        let ranks = theory::rank_distributions(
            BATCH_SIZE,
            field,
            &[BATCH_SIZE; HOPS],
            &[LossModel::independent(LOSS); HOPS],
            Recoding::Systematic,
        );
        let points = self.places.iter().map(|&place| {
            let (hops, batches) =
                if self.is_over_hops { (place, BATCHES) } else { (HOPS_9, place) };
            let short = BatchCount::new(&ranks[hops - 1], symbols, BATCHES_MAX).short(batches);
            Point::exact(place as f64, 1.0 - short)
        });
        let name = "enough rank arrives (theory)".to_owned();
        Series { name, style: Style::Context, points: points.collect() }
    }
}

const fn variant(symbols: usize, bits: u8, is_paper: bool) -> Variant {
    Variant { symbols, bits, is_paper }
}

const FULL: &str = "whole field (8 bits)";
/// Source symbols of the blocks.
const SYMBOLS: [usize; 2] = [192, 256];
const VARIANTS: [Variant; 10] = [
    variant(192, 1, true),
    variant(192, 2, true),
    variant(192, 4, true),
    variant(192, 8, true),
    variant(192, 8, false),
    variant(256, 1, true),
    variant(256, 2, true),
    variant(256, 4, true),
    variant(256, 8, true),
    variant(256, 8, false),
];
/// Belief propagation, inactivation, whole blocks by inactivation.
const MEASURES: usize = 3;
const WHOLE: usize = 2;

const BATCHES: usize = 20;
const BATCHES_MAX: usize = 32;
const HOPS: usize = 20;
const HOPS_9: usize = 10;

/// Hops and the share of symbols that belief propagation decodes, K = 192.
const ORACLE: [(usize, f64); 8] = [
    (1, 1.0),
    (2, 0.997),
    (4, 0.974),
    (6, 0.941),
    (8, 0.905),
    (10, 0.861),
    (15, 0.813),
    (20, 0.761),
];
/// Bits, hops and the share of whole blocks, K = 192.
const ORACLE_BITS: [(u8, usize, f64); 9] = [
    (1, 1, 0.96),
    (1, 5, 0.96),
    (1, 10, 0.975),
    (2, 1, 1.0),
    (2, 5, 1.0),
    (2, 10, 1.0),
    (4, 1, 1.0),
    (4, 5, 1.0),
    (4, 10, 1.0),
];
/// Runs behind each of these values.
const ORACLE_RUNS: f64 = 200.0;

const RUNS: usize = 500;
