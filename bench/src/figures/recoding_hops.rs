//! Expected rank against hops: with recoding at every node, with adaptive recoding, and without
//! any.
//!
//! Every node sends on average M packets per batch, regardless of how many it received. In one
//! series a node also sends extra packets to cover the hop's losses; these count as sent. Each hop
//! has a loss rate of 10 % or 20 %. Lines are this project's theory, exact; crosses run real nodes
//! (`line`), with the tables that the theory of adaptive recoding yields.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use recoded_code::theory::adaptive::{Outgoing, RecodingTable, adaptive_line};
use recoded_code::theory::{self, LossModel, Recoding};
use recoded_gf::FieldOrder;

use crate::error::BenchError;
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::line::{self, Holding, Relay};
use crate::figures::work::{Mean, Work, merged};

/// Name of the figure.
pub const NAME: &str = "recoding-hops";

/// Computes it.
///
/// # Errors
/// None.
pub fn compute(work: Work) -> Result<Figure, BenchError> {
    let runs = work.runs(RUNS);
    let panels = [0.1, 0.2].map(|loss| {
        let schemes = SCHEMES.iter().filter(|scheme| scheme.oracle(loss).is_some());
        let computed: Vec<(&Scheme, SchemeForecast)> =
            schemes.map(|scheme| (scheme, SchemeForecast::of(scheme, loss))).collect();
        let name = if loss < 0.15 { "recoding-hops 10 %" } else { "recoding-hops 20 %" };
        let results = work.map(name, computed.len() * CHUNKS, |task, random| {
            let (scheme, plan) = &computed[task / CHUNKS];
            simulate(scheme, plan, loss, runs.div_ceil(CHUNKS), random)
        });
        panel(loss, &computed, &results)
    });
    Ok(Figure {
        name: NAME,
        title: "Rank that arrives, over hops".into(),
        source: "tables of an independent program",
        about: format!(
            "lines: theory; crosses: {runs} batches each; M packets per batch and hop on average"
        ),
        panels: panels.into(),
    })
}

fn panel(loss: f64, computed: &[(&Scheme, SchemeForecast)], results: &[Vec<Mean>]) -> Panel {
    let mut series = vec![
        context("ideal repeat request per hop", |_| 1.0 - loss),
        context("no recoding", |hop| (1.0 - loss).powi(hop as i32)),
    ];
    for ((scheme, plan), results) in computed.iter().zip(results.chunks(CHUNKS)) {
        let simulated = merged(results);
        let listed = scheme.oracle(loss).unwrap_or_default();
        let (mut exact, mut crosses) = (Vec::new(), Vec::new());
        for (hop, value) in LISTED.into_iter().zip(listed) {
            let (x, expected) = (hop as f64, plan.expected[hop - 1]);
            let oracle = Reference::oracle(*value).with_margin(PRINTED);
            exact.push(Point::exact(x, expected).against(oracle));
            let estimate = Point::estimate(x, simulated[hop - 1].estimate());
            crosses.push(estimate.against(Reference::theory(expected)));
        }
        let name = scheme.name.to_owned();
        series.push(Series { name: name.clone(), style: Style::Line, points: exact });
        series.push(Series { name, style: Style::Crosses, points: crosses });
    }
    Panel {
        title: format!("{:.0} % loss per hop", loss * 100.0),
        x: Axis::log("hops", &[1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0]),
        y: Axis::share("expected rank / packets sent"),
        series,
    }
}

fn context(name: &str, value: impl Fn(usize) -> f64) -> Series {
    let points = (1..=HOPS).map(|hop| Point::exact(hop as f64, value(hop)));
    Series { name: name.into(), style: Style::Context, points: points.collect() }
}

/// One way to recode.
struct Scheme {
    name: &'static str,
    size: usize,
    field: FieldOrder,
    recoding: Recoding,
    is_adaptive: bool,
    /// Sends M packets for each that arrives, not M packets.
    makes_up_for_loss: bool,
    /// Expected rank by listed hop, at 10 % and 20 % loss, from an independent program.
    oracles: [&'static [f64]; 2],
}

impl Scheme {
    fn oracle(&self, loss: f64) -> Option<&'static [f64]> {
        let oracle = self.oracles[usize::from(loss > 0.15)];
        (!oracle.is_empty()).then_some(oracle)
    }
}

