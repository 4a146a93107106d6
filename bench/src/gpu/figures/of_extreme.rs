//! Extreme Network Coding, Fig. 4 and 6 to 10, and its streaming server.

use super::{Draw, GIGA, PAPER, at_least, decades, drawn, find, held, point, rates, series};
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::gpu::coding::{CPU, CPU_PARTITIONED, DEVICE, HOST, PAPER_SEGMENTS};
use crate::gpu::papers::{extreme, nuclei};
use crate::gpu::rows::Part;
use crate::gpu::server::peers;

impl Draw<'_> {
    pub(super) fn extreme_4(&self) -> Figure {
        let mut panels = Vec::new();
        for &n in self.ladder() {
            let paper = (n == 128).then_some(extreme::LOOP_128);
            panels.push(self.over_bytes(
                format!("encoding, n = {n}"),
                vec![
                    self.flat("GTX 280, loop", paper),
                    self.flat("8800 GT, loop", find(&nuclei::ENCODE, n)),
                    self.encoded(CPU, n),
                    held(self.technique("loop", n), paper),
                ],
            ));
            panels.push(self.over_bytes(
                format!("decoding one segment, n = {n}"),
                vec![
                    self.line(CPU, Part::Decode, CPU, n, 1),
                    self.line("card, resident, auto", Part::Decode, "card, resident, auto", n, 1),
                ],
            ));
        }
        self.figure("extreme-fig4", "Loops, and one segment", "Extreme NC, Fig. 4", panels)
    }

    pub(super) fn extreme_6(&self) -> Figure {
        let panels = self.ladder().iter().map(|&n| {
            let table = (n == 128).then(|| extreme::LADDER[2].1);
            self.over_bytes(
                format!("encoding, n = {n}"),
                vec![
                    self.flat("GTX 280, loop", (n == 128).then_some(extreme::LOOP_128)),
                    self.flat("GTX 280, table-1", table),
                    self.encoded(CPU, n),
                    self.technique("loop", n),
                    held(self.technique("table-1", n), table),
                ],
            )
        });
        let panels = panels.collect();
        self.figure("extreme-fig6", "Logarithms beforehand", "Extreme NC, Fig. 6", panels)
    }

    /// The ladder of techniques, one column each: the papers' and ours.
    pub(super) fn extreme_7(&self) -> Figure {
        let papers =
            ["loop", "table-0", "table-1", "table-2", "table-3", "table-4", "table-5", "CPU"];
        let ours = ["permute", "permute-narrow", "four-russians", "bmma"];
        let panels = [("of the papers", &papers[..]), ("ours", &ours[..])]
            .map(|(title, names)| self.techniques(title, names));
        self.figure("extreme-fig7", "Ladder of techniques", "Extreme NC, Fig. 7", panels.into())
    }

    fn techniques(&self, title: &str, names: &[&str]) -> Panel {
        let (n, bytes) = self.findings.bed.scale.streaming;
        let place = |name: &str| {
            let place = names.iter().position(|other| *other == name);
            place.map(|place| place as f64)
        };
        let paper = |name: &str| {
            let known = extreme::LADDER.iter().find(|(other, _)| *other == name);
            known.filter(|_| n == 128).map(|(_, rate)| *rate)
        };
        let of_paper =
            names.iter().filter_map(|name| Some(Point::exact(place(name)?, paper(name)? / GIGA)));
        let rows = self.findings.bed.rows.0.iter();
        let rows = rows.filter(|row| (row.part, row.n, row.bytes) == (Part::Encode, n, bytes));
        let made = rows.filter_map(|row| {
            let technique = row.who.strip_prefix(DEVICE);
            let name = technique.or((row.who == CPU).then_some("CPU"))?;
            Some(point(place(name)?, row).against_any(paper(name).map(at_least)))
        });
        let limits = names.iter().filter_map(|name| {
            let limit = self.findings.card.as_ref().ok()?.limit(name, n)?;
            Some(Point::exact(place(name)?, limit / GIGA))
        });
        let all = vec![
            series(&format!("GTX 280{PAPER}"), Style::Bars, of_paper),
            series("ours", Style::Bars, made),
            series("what the card's issue rates allow", Style::Bars, limits),
        ];
        let title = format!("{title}, n = {n}, {bytes} bytes");
        Panel { title, x: Axis::names("", names), y: rates(), series: drawn(all) }
    }

    pub(super) fn extreme_8(&self) -> Figure {
        let sizes = self.findings.bed.scale.sizes;
        let whos = ["table-5", "permute", "four-russians", "bmma"].map(|t| format!("{DEVICE}{t}"));
        let whos = whos.iter().map(String::as_str).chain([HOST, CPU]);
        let panels = whos.map(|who| {
            let mut all: Vec<Series> = sizes
                .iter()
                .map(|&n| {
                    let name = format!("n = {n}");
                    let paper = (n == 128 && who.ends_with("table-5")).then_some(extreme::TABLE_5);
                    held(self.line(&name, Part::Encode, who, n, 0), paper)
                })
                .collect();
            if who.ends_with("table-5") && all.iter().any(|series| !series.points.is_empty()) {
                all.push(self.flat("GTX 280, n = 128", Some(extreme::TABLE_5)));
            }
            self.over_bytes(who.to_owned(), all)
        });
        let panels = panels.collect();
        self.figure("extreme-fig8", "Encoding, by size", "Extreme NC, Fig. 8", panels)
    }

    pub(super) fn extreme_9(&self) -> Figure {
        let card = format!("{DEVICE}auto");
        let mut panels = Vec::new();
        for &n in self.ladder() {
            let mut all =
                vec![self.flat("GTX 280, at most", (n == 128).then_some(extreme::DECODE_MANY))];
            for (who, short) in [(CPU, "CPU"), (card.as_str(), "card, resident")] {
                all.push(self.line(&format!("{short}, 1 segment"), Part::Decode, who, n, 1));
                for count in PAPER_SEGMENTS {
                    let name = format!("{short}, {count} segments");
                    all.push(self.line(&name, Part::Decode, who, n, count));
                }
                all.push(self.line(&format!("{short}, full"), Part::Decode, who, n, 0));
            }
            all.push(self.line("card, host to host, full", Part::Decode, HOST, n, 0));
            panels.push(self.over_bytes(format!("decoding, n = {n}"), all));
        }
        panels.push(self.shares(&card));
        self.figure("extreme-fig9", "Decoding many segments", "Extreme NC, Fig. 9", panels)
    }

    /// How much of decoding is inverting.
    fn shares(&self, card: &str) -> Panel {
        let n = self.ladder()[0];
        let symbols = self.findings.bed.scale.symbols;
        let lines = PAPER_SEGMENTS.into_iter().chain([0]).map(|count| {
            let rows = self.findings.bed.rows.of(Part::Decode, card);
            let rows =
                rows.filter(|row| row.n == n && row.of == count && symbols.contains(&row.bytes));
            let paper = find(&extreme::INVERSION_SHARE, count).filter(|_| n == 128);
            let points = rows.filter_map(|row| {
                let paper = paper.filter(|_| row.bytes == 1024);
                // Less is better, so that no verdict is asked for: the ring says enough.
                let paper = paper.map(|share| Reference::paper(share).with_margin(1.0));
                Some(Point::exact(row.bytes as f64, row.share?).against_any(paper))
            });
            let name = match count {
                0 => "card, resident, full".into(),
                count => format!("card, resident, {count} segments"),
            };
            series(&name, Style::Line, points)
        });
        let ticks: Vec<f64> = symbols.iter().map(|&bytes| bytes as f64).collect();
        Panel {
            title: format!("inversion's share of decoding on the card, n = {n}"),
            x: Axis::log("bytes of a symbol", &ticks),
            y: Axis::share("share"),
            series: drawn(lines.collect()),
        }
    }

    pub(super) fn extreme_10(&self) -> Figure {
        let mut panels = Vec::new();
        for &n in self.ladder() {
            let paper = (n == 128).then_some(extreme::CPU_128);
            panels.push(self.over_bytes(
                format!("a symbol per source symbol, n = {n}"),
                vec![
                    self.flat("8 cores, at most", paper),
                    held(self.encoded(CPU, n), paper),
                    self.encoded(CPU_PARTITIONED, n),
                ],
            ));
            panels.push(self.over_bytes(
                format!("one symbol on demand, n = {n}"),
                vec![
                    self.line(CPU, Part::OnDemand, CPU, n, 0),
                    self.line(CPU_PARTITIONED, Part::OnDemand, CPU_PARTITIONED, n, 0),
                ],
            ));
        }
        self.figure("extreme-fig10", "Partitions of the CPU's work", "Extreme NC, Fig. 10", panels)
    }

    pub(super) fn streaming(&self) -> Figure {
        let (n, bytes) = self.findings.bed.scale.streaming;
        let bar =
            |name: &str, value: f64| series(name, Style::Bars, [Point::exact(0.0, value / 1e3)]);
        let papers = [("8800 GT", nuclei::PEERS)].into_iter().chain(extreme::PEERS);
        let papers = papers.map(|(name, peers)| bar(&format!("{name}{PAPER}"), peers));
        let ours = self.findings.bed.rows.0.iter().filter(|row| row.part == Part::Streaming);
        let ours = ours.map(|row| {
            let paper = Reference::paper(extreme::PEERS[2].1 / 1e3).at_least().with_margin(0.0);
            let point = Point::exact(0.0, peers(row.rate) / 1e3).against(paper);
            series(&row.who, Style::Bars, [point])
        });
        let panel = Panel {
            title: format!("one segment of {n} x {bytes} bytes"),
            x: Axis::names("", &["peers"]),
            y: Axis::log("thousand peers at 768 kb/s", &decades(-1, 4)),
            series: drawn(papers.chain(ours).collect()),
        };
        let title = "Peers of a streaming server";
        self.figure("streaming", title, "Nuclei, Sec. V-D, and Extreme NC, Sec. 5.1", vec![panel])
    }
}
