//! Nuclei, Fig. 5 to 7.

use super::{Draw, GIGA, PAPER, decades, drawn, find, held, point, rates, series};
use crate::figures::figure::{Axis, Figure, Panel, Point, Series, Style};
use crate::gpu::coding::{CPU, DEVICE, HOST, ROW_BY_ROW};
use crate::gpu::papers::nuclei;
use crate::gpu::rows::{Part, Row};
use crate::gpu::server::TOGETHER;

impl Draw<'_> {
    pub(super) fn nuclei_5(&self) -> Figure {
        let mut panels = Vec::new();
        for &n in self.ladder() {
            let paper = find(&nuclei::ENCODE, n);
            panels.push(self.over_bytes(
                format!("encoding, n = {n}"),
                vec![
                    self.flat("8800 GT, loop", paper),
                    self.encoded(CPU, n),
                    held(self.technique("loop", n), paper),
                    self.encoded(HOST, n),
                ],
            ));
            let one = |who: &str| self.line(who, Part::Decode, who, n, 1);
            let mut all = vec![self.paper_decode(n), one(CPU), one(&format!("{DEVICE}auto"))];
            all.extend(ROW_BY_ROW.iter().map(|(_, name)| one(name)));
            panels.push(self.over_bytes(format!("decoding one segment, n = {n}"), all));
        }
        panels.push(self.large_generation());
        self.figure("nuclei-fig5", "Coding rates of CPU and card", "Nuclei, Fig. 5", panels)
    }

    /// The paper's time for 128 blocks does not depend on their length.
    fn paper_decode(&self, n: usize) -> Series {
        let symbols = self.findings.bed.scale.symbols.iter().filter(|&&bytes| bytes <= 2048);
        let points = symbols.filter(|_| n == 128).map(|&bytes| {
            let rate = (n * bytes) as f64 / nuclei::DECODE_128_SECONDS;
            Point::exact(bytes as f64, rate / GIGA)
        });
        series(&format!("8800 GT{PAPER}"), Style::Context, points)
    }

    /// 1024 blocks of 2048 bytes, one segment.
    fn large_generation(&self) -> Panel {
        let (n, bytes) = self.findings.bed.scale.progressive;
        let papers =
            nuclei::DECODE_1024_SECONDS.iter().filter(|_| n == 1024).map(|(name, seconds)| {
                series(
                    &format!("{name}{PAPER}"),
                    Style::Bars,
                    [Point::exact(0.0, (n * bytes) as f64 / seconds / MEGA)],
                )
            });
        let rows = self
            .findings
            .bed
            .rows
            .0
            .iter()
            .filter(|row| (row.part, row.n, row.bytes, row.of) == (Part::Decode, n, bytes, 1));
        let ours =
            rows.map(|row| series(&row.who, Style::Bars, [Point::exact(0.0, row.rate / MEGA)]));
        let series = papers.chain(ours).collect();
        let title = format!("decoding one segment of {n} x {bytes} bytes");
        let y = Axis::log("MB/s", &decades(-1, 5));
        Panel { title, x: Axis::names("", &["one segment"]), y, series: drawn(series) }
    }

    pub(super) fn nuclei_6(&self) -> Figure {
        let names: Vec<String> = self.ladder().iter().map(|n| format!("n = {n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bars = |who: &str| {
            let place = |row: &Row| self.ladder().iter().position(|&n| n == row.n);
            let rows = self.findings.bed.rows.of(Part::Large, who);
            series(who, Style::Bars, rows.filter_map(|row| Some(point(place(row)? as f64, row))))
        };
        let at_128 = self.ladder().iter().position(|&n| n == 128);
        let paper = at_128.map(|place| Point::exact(place as f64, nuclei::TOGETHER_128 / GIGA));
        let paper = series(&format!("8 cores and 8800 GT{PAPER}"), Style::Bars, paper);
        let all = vec![paper, bars(CPU), bars(HOST), bars(TOGETHER)];
        let x = Axis::names("", &names);
        let panel = Panel { title: "one large product".into(), x, y: rates(), series: drawn(all) };
        self.figure("nuclei-fig6", "CPU and card together", "Nuclei, Fig. 6", vec![panel])
    }

    pub(super) fn nuclei_7(&self) -> Figure {
        let panels = self.ladder().iter().map(|&n| {
            let paper = (n == 128).then_some(nuclei::TABLE_128);
            self.over_bytes(
                format!("encoding, n = {n}"),
                vec![
                    self.flat("8800 GT, loop", find(&nuclei::ENCODE, n)),
                    self.flat("8800 GT, tables", paper),
                    self.encoded(CPU, n),
                    held(self.technique("loop", n), find(&nuclei::ENCODE, n)),
                    held(self.technique("table-1", n), paper),
                ],
            )
        });
        let panels = panels.collect();
        self.figure("nuclei-fig7", "Tables instead of loops", "Nuclei, Fig. 7", panels)
    }
}

/// Row by row it takes seconds.
const MEGA: f64 = 1e6;
