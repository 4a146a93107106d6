//! The plot: the share left after each hop, and the goodput of a TCP download.
//!
//! ```text
//!  +------------------------------+  +----------------------+
//!  | share left over hops: lines  |  | TCP goodput: bars,   |
//!  | are theory, dots measured    |  | logarithmic          |
//!  +------------------------------+  +----------------------+
//! ```

use bench_svg::{Align, INK, Page, Position, at};

use crate::findings::{Findings, points};
use crate::table::protection;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;

const FAINT: &str = "#d9dce3";
const PLAIN: &str = "#b4483c";
const RECODED: &str = "#1f6fb2";
const IDEAL: &str = "#8a8f9c";

/// Size of all words.
const FONT: u32 = 13;

/// Radius of the dots.
const DOT: f64 = 5.0;

/// Lowest goodput that a bar can show, in Mbit/s.
const GOODPUT_FLOOR: f64 = 0.001;

/// The plot of findings as an SVG document.
pub fn svg(findings: &Findings) -> String {
    let mut page = Page::new(WIDTH, HEIGHT);
    let burst = if findings.burst > 1.0 {
        format!(" in bursts of {}", findings.burst)
    } else {
        String::new()
    };
    let title = format!(
        "{} links in a line, {} % loss each{burst}, {} Mbit/s. {} over GF({})",
        findings.hops,
        points(findings.loss),
        findings.rate_mbit,
        protection(findings),
        findings.field
    );
    page.words(at(40.0, 28.0), Align::Start, FONT, INK, &title);
    hops_panel(&mut page, findings);
    goodput_panel(&mut page, findings);
    page.finish()
}

/// Left: share left after each hop.
fn hops_panel(page: &mut Page, findings: &Findings) {
    let hops = findings.hops as f64;
    let scale = Scale { left: 70.0, right: 560.0, top: 60.0, bottom: 350.0, last: hops };
    for step in 0..=5 {
        let share = f64::from(step) / 5.0;
        page.stroke(&[scale.at(0.0, share), scale.at(hops, share)], FAINT, 1.0, "");
        let Position { x, y } = scale.at(0.0, share);
        page.words(at(x - 10.0, y + 4.0), Align::End, FONT, INK, &format!("{share:.1}"));
    }
    for hop in 0..=findings.hops {
        let Position { x, y } = scale.at(hop as f64, 0.0);
        page.words(at(x, y + 20.0), Align::Middle, FONT, INK, &hop.to_string());
    }
    page.words(at(315.0, 392.0), Align::Middle, FONT, INK, "hops travelled");
    let kept = 1.0 - findings.loss;
    let curve = |value: &dyn Fn(usize) -> f64| {
        (0..=findings.hops).map(|hop| scale.at(hop as f64, value(hop))).collect::<Vec<_>>()
    };
    let ideal = curve(&|hop| if hop == 0 { 1.0 } else { kept });
    let forwarding = curve(&|hop| kept.powi(hop as i32));
    let rank = |ranks: &[f64], hop: usize| if hop == 0 { 1.0 } else { ranks[hop - 1] };
    let theory = curve(&|hop| rank(&findings.recoded.rank_theory, hop));
    let measured = curve(&|hop| rank(&findings.recoded.rank_ratio, hop));
    page.stroke(&ideal, IDEAL, 1.5, "4 4");
    page.stroke(&forwarding, PLAIN, 2.0, "");
    page.stroke(&theory, RECODED, 2.0, "");
    for point in &measured[1..] {
        page.dot(*point, DOT, RECODED);
    }
    page.dot(scale.at(hops, findings.plain.delivered), DOT, PLAIN);
    let legend = [
        (IDEAL, "ideal retransmission per hop"),
        (RECODED, "recoding: line theory, dots measured"),
        (PLAIN, "forwarding: line theory, dot measured"),
    ];
    page.rectangle(76.0, 276.0, 300.0, 60.0, "#ffffff");
    for (row, (colour, text)) in legend.into_iter().enumerate() {
        let y = 292.0 + 18.0 * row as f64;
        page.stroke(&[at(84.0, y - 4.0), at(108.0, y - 4.0)], colour, 2.5, "");
        page.words(at(116.0, y), Align::Start, FONT, INK, text);
    }
}

/// Right: goodput of the TCP download on a logarithmic scale.
fn goodput_panel(page: &mut Page, findings: &Findings) {
    let top = 10f64.powf(findings.rate_mbit.max(1.0).log10().ceil());
    let decades = (top / GOODPUT_FLOOR).log10();
    let (left, right, bottom, height) = (650.0, 930.0, 350.0, 290.0);
    let y =
        |mbit: f64| bottom - height * ((mbit.max(GOODPUT_FLOOR) / GOODPUT_FLOOR).log10() / decades);
    for decade in 0..=(decades.round() as i32) {
        let mbit = GOODPUT_FLOOR * 10f64.powi(decade);
        page.stroke(&[at(left, y(mbit)), at(right, y(mbit))], FAINT, 1.0, "");
        page.words(at(left - 8.0, y(mbit) + 4.0), Align::End, FONT, INK, &number(mbit));
    }
    let rate = y(findings.rate_mbit);
    page.stroke(&[at(left, rate), at(right, rate)], IDEAL, 1.5, "4 4");
    page.words(at(left + 4.0, rate - 6.0), Align::Start, FONT, IDEAL, "rate of a link");
    let bars = [
        (690.0, findings.plain.tcp_mbps, PLAIN, "forwarding"),
        (830.0, findings.recoded.tcp_mbps, RECODED, "recoded"),
    ];
    for (x, mbit, colour, name) in bars {
        page.rectangle(x, y(mbit), 70.0, bottom - y(mbit), colour);
        page.words(at(x + 35.0, bottom + 20.0), Align::Middle, FONT, INK, name);
        let label = if mbit < 1.0 { format!("{mbit:.3}") } else { format!("{mbit:.1}") };
        page.words(at(x + 35.0, y(mbit) - 8.0), Align::Middle, FONT, INK, &label);
    }
    page.words(at(790.0, 392.0), Align::Middle, FONT, INK, "TCP download, Mbit/s (logarithmic)");
}

/// Maps (hops, share) to the page.
struct Scale {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    last: f64,
}

impl Scale {
    fn at(&self, hop: f64, share: f64) -> Position {
        at(
            self.left + (self.right - self.left) * hop / self.last,
            self.bottom - (self.bottom - self.top) * share.clamp(0.0, 1.0),
        )
    }
}

/// A power of ten without needless digits.
fn number(value: f64) -> String {
    if value < 1.0 {
        format!("{value:.3}").trim_end_matches('0').to_owned()
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_closes_what_it_opens_and_stays_on_the_page() {
        let text = svg(&crate::findings::tests::example());
        assert_eq!(text.matches("<text").count(), text.matches("</text>").count());
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for attribute in [" x=\"", " y=\"", " cx=\"", " cy=\""] {
            let values = text.split(attribute).skip(1);
            for value in values.filter_map(|rest| rest.split('"').next()) {
                let value: f64 = value.parse().expect("a number");
                assert!((0.0..=WIDTH).contains(&value), "{attribute}{value}");
            }
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
