//! The papers' figures, with our numbers.

mod of_extreme;
mod of_gibraltar;
mod of_nuclei;
mod ours;

use std::path::Path;

use super::Findings;
use super::coding::DEVICE;
use super::report;
use super::rows::{Part, Row};
use crate::error::BenchError;
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::output::{self, Summary};
use crate::figures::work::Work;

/// Draws everything for which there are numbers, and an index.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write(folder: &Path, findings: &Findings, seed: u64) -> Result<(), BenchError> {
    let work = Work { seed, share: 1.0 };
    let mut summaries: Vec<Summary> = Vec::new();
    for figure in all(findings) {
        let seconds = findings.seconds;
        summaries.push(output::write(folder, &figure, work, &findings.machine, seconds)?);
    }
    report::write_index(folder, &summaries, findings)
}

fn all(findings: &Findings) -> Vec<Figure> {
    let draw = Draw { findings };
    let figures = [
        draw.nuclei_5(),
        draw.nuclei_6(),
        draw.nuclei_7(),
        draw.extreme_4(),
        draw.extreme_6(),
        draw.extreme_7(),
        draw.extreme_8(),
        draw.extreme_9(),
        draw.extreme_10(),
        draw.streaming(),
        draw.gibraltar_1(),
        draw.gibraltar_2(),
        draw.gibraltar_3(),
        draw.gibraltar_4(),
        draw.break_even(),
        draw.copies(),
    ];
    figures.into_iter().filter(has_numbers).collect()
}

/// Whether anything of ours is in it: papers alone are no figure.
fn has_numbers(figure: &Figure) -> bool {
    let series = figure.panels.iter().flat_map(|panel| &panel.series);
    series.into_iter().any(|series| !series.name.ends_with(PAPER) && !series.points.is_empty())
}

struct Draw<'a> {
    findings: &'a Findings,
}

impl Draw<'_> {
    fn figure(
        &self,
        name: &'static str,
        title: &str,
        source: &'static str,
        panels: Vec<Panel>,
    ) -> Figure {
        let with = |panel: &Panel| panel.series.iter().any(|series| !series.points.is_empty());
        let card = match &self.findings.card {
            Ok(card) => card.name.clone(),
            Err(_) => "NO CARD: its numbers are not measured".into(),
        };
        let about = format!("{card}; CPU: {}", self.cpu());
        let panels = panels.into_iter().filter(with).collect();
        Figure { name, title: title.into(), source, about, panels }
    }

    fn cpu(&self) -> String {
        let Findings { machine, bed, .. } = self.findings;
        format!("{}, {} cores", machine.processor, bed.cpu.threads())
    }

    /// Rates over the length of symbols.
    fn over_bytes(&self, title: String, series: Vec<Series>) -> Panel {
        let ticks: Vec<f64> = self.findings.bed.scale.symbols.iter().map(|&b| b as f64).collect();
        let x = Axis::log("bytes of a symbol", &ticks);
        Panel { title, x, y: rates(), series: drawn(series) }
    }

    /// Of one contestant at one size; `of` as in the rows.
    fn line(&self, name: &str, part: Part, who: &str, n: usize, of: usize) -> Series {
        let symbols = self.findings.bed.scale.symbols;
        let rows = self.findings.bed.rows.of(part, who);
        let rows = rows.filter(|row| row.n == n && row.of == of && symbols.contains(&row.bytes));
        series(name, Style::Line, rows.map(|row| point(row.bytes as f64, row)))
    }

    fn encoded(&self, who: &str, n: usize) -> Series {
        self.line(who, Part::Encode, who, n, 0)
    }

    fn technique(&self, technique: &str, n: usize) -> Series {
        self.encoded(&format!("{DEVICE}{technique}"), n)
    }

    /// A paper's value for any length.
    fn flat(&self, name: &str, value: Option<f64>) -> Series {
        let symbols = self.findings.bed.scale.symbols;
        let points = value.into_iter().flat_map(|value| {
            symbols.iter().map(move |&bytes| Point::exact(bytes as f64, value / GIGA))
        });
        series(&format!("{name}{PAPER}"), Style::Context, points)
    }

    fn ladder(&self) -> &'static [usize] {
        self.findings.bed.scale.ladder_sizes
    }
}

fn series(name: &str, style: Style, points: impl IntoIterator<Item = Point>) -> Series {
    Series { name: name.into(), style, points: points.into_iter().collect() }
}

fn point(x: f64, row: &Row) -> Point {
    Point::exact(x, row.rate / GIGA)
}

/// Each point is to be no slower than the paper's.
fn held(series: Series, paper: Option<f64>) -> Series {
    let with = |point: Point| point.against_any(paper.map(at_least));
    Series { points: series.points.into_iter().map(with).collect(), ..series }
}

fn at_least(paper: f64) -> Reference {
    Reference::paper(paper / GIGA).at_least().with_margin(0.0)
}

/// What there is to draw.
fn drawn(series: Vec<Series>) -> Vec<Series> {
    series.into_iter().filter(|series| !series.points.is_empty()).collect()
}

fn find(values: &[(usize, f64)], at: usize) -> Option<f64> {
    values.iter().find(|(key, _)| *key == at).map(|(_, value)| *value)
}

fn rates() -> Axis {
    Axis::log("GB/s of results", &decades(-3, 3))
}

fn data_rates() -> Axis {
    Axis::log("GB/s of data", &decades(-1, 3))
}

fn decades(from: i32, to: i32) -> Vec<f64> {
    (from..=to).map(|power| 10_f64.powi(power)).collect()
}

/// How series of papers are marked.
const PAPER: &str = " (paper)";

const GIGA: f64 = 1e9;

/// What the dispatcher should reach of the better of CPU and card.
pub const DISPATCHER_MIN: f64 = 0.95;
