//! Figure 1: coded Gbit/s over packet size.
//!
//! ```text
//!  GF(2)  | GF(4)   | legend
//!  -------+---------+
//!  GF(16) | GF(256) |
//! ```

use crate::kernels::anchors::{PAPER_BYTES, PAPER_FIELDS, library};
use crate::kernels::contest::{Contest, Contestant, Role};
use crate::kernels::figures::{field_title, of_field};
use bench_svg::{Align, DOT, FAINT, GREY, INK, Page, Position, at, steps};
use recoded_gf::Field;

/// The figure as an SVG document.
pub fn figure(rows: &[&Contest], place: &str) -> String {
    let mut page = Page::new(WIDTH, HEIGHT);
    let title = "Random linear combinations of 16 packets into one";
    page.words(at(LEFT, 30.0), Align::Start, 18, INK, title);
    page.words(at(LEFT, 50.0), Align::Start, 12, GREY, place);
    for (index, field) in PAPER_FIELDS.into_iter().enumerate() {
        let (column, line) = ((index % 2) as f64, (index / 2) as f64);
        let (left, top) = (LEFT + column * (PANEL.0 + GAP), 96.0 + line * (PANEL.1 + 84.0));
        panel(&mut page, left, top, field, &of_field(rows, field));
    }
    legend(&mut page, rows);
    page.finish()
}

fn panel(page: &mut Page, left: f64, top: f64, field: Field, rows: &[&Contest]) {
    let levels: Vec<&str> = LEVELS.iter().map(|level| level.name).collect();
    let shown = |ours: &&Contestant| levels.contains(&ours.name.as_str());
    let rates = rows.iter().flat_map(|row| row.role(Role::Ours).filter(shown));
    let anchors = PAPER_BYTES.iter().filter_map(|k| library(field, *k));
    let highest = rates
        .map(Contestant::median)
        .chain(anchors.map(|anchor| anchor.median))
        .fold(1.0, f64::max);
    let (step, count) = steps(highest);
    let (right, bottom) = (left + PANEL.0, top + PANEL.1);
    let y = |rate: f64| bottom - PANEL.1 * rate / (step * count as f64);
    let first = PAPER_BYTES[0] as f64;
    let octaves = (PAPER_BYTES[PAPER_BYTES.len() - 1] as f64 / first).log2();
    let x = |k: usize| left + PANEL.0 * (k as f64 / first).log2() / octaves;
    page.words(at(left, top - 12.0), Align::Start, 14, INK, &field_title(field));
    for index in 0..=count {
        let rate = index as f64 * step;
        page.stroke(&[at(left, y(rate)), at(right, y(rate))], FAINT, 1.0, "");
        page.words(at(left - 8.0, y(rate) + 4.0), Align::End, 11, INK, &format!("{rate}"));
    }
    for k in PAPER_BYTES {
        page.stroke(&[at(x(k), bottom), at(x(k), bottom + 4.0)], INK, 1.0, "");
        let size = if k < 1024 { format!("{k}") } else { format!("{} Ki", k / 1024) };
        page.words(at(x(k), bottom + 18.0), Align::Middle, 11, INK, &size);
    }
    let middle = f64::midpoint(left, right);
    page.words(at(middle, bottom + 38.0), Align::Middle, 12, INK, "packet size, bytes");
    let centre = at(left - 40.0, f64::midpoint(top, bottom));
    page.upright(centre, Align::Middle, 12, INK, "coded Gbit/s");
    let older = PAPER_BYTES.iter().filter_map(|k| Some(at(x(*k), y(library(field, *k)?.median))));
    page.stroke(&older.collect::<Vec<_>>(), GREY, 2.0, "5 4");
    for level in &LEVELS {
        let points: Vec<Position> = rows
            .iter()
            .filter_map(|row| Some(at(x(row.k), y(row.level(level.name)?.median()))))
            .collect();
        page.stroke(&points, level.colour, 2.0, "");
        points.iter().for_each(|point| page.dot(*point, DOT, level.colour));
    }
}

/// Draws the legend to the right of the panels.
fn legend(page: &mut Page, rows: &[&Contest]) {
    let left = LEFT + 2.0 * PANEL.0 + GAP + 36.0;
    let mut y = 108.0;
    let mut entry = |colour: &str, dashes: &str, words: &[&str]| {
        page.stroke(&[at(left, y - 4.0), at(left + 30.0, y - 4.0)], colour, 2.5, dashes);
        for words in words {
            page.words(at(left + 38.0, y), Align::Start, 12, INK, words);
            y += 18.0;
        }
        y += 4.0;
    };
    for level in LEVELS.iter().rev() {
        if rows.iter().any(|row| row.level(level.name).is_some()) {
            entry(level.colour, "", &[level.name]);
        }
    }
    let library =
        ["paper's library, fastest", "algorithm; measured", "earlier, same class of", "machine"];
    entry(GREY, "5 4", &library);
}

/// How a level is drawn: a colour per algorithm, dark for wide vectors.
struct Style {
    name: &'static str,
    colour: &'static str,
}

const fn style(name: &'static str, colour: &'static str) -> Style {
    Style { name, colour }
}

/// Levels to draw. The naive one and the table would lie on the axis, and the method of the four
/// Russians needs many packets at once.
const LEVELS: [Style; 10] = [
    style("sse2-imul", "#e9b872"),
    style("avx2-imul", "#d98a2b"),
    style("avx512-imul", "#a65d09"),
    style("ssse3-shuffle", "#8fbfe6"),
    style("avx2-shuffle", "#3f8fd0"),
    style("avx512-shuffle", "#12538f"),
    style("neon-tbl", "#3f8fd0"),
    style("neon-pmull", "#d98a2b"),
    style("avx2-gfni", "#dd7d73"),
    style("avx512-gfni", "#b3261e"),
];

const WIDTH: f64 = 1180.0;
const HEIGHT: f64 = 790.0;
const LEFT: f64 = 66.0;
/// Between the panels of a line.
const GAP: f64 = 80.0;
/// Width and height of a panel.
const PANEL: (f64, f64) = (400.0, 270.0);
