//! Draws a figure: panels side by side, results as lines and dots, references as rings.
//!
//! ```text
//!  title
//!  panel | panel | legend
//!  ------+-------+
//!  panel | panel |
//! ```

use crate::figures::figure::{Axis, Figure, From, Panel, Scale, Series, Style};
use bench_svg::{Align, DOT, FAINT, GREY, INK, Page, Position, at};

/// The figure as an SVG document.
pub fn draw(figure: &Figure) -> String {
    let columns = figure.panels.len().min(2);
    let lines = figure.panels.len().div_ceil(2);
    let names = names(figure);
    let legend_lines = names.len() + 3;
    let width = LEFT + columns as f64 * (PANEL.0 + GAP.0) + LEGEND;
    let height =
        (TOP + lines as f64 * (PANEL.1 + GAP.1)).max(TOP + 20.0 * legend_lines as f64 + 20.0);
    let mut page = Page::new(width, height);
    page.words(at(LEFT, 30.0), Align::Start, 18, INK, &figure.title);
    page.words(at(LEFT, 50.0), Align::Start, 12, GREY, &figure.about);
    for (index, panel) in figure.panels.iter().enumerate() {
        let left = LEFT + (index % 2) as f64 * (PANEL.0 + GAP.0);
        let top = TOP + (index / 2) as f64 * (PANEL.1 + GAP.1);
        let frame = Frame { left, top, panel };
        frame.axes(&mut page);
        frame.bars(&mut page, &names);
        let lines = panel.series.iter().filter(|series| series.style != Style::Bars);
        lines.for_each(|series| {
            frame.series(&mut page, series, colour(&names, &series.name, series.style))
        });
    }
    let right = LEFT + columns as f64 * (PANEL.0 + GAP.0) - GAP.0 + 36.0;
    legend(&mut page, right, figure, &names);
    page.finish()
}

/// Names of all series, each once, with their styles; crosses only if there is no line.
fn names(figure: &Figure) -> Vec<(&str, Style)> {
    let mut names: Vec<(&str, Style)> = Vec::new();
    for series in figure.panels.iter().flat_map(|panel| &panel.series) {
        match names.iter_mut().find(|(name, _)| *name == series.name) {
            None => names.push((&series.name, series.style)),
            Some((_, style)) if *style == Style::Crosses => *style = series.style,
            Some(_) => {}
        }
    }
    names
}

/// Grey for context; the others take colours in turn, by name.
fn colour(names: &[(&str, Style)], name: &str, style: Style) -> &'static str {
    if style == Style::Context {
        return GREY;
    }
    let coloured = names.iter().filter(|(_, style)| *style != Style::Context);
    let place = coloured.map(|(other, _)| *other).position(|other| other == name);
    COLOURS[place.unwrap_or_default() % COLOURS.len()]
}

/// A panel and its place on the page.
struct Frame<'a> {
    left: f64,
    top: f64,
    panel: &'a Panel,
}

