//! The paper's two figures, with this machine in them.
//!
//! Figure 1: 16 packets into one over packet size, a panel per field, a line per level. Figure 2:
//! the mean over packet sizes, with the fastest level, next to the processors of the paper.

mod packet_sizes;
mod processors;

use crate::kernels::anchors::paper_name;
use crate::kernels::contest::Contest;
use crate::kernels::report::KernelReport;
use crate::kernels::rows::Section;
use crate::median::median;
use recoded_gf::Field;

/// File names and SVG documents; none without the rows of the paper's benchmark.
pub fn draw(report: &KernelReport) -> Vec<(&'static str, String)> {
    let rows: Vec<&Contest> = report.section(Section::Paper).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let machine = &report.machine;
    let kind = if machine.is_virtual { "one core of a virtual machine" } else { "one core" };
    let place = format!("{}, {kind}, {}", machine.processor, &date(&machine.date));
    vec![
        ("kernels-packet-sizes.svg", packet_sizes::figure(&rows, &place)),
        ("kernels-processors.svg", processors::figure(&rows, &place)),
    ]
}

/// The day of a date with a time.
fn date(text: &str) -> String {
    text.split('T').next().unwrap_or_default().to_owned()
}

/// Title of a field: its name in the paper and its polynomial.
fn field_title(field: Field) -> String {
    match field.order() {
        2 => paper_name(field),
        _ => format!("{} modulo {:#x}", paper_name(field), field.polynomial()),
    }
}

/// All rows of a field.
fn of_field<'a>(rows: &[&'a Contest], field: Field) -> Vec<&'a Contest> {
    rows.iter().copied().filter(|row| row.field == field.to_string()).collect()
}

/// Mean of values that there are.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    if values.is_empty() {
        median(values)
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::anchors::{PAPER_BYTES, PAPER_FIELDS, library};
    use crate::kernels::contest::{Contestant, GBIT, Role};

    fn rows() -> Vec<Contest> {
        let sizes = PAPER_FIELDS.iter().flat_map(|field| PAPER_BYTES.map(|k| (*field, k)));
        sizes
            .map(|(field, k)| {
                let levels = ["naive", "ssse3-shuffle", "avx512-gfni"].iter().enumerate();
                let contestants = levels.map(|(index, level)| {
                    let mut ours = Contestant::new(Role::Ours, *level, 1.0, || ());
                    ours.rates = vec![(index * k) as f64 / 100.0];
                    ours
                });
                Contest {
                    section: Section::Paper,
                    name: "16 packets into one",
                    field: field.to_string(),
                    n: 16,
                    k,
                    unit: GBIT,
                    anchor: library(field, k),
                    contestants: contestants.collect(),
                    left_out: Vec::new(),
                }
            })
            .collect()
    }

    #[test]
    fn figures_close_what_they_open_and_stay_on_the_page() {
        let rows = rows();
        let rows: Vec<&Contest> = rows.iter().collect();
        let figures = [packet_sizes::figure(&rows, "here"), processors::figure(&rows, "here")];
        for text in figures {
            assert_eq!(text.matches("<text").count(), text.matches("</text>").count());
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            let width = attribute(&text, " width=\"").next().expect("a page");
            for name in [" x=\"", " y=\"", " cx=\"", " cy=\""] {
                assert!(
                    attribute(&text, name).all(|value| (0.0..=width).contains(&value)),
                    "{name}"
                );
            }
        }
    }

    fn attribute<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
        let values = text.split(name).skip(1).filter_map(|rest| rest.split('"').next());
        values.map(|value| value.parse().expect("a number"))
    }
}
