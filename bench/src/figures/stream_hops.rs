//! Streams over hops: what a line carries, and what losses add to its delay, by what its nodes do.
//!
//! Nodes forward, or recode batches without retransmitting, or repair each hop independently, as a
//! stream does. No line carries more than its hops let through. Lines are this project's theory;
//! crosses run the pipeline itself in virtual time, in its own test bed.

use recoded_code::theory::adaptive::{Outgoing, expected_rank_adaptive};
use recoded_code::theory::stream::{StreamHop, StreamProfile, delays};
use recoded_code::theory::{LossModel, Recoding};
use recoded_gf::FieldOrder;
use recoded_pipeline::params::Nanos;

use crate::error::BenchError;
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::timed::{Line, Link, Load, MILLI, SECOND};
use crate::figures::work::Work;

/// Name of the figure.
pub const NAME: &str = "stream-hops";

/// Computes it.
///
/// # Errors
/// None.
pub fn compute(work: Work) -> Result<Figure, BenchError> {
    let seconds = (SECONDS * work.share).max(SECONDS_MIN);
    let cases: Vec<Case> = ROUND_TRIPS_MILLIS
        .iter()
        .flat_map(|round_trip| CROSSES.map(|hops| Case { hops, round_trip: *round_trip }))
        .collect();
    let seed = work.seed & 0xFFFF;
    let measured = work.map(NAME, cases.len(), |task, _| cases[task].measure(seconds, seed));
    let measured: Vec<(Case, Measured)> = cases.into_iter().zip(measured).collect();
    let mut panels = vec![carried(&measured)];
    panels.extend(ROUND_TRIPS_MILLIS.map(|round_trip| {
        let of_panel = measured.iter().filter(|(case, _)| case.round_trip == round_trip);
        late(round_trip, &of_panel.collect::<Vec<_>>())
    }));
    Ok(Figure {
        name: NAME,
        title: "Streams over hops: what is carried, and how late it is".into(),
        source: "theory",
        about: format!(
            "each link loses 10 %; 9600 symbols a second; lines: theory; crosses: the pipeline in \
             virtual time, {seconds:.0} s each"
        ),
        panels,
    })
}

