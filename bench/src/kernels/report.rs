//! The report: tables for humans, JSON for everything else.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::kernels::anchors::{PAPER_BYTES, PAPER_FIELDS, library, paper_name};
use crate::kernels::contest::{Comparison, Contest, Contestant, Role, number};
use crate::kernels::limits::CoreLimits;
use crate::kernels::rows::{Section, Setting};
use crate::kernels::{summary, targets};
use crate::machine::Machine;

/// A whole run.
pub struct KernelReport {
    /// Where.
    pub machine: Machine,
    /// The core that everything ran on.
    pub core: usize,
    /// Samples of everybody.
    pub rounds: usize,
    /// Seconds per sample, at least.
    pub seconds: f64,
    /// Limits of the core.
    pub limits: CoreLimits,
    /// Contestants and parameters.
    pub setting: Setting,
    /// Measurements.
    pub rows: Vec<Contest>,
}

impl KernelReport {
    /// All rows of a section.
    pub fn section(&self, section: Section) -> impl Iterator<Item = &Contest> {
        self.rows.iter().filter(move |row| row.section == section)
    }

    /// Everything, in Markdown.
    pub fn text(&self) -> String {
        let mut parts = vec![self.heading(), self.setting.rivals.table(), self.limits.table()];
        for section in Section::ALL {
            let rows: Vec<&Contest> = self.section(section).collect();
            if rows.is_empty() {
                continue;
            }
            parts.push(format!("### {}", section.title()));
            parts.push(match section {
                Section::Paper => paper_tables(&rows),
                _ => table(&rows),
            });
        }
        let left_out: Vec<&str> =
            self.rows.iter().flat_map(|row| &row.left_out).map(String::as_str).collect();
        if !left_out.is_empty() {
            parts.push(format!("Left out:\n{}", left_out.join("\n")));
        }
        parts.push(NOTE.into());
        parts.push("### Summary".into());
        parts.push(summary::text(&self.rows));
        parts.push(targets::table(&self.rows));
        parts.join("\n\n")
    }

    fn heading(&self) -> String {
        format!(
            "{}\nmedian and best of {} samples of {} ms each, in turns, on core {}; seed {:#x}",
            self.machine.heading(),
            self.rounds,
            self.seconds * 1e3,
            self.core,
            self.setting.seed
        )
    }

    /// Everything.
    pub fn json(&self) -> Value {
        let rows =
            self.rows.iter().flat_map(|row| row.role(Role::Ours).map(|ours| json(row, ours)));
        json!({
            "benchmark": "kernels",
            "machine": self.machine,
            "core": self.core,
            "rounds": self.rounds,
            "sample_seconds": self.seconds,
            "seed": self.setting.seed,
            "rivals": self.setting.rivals.described,
            "limits": self.limits.json(),
            "rows": rows.collect::<Vec<_>>(),
            "targets": targets::evaluate(&self.rows),
        })
    }
}

fn json(row: &Contest, ours: &Contestant) -> Value {
    let rivals = row.contestants.iter().filter(|contestant| contestant.role != Role::Ours);
    let rivals: Vec<Value> = rivals
        .map(|rival| {
            let (median, best) = (rival.median(), rival.best());
            json!({ "name": rival.name, "role": rival.role, "median": median, "best": best })
        })
        .collect();
    let ceiling = row.fastest(Role::Ceiling).map(Contestant::median);
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("name", json!(row.name));
    put("section", json!(row.section));
    put("field", json!(row.field));
    put("n", json!(row.n));
    put("k", json!(row.k));
    put("level", json!(ours.name));
    put("unit", json!(row.unit));
    put("median", json!(ours.median()));
    put("best", json!(ours.best()));
    put("ceiling", json!(ceiling));
    put("fraction", json!(row.fraction(ours)));
    comparison(&mut put, "rival", row.rival(ours));
    comparison(&mut put, "structured", row.structured(ours));
    if let Some(same) = row.same_level(ours) {
        comparison(&mut put, "same_level", Some(same));
    }
    put("others", Value::Array(rivals));
    put("left_out", json!(row.left_out));
    Value::Object(object)
}

