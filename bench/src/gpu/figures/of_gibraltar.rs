//! Gibraltar, Fig. 1 to 4.

use super::{Draw, GIGA, PAPER, data_rates, decades, drawn, find, held, point, series};
use crate::figures::figure::{Axis, Figure, Panel, Point, Series, Style};
use crate::gpu::coding::{CPU, HOST};
use crate::gpu::papers::gibraltar;
use crate::gpu::rows::Part;
use crate::gpu::stripes::{BUS, COMPUTE, PAPER_PARITY};

impl Draw<'_> {
    fn over_data(&self, title: String, y: Axis, series: Vec<Series>) -> Panel {
        let data = self.findings.bed.scale.data_buffers;
        let ticks: Vec<f64> = data.iter().map(|&data| data as f64).collect();
        Panel { title, x: Axis::linear("data buffers k", &ticks), y, series: drawn(series) }
    }

    fn stripes(&self, name: &str, part: Part, who: &str, parity: usize, bytes: usize) -> Series {
        let rows = self.findings.bed.rows.of(part, who);
        let rows = rows.filter(|row| row.of == parity && row.bytes == bytes);
        series(name, Style::Line, rows.map(|row| point(row.n as f64, row)))
    }

    fn buffer(&self) -> usize {
        self.findings.bed.scale.buffers.last().copied().unwrap_or_default()
    }

    pub(super) fn gibraltar_1(&self) -> Figure {
        let data = self.findings.bed.scale.data_buffers;
        let panels = PAPER_PARITY.map(|parity| {
            let paper = find(&gibraltar::DATA_RATE, parity);
            let flat = data.iter().filter_map(|&k| Some(Point::exact(k as f64, paper? / GIGA)));
            let mut all = vec![series(&format!("GTX 285, at least{PAPER}"), Style::Context, flat)];
            for (part, does) in [(Part::Generate, "generate"), (Part::Recover, "recover")] {
                for who in [CPU, HOST] {
                    let who_short = if who == CPU { "CPU" } else { HOST };
                    let name = format!("{who_short}, {does}");
                    all.push(held(self.stripes(&name, part, who, parity, self.buffer()), paper));
                }
            }
            self.over_data(format!("k+{parity}"), data_rates(), all)
        });
        let title = "Reed-Solomon stripes";
        self.figure("gibraltar-fig1", title, "Gibraltar, Fig. 1", panels.into())
    }

    pub(super) fn gibraltar_2(&self) -> Figure {
        let scale = &self.findings.bed.scale;
        let ticks: Vec<f64> = scale.buffers.iter().map(|&bytes| bytes as f64).collect();
        let panels = [CPU, HOST].map(|who| {
            let lines = scale.data_buffers.iter().map(|&data| {
                let rows = self.findings.bed.rows.of(Part::Generate, who);
                let rows = rows.filter(|row| row.n == data && row.of == PAPER_PARITY[0]);
                series(&format!("k = {data}"), Style::Line, rows.map(|r| point(r.bytes as f64, r)))
            });
            let x = Axis::log("bytes of a buffer", &ticks);
            let (title, series) = (format!("k+2, {who}"), drawn(lines.collect()));
            Panel { title, x, y: data_rates(), series }
        });
        let title = "Reed-Solomon stripes by length of buffers";
        self.figure("gibraltar-fig2", title, "Gibraltar, Fig. 2", panels.into())
    }

    pub(super) fn gibraltar_3(&self) -> Figure {
        let bytes = self.buffer();
        let panels = PAPER_PARITY.map(|parity| {
            let line = |who| self.stripes(who, Part::Generate, who, parity, bytes);
            let card = [HOST, COMPUTE, BUS].map(line);
            let is_measured = card.iter().any(|series| !series.points.is_empty());
            self.over_data(
                format!("k+{parity}"),
                data_rates(),
                if is_measured { card.into() } else { Vec::new() },
            )
        });
        let title = "Bus and cores of the card";
        self.figure("gibraltar-fig3", title, "Gibraltar, Fig. 3", panels.into())
    }

    pub(super) fn gibraltar_4(&self) -> Figure {
        let (scale, rows) = (&self.findings.bed.scale, &self.findings.bed.rows);
        let lines = scale.parity_buffers.iter().map(|&parity| {
            let of_bus = rows.of(Part::Generate, BUS).filter(|row| row.of == parity);
            let points = of_bus.filter_map(|bus| {
                let mut computed = rows.of(Part::Generate, COMPUTE);
                let cores = computed.find(|row| (row.n, row.of) == (bus.n, parity))?;
                Some(Point::exact(bus.n as f64, bus.rate / cores.rate))
            });
            series(&format!("m = {parity}"), Style::Line, points)
        });
        let y = Axis::log("bus / cores", &decades(-3, 1));
        let panel = self.over_data("above 1 the cores are the limit".into(), y, lines.collect());
        let title = "Bus against cores of the card";
        self.figure("gibraltar-fig4", title, "Gibraltar, Fig. 4", vec![panel])
    }
}
