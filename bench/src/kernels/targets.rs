//! Targets of the kernels, and whether this run met them.

use serde::Serialize;

use crate::kernels::contest::{Contest, Contestant, Role};
use crate::kernels::rows::Section;

/// A target, and its measured value.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The job.
    pub row: &'static str,
    /// The target in words.
    pub target: &'static str,
    /// The least that is enough.
    pub least: f64,
    /// Measured value; none if the rows were not measured.
    pub measured: Option<f64>,
    /// Row with the worst value, if several rows count.
    pub worst: Option<String>,
    /// Whether it is enough.
    pub met: Option<bool>,
}

/// The rows that count, and their measured quantity.
struct Rule {
    row: &'static str,
    target: &'static str,
    least: f64,
    counts: Box<dyn Fn(&Contest) -> bool>,
    value: fn(&Contest, &Contestant) -> Option<f64>,
    /// The level that counts; empty for the fastest one.
    level: &'static str,
}

impl Rule {
    fn new(
        row: &'static str,
        target: &'static str,
        least: f64,
        value: fn(&Contest, &Contestant) -> Option<f64>,
        counts: impl Fn(&Contest) -> bool + 'static,
    ) -> Rule {
        Rule { row, target, least, counts: Box::new(counts), value, level: "" }
    }

    /// The same at one level only.
    fn at(self, level: &'static str) -> Rule {
        Rule { level, ..self }
    }
}

fn rules() -> Vec<Rule> {
    use Section::{Binary, Decode, Encode, Forced, Lengths, Madd, Paper, Recode, Umem};
    let ceiling = |row: &Contest, ours: &Contestant| Some(row.fraction(ours));
    let rival = |row: &Contest, ours: &Contestant| row.rival(ours).map(|rival| rival.ratio);
    let same = |row: &Contest, ours: &Contestant| row.same_level(ours).map(|library| library.ratio);
    let at =
        |section, n, k| move |row: &Contest| row.section == section && row.n == n && row.k == k;
    let paper = |row: &Contest| row.section == Paper && (1024..=2048).contains(&row.k);
    let madd = |row: &Contest| row.section == Forced;
    let recode = |row: &Contest| row.section == Recode && row.name == "recode";
    let frames = |row: &Contest| row.section == Umem && row.name.contains("4096");
    let encode = |row, n| Rule::new(row, "0.95 of the ceiling", 0.95, ceiling, at(Encode, n, 1500));
    let library = "paper's library at this level";
    vec![
        encode("n to n, k = 1500, n = 16", 16),
        encode("n to n, k = 1500, n = 32", 32),
        encode("n to n, k = 1500, n = 64", 64),
        Rule::new(
            "128 to 128, k = 4096",
            "0.93 of the ceiling",
            0.93,
            ceiling,
            at(Encode, 128, 4096),
        ),
        Rule::new("n to n, frames of 4096 B", "0.85 of the ceiling", 0.85, ceiling, frames),
        Rule::new("16 to 16, 64 to 9000 B", "0.80 of the ceiling", 0.80, ceiling, |row| {
            row.section == Lengths && row.k >= 64
        }),
        Rule::new("madd, 1500 B", "0.90 of the store limit", 0.90, ceiling, at(Madd, 1, 1500)),
        Rule::new("16 to 1, 1 to 2 KiB, four fields", "1.8 x paper's library", 1.8, rival, paper),
        Rule::new("recode 16 to 16, 1500 B", "0.87 of the ceiling", 0.87, ceiling, recode),
        Rule::new("recode 16 to 16, 1500 B", "6 x the best crate", 6.0, rival, recode),
        Rule::new("decode 16 x 1500 B", "0.60 of the ceiling", 0.60, ceiling, at(Decode, 16, 1500)),
        Rule::new(
            "decode 128 x 4096 B",
            "0.80 of the ceiling",
            0.80,
            ceiling,
            at(Decode, 128, 4096),
        ),
        Rule::new("GF(2) 64 to 64", "1.5 of the ceiling", 1.5, ceiling, at(Binary, 64, 1500)),
        Rule::new("avx2-shuffle, 16 to 1, 1 to 2 KiB", library, 1.0, same, paper)
            .at("avx2-shuffle"),
        Rule::new("ssse3-shuffle, 16 to 1, 1 to 2 KiB", library, 1.0, same, paper)
            .at("ssse3-shuffle"),
        Rule::new("avx2-shuffle, madd", library, 1.0, rival, madd).at("avx2-shuffle"),
        Rule::new("ssse3-shuffle, madd", library, 1.0, rival, madd).at("ssse3-shuffle"),
    ]
}

/// All targets.
pub fn evaluate(rows: &[Contest]) -> Vec<Target> {
    let evaluate = |rule: Rule| {
        let found = least(rows, &rule);
        let (measured, worst) = found.map_or((None, None), |(value, at)| (Some(value), Some(at)));
        let met = measured.map(|value| value >= rule.least);
        let Rule { row, target, least, .. } = rule;
        Target { row, target, least, measured, worst, met }
    };
    rules().into_iter().map(evaluate).collect()
}

/// The smallest value over the rows that count, and where it is.
fn least(rows: &[Contest], rule: &Rule) -> Option<(f64, String)> {
    let counted = rows.iter().filter(|row| (rule.counts)(row));
    let values = counted.filter_map(|row| {
        let ours = match rule.level {
            "" => row.fastest(Role::Ours),
            level => row.level(level),
        }?;
        let at = format!("{}, n = {}, k = {}", row.field, row.n, row.k);
        Some(((rule.value)(row, ours)?, at))
    });
    values.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// All targets as a table.
pub fn table(rows: &[Contest]) -> String {
    let mut lines = vec![
        "### Targets".to_owned(),
        String::new(),
        "| target | | measured | |".to_owned(),
        "|---|---|---:|---|".to_owned(),
    ];
    lines.extend(evaluate(rows).into_iter().map(|target| {
        let Target { row, target, measured, worst, met, .. } = target;
        let measured = measured.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let verdict = match (met, worst) {
            (Some(true), _) => "met".to_owned(),
            (Some(false), worst) => format!("missed at {}", worst.unwrap_or_default()),
            (None, _) => "not measured".to_owned(),
        };
        format!("| {row} | {target} | {measured} | {verdict} |")
    }));
    lines.join("\n")
}