/// Packets sent by the nodes of a line, and the rank that theory expects behind each.
struct SchemeForecast {
    /// Packets per batch and hop, on average: the divisor of ranks.
    packets: f64,
    tables: Vec<RecodingTable>,
    expected: Vec<f64>,
}

impl SchemeForecast {
    fn of(scheme: &Scheme, loss: f64) -> SchemeForecast {
        let (size, field, recoding) = (scheme.size, scheme.field, scheme.recoding);
        if scheme.is_adaptive {
            let hop = LossModel::independent(loss);
            let per_symbol = if scheme.makes_up_for_loss { 1.0 / (1.0 - loss) } else { 1.0 };
            let packets = size as f64 * per_symbol;
            let equal = Outgoing::equal_airtime(size, field, hop, recoding);
            let line = adaptive_line(&Outgoing { budget: packets, ..equal }, &[hop; HOPS]);
            let expected = line.iter().map(|hop| hop.expected_rank() / per_symbol).collect();
            let tables = line.into_iter().map(|hop| hop.table).collect();
            return SchemeForecast { packets, tables, expected };
        }
        let expected = theory::expected_rank(size, field, &[size; HOPS], &[loss; HOPS], recoding);
        let tables = vec![RecodingTable::fixed(size, size as u16); HOPS];
        SchemeForecast { packets: size as f64, tables, expected }
    }
}

/// Mean rank behind each hop as a share of the packets sent.
fn simulate(
    scheme: &Scheme,
    plan: &SchemeForecast,
    loss: f64,
    runs: usize,
    random: &mut ChaCha8Rng,
) -> Vec<Mean> {
    let mut relay = Relay::new(scheme.size, scheme.field, scheme.recoding);
    let mut ranks = vec![Mean::default(); HOPS];
    for _ in 0..runs {
        let mut held = Holding::source(scheme.size);
        for (table, rank) in plan.tables.iter().zip(&mut ranks) {
            let packets = table.packets(held.rank(), random.next_u32());
            held = line::hop(&mut relay, &held, packets, loss, random);
            rank.add(held.rank() as f64 / plan.packets);
        }
    }
    ranks
}

const HOPS: usize = 50;
/// Hops that the tables list.
const LISTED: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 50];