/// The rival's name, its rate and the speedup over it; null without a rival.
fn comparison(
    put: &mut impl FnMut(&str, Value) -> Option<Value>,
    who: &str,
    other: Option<Comparison<'_>>,
) {
    let ratio = if who == "rival" { "ratio".to_owned() } else { format!("{who}_ratio") };
    let other = other.as_ref();
    put(who, json!(other.map(|other| other.name)));
    put(&format!("{who}_median"), json!(other.map(|other| other.median)));
    put(&ratio, json!(other.map(|other| other.ratio)));
    put(&format!("{who}_measured_in_this_run"), json!(other.map(|other| other.measured)));
}

fn table(rows: &[&Contest]) -> String {
    let mut lines = vec![
        "| job | n | k | level | median | best | of the ceiling | best rival | its median | ratio \
         | best structured code | its median | ratio |"
            .to_owned(),
        "|---|---:|---:|---|---:|---:|---:|---|---:|---:|---|---:|---:|".to_owned(),
    ];
    for row in rows {
        lines.extend(row.role(Role::Ours).map(|ours| line(row, ours)));
    }
    lines.join("\n")
}

fn line(row: &Contest, ours: &Contestant) -> String {
    let other = |other: Option<Comparison<'_>>| match other {
        Some(Comparison { name, median, ratio, .. }) => {
            format!("{name} | {} | {ratio:.2}", number(median))
        }
        None => "- | - | -".to_owned(),
    };
    format!(
        "| {} | {} | {} | {} | {} | {} | {:.3} | {} | {} |",
        row.name,
        row.n,
        row.k,
        ours.name,
        number(ours.median()),
        number(ours.best()),
        row.fraction(ours),
        other(row.rival(ours)),
        other(row.structured(ours)),
    )
}

/// One table per field: levels down, packet sizes across, the paper's library below.
fn paper_tables(rows: &[&Contest]) -> String {
    let mut text = String::new();
    for field in PAPER_FIELDS {
        let rows: Vec<&&Contest> =
            rows.iter().filter(|row| row.field == field.to_string()).collect();
        let Some(first) = rows.first() else { continue };
        let sizes: Vec<String> = rows.iter().map(|row| format!("{} B", row.k)).collect();
        let name = paper_name(field);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} ({field}), coded Gbit/s | {} |", sizes.join(" | "));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(rows.len()));
        for level in first.role(Role::Ours) {
            let cells = rows.iter().map(|row| row.level(&level.name).map(Contestant::median));
            let _ = writeln!(text, "| {} | {} |", level.name, join(cells));
            let library: Vec<Option<f64>> =
                rows.iter().map(|row| same_level(row, &level.name)).collect();
            if library.iter().any(Option::is_some) {
                let cells = join(library.into_iter());
                let _ = writeln!(text, "| *paper's library, {}* | {cells} |", level.name);
            }
        }
        for rival in first.role(Role::Rival) {
            let cells = rows.iter().map(|row| {
                row.role(Role::Rival).find(|other| other.name == rival.name).map(Contestant::median)
            });
            let _ = writeln!(text, "| *{}* | {} |", rival.name, join(cells));
        }
        let anchors = PAPER_BYTES.iter().map(|k| library(field, *k).map(|anchor| anchor.median));
        let _ = writeln!(text, "| *paper's library, its fastest* | {} |", join(anchors));
        let ratios = rows.iter().map(|row| {
            let ours = row.fastest(Role::Ours)?;
            row.rival(ours).map(|rival| rival.ratio)
        });
        let _ =
            writeln!(text, "| fastest level / paper's library, its fastest | {} |\n", join(ratios));
    }
    text.trim_end().to_owned()
}

fn same_level(row: &Contest, level: &str) -> Option<f64> {
    Some(row.same_level(row.level(level)?)?.median)
}

fn join(cells: impl Iterator<Item = Option<f64>>) -> String {
    let cells = cells.map(|cell| cell.map_or_else(|| "-".to_owned(), number));
    cells.collect::<Vec<_>>().join(" | ")
}

/// Explanation of the columns.
const NOTE: &str = "\
The paper's library was not measured in this run: its figures are older, from the same machine class.
Coded Gbit/s: coded (or recovered) payload bits per second, unless the heading says otherwise. The
ceiling is what the core's instruction for products (for a multiply-add, its stores) allows at this
length, where a length counts as the whole vectors that hold it; it is measured with each row, in
the same rounds, and fractions and ratios are medians of the rounds' own. Rivals do the same job.
Structured codes do a related one: their coefficients are fixed, so they cannot be recoded.";
