//! Figure 2: the paper's processors and this one.

use crate::kernels::anchors::{PAPER_BYTES, PAPER_FIELDS, PAPER_PROCESSORS, library, paper_name};
use crate::kernels::contest::{Contest, Contestant, Role};
use crate::kernels::figures::{mean, of_field};
use bench_svg::{Align, FAINT, GREY, INK, Page, at, steps};

/// The figure as an SVG document.
pub fn figure(rows: &[&Contest], place: &str) -> String {
    let bars = bars(rows, place);
    let highest = bars.iter().flat_map(|bar| bar.rates).fold(1.0, f64::max);
    // Room for the number above the highest bar.
    let (step, count) = steps(highest * 1.1);
    let y = |rate: f64| BOTTOM - (BOTTOM - TOP) * rate / (step * count as f64);
    let mut page = Page::new(WIDTH, HEIGHT);
    let title = "16 packets into one: mean over packets of 128 bytes to 8 KiB";
    page.words(at(LEFT, 30.0), Align::Start, 18, INK, title);
    let about = "one core, fastest algorithm of each; the paper prints means over what fits its processors' second-level caches";
    page.words(at(LEFT, 50.0), Align::Start, 12, GREY, about);
    for index in 0..=count {
        let rate = index as f64 * step;
        page.stroke(&[at(LEFT, y(rate)), at(RIGHT, y(rate))], FAINT, 1.0, "");
        page.words(at(LEFT - 8.0, y(rate) + 4.0), Align::End, 12, INK, &format!("{rate}"));
    }
    let centre = at(LEFT - 44.0, f64::midpoint(TOP, BOTTOM));
    page.upright(centre, Align::Middle, 13, INK, "mean coded Gbit/s");
    let group = (RIGHT - LEFT) / PAPER_FIELDS.len() as f64;
    let width = (group - GAP) / bars.len() as f64;
    for (index, field) in PAPER_FIELDS.into_iter().enumerate() {
        let left = LEFT + group * index as f64 + GAP / 2.0;
        for (place, bar) in bars.iter().enumerate() {
            let (rate, x) = (bar.rates[index], left + width * place as f64);
            page.rectangle(x + 1.0, y(rate), width - 2.0, BOTTOM - y(rate), bar.colour);
            let above = at(x + width / 2.0 + 4.0, y(rate) - 4.0);
            page.upright(above, Align::Start, 11, INK, &format!("{rate:.1}"));
        }
        let middle = left + width * bars.len() as f64 / 2.0;
        page.words(at(middle, BOTTOM + 22.0), Align::Middle, 14, INK, &paper_name(field));
    }
    legend(&mut page, &bars);
    page.finish()
}

/// Below the bars, in two columns.
fn legend(page: &mut Page, bars: &[Bar]) {
    let rows = bars.len().div_ceil(2);
    for (index, bar) in bars.iter().enumerate() {
        let x = LEFT + (index / rows) as f64 * (RIGHT - LEFT) / 2.4;
        let y = BOTTOM + 58.0 + (index % rows) as f64 * 20.0;
        page.rectangle(x, y - 11.0, 14.0, 14.0, bar.colour);
        page.words(at(x + 22.0, y), Align::Start, 12, INK, &bar.name);
    }
}

/// A processor, and its rates over the paper's fields.
struct Bar {
    name: String,
    colour: &'static str,
    rates: [f64; 4],
}

fn bars(rows: &[&Contest], place: &str) -> Vec<Bar> {
    let paper = PAPER_PROCESSORS.iter().zip(COLOURS).map(|((name, rates), colour)| Bar {
        name: format!("paper: {name}"),
        colour,
        rates: *rates,
    });
    let older = PAPER_FIELDS.map(|field| {
        mean(PAPER_BYTES.iter().filter_map(|k| library(field, *k)).map(|anchor| anchor.median))
    });
    let ours = PAPER_FIELDS.map(|field| {
        let rows = of_field(rows, field);
        mean(rows.iter().filter_map(|row| row.fastest(Role::Ours)).map(Contestant::median))
    });
    let name = "paper's library, measured earlier on a machine of the same class".to_owned();
    let library = Bar { name, colour: "#555a66", rates: older };
    let ours = Bar { name: format!("Recoded: {place}"), colour: "#b3261e", rates: ours };
    paper.chain([library, ours]).collect()
}

/// Blue for AVX-512, green for AVX2 and less, yellow for AMD, brown for ARM.
const COLOURS: [&str; 8] =
    ["#12538f", "#3f8fd0", "#8fbfe6", "#2f7d4f", "#86bf9a", "#d98a2b", "#eec07a", "#8c6d5a"];

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 1100.0;
const TOP: f64 = 74.0;
const BOTTOM: f64 = 470.0;
/// Between two fields.
const GAP: f64 = 40.0;
