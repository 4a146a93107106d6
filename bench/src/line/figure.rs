//! The figure: goodput of every contender on every line, as a share of the line's capacity.

use bench_svg::{Align, FAINT, GREY, INK, Page, at};

use crate::line::contender::{CONTENDERS, Contender};
use crate::line::report::LineReport;

const WIDTH: f64 = 980.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 960.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 380.0;
const HEIGHT: f64 = 440.0;

/// Size of words.
const FONT: u32 = 12;

/// One per contender: greys and reds for Linux, blues and greens for Recoded.
const COLOURS: [&str; 10] = [
    "#b9bdc7", "#7d8390", "#b4483c", "#1f6fb2", "#3f9b6c", "#7a5ab5", "#0b3d66", "#c79a2e",
    "#5ab0c9", "#444444",
];

/// The figure as an SVG document.
pub fn svg(report: &LineReport) -> String {
    let mut page = Page::new(WIDTH, HEIGHT);
    let title = "TCP goodput as a share of what each line can carry (the better of cubic and BBR)";
    page.words(at(LEFT, 24.0), Align::Start, FONT + 2, INK, title);
    for step in 0..=5 {
        let share = f64::from(step) / 5.0;
        page.stroke(&[at(LEFT, y(share)), at(RIGHT, y(share))], FAINT, 1.0, "");
        page.words(at(LEFT - 8.0, y(share) + 4.0), Align::End, FONT, INK, &format!("{share:.1}"));
    }
    let group = (RIGHT - LEFT) / report.lines.len().max(1) as f64;
    for (number, line) in report.lines.iter().enumerate() {
        let start = LEFT + group * number as f64 + group * 0.08;
        let bar = group * 0.84 / line.series.len().max(1) as f64;
        for (index, series) in line.series.iter().enumerate() {
            let share = series.best_of_limit().clamp(0.0, 1.05);
            let x = start + bar * index as f64;
            let height = (BOTTOM - y(share)).max(0.5);
            page.rectangle(x, BOTTOM - height, bar * 0.9, height, colour(series.contender));
        }
        // Adjacent names are placed at two heights.
        let place = at(start + group * 0.42, BOTTOM + 18.0 + 16.0 * (number % 2) as f64);
        page.words(place, Align::Middle, FONT - 1, GREY, line.case.name);
    }
    let mut x = LEFT;
    let is_measured = |contender: &&Contender| {
        let mut series = report.lines.iter().flat_map(|line| &line.series);
        contender.is_default() || series.any(|series| series.contender == *contender)
    };
    for contender in CONTENDERS.iter().filter(is_measured) {
        page.rectangle(x, 38.0, 12.0, 12.0, colour(contender));
        page.words(at(x + 17.0, 48.0), Align::Start, FONT, INK, contender.name);
        x += 40.0 + 7.5 * contender.name.len() as f64;
    }
    page.finish()
}

fn y(share: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * share / 1.05
}

fn colour(contender: &Contender) -> &'static str {
    let index = CONTENDERS.iter().position(|other| other.name == contender.name);
    COLOURS[index.unwrap_or(0) % COLOURS.len()]
}
