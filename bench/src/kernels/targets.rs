//! What the kernels should reach, and whether this run did.

use serde::Serialize;

use crate::kernels::contest::{Contestant, Role, Row};
use crate::kernels::report::Report;
use crate::kernels::rows::Section;

/// A target, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The job.
    pub row: &'static str,
    /// What it should reach, in words.
    pub target: &'static str,
    /// The least that is enough.
    pub least: f64,
    /// What it reached; nothing when the rows were not measured.
    pub measured: Option<f64>,
    /// Where it reached that, when several rows count.
    pub worst: Option<String>,
    /// Whether it is enough.
    pub met: Option<bool>,
}

/// All targets.
pub fn evaluate(report: &Report) -> Vec<Target> {
    use Section::{Binary, Decode, Encode, Forced, Lengths, Madd, Paper, Recode, Umem};
    let fraction = |row: &Row, ours: &Contestant| Some(row.fraction(ours));
    let ratio = |row: &Row, ours: &Contestant| row.rival(ours).map(|rival| rival.ratio);
    let at = |section, n, k| move |row: &Row| row.section == section && row.n == n && row.k == k;
    let crates = |row: &Row| row.section == Recode && row.name == "recode";
    let two_step = crates;
    let paper = |row: &Row| row.section == Paper && (1024..=2048).contains(&row.k);
    let frames = |row: &Row| row.section == Umem && row.name.contains("4096");
    let forced =
        |level: &'static str| move |row: &Row| row.section == Forced && row.level(level).is_some();
    let target = |row, target, least, found: Option<(f64, String)>| {
        let (measured, worst) = found.map_or((None, None), |(value, at)| (Some(value), Some(at)));
        let met = measured.map(|value| value >= least);
        Target { row, target, least, measured, worst, met }
    };
    vec![
        target(
            "n -> n, k = 1500, n = 16",
            "0.95 of the ceiling",
            0.95,
            least(report, at(Encode, 16, 1500), fraction),
        ),
        target(
            "n -> n, k = 1500, n = 32",
            "0.95 of the ceiling",
            0.95,
            least(report, at(Encode, 32, 1500), fraction),
        ),
        target(
            "n -> n, k = 1500, n = 64",
            "0.95 of the ceiling",
            0.95,
            least(report, at(Encode, 64, 1500), fraction),
        ),
        target(
            "128 -> 128, k = 4096",
            "0.93 of the ceiling",
            0.93,
            least(report, at(Encode, 128, 4096), fraction),
        ),
        target(
            "n -> n between frames of 4096 bytes",
            "0.85 of the ceiling",
            0.85,
            least(report, frames, fraction),
        ),
        target(
            "16 -> 16, any length from 64 to 9000",
            "0.80 of the ceiling",
            0.80,
            least(report, |row| row.section == Lengths, fraction),
        ),
        target(
            "madd, 1500 bytes",
            "0.90 of the store limit",
            0.90,
            least(report, at(Madd, 1, 1500), fraction),
        ),
        target(
            "16 -> 1, 1 to 2 KiB, four fields",
            "1.8 times the paper's library",
            1.8,
            least(report, paper, ratio),
        ),
        target(
            "recode 16 -> 16, 1500 bytes, with vectors",
            "0.87 of the ceiling",
            0.87,
            least(report, two_step, fraction),
        ),
        target(
            "recode 16 -> 16, 1500 bytes, with vectors",
            "6 times the best crate",
            6.0,
            least(report, crates, ratio),
        ),
        target(
            "decode 16 x 1500",
            "0.60 of the ceiling",
            0.60,
            least(report, at(Decode, 16, 1500), fraction),
        ),
        target(
            "decode 128 x 4096",
            "0.80 of the ceiling",
            0.80,
            least(report, at(Decode, 128, 4096), fraction),
        ),
        target(
            "GF(2) 64 -> 64",
            "1.5 times the ceiling of products",
            1.5,
            least(report, at(Binary, 64, 1500), fraction),
        ),
        target(
            "avx2-shuffle, forced",
            "the paper's library at this level",
            1.0,
            least(report, forced("avx2-shuffle"), ratio),
        ),
        target(
            "ssse3-shuffle, forced",
            "the paper's library at this level",
            1.0,
            least(report, forced("ssse3-shuffle"), ratio),
        ),
    ]
}

/// The smallest value of the fastest level over the rows that count, and where it is.
fn least(
    report: &Report,
    counts: impl Fn(&Row) -> bool,
    value: impl Fn(&Row, &Contestant) -> Option<f64>,
) -> Option<(f64, String)> {
    let rows = report.rows.iter().filter(|row| counts(row));
    let values = rows.filter_map(|row| {
        let at = format!("{}, n = {}, k = {}", row.field, row.n, row.k);
        Some((value(row, row.fastest(Role::Ours)?)?, at))
    });
    values.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// All targets as a table.
pub fn table(report: &Report) -> String {
    let mut lines = vec![
        "### Targets".to_owned(),
        String::new(),
        "| row | target | measured | | least at |".to_owned(),
        "|---|---|---:|---|---|".to_owned(),
    ];
    lines.extend(evaluate(report).into_iter().map(|target| {
        let Target { row, target, measured, worst, met, .. } = target;
        let measured = measured.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let worst = worst.unwrap_or_default();
        format!("| {row} | {target} | {measured} | {verdict} | {worst} |")
    }));
    lines.join("\n")
}
