//! The figure: the paper's experiments, this project's rates by length, LUTs.

use super::engine::{HBM, PCIE};
use super::{FpgaReport, WHAT, seed};
use crate::figures::figure::{Axis, Figure, Panel, Point, Series, Style};

/// All of it.
pub fn of(report: &FpgaReport) -> Figure {
    Figure {
        name: "fpga",
        title: "The FPGA card, and the paper's unit".into(),
        source: "seed 003, Tables I and II",
        about: WHAT.into(),
        panels: vec![experiments(report), sizes(report), rates(report, HBM), rates(report, PCIE)],
    }
}

fn experiments(report: &FpgaReport) -> Panel {
    let is_shown = |row: &&seed::ExperimentResult| row.packet_bytes == report.figure_bytes();
    let rows: Vec<&seed::ExperimentResult> = report.experiments.iter().filter(is_shown).collect();
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let bars = |name: &str, rate: fn(&seed::ExperimentResult) -> Option<f64>| {
        let rates = rows.iter().enumerate().filter_map(|(at, row)| Some((at, rate(row)?)));
        let points = rates.map(|(at, rate)| Point::exact(at as f64, rate)).collect();
        Series { name: name.into(), style: Style::Bars, points }
    };
    Panel {
        title: format!(
            "The paper's unit, {} bytes; A': its Algorithm 4, literally",
            report.figure_bytes()
        ),
        x: Axis::names("experiment", &names),
        y: Axis::linear("Gbit/s", &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0]),
        series: vec![
            bars("the paper's unit, here", |row| Some(row.gbit_per_second)),
            bars("the paper, on its card", |row| row.paper_gbit_per_second),
        ],
    }
}

fn sizes(report: &FpgaReport) -> Panel {
    let rows = &report.luts_per_product;
    let names = ["Recoded", "8 bits", "4 bits", "3 bits", "2 bits"];
    let sizes = rows.iter().map(|row| row.luts_per_product);
    let points = (0..).zip(sizes).map(|(index, luts)| Point::exact(f64::from(index), luts));
    Panel {
        title: "LUTs per multiply-add a clock".into(),
        x: Axis::names("array", &names),
        y: Axis::linear("LUTs", &[0.0, 20.0, 40.0, 60.0, 80.0]),
        series: vec![Series {
            name: "synthesis".into(),
            style: Style::Bars,
            points: points.collect(),
        }],
    }
}

fn rates(report: &FpgaReport, memory: &str) -> Panel {
    let mut series: Vec<Series> = Vec::new();
    for row in report.jobs.iter().filter(|row| row.memory == memory && !row.is_unaligned) {
        let name = format!("K = N = {}", row.size);
        let point = Point::exact(row.row_bytes as f64, row.gbit_per_second);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, style: Style::Line, points: vec![point] }),
        }
    }
    Panel {
        title: format!("Recoded's engine, {memory}"),
        x: Axis::log("bytes of a row", &[64.0, 256.0, 1024.0, 4096.0, 16384.0]),
        y: Axis::linear("Gbit/s", &[0.0, 40.0, 80.0, 120.0, 160.0]),
        series,
    }
}

impl FpgaReport {
    fn figure_bytes(&self) -> usize {
        let is_measured = self.experiments.iter().any(|row| row.packet_bytes == seed::PACKET_BYTES);
        let first = self.experiments.first().map_or(0, |row| row.packet_bytes);
        if is_measured { seed::PACKET_BYTES } else { first }
    }
}