/// Symbols that arrive for each packet that leaves, on the last link.
fn carried(measured: &[(Case, Measured)]) -> Panel {
    let hop = LossModel::independent(LOSS);
    let batches = Outgoing::equal_airtime(BATCH, FieldOrder::TwoFiftySix, hop, Recoding::Random);
    let ranks = expected_rank_adaptive(&batches, &[hop; HOPS]);
    let mut series = vec![
        line("limit", Style::Context, |_| 1.0 - LOSS),
        line("forwarding", Style::Line, |hops| (1.0 - LOSS).powi(hops as i32)),
        line("recoding, no retransmission", Style::Line, |hops| ranks[hops - 1]),
    ];
    for round_trip in ROUND_TRIPS_MILLIS {
        let expected = 1.0 / hop_of(round_trip).packets();
        let name = format!("hop repair, {round_trip} ms");
        series.push(line(&name, Style::Line, |_| expected));
        let crosses = measured.iter().filter(|(case, _)| case.round_trip == round_trip);
        let crosses = crosses.map(|(case, measured)| {
            let point = Point::exact(case.hops as f64, measured.carried);
            point.against(Reference::theory(expected))
        });
        series.push(Series { name, style: Style::Crosses, points: crosses.collect() });
    }
    Panel {
        title: "symbols for each packet".into(),
        x: hops_axis(),
        y: Axis::linear("symbols / packets sent on a link", &[0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        series,
    }
}

/// 99th percentile of the delay beyond propagation.
fn late(round_trip: u64, measured: &[&(Case, Measured)]) -> Panel {
    let planned = delays(&[hop_of(round_trip); HOPS]);
    let model = LossModel::independent(LOSS);
    let again = StreamHop::new(model, seconds_of(round_trip), RATE, 0.0);
    let again = delays(&[again; HOPS]);
    let name = format!("hop repair, {round_trip} ms");
    let millis = |seconds: f64| seconds * 1e3;
    let crosses = measured.iter().map(|(case, measured)| {
        let theory = &planned[case.hops - 1];
        let point = Point::exact(case.hops as f64, millis(measured.late));
        // One percentage point around the 99th percentile, and the precision of times.
        let slack = 0.3 + 0.05 * round_trip as f64;
        let (low, high) = (theory.quantile(0.98), theory.quantile(0.9975));
        let margin = slack + millis(high - low) / 2.0;
        let middle = millis(f64::midpoint(low, high));
        point.against(Reference::theory(middle).with_margin(margin))
    });
    let ticks = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
    let ticks = if round_trip == 1 { &ticks[..4] } else { &ticks[2..] };
    let points = crosses.collect();
    Panel {
        title: format!("delay over round trips of {round_trip} ms"),
        x: hops_axis(),
        y: Axis::log("p99 beyond the way, ms", ticks),
        series: vec![
            line("retransmission alone", Style::Context, |hops| {
                millis(again[hops - 1].quantile(0.99))
            }),
            line(&name, Style::Line, |hops| millis(planned[hops - 1].quantile(0.99))),
            Series { name, style: Style::Crosses, points },
        ],
    }
}

fn line(name: &str, style: Style, value: impl Fn(usize) -> f64) -> Series {
    let points = (1..=HOPS).map(|hops| Point::exact(hops as f64, value(hops)));
    Series { name: name.into(), style, points: points.collect() }
}

fn hops_axis() -> Axis {
    Axis::linear("hops", &[1.0, 2.0, 4.0, 6.0, 8.0])
}

/// A hop in theory: a report takes 0.1 ms in links and workers on top of propagation.
fn hop_of(round_trip: u64) -> StreamHop {
    StreamHop::planned(
        LossModel::independent(LOSS),
        seconds_of(round_trip),
        RATE,
        StreamProfile::Balanced,
    )
}

fn seconds_of(round_trip_millis: u64) -> f64 {
    (round_trip_millis as f64 + 0.1) * 1e-3
}

#[derive(Copy, Clone)]
struct Case {
    hops: usize,
    round_trip: u64,
}

/// Measurements of the pipeline.
struct Measured {
    /// Symbols per packet on the last link.
    carried: f64,
    /// Seconds that 99 of 100 take beyond the way.
    late: f64,
}

impl Case {
    fn measure(&self, seconds: f64, seed: u64) -> Measured {
        let link = Link { delay: self.round_trip * MILLI / 2, ..Link::new(LOSS, 0) };
        let load = Load { bytes: 1300, rate: Some(RATE), ordered: false };
        let mut line = Line::new(&vec![link; self.hops], load, seed);
        line.run(SETTLING);
        let last = self.hops - 1;
        let counted = |line: &Line| (line.sent(last).0, line.flow(0).counters.source_symbols);
        let (since, before) = (line.now, counted(&line));
        line.run((seconds * 1e9) as Nanos);
        let after = counted(&line);
        let way = self.hops as u64 * (link.delay + ON_LINK_NANOS);
        Measured {
            carried: (after.1 - before.1) as f64 / (after.0 - before.0) as f64,
            late: line.delay(since, 0.99).saturating_sub(way) as f64 / 1e9,
        }
    }
}

const LOSS: f64 = 0.1;
const RATE: f64 = 9600.0;
const BATCH: usize = 16;
const HOPS: usize = 8;
const CROSSES: [usize; 5] = [1, 2, 4, 6, 8];
const ROUND_TRIPS_MILLIS: [u64; 3] = [1, 20, 100];
/// Virtual time of each cross, and before it.
const SECONDS: f64 = 20.0;
const SECONDS_MIN: f64 = 3.0;
const SETTLING: Nanos = 10 * SECOND;
/// Serialization time of a 1300-byte packet on a link of 300 Mbit/s.
const ON_LINK_NANOS: Nanos = 37_000;
