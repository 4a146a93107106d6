//! The page of a run.

use std::fmt::Write as _;

use crate::kernels::contest::number;
use crate::median::median;
use crate::stripes::Document;
use crate::stripes::codes::OURS;
use crate::stripes::files::{FileRow, Files, OURS as OUR_PROGRAM};
use crate::stripes::grid::{BUFFERS, LARGE_BYTES, Measured, Part, Row, SMALL_BYTES, Small};

/// Codes whose rates are shown, as data and parity buffers.
const SHOWN: [[usize; 2]; 6] = [[4, 2], [10, 4], [16, 2], [16, 4], [2, 16], [16, 16]];

/// Rate of small buffers over large ones that every code should reach.
const SMALL_MIN: f64 = 0.5;

/// Rate of the program over the lower one of memory and disk that it should reach.
const LIMIT_MIN: f64 = 0.8;

/// Memory of the program at most.
const PEAK_MIB_MAX: f64 = 256.0;

/// The page as Markdown.
pub fn page(document: &Document) -> String {
    let mut text = HEAD.to_owned();
    let Document { machine, is_shared, kernel, rounds, sample_seconds, seed, .. } = document;
    let shared = match is_shared {
        true => " **Other programs used this machine meanwhile**: only ratios mean something.",
        false => "",
    };
    let _ = writeln!(
        text,
        "{}. Kernel `{kernel}`, {rounds} samples of at least {} ms each, medians, seed {seed}.{shared}\n",
        machine.heading(),
        sample_seconds * 1e3
    );
    for rival in &document.rivals {
        let _ = match (&rival.absent, &rival.file) {
            (Some(reason), _) => writeln!(text, "- not measured: {}: {reason}", rival.name),
            (_, Some(file)) => writeln!(text, "- {} ({file}): {}", rival.name, rival.uses),
            _ => writeln!(text, "- {}: {}", rival.name, rival.uses),
        };
    }
    if !document.grid.is_empty() {
        rates(&mut text, &document.grid);
        summary(&mut text, &document.grid);
        small(&mut text, &document.small);
        for part in [Part::Encode, Part::Recover] {
            all_codes(&mut text, &document.grid, part);
        }
    }
    if let Some(files) = &document.files {
        programs(&mut text, files, &document.grid);
    }
    text
}

const HEAD: &str = "# stripes: codes of stored files, and whole programs

Reed-Solomon codes k + m in memory, compared with libraries that programs may choose from; and `recoded-stripes` compared with par2, a
copy in memory and the disk. The page is generated.

```sh
cargo build --release -p recoded-stripes
cargo run --release -p bench -- stripes --json bench/results/stripes.json --page docs/measurements/stripes.md
```

Rates are of data, parity not counted, on one core. Before it is timed, each library recovers as many lost data buffers as it can, and
one data buffer by each parity buffer alone; all bytes are compared. Ratios are Recoded's rate over the other one, as medians
over rounds; all take turns in a round. Above 1 Recoded is ahead. `recover` computes the first min(k, m) data buffers from the others and as
many parity buffers, inversion included. reed-solomon-simd has memory of its own, and its copies count: its interface demands them.

";

fn name(part: Part) -> &'static str {
    match part {
        Part::Encode => "encode",
        Part::Recover => "recover",
    }
}

/// Rows of a part and a size.
fn of(grid: &[Row], part: Part, bytes: usize) -> impl Iterator<Item = &Row> {
    grid.iter().filter(move |row| row.part == part && row.bytes == bytes)
}

/// Names of all contenders but Recoded, in their order.
fn rivals(grid: &[Row]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for contender in grid.iter().flat_map(|row| &row.contenders) {
        if contender.who != OURS && !names.contains(&contender.who.as_str()) {
            names.push(&contender.who);
        }
    }
    names
}

fn find<'a>(row: &'a Row, who: &str) -> Option<&'a Measured> {
    row.contenders.iter().find(|contender| contender.who == who)
}

