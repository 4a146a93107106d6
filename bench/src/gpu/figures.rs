//! The figures of `bench gpu`: the size above which a card is faster, and its copies.

use std::path::Path;

use super::Findings;
use super::coding::{CPU, HOST};
use super::report;
use super::rows::{Part, RowKey};
use super::single::{BreakEven, DISPATCHER, DISPATCHER_MIN, cores};
use crate::error::BenchError;
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::output::{self, Summary};
use crate::figures::work::Work;

/// Draws all figures that have numbers, and an index.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write(folder: &Path, findings: &Findings, seed: u64) -> Result<(), BenchError> {
    let work = Work { seed, share: 1.0 };
    let mut summaries: Vec<Summary> = Vec::new();
    for figure in [break_even(findings), copies(findings)] {
        if !figure.panels.is_empty() {
            let (machine, seconds) = (&findings.machine, findings.seconds);
            summaries.push(output::write(folder, &figure, work, machine, seconds)?);
        }
    }
    report::write_index(folder, &summaries, findings)
}

fn break_even(findings: &Findings) -> Figure {
    let scale = &findings.bed.scale;
    let ticks: Vec<f64> = scale.sizes.iter().map(|&n| n as f64).collect();
    let surface = &findings.break_even;
    let counts = cores(findings.bed.cpu.threads());
    let panels = counts.into_iter().map(|cores| {
        let at = || surface.iter().filter(move |point| point.cores == cores);
        let line = |name: &str, value: &dyn Fn(&BreakEven) -> Option<f64>| {
            let points = at().filter_map(|p| Some(Point::exact(p.n as f64, value(p)? / 1e3)));
            series(name, points)
        };
        let all = vec![
            line("measured", &|p| p.measured.map(|bytes| bytes as f64)),
            line("dispatcher's formula, measured rates", &|p| p.model.map(|bytes| bytes as f64)),
            line("dispatcher's formula, assumed card", &|p| {
                p.before_measuring.map(|bytes| bytes as f64)
            }),
        ];
        Panel {
            title: format!("against {cores} core{}", if cores == 1 { "" } else { "s" }),
            x: Axis::log("source symbols n", &ticks),
            y: Axis::log("kB of a segment", &decades(0, 5)),
            series: drawn(all),
        }
    });
    let mut panels: Vec<Panel> = panels.collect();
    panels.push(dispatcher(findings));
    figure(findings, "break-even", "From which size on a card is faster", panels)
}

/// Rate of the dispatcher's choice, as a share of the better choice's.
fn dispatcher(findings: &Findings) -> Panel {
    let (scale, rows) = (&findings.bed.scale, &findings.bed.rows);
    let lines = scale.sizes.iter().map(|&n| {
        let points = rows.of(Part::Single, DISPATCHER).filter(|row| row.key.n == n).map(|row| {
            let of = |who, of| {
                let place = RowKey { part: Part::Single, n, bytes: row.key.bytes, of };
                rows.at(place, who).map_or(0.0, |row| row.rate)
            };
            let best = of(HOST, 0).max(of(CPU, row.key.of));
            let target = Reference::target(DISPATCHER_MIN).at_least();
            Point::exact(row.key.bytes as f64, row.rate / best).against(target)
        });
        series(&format!("n = {n}"), points)
    });
    let ticks: Vec<f64> = scale.jobs.iter().map(|&bytes| bytes as f64).collect();
    Panel {
        title: "dispatcher, of the better of both".into(),
        x: Axis::log("bytes of a segment", &ticks),
        y: Axis::linear("share", &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]),
        series: drawn(lines.collect()),
    }
}

fn copies(findings: &Findings) -> Figure {
    let copies = findings.card.as_ref().map_or(&[][..], |card| &card.copies);
    let ticks: Vec<f64> = findings.bed.scale.copies.iter().map(|&b| b as f64).collect();
    let panels = [(true, "pinned memory"), (false, "any memory")].map(|(is_pinned, title)| {
        let lines = ["in", "out", "both"].map(|direction| {
            let copies = copies.iter();
            let copies = copies.filter(|c| c.is_pinned == is_pinned && c.direction == direction);
            let points = copies.map(|c| Point::exact(c.bytes as f64, c.rate / GIGA));
            series(direction, points)
        });
        let x = Axis::log("bytes of a copy", &ticks);
        let y = Axis::log("GB/s each way", &decades(-2, 3));
        Panel { title: title.into(), x, y, series: drawn(lines.into()) }
    });
    figure(findings, "card-copies", "Copies to and from the card", panels.into())
}

/// A figure of the panels that have points.
fn figure(findings: &Findings, name: &'static str, title: &str, panels: Vec<Panel>) -> Figure {
    let Findings { machine, bed, card, .. } = findings;
    let card = card.as_ref().map_or("NO CARD: its numbers are not measured", |card| &card.name);
    let about = format!("{card}; CPU: {}, {} cores", machine.processor, bed.cpu.threads());
    let panels = panels.into_iter().filter(|panel| !panel.series.is_empty()).collect();
    Figure { name, title: title.into(), source: "Recoded", about, panels }
}

fn series(name: &str, points: impl IntoIterator<Item = Point>) -> Series {
    Series { name: name.into(), style: Style::Line, points: points.into_iter().collect() }
}

/// The series that have points.
fn drawn(series: Vec<Series>) -> Vec<Series> {
    series.into_iter().filter(|series| !series.points.is_empty()).collect()
}

fn decades(from: i32, to: i32) -> Vec<f64> {
    (from..=to).map(|power| 10_f64.powi(power)).collect()
}

const GIGA: f64 = 1e9;
