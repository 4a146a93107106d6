//! Result tables.

use crate::bats::block::{BlockShape, Variant};
use crate::bats::rows::{Figures, Measured, Target, Task, Verdict};
use crate::kernels::contest::{Role, number};

/// All contestants at the targets' shape, the default code at all shapes, and the targets.
pub fn tables(rows: &[Measured]) -> String {
    let mut lines = Vec::new();
    if rows.iter().any(|row| row.shape == BlockShape::TARGET) {
        lines.extend(everybody(rows));
        lines.push(String::new());
    }
    lines.extend(shapes(rows));
    if rows.iter().any(|row| !row.targets.is_empty()) {
        lines.push(String::new());
        lines.extend(targets(rows));
    }
    lines.extend(rows.iter().flat_map(|row| &row.left_out).map(|out| format!("left out: {out}")));
    lines.join("\n")
}

fn everybody(rows: &[Measured]) -> Vec<String> {
    let mut lines = headed(
        "| job | code (mean degree) | who | Gbit/s, median | best | Recoded / it (8 of 10 rounds) |",
        "|---|---|---|---:|---:|---:|",
    );
    for row in rows.iter().filter(|row| row.shape == BlockShape::TARGET) {
        for figures in &row.contestants {
            lines.push(format!(
                "| {} | {} ({:.1}) | {} | {} | {} | {} |",
                name(row.job),
                row.code,
                row.mean_degree,
                figures.name,
                number(figures.median),
                number(figures.best),
                if figures.role == Role::Ours { String::new() } else { ratio(figures) },
            ));
        }
    }
    lines
}

/// The default code: K, M, T, and both jobs in one line.
fn shapes(rows: &[Measured]) -> Vec<String> {
    let mut lines = headed(
        "| K | M | T | mean degree | encode, Gbit/s | of the ceiling | to raptorq | decode, Gbit/s | to raptorq |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    );
    let of =
        |job| rows.iter().filter(move |row| row.job == job && row.code == Variant::DEFAULT.name);
    for (encode, decode) in of(Task::Encode).zip(of(Task::Decode)) {
        let BlockShape { symbols, batch_size, bytes } = encode.shape;
        lines.push(format!(
            "| {symbols} | {batch_size} | {bytes} | {:.1} | {} | {} | {} | {} | {} |",
            encode.mean_degree,
            number(encode.contestants[0].median),
            beside(encode, Role::Ceiling),
            beside(encode, Role::Structured),
            number(decode.contestants[0].median),
            beside(decode, Role::Structured),
        ));
    }
    lines
}

/// Ours to the fastest of a role.
fn beside(row: &Measured, role: Role) -> String {
    let others = row.contestants.iter().filter(|other| other.role == role);
    others.max_by(|a, b| a.median.total_cmp(&b.median)).map_or("-".into(), ratio)
}

fn targets(rows: &[Measured]) -> Vec<String> {
    let mut lines = headed("| target | | measured | |", "|---|---|---:|---|");
    for row in rows {
        for Verdict { target: Target { what, at_least, .. }, measured, met } in &row.targets {
            let (job, met) = (name(row.job), if *met { "met" } else { "missed" });
            lines.push(format!("| {job} | {at_least} {what} | {measured:.2} | {met} |"));
        }
    }
    lines
}

fn headed(head: &str, columns: &str) -> Vec<String> {
    vec![head.to_owned(), columns.to_owned()]
}

fn ratio(figures: &Figures) -> String {
    let Figures { ours_to_it, ours_to_it_low, ours_to_it_high, .. } = figures;
    format!("{ours_to_it:.2} ({ours_to_it_low:.2} to {ours_to_it_high:.2})")
}

fn name(job: Task) -> &'static str {
    match job {
        Task::Encode => "encode",
        Task::Decode => "decode",
    }
}