fn parts() -> impl Iterator<Item = (Part, usize)> {
    let sizes = [LARGE_BYTES, SMALL_BYTES];
    [Part::Encode, Part::Recover].into_iter().flat_map(move |part| sizes.map(|size| (part, size)))
}

fn size(bytes: usize) -> String {
    match bytes {
        LARGE_BYTES => "1 MiB".into(),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

fn rates(text: &mut String, grid: &[Row]) {
    let rivals = rivals(grid);
    let _ = write!(
        text,
        "\n## Rates\nGB/s, and the ratio in brackets.\n\n| | buffers | code | {OURS} |"
    );
    rivals.iter().for_each(|name| text.push_str(&format!(" {name} |")));
    text.push_str("\n|---|---|---|---:|");
    text.push_str(&"---:|".repeat(rivals.len()));
    text.push('\n');
    for (part, bytes) in parts() {
        for row in of(grid, part, bytes).filter(|row| SHOWN.contains(&[row.k, row.m])) {
            let ours = find(row, OURS).map_or(f64::NAN, |ours| ours.rate);
            let (what, size) = (name(part), size(bytes));
            let _ = write!(text, "| {what} | {size} | {} + {} | {} |", row.k, row.m, number(ours));
            for rival in &rivals {
                let cell = find(row, rival).map_or("-".into(), |it| {
                    format!("{} ({})", number(it.rate), number(it.ours_to_it))
                });
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
    }
}

fn summary(text: &mut String, grid: &[Row]) {
    text.push_str(
        "\n## All codes\nRatios over all codes of the grid.\n\n| rival | | buffers | codes | Recoded \
         ahead | least | median | most | least at |\n|---|---|---|---:|---:|---:|---:|---:|---|\n",
    );
    for rival in rivals(grid) {
        for (part, bytes) in parts() {
            let ratio = |row| Some((find(row, rival)?.ours_to_it, row));
            let mut ratios: Vec<(f64, &Row)> = of(grid, part, bytes).filter_map(ratio).collect();
            ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else { continue };
            let _ = writeln!(
                text,
                "| {rival} | {} | {} | {} | {} | {} | {} | {} | {} + {} |",
                name(part),
                size(bytes),
                ratios.len(),
                ratios.iter().filter(|(ratio, _)| *ratio >= 1.0).count(),
                number(least.0),
                number(median(ratios.iter().map(|(ratio, _)| *ratio))),
                number(most.0),
                least.1.k,
                least.1.m
            );
        }
    }
    for row in grid {
        for reason in &row.left_out {
            let _ = writeln!(text, "- left out at {} + {}: {reason}", row.k, row.m);
        }
    }
}

fn small(text: &mut String, all: &[Small]) {
    let _ = writeln!(
        text,
        "\n## Small stripes\nRecoded's rate with buffers of 32 KiB over its rate with 1 MiB; at least \
         {SMALL_MIN} is the aim.\n\n| | least | at | median | |\n|---|---:|---|---:|---|"
    );
    for part in [Part::Encode, Part::Recover] {
        let ratios = all.iter().filter(|small| small.part == part);
        let least = ratios.clone().min_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let Some(Small { k, m, ratio, .. }) = least else { continue };
        let _ = writeln!(
            text,
            "| {} | {} | {k} + {m} | {} | {} |",
            name(part),
            number(*ratio),
            number(median(ratios.map(|small| small.ratio))),
            met(*ratio >= SMALL_MIN)
        );
    }
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

/// Recoded over the fastest rival, for each code.
fn all_codes(text: &mut String, grid: &[Row], part: Part) {
    let columns: Vec<usize> =
        BUFFERS.filter(|m| of(grid, part, LARGE_BYTES).any(|row| row.m == *m)).collect();
    let _ = write!(
        text,
        "\n## {}: Recoded over the fastest rival, buffers of 1 MiB\n| k \\\\ m |",
        name(part)
    );
    columns.iter().for_each(|m| text.push_str(&format!(" {m} |")));
    text.push_str("\n|---:|");
    text.push_str(&"---:|".repeat(columns.len()));
    text.push('\n');
    for k in BUFFERS.filter(|k| of(grid, part, LARGE_BYTES).any(|row| row.k == *k)) {
        let _ = write!(text, "| {k} |");
        for m in &columns {
            let row = of(grid, part, LARGE_BYTES).find(|row| (row.k, row.m) == (k, *m));
            let rivals = row.into_iter().flat_map(|row| &row.contenders[1..]);
            let least = rivals.map(|rival| rival.ours_to_it).fold(f64::INFINITY, f64::min);
            let cell = if least.is_finite() { number(least) } else { "-".into() };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
}

fn programs(text: &mut String, files: &Files, grid: &[Row]) {
    let Files { bytes, k, m, copy, disk, .. } = files;
    let mib = bytes >> 20;
    let _ = writeln!(
        text,
        "\n## Programs\nA file of {mib} MiB with {k} + {m}, all cores, until results are durable; \
         {m} parts are lost before `recover`. par2 has {k} blocks and {m} for recovery, 256 MB of memory, \
         and writes parity only. In the same rounds, memory copied at {} GB/s, and the disk wrote at {} \
         GB/s. The limit is the lower one of both for the bytes that a program writes. A share above 1 \
         means that other programs took more of the machine while the limit was measured.\n\n| | program | \
         GB/s of the file | of its limit | memory, MiB | seconds |\n|---|---|---:|---:|---:|---|",
        number(*copy),
        number(*disk)
    );
    for FileRow { part, who, rate, of_limit, peak_mib, samples } in &files.rows {
        let samples: Vec<String> = samples.iter().map(|seconds| number(*seconds)).collect();
        let _ = writeln!(
            text,
            "| {} | {who} | {} | {} | {} | {} |",
            name(*part),
            number(*rate),
            number(*of_limit),
            number(*peak_mib),
            samples.join(", ")
        );
    }
    files.left_out.iter().for_each(|reason| text.push_str(&format!("\n- left out: {reason}\n")));
    text.push_str("\n| aim of `recoded-stripes` | measured | |\n|---|---:|---|\n");
    for row in files.rows.iter().filter(|row| row.who == OUR_PROGRAM) {
        let FileRow { of_limit, peak_mib, rate, .. } = row;
        let part = name(row.part);
        let of_limit_met = met(*of_limit >= LIMIT_MIN);
        let peak_met = met(*peak_mib <= PEAK_MIB_MAX);
        let _ = write!(
            text,
            "| {part}: {LIMIT_MIN} of the limit | {} | {of_limit_met} |\n| {part}: at most \
             {PEAK_MIB_MAX} MiB of memory | {} | {peak_met} |\n",
            number(*of_limit),
            number(*peak_mib)
        );
        let mut codes = of(grid, row.part, LARGE_BYTES);
        let code = codes.find(|code| (code.k, code.m) == (*k, *m));
        if let Some(isal) = code.and_then(|code| find(code, crate::stripes::codes::ISAL)) {
            let (ratio, met) = (rate / isal.rate, met(*rate >= isal.rate));
            let _ = writeln!(
                text,
                "| {part}: ISA-L's rate in memory, on one core | {} | {met} |",
                number(ratio)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::stripes::read;

    #[test]
    fn committed_page_is_that_of_the_committed_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let document = read(&root.join("bench/results/stripes.json"));
        let document = document.unwrap_or_else(|error| panic!("{error}"));
        let committed = fs::read_to_string(root.join("docs/measurements/stripes.md"));
        let fix = "fix: cargo run -p bench -- stripes --from ... --page ... (bench/README.md)";
        assert_eq!(page(&document), committed.expect("the page exists"), "{fix}");
        assert!(!document.grid.is_empty() && document.files.is_some(), "a part is missing");
    }
}