impl Frame<'_> {
    fn at(&self, x: f64, y: f64) -> Position {
        at(self.x(x), self.y(y))
    }

    fn x(&self, x: f64) -> f64 {
        // Names and the first and last of numbers keep off the edges.
        self.left + INSET + (PANEL.0 - 2.0 * INSET) * share(&self.panel.x, x)
    }

    fn y(&self, y: f64) -> f64 {
        self.top + PANEL.1 * (1.0 - share(&self.panel.y, y).clamp(0.0, 1.0))
    }

    fn axes(&self, page: &mut Page) {
        let (right, bottom) = (self.left + PANEL.0, self.top + PANEL.1);
        page.words(at(self.left, self.top - 12.0), Align::Start, 14, INK, &self.panel.title);
        for (index, &tick) in self.panel.y.ticks.iter().enumerate() {
            let y = self.y(tick);
            page.stroke(&[at(self.left, y), at(right, y)], FAINT, 1.0, "");
            let words = tick_words(&self.panel.y, index, tick);
            page.words(at(self.left - 8.0, y + 4.0), Align::End, 11, INK, &words);
        }
        for (index, &tick) in self.panel.x.ticks.iter().enumerate() {
            let x = self.x(tick);
            page.stroke(&[at(x, bottom), at(x, bottom + 4.0)], INK, 1.0, "");
            let words = tick_words(&self.panel.x, index, tick);
            page.words(at(x, bottom + 18.0), Align::Middle, 11, INK, &words);
        }
        page.stroke(&[at(self.left, bottom), at(right, bottom)], INK, 1.0, "");
        let middle = f64::midpoint(self.left, right);
        page.words(at(middle, bottom + 38.0), Align::Middle, 12, INK, self.panel.x.label);
        let centre = at(self.left - 48.0, f64::midpoint(self.top, bottom));
        page.upright(centre, Align::Middle, 12, INK, self.panel.y.label);
    }

    fn series(&self, page: &mut Page, series: &Series, colour: &str) {
        let points: Vec<Position> =
            series.points.iter().map(|point| self.at(point.x, point.ours)).collect();
        match series.style {
            Style::Context => return page.stroke(&points, colour, 1.5, "5 4"),
            Style::Line => page.stroke(&points, colour, 2.0, ""),
            Style::Crosses => points.iter().for_each(|point| page.cross(*point, colour)),
            Style::Bars => {}
        }
        let estimates = series.points.iter().filter(|point| point.standard_error > 0.0);
        if series.style == Style::Line {
            estimates.for_each(|point| page.dot(self.at(point.x, point.ours), DOT, colour));
        }
        for point in &series.points {
            let drawn = point.references.iter().filter(|r| is_ring(r.from));
            drawn.for_each(|r| page.ring(self.at(point.x, r.value), colour));
        }
    }

    /// Columns of all series with columns, side by side at each place. References are columns too.
    fn bars(&self, page: &mut Page, names: &[(&str, Style)]) {
        let bars: Vec<&Series> =
            self.panel.series.iter().filter(|series| series.style == Style::Bars).collect();
        let room = (PANEL.0 - 2.0 * INSET) / self.panel.x.ticks.len() as f64;
        let width = (room * 0.8 / bars.len().max(1) as f64).min(46.0);
        for (index, series) in bars.iter().enumerate() {
            let colour = colour(names, &series.name, series.style);
            for point in &series.points {
                let middle =
                    self.x(point.x) + (index as f64 - (bars.len() - 1) as f64 / 2.0) * width;
                let y = self.y(point.ours);
                let height = self.top + PANEL.1 - y;
                page.rectangle(middle - width / 2.0 + 1.0, y, width - 2.0, height, colour);
                let words = digits(point.ours);
                if width < WORDS_WIDTH {
                    page.upright(at(middle + 3.0, y - 5.0), Align::Start, 10, INK, &words);
                } else {
                    page.words(at(middle, y - 5.0), Align::Middle, 10, INK, &words);
                }
            }
        }
    }
}

/// This project's theory and neighbouring points are drawn already; other references are rings.
fn is_ring(from: From) -> bool {
    matches!(from, From::Paper | From::Oracle)
}

/// Position of a value between the first tick and the last, from 0 to 1.
fn share(axis: &Axis, value: f64) -> f64 {
    let (Some(&first), Some(&last)) = (axis.ticks.first(), axis.ticks.last()) else { return 0.0 };
    if last <= first {
        return 0.5;
    }
    match axis.scale {
        Scale::Linear if axis.names.is_empty() => (value - first) / (last - first),
        // Names are centred in their share of the axis.
        Scale::Linear => (value - first + 0.5) / (last - first + 1.0),
        Scale::Log => (value.max(first) / first).ln() / (last / first).ln(),
    }
}

fn tick_words(axis: &Axis, index: usize, tick: f64) -> String {
    axis.names.get(index).cloned().unwrap_or_else(|| {
        // No more digits than there are, and no -0.
        let text = format!("{:.3}", tick + 0.0);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    })
}

