//! Number of random symbols beyond n that a receiver of n symbols needs, by field.
//!
//! A vector is innovative to a receiver that lacks D of n with probability 1 - q^-D. Hence
//!
//! ```text
//!  E[extra] = sum over D in 1..=n of 1 / (q^D - 1)
//!  P(full | n + x received) = product over i in 1..=n of 1 - q^-(i + x)
//! ```
//!
//! Systematic over one hop that loses e: the same sum for the L symbols that are lost, L binomial.
//! Compared with Monte Carlo through the decoders' elimination.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use recoded_code::Elimination;
use recoded_gf::FieldOrder;

use crate::error::BenchError;
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::line::survives;
use crate::figures::work::{Mean, Work, merged};

/// Name of the figure.
pub const NAME: &str = "rlnc-overhead";

/// Computes it.
///
/// # Errors
/// None.
pub fn compute(work: Work) -> Result<Figure, BenchError> {
    let runs = work.runs(RUNS);
    let results = work.map(NAME, FIELDS.len() * CHUNKS, |task, random| {
        simulate(FIELDS[task / CHUNKS], runs.div_ceil(CHUNKS), random)
    });
    let simulated: Vec<Vec<Mean>> = results.chunks(CHUNKS).map(merged).collect();
    Ok(Figure {
        name: NAME,
        title: format!("Overhead of random linear coding, generations of {SIZE}"),
        source: "closed form, computed by an independent program",
        about: format!("{runs} generations per field through the decoders' elimination"),
        panels: vec![extra_panel(&simulated), full_panel(&simulated)],
    })
}

/// Expected number of redundant symbols, by field.
fn extra_panel(simulated: &[Vec<Mean>]) -> Panel {
    let kinds =
        [("all coded", None), ("systematic, 10 %", Some(0.1)), ("systematic, 20 %", Some(0.2))];
    let mut series = Vec::new();
    for (kind, (name, loss)) in kinds.into_iter().enumerate() {
        let mut exact = Vec::new();
        let mut dots = Vec::new();
        for (index, field) in FIELDS.into_iter().enumerate() {
            let (x, expected) = (index as f64, expected_extra(field, loss));
            let oracle = Reference::oracle(ORACLE_EXTRA[index][kind]).with_margin(PRINTED);
            exact.push(Point::exact(x, expected).against(oracle));
            let measured = Point::estimate(x, simulated[index][kind].estimate());
            dots.push(measured.against(Reference::theory(expected)));
        }
        series.push(Series { name: name.into(), style: Style::Line, points: exact });
        series.push(Series { name: name.into(), style: Style::Crosses, points: dots });
    }
    Panel {
        title: "symbols beyond the generation size".into(),
        x: Axis::names("field", &FIELD_NAMES),
        y: Axis::log("expected extra symbols", &[0.001, 0.01, 0.1, 1.0, 10.0]),
        series,
    }
}

/// Probability of full rank by extra symbols.
fn full_panel(simulated: &[Vec<Mean>]) -> Panel {
    let mut series = Vec::new();
    for (index, field) in FIELDS.into_iter().enumerate() {
        let mut exact = Vec::new();
        let mut dots = Vec::new();
        for extra in 0..EXTRAS {
            let (x, probability) = (extra as f64, full_rank(field, extra));
            let oracle = Reference::oracle(ORACLE_FULL[index][extra]).with_margin(PRINTED);
            exact.push(Point::exact(x, probability).against(oracle));
            let measured = Point::estimate(x, simulated[index][3 + extra].share());
            dots.push(measured.against(Reference::theory(probability)));
        }
        let name = FIELD_NAMES[index].to_owned();
        series.push(Series { name: name.clone(), style: Style::Crosses, points: dots });
        series.push(Series { name, style: Style::Line, points: exact });
    }
    Panel {
        title: "all coded: probability that a generation is decoded".into(),
        x: Axis::linear("symbols received beyond the generation size", &[0.0, 1.0, 2.0, 3.0]),
        y: Axis::share("probability"),
        series,
    }
}

