//! The report as text.

use super::DegreeReport;
use crate::table::{Align, count, sentence, table};

/// Lays out the report.
pub fn text(report: &DegreeReport) -> String {
    let head =
        [("degree", Align::Right), ("probability", Align::Right), ("cumulative", Align::Right)];
    let share = |cumulative: u32| (f64::from(cumulative) + 1.0) / 2_f64.powi(32);
    let rows: Vec<[String; 3]> = report
        .distribution
        .iter()
        .map(|entry| {
            [
                entry.degree.to_string(),
                format!("{:.6}", entry.probability),
                format!("{:.6}", share(entry.cumulative)),
            ]
        })
        .collect();
    let mut text = table(head, &rows);
    text.push('\n');
    for (label, line) in summary(report) {
        text.push_str(&sentence(label, &line));
    }
    text
}

fn summary(report: &DegreeReport) -> [(&'static str, String); 6] {
    let DegreeReport { batch_size, expected_rank, theta, efficiency, eta, .. } = report;
    [
        (
            "ranks",
            format!(
                "{} batches of {batch_size} symbols, mean rank {expected_rank:.3}",
                count(report.batches)
            ),
        ),
        (
            "theta",
            format!(
                "{theta:.3} symbols per batch: K symbols need K / {theta:.3} batches, K large, \
                 without inactivation"
            ),
        ),
        (
            "efficiency",
            format!(
                "{efficiency:.4} of the rank that arrives decodes symbols, {eta} of which stay \
                 undecoded"
            ),
        ),
        (
            "mean degree",
            format!("{:.2} multiply-adds per coded symbol at the source", report.mean_degree),
        ),
        (
            "considered",
            format!("degrees up to {}, generators over GF({})", report.degree_max, report.field),
        ),
        (
            "use",
            "for comparison: no key takes degrees, sources have those for their batch_size".into(),
        ),
    ]
}