const fn plain(
    name: &'static str,
    size: usize,
    field: FieldOrder,
    oracles: [&'static [f64]; 2],
) -> Scheme {
    let recoding = Recoding::Systematic;
    Scheme { name, size, field, recoding, is_adaptive: false, makes_up_for_loss: false, oracles }
}

#[rustfmt::skip]
const SCHEMES: [Scheme; 11] = [
    plain("M = 64, GF(256)", 64, FieldOrder::TwoFiftySix, [
        &[0.900, 0.879, 0.868, 0.861, 0.855, 0.851, 0.847, 0.844, 0.842, 0.839, 0.825, 0.808],
        &[0.800, 0.772, 0.757, 0.748, 0.741, 0.735, 0.731, 0.727, 0.724, 0.721, 0.703, 0.682],
    ]),
    plain("M = 32, GF(256)", 32, FieldOrder::TwoFiftySix, [
        &[0.900, 0.871, 0.855, 0.844, 0.836, 0.830, 0.824, 0.820, 0.816, 0.813, 0.792, 0.766],
        &[0.800, 0.760, 0.740, 0.726, 0.716, 0.708, 0.701, 0.696, 0.691, 0.687, 0.661, 0.630],
    ]),
    Scheme { is_adaptive: true, recoding: Recoding::Random, ..plain("M = 16, GF(256), adaptive", 16, FieldOrder::TwoFiftySix, [
        &[0.900, 0.870, 0.853, 0.839, 0.829, 0.821, 0.814, 0.808, 0.803, 0.798, 0.767, 0.729],
        &[0.800, 0.761, 0.737, 0.721, 0.708, 0.697, 0.688, 0.681, 0.674, 0.668, 0.631, 0.586],
    ]) },
    Scheme { is_adaptive: true, makes_up_for_loss: true, recoding: Recoding::Random, ..plain("M = 16, adaptive, M/(1 - loss) sent", 16, FieldOrder::TwoFiftySix, [
        &[0.872, 0.854, 0.842, 0.832, 0.825, 0.818, 0.812, 0.807, 0.803, 0.799, 0.772, 0.737],
        &[0.765, 0.744, 0.729, 0.717, 0.708, 0.700, 0.693, 0.687, 0.682, 0.678, 0.647, 0.608],
    ]) },
    plain("M = 16, GF(256)", 16, FieldOrder::TwoFiftySix, [
        &[0.900, 0.859, 0.836, 0.821, 0.809, 0.799, 0.792, 0.785, 0.779, 0.774, 0.743, 0.704],
        &[0.800, 0.744, 0.715, 0.695, 0.680, 0.669, 0.659, 0.651, 0.644, 0.638, 0.600, 0.556],
    ]),
    plain("M = 16, GF(16)", 16, FieldOrder::Sixteen, [
        &[0.900, 0.858, 0.835, 0.819, 0.807, 0.797, 0.789, 0.782, 0.776, 0.771, 0.739, 0.699],
        &[0.800, 0.744, 0.714, 0.694, 0.679, 0.667, 0.657, 0.649, 0.642, 0.636, 0.597, 0.552],
    ]),
    plain("M = 16, GF(2), systematic", 16, FieldOrder::Two, [
        &[0.900, 0.847, 0.812, 0.787, 0.767, 0.751, 0.738, 0.726, 0.716, 0.706, 0.646, 0.568],
        &[0.800, 0.728, 0.686, 0.657, 0.635, 0.617, 0.603, 0.590, 0.579, 0.569, 0.506, 0.426],
    ]),
    Scheme { recoding: Recoding::Random, ..plain("M = 16, GF(2), random", 16, FieldOrder::Two, [
        &[0.875, 0.819, 0.783, 0.757, 0.737, 0.720, 0.706, 0.694, 0.683, 0.674, 0.611, 0.528],
        &[0.789, 0.717, 0.675, 0.645, 0.623, 0.605, 0.589, 0.576, 0.565, 0.555, 0.489, 0.404],
    ]) },
    Scheme { is_adaptive: true, recoding: Recoding::Random, ..plain("M = 8, GF(256), adaptive", 8, FieldOrder::TwoFiftySix, [
        &[0.900, 0.859, 0.834, 0.815, 0.800, 0.788, 0.778, 0.769, 0.761, 0.755, 0.709, 0.653],
        &[0.800, 0.745, 0.712, 0.688, 0.670, 0.655, 0.643, 0.632, 0.623, 0.615, 0.562, 0.499],
    ]) },
    plain("M = 8, GF(256)", 8, FieldOrder::TwoFiftySix, [
        &[0.900, 0.845, 0.811, 0.788, 0.771, 0.757, 0.745, 0.735, 0.726, 0.718, 0.671, 0.611],
        &[0.800, 0.723, 0.680, 0.652, 0.630, 0.613, 0.600, 0.588, 0.578, 0.569, 0.513, 0.447],
    ]),
    plain("M = 4, GF(256)", 4, FieldOrder::TwoFiftySix, [
        &[0.900, 0.830, 0.780, 0.744, 0.716, 0.695, 0.677, 0.663, 0.650, 0.639, 0.566, 0.472],
        &[0.800, 0.695, 0.633, 0.591, 0.560, 0.536, 0.515, 0.497, 0.482, 0.469, 0.390, 0.292],
    ]),
];

/// Tables have three digits.
const PRINTED: f64 = 0.001;

/// Batches per cross.
const RUNS: usize = 6000;
/// Tasks that a scheme is cut into.
const CHUNKS: usize = 24;
