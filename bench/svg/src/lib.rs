//! A page of plain SVG: every figure of the benchmarks and of the demo is drawn with it.
//!
//! Not on the packet path. Places and sizes are in pixels from the upper left corner.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

/// Text and axes.
pub const INK: &str = "#1f2430";
/// Grid lines.
pub const FAINT: &str = "#e1e4ea";
/// Colour of references.
pub const GREY: &str = "#7d8390";

/// Radius of a dot on a line.
pub const DOT: f64 = 2.6;

/// Alignment of a text relative to its position.
#[derive(Copy, Clone, Debug)]
pub enum Align {
    /// It starts there.
    Start,
    /// Centred on it.
    Middle,
    /// It ends there.
    End,
}

/// A position on the page.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Position {
    /// Pixels from the left edge.
    pub x: f64,
    /// Pixels from the upper edge.
    pub y: f64,
}

/// The position `x`, `y`.
#[must_use]
pub const fn at(x: f64, y: f64) -> Position {
    Position { x, y }
}

/// A drawing.
#[derive(Debug)]
pub struct Page {
    text: String,
}

impl Page {
    /// An empty one, white.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Page {
        let mut page = Page { text: String::new() };
        page.line(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\">"
        ));
        page.rectangle(0.0, 0.0, width, height, "#ffffff");
        page
    }

    /// The document.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.line("</svg>");
        self.text
    }

    /// A filled rectangle.
    pub fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        self.line(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\"/>"
        ));
    }

    /// Straight lines from point to point; `dashes` as in SVG, empty for none.
    pub fn stroke(&mut self, points: &[Position], colour: &str, width: f64, dashes: &str) {
        let mut list = String::new();
        for Position { x, y } in points {
            // Writing to a string cannot fail.
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        let dashes = match dashes {
            "" => String::new(),
            dashes => format!(" stroke-dasharray=\"{dashes}\""),
        };
        self.line(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"{dashes}/>",
            list.trim_end()
        ));
    }

    /// A dot.
    pub fn dot(&mut self, centre: Position, radius: f64, colour: &str) {
        let Position { x, y } = centre;
        self.line(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>"
        ));
    }

    /// A small diagonal cross.
    pub fn cross(&mut self, centre: Position, colour: &str) {
        let Position { x, y } = centre;
        for slope in [-1.0, 1.0] {
            let ends = [at(x - CROSS, y - slope * CROSS), at(x + CROSS, y + slope * CROSS)];
            self.stroke(&ends, colour, 1.5, "");
        }
    }

    /// An empty dot.
    pub fn ring(&mut self, centre: Position, colour: &str) {
        let Position { x, y } = centre;
        self.line(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.6\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"1.5\"/>"
        ));
    }

    /// Words of a size in pixels.
    pub fn words(&mut self, place: Position, align: Align, size: u32, colour: &str, words: &str) {
        self.turned(place, 0, align, size, colour, words);
    }

    /// Words from the bottom up.
    pub fn upright(&mut self, place: Position, align: Align, size: u32, colour: &str, words: &str) {
        self.turned(place, -90, align, size, colour, words);
    }

    fn turned(
        &mut self,
        place: Position,
        degrees: i32,
        align: Align,
        size: u32,
        colour: &str,
        words: &str,
    ) {
        let Position { x, y } = place;
        let align = match align {
            Align::Start => "start",
            Align::Middle => "middle",
            Align::End => "end",
        };
        let turn = match degrees {
            0 => String::new(),
            degrees => format!(" transform=\"rotate({degrees} {x:.1} {y:.1})\""),
        };
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.line(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{align}\" \
             fill=\"{colour}\"{turn}>{words}</text>"
        ));
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// Steps of an axis from 0 to at least `top`: their width and their number, at most eight.
#[must_use]
pub fn steps(top: f64) -> (f64, usize) {
    let widths = (0..).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
    let width = widths.into_iter().find(|width| top / width <= 8.0).unwrap_or(1.0);
    (width, (top / width).ceil().max(1.0) as usize)
}

/// Half the width of a cross.
const CROSS: f64 = 3.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_closes_what_it_opens_and_escapes_words() {
        let mut page = Page::new(100.0, 50.0);
        page.words(at(1.0, 2.0), Align::End, 12, INK, "a < b & c");
        page.upright(at(1.0, 2.0), Align::Start, 12, INK, "up");
        page.stroke(&[at(0.0, 0.0), at(5.0, 5.0)], FAINT, 1.0, "4 4");
        page.dot(at(5.0, 5.0), DOT, GREY);
        let text = page.finish();
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        assert!(text.contains(">a &lt; b &amp; c</text>") && text.contains("rotate(-90 1.0 2.0)"));
        assert!(text.contains("points=\"0.0,0.0 5.0,5.0\"") && text.contains("r=\"2.6\""));
    }

    #[test]
    fn steps_reach_the_top_in_few_round_steps() {
        assert_eq!(steps(129.0), (20.0, 7));
        assert_eq!(steps(80.0), (10.0, 8));
        assert_eq!(steps(0.0), (1.0, 1));
    }
}