fn expected_extra(field: FieldOrder, loss: Option<f64>) -> f64 {
    let order = f64::from(field.order());
    let of_missing = |missing: usize| -> f64 {
        (1..=missing).map(|lacking| 1.0 / (order.powi(lacking as i32) - 1.0)).sum()
    };
    let Some(loss) = loss else { return of_missing(SIZE) };
    let mut probability = (1.0 - loss).powi(SIZE as i32);
    let mut expected = 0.0;
    for missing in 1..=SIZE {
        probability *= (SIZE - missing + 1) as f64 / missing as f64 * loss / (1.0 - loss);
        expected += probability * of_missing(missing);
    }
    expected
}

fn full_rank(field: FieldOrder, extra: usize) -> f64 {
    let order = f64::from(field.order());
    (1..=SIZE).map(|i| 1.0 - order.powi(-((i + extra) as i32))).product()
}

/// Extra symbols of the three kinds, then whether 0, 1, 2, 3 extra symbols suffice.
fn simulate(field: FieldOrder, runs: usize, random: &mut ChaCha8Rng) -> Vec<Mean> {
    let mut elimination = Elimination::new(SIZE);
    let mut means = vec![Mean::default(); 3 + EXTRAS];
    for _ in 0..runs {
        elimination.reset(SIZE);
        let extra = redundant(&mut elimination, field, random);
        means[0].add(extra as f64);
        for allowed in 0..EXTRAS {
            means[3 + allowed].add(f64::from(u8::from(extra <= allowed)));
        }
        for (kind, loss) in [(1, 0.1), (2, 0.2)] {
            elimination.reset(SIZE);
            for symbol in (0..SIZE).filter(|_| survives(random, loss)) {
                elimination.insert_unit(symbol);
            }
            means[kind].add(redundant(&mut elimination, field, random) as f64);
        }
    }
    means
}

/// Redundant symbols among random ones until the generation is complete.
fn redundant(elimination: &mut Elimination, field: FieldOrder, random: &mut ChaCha8Rng) -> usize {
    let mut vector = [0; SIZE];
    let mut redundant = 0;
    while !elimination.is_complete() {
        random.fill_bytes(&mut vector);
        vector.iter_mut().for_each(|element| *element = field.embed(*element));
        redundant += usize::from(!elimination.insert(&vector).is_innovative());
    }
    redundant
}

const SIZE: usize = 64;
const EXTRAS: usize = 4;
const FIELDS: [FieldOrder; 4] =
    [FieldOrder::Two, FieldOrder::Four, FieldOrder::Sixteen, FieldOrder::TwoFiftySix];
const FIELD_NAMES: [&str; 4] = ["GF(2)", "GF(4)", "GF(16)", "GF(256)"];

/// By field: all coded, systematic over a hop that loses 10 %, 20 %.
const ORACLE_EXTRA: [[f64; 3]; 4] = [
    [1.606_695, 1.5663, 1.6055],
    [0.421_098, 0.4187, 0.4211],
    [0.070_849, 0.0707, 0.0708],
    [0.003_937, 0.0039, 0.0039],
];

/// By field: 0, 1, 2, 3 extra symbols.
const ORACLE_FULL: [[f64; EXTRAS]; 4] = [
    [0.288_788, 0.577_576, 0.770_102, 0.880_116],
    [0.688_538, 0.918_050, 0.979_253, 0.994_797],
    [0.933_595, 0.995_834, 0.999_740, 0.999_984],
    [0.996_078, 0.999_985, 1.000_000, 1.000_000],
];

/// Rounding error of the printed digits.
const PRINTED: f64 = 0.000_06;

/// Generations per field.
const RUNS: usize = 100_000;
/// Tasks that a field is cut into.
const CHUNKS: usize = 32;
