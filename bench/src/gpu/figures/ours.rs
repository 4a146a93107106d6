//! What the papers do not have: where a card begins to win, and its bus.

use super::{DISPATCHER_MIN, Draw, GIGA, decades, drawn, series};
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Style};
use crate::gpu::coding::HOST;
use crate::gpu::rows::{Part, Place};
use crate::gpu::single::{BreakEven, CORES, DISPATCHER, cores};

impl Draw<'_> {
    pub(super) fn break_even(&self) -> Figure {
        let scale = &self.findings.bed.scale;
        let ticks: Vec<f64> = scale.sizes.iter().map(|&n| n as f64).collect();
        let surface = &self.findings.break_even;
        let counts = cores(self.findings.bed.cpu.threads());
        let panels = counts.into_iter().map(|cores| {
            let at = || surface.iter().filter(move |point| point.cores == cores);
            let line = |name: &str, value: &dyn Fn(&BreakEven) -> Option<f64>| {
                let points = at().filter_map(|p| Some(Point::exact(p.n as f64, value(p)? / 1e3)));
                series(name, Style::Line, points)
            };
            let all = vec![
                line("measured", &|p| p.measured.map(|bytes| bytes as f64)),
                line("dispatcher's formula, measured rates", &|p| {
                    p.model.map(|bytes| bytes as f64)
                }),
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
        panels.push(self.dispatcher());
        self.figure("break-even", "From which size on a card is faster", "our own", panels)
    }

    /// What the dispatcher's choice gives, of what the better one gives.
    fn dispatcher(&self) -> Panel {
        let (scale, rows) = (&self.findings.bed.scale, &self.findings.bed.rows);
        let lines = scale.sizes.iter().map(|&n| {
            let points = rows.of(Part::Single, DISPATCHER).filter(|row| row.n == n).map(|row| {
                let of = |who, of| {
                    let place = Place { part: Part::Single, n, bytes: row.bytes, of };
                    rows.at(place, who).map_or(0.0, |row| row.rate)
                };
                let best = of(HOST, 0).max(of(CORES, row.of));
                let target = Reference::target(DISPATCHER_MIN).at_least();
                Point::exact(row.bytes as f64, row.rate / best).against(target)
            });
            series(&format!("n = {n}"), Style::Line, points)
        });
        let ticks: Vec<f64> = scale.jobs.iter().map(|&bytes| bytes as f64).collect();
        Panel {
            title: "dispatcher, of the better of both".into(),
            x: Axis::log("bytes of a segment", &ticks),
            y: Axis::linear("share", &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]),
            series: drawn(lines.collect()),
        }
    }

    pub(super) fn copies(&self) -> Figure {
        let copies = self.findings.card.as_ref().map_or(&[][..], |card| &card.copies);
        let ticks: Vec<f64> = self.findings.bed.scale.copies.iter().map(|&b| b as f64).collect();
        let panels = [(true, "pinned memory"), (false, "any memory")].map(|(is_pinned, title)| {
            let lines = ["in", "out", "both"].map(|direction| {
                let copies = copies.iter();
                let copies =
                    copies.filter(|c| c.is_pinned == is_pinned && c.direction == direction);
                let points = copies.map(|c| Point::exact(c.bytes as f64, c.rate / GIGA));
                series(direction, Style::Line, points)
            });
            let x = Axis::log("bytes of a copy", &ticks);
            let y = Axis::log("GB/s each way", &decades(-2, 3));
            Panel { title: title.into(), x, y, series: drawn(lines.into()) }
        });
        self.figure("card-copies", "Copies to and from the card", "our own", panels.into())
    }
}
