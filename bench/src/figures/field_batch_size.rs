//! Field and batch size: the rank left after subtracting coding vectors.
//!
//! Packets hold 1400 bytes of vector and symbol. Larger fields lose less rank, longer vectors more
//! bytes: net = E[rank] / M * (1400 - vector bytes) / 1400, after ten hops with systematic
//! recoding.

use recoded_code::theory::{self, Recoding};
use recoded_code::vector;
use recoded_gf::FieldOrder;

use crate::error::BenchError;
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::line::{self, Holding, Relay};
use crate::figures::work::{Mean, Work, merged};

/// Name of the figure.
pub const NAME: &str = "field-batch-size";

/// Computes it.
///
/// # Errors
/// None.
pub fn compute(work: Work) -> Result<Figure, BenchError> {
    let runs = work.runs(RUNS);
    let panels = [(0.1, "field-batch-size 10 %"), (0.2, "field-batch-size 20 %")];
    let panels = panels.map(|(loss, name)| {
        let cells: Vec<(FieldOrder, usize)> =
            FIELDS.iter().flat_map(|(field, _)| SIZES.map(|size| (*field, size))).collect();
        let results = work.map(name, cells.len() * CHUNKS, |task, random| {
            let (field, size) = cells[task / CHUNKS];
            let mut relay = Relay::new(size, field, Recoding::Systematic);
            let net = |_| {
                let mut held = Holding::source(size);
                for _ in 0..HOPS {
                    held = line::hop(&mut relay, &held, size, loss, random);
                }
                held.rank() as f64 / size as f64 * room(size, field)
            };
            vec![(0..runs.div_ceil(CHUNKS)).map(net).collect::<Mean>()]
        });
        let means: Vec<Mean> = results.chunks(CHUNKS).map(|chunk| merged(chunk)[0]).collect();
        panel(loss, &means)
    });
    Ok(Figure {
        name: NAME,
        title: "Net goodput over batch size and field, after ten hops".into(),
        source: "table of an independent program",
        about: format!(
            "lines: theory; crosses: {runs} batches each; {PACKET_BYTES} bytes of vector and symbol"
        ),
        panels: panels.into(),
    })
}

fn panel(loss: f64, means: &[Mean]) -> Panel {
    let mut series = Vec::new();
    for (index, (field, name)) in FIELDS.into_iter().enumerate() {
        let (mut exact, mut crosses) = (Vec::new(), Vec::new());
        for (place, size) in SIZES.into_iter().enumerate() {
            let ranks = theory::expected_rank(
                size,
                field,
                &[size; HOPS],
                &[loss; HOPS],
                Recoding::Systematic,
            );
            let (x, net) = (size as f64, ranks[HOPS - 1] * room(size, field));
            let oracle = Reference::oracle(ORACLE[usize::from(loss > 0.15)][place][index]);
            exact.push(Point::exact(x, net).against(oracle));
            let estimate = means[index * SIZES.len() + place].estimate();
            crosses.push(Point::estimate(x, estimate).against(Reference::theory(net)));
        }
        series.push(Series { name: name.into(), style: Style::Line, points: exact });
        series.push(Series { name: name.into(), style: Style::Crosses, points: crosses });
    }
    let lowest = if loss < 0.15 { 0.6 } else { 0.4 };
    Panel {
        title: format!("{:.0} % loss per hop", loss * 100.0),
        x: Axis::log("batch size M", &[8.0, 16.0, 32.0, 64.0]),
        y: Axis::linear(
            "expected rank / M, vectors paid",
            &[lowest, lowest + 0.1, lowest + 0.2, lowest + 0.3, lowest + 0.4],
        ),
        series,
    }
}

/// The share of a packet that is symbol. Vectors are as long as on the wire, padding included.
fn room(size: usize, field: FieldOrder) -> f64 {
    1.0 - vector::packed_bytes(size, field) as f64 / PACKET_BYTES as f64
}

const HOPS: usize = 10;
const PACKET_BYTES: usize = 1400;
const SIZES: [usize; 4] = [8, 16, 32, 64];
const FIELDS: [(FieldOrder, &str); 4] = [
    (FieldOrder::Two, "GF(2)"),
    (FieldOrder::Four, "GF(4)"),
    (FieldOrder::Sixteen, "GF(16)"),
    (FieldOrder::TwoFiftySix, "GF(256)"),
];

/// By loss, size, field. Vectors are counted without padding there: at most 0.002 more.
const ORACLE: [[[f64; 4]; 4]; 2] = [
    [
        [0.6129, 0.6773, 0.7089, 0.7143],
        [0.7054, 0.7519, 0.7668, 0.7655],
        [0.7757, 0.8000, 0.8024, 0.7942],
        [0.8201, 0.8268, 0.8197, 0.8009],
    ],
    [
        [0.4472, 0.5276, 0.5605, 0.5654],
        [0.5683, 0.6191, 0.6323, 0.6310],
        [0.6544, 0.6767, 0.6783, 0.6712],
        [0.7053, 0.7104, 0.7040, 0.6878],
    ],
];

/// Batches per cross.
const RUNS: usize = 6000;
/// Tasks that a cross is cut into.
const CHUNKS: usize = 8;