/// Three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Draws the legend to the right of the panels.
fn legend(page: &mut Page, left: f64, figure: &Figure, names: &[(&str, Style)]) {
    let mut y = TOP + 8.0;
    let mut entry = |page: &mut Page, words: &str, mark: &dyn Fn(&mut Page, f64)| {
        mark(page, y - 4.0);
        page.words(at(left + 32.0, y), Align::Start, 12, INK, words);
        y += 20.0;
    };
    let middle = left + 12.0;
    for &(name, style) in names {
        let colour = colour(names, name, style);
        entry(page, name, &|page, y| match style {
            Style::Context => page.stroke(&[at(left, y), at(left + 24.0, y)], colour, 1.5, "5 4"),
            Style::Bars => page.rectangle(left + 5.0, y - 7.0, 14.0, 14.0, colour),
            Style::Line => page.stroke(&[at(left, y), at(left + 24.0, y)], colour, 2.0, ""),
            Style::Crosses => page.cross(at(middle, y), colour),
        });
    }
    let series = || figure.panels.iter().flat_map(|panel| &panel.series);
    if series().any(|series| series.style == Style::Crosses) {
        entry(page, "Recoded, Monte Carlo", &|page, y| page.cross(at(middle, y), GREY));
    }
    let lines = || series().filter(|series| series.style != Style::Bars);
    let references = || lines().flat_map(|s| &s.points).flat_map(|point| &point.references);
    let is_from = |from: From| references().any(|reference| reference.from == from);
    let words = match (is_from(From::Paper), is_from(From::Oracle)) {
        (true, true) => "paper, independent program",
        (true, false) => "the paper's value",
        (false, true) => "independent program",
        (false, false) => return,
    };
    entry(page, words, &|page, y| page.ring(at(middle, y), GREY));
}

/// Colours that stay apart in print and for most eyes.
const COLOURS: [&str; 10] = [
    "#12538f", "#b3261e", "#2f7d4f", "#d98a2b", "#6d3fa0", "#3f8fd0", "#8c6d5a", "#c2578e",
    "#7a8b1e", "#1f9e9e",
];

const LEFT: f64 = 70.0;
const TOP: f64 = 96.0;
/// Width and height of a panel.
const PANEL: (f64, f64) = (400.0, 270.0);
/// Between panels, with room for the labels of axes.
const GAP: (f64, f64) = (84.0, 84.0);
/// Room for the legend.
const LEGEND: f64 = 210.0;
/// Column width below which the numbers over columns are drawn vertically.
const WORDS_WIDTH: f64 = 16.0;
/// Between the edge of a panel and its first and last place.
const INSET: f64 = 12.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::figure::{Point, Reference};

    #[test]
    fn places_on_axes_are_shares_of_them() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(share(&Axis::linear("", &[1.0, 3.0]), 2.0), 0.5);
        close(share(&Axis::log("", &[1.0, 100.0]), 10.0), 0.5);
        close(share(&Axis::names("", &["a", "b"]), 1.0), 0.75);
        let axis = Axis::share("");
        assert_eq!(tick_words(&axis, 1, 0.2), "0.2");
        assert_eq!(tick_words(&axis, 0, 0.0), "0");
        assert_eq!(tick_words(&Axis::linear("", &[10.0, 20.0]), 0, 10.0), "10");
    }

    #[test]
    fn drawing_has_everything_and_stays_on_the_page() {
        let point = |x: f64| Point::exact(x, x / 4.0).against(Reference::oracle(0.5));
        let series =
            [Style::Line, Style::Crosses, Style::Context, Style::Bars].map(|style| Series {
                name: format!("{}", style as u8),
                style,
                points: (1..4).map(|x| point(f64::from(x))).collect(),
            });
        let panel = Panel {
            title: "a & b".into(),
            x: Axis::linear("x", &[1.0, 2.0, 3.0]),
            y: Axis::share("y"),
            series: series.into(),
        };
        let figure = Figure {
            name: "test",
            title: "title".into(),
            source: "nowhere",
            about: String::new(),
            panels: vec![panel],
        };
        let text = draw(&figure);
        assert!(text.contains("a &amp; b") && text.contains("independent program"));
        assert!(!text.contains("NaN") && text.matches("<polyline").count() >= 12, "{text}");
        for name in [" x=\"", " y=\"", " cx=\"", " cy=\""] {
            let values = text.split(name).skip(1).filter_map(|rest| rest.split('"').next());
            for value in values.map(|value| value.parse::<f64>().expect("a number")) {
                assert!((0.0..1200.0).contains(&value), "{name}{value}");
            }
        }
    }
}
