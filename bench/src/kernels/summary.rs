//! The most informative rows, as shown in `docs/measurements/kernels.md`.

use crate::kernels::anchors::{PAPER_BYTES, PAPER_FIELDS, paper_name};
use crate::kernels::contest::{Comparison, Contest, Role, number};
use crate::kernels::rows::Section;

/// Both tables, in Markdown.
pub fn text(rows: &[Contest]) -> String {
    let mut lines = vec![
        "| job | Recoded | of the ceiling | best rival | Recoded / rival | best structured code |"
            .into(),
        "|---|---:|---:|---|---:|---|".into(),
    ];
    lines.extend(JOBS.iter().filter_map(|(words, section, n, k, name)| {
        let of_job = |row: &&Contest| row.n == *n && row.k == *k && row.name.contains(name);
        Some(line(words, of_section(rows, *section).find(of_job)?))
    }));
    lines.push(String::new());
    lines.extend(paper(rows));
    lines.join("\n")
}

fn of_section(rows: &[Contest], section: Section) -> impl Iterator<Item = &Contest> {
    rows.iter().filter(move |row| row.section == section)
}

fn line(words: &str, row: &Contest) -> String {
    let Some(ours) = row.fastest(Role::Ours) else { return format!("| {words} | - | | | | |") };
    let rate = |other: &Comparison<'_>| format!("{}, {}", other.name, number(other.median));
    let rival = row.rival(ours);
    let ratio = rival.as_ref().map_or_else(|| "-".into(), |rival| format!("{:.2}", rival.ratio));
    let or_none = |other: Option<Comparison<'_>>| other.map_or_else(|| "-".into(), |it| rate(&it));
    format!(
        "| {words} | {} | {:.2} | {} | {ratio} | {} |",
        number(ours.median()),
        row.fraction(ours),
        or_none(rival),
        or_none(row.structured(ours)),
    )
}

/// A line per field: the fastest level, and its speedup over the paper's library.
fn paper(rows: &[Contest]) -> Vec<String> {
    let cells = |field: String| {
        let cell = |k: usize| {
            let row =
                of_section(rows, Section::Paper).find(|row| row.field == field && row.k == k)?;
            let ours = row.fastest(Role::Ours)?;
            let ratio = row.rival(ours).map(|library| format!(" ({:.2})", library.ratio));
            Some(number(ours.median()) + &ratio.unwrap_or_default())
        };
        PAPER_BYTES.map(|k| cell(k).unwrap_or_else(|| "-".into())).join(" | ")
    };
    let sizes = PAPER_BYTES.map(|k| format!("{k} B")).join(" | ");
    let head = format!("| 16 into one (times the paper's library) | {sizes} |");
    let rule = format!("|---|{}", "---:|".repeat(PAPER_BYTES.len()));
    let fields = PAPER_FIELDS.into_iter();
    let rows =
        fields.map(|field| format!("| {} | {} |", paper_name(field), cells(field.to_string())));
    [head, rule].into_iter().chain(rows).collect()
}

/// Name of a row, and where it is found.
type Line = (&'static str, Section, usize, usize, &'static str);

const JOBS: [Line; 16] = [
    ("16 to 16, 1500 B", Section::Encode, 16, 1500, ""),
    ("32 to 32, 1500 B", Section::Encode, 32, 1500, ""),
    ("64 to 64, 1500 B", Section::Encode, 64, 1500, ""),
    ("128 to 128, 1500 B", Section::Encode, 128, 1500, ""),
    ("128 to 128, 4096 B", Section::Encode, 128, 4096, ""),
    ("16 to 16, 1500 B, frames of 2048 B", Section::Umem, 16, 1500, "2048"),
    ("16 to 16, 1500 B, frames of 4096 B", Section::Umem, 16, 1500, "4096"),
    ("64 to 64, 1500 B, coefficients 0 and 1", Section::Binary, 64, 1500, ""),
    ("decode 16 x 1500 B", Section::Decode, 16, 1500, ""),
    ("decode 64 x 1500 B", Section::Decode, 64, 1500, ""),
    ("decode 128 x 4096 B", Section::Decode, 128, 4096, ""),
    ("recode 16 to 16, 1500 B", Section::Recode, 16, 1500, ""),
    ("the same, vectors in front of symbols", Section::Recode, 16, 1500, "in front"),
    ("madd, 1500 B (GB/s)", Section::Madd, 1, 1500, ""),
    ("invert 16 x 16 (per second)", Section::Invert, 16, 0, ""),
    ("invert 128 x 128 (per second)", Section::Invert, 128, 0, ""),
];
