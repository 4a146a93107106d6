//! Tables for humans, JSON for everything else, the index of the figures.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::Findings;
use super::coding::{CPU, DEVICE, HOST};
use super::rows::{Part, Row, RowKey};
use super::server::{CHECKED, COPYING, TOGETHER};
use super::single::{DISPATCHER, DISPATCHER_MIN};
use crate::error::BenchError;
use crate::figures::output::Summary;
use crate::results::{self, write_json};

/// Something to reach on a card of today.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// Name of the measure.
    measure: &'static str,
    /// Lower bound.
    target: f64,
    /// Measured value; none without a card.
    ours: Option<f64>,
    /// Whether the target is met.
    is_met: Option<bool>,
}

/// Prints everything that fits a screen or two.
pub fn print(findings: &Findings) {
    print!("{}", text(findings));
}

fn text(findings: &Findings) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match &findings.card {
        Ok(card) => writeln!(text, "## Card\n{}\n{}", card.name, card_table(findings)),
        Err(reason) => {
            writeln!(text, "## No card\n{reason}.\nColumns of the card are not measured.\n")
        }
    };
    text += &rates_table(findings, Part::Encode, "Encoding: GB/s of results", 0);
    text +=
        &rates_table(findings, Part::Decode, "Decoding as many segments as fill CPU or card", 0);
    text += &streaming_table(findings);
    text += &large_table(findings);
    text += &stripes_table(findings);
    text += &break_even_table(findings);
    text += &targets_table(findings);
    for trouble in &findings.bed.troubles {
        let _ = writeln!(text, "left out: {trouble}");
    }
    let _ = writeln!(text, "\n{} scale, {:.0} s", findings.bed.scale.name, findings.seconds);
    text
}

fn card_table(findings: &Findings) -> String {
    let Ok(card) = &findings.card else { return String::new() };
    let mut text = String::from("| measured | value |\n|---|---:|\n");
    let giga =
        |value: Option<f64>| value.map_or(NONE.into(), |value| format!("{:.1}", value / 1e9));
    for direction in ["in", "out", "both"] {
        let rate = giga(card.copy_rate(direction));
        let _ = writeln!(text, "| copies {direction}, pinned, GB/s each way | {rate} |");
    }
    for (name, key) in [
        ("interval of consecutive launches, us", "launch_interval_seconds"),
        ("latency of a launch, us", "launch_latency_seconds"),
    ] {
        let value = card.described[key].as_f64().map_or(NONE.into(), |s| format!("{:.1}", s * 1e6));
        let _ = writeln!(text, "| {name} | {value} |");
    }
    for (name, rate) in [
        ("instructions of a warp, G/s", card.rates.map(|rates| rates.instructions)),
        ("accesses to shared memory, G/s", card.rates.map(|rates| rates.accesses)),
        ("binary products of a warp, G/s", card.rates.map(|rates| rates.products)),
        ("binary products of four warps, G/s", card.rates.map(|rates| rates.wide_products)),
    ] {
        let _ = writeln!(text, "| {name} | {} |", giga(rate));
    }
    text + "\n"
}

/// Rates of all contestants by size, for symbols of the streaming server's length.
fn rates_table(findings: &Findings, part: Part, title: &str, of: usize) -> String {
    let (_, bytes) = findings.bed.scale.streaming;
    let rows = &findings.bed.rows;
    let mut text = format!("## {title}, symbols of {bytes} bytes\n| n |");
    let mut names = rows.who(part);
    names.retain(|who| rows.of(part, who).any(|row| row.key.of == of && row.key.bytes == bytes));
    let card = [HOST, "card, resident, ..."];
    let missing: Vec<&str> = if findings.card.is_err() { card.into() } else { Vec::new() };
    for name in names.iter().chain(&missing) {
        let _ = write!(text, " {name} |");
    }
    text += "\n|---:|";
    text += &"---:|".repeat(names.len() + missing.len());
    let mut sizes: Vec<usize> = rows
        .0
        .iter()
        .filter(|row| row.key.part == part && row.key.bytes == bytes)
        .map(|row| row.key.n)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    for n in sizes {
        let _ = write!(text, "\n| {n} |");
        for name in &names {
            let row = rows.at(RowKey { part, n, bytes, of }, name);
            let _ = write!(text, " {} |", digits(row));
        }
        text += &" not measured |".repeat(missing.len());
    }
    text + "\n\n"
}

fn streaming_table(findings: &Findings) -> String {
    let (n, bytes) = findings.bed.scale.streaming;
    let mut text = format!(
        "## Streaming server: coded symbols of one segment of {n} x {bytes} bytes\n\
         | who | GB/s |\n|---|---:|\n"
    );
    for row in findings.bed.rows.0.iter().filter(|row| row.key.part == Part::Streaming) {
        let _ = writeln!(text, "| {} | {} |", row.who, digits(Some(row)));
    }
    if findings.card.is_err() {
        text += "| card, segment kept, resident or to the host | not measured |\n";
    }
    text + "\n"
}

fn large_table(findings: &Findings) -> String {
    let mut text = String::from(
        "## CPU and card together, GB/s of results\n\
         | n | CPU | card | together | of the sum | the card's share | checked | rows copied |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in findings.bed.rows.of(Part::Large, CPU) {
        let place = RowKey { part: Part::Large, n: row.key.n, bytes: row.key.bytes, of: 0 };
        let rows = &findings.bed.rows;
        let (card, both) = (rows.at(place, HOST), rows.at(place, TOGETHER));
        let sum = card.zip(both).map(|(card, both)| both.rate / (card.rate + row.rate));
        let share = both.and_then(|both| both.share);
        let part = |value: Option<f64>| value.map_or(NONE.into(), |value| format!("{value:.2}"));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.key.n,
            digits(Some(row)),
            digits(card),
            digits(both),
            part(sum),
            part(share),
            digits(rows.at(place, CHECKED)),
            digits(rows.at(place, COPYING)),
        );
    }
    text + "\n"
}

fn stripes_table(findings: &Findings) -> String {
    let bytes = findings.bed.scale.buffers.last().copied().unwrap_or_default();
    let mut text = format!(
        "## Reed-Solomon stripes, buffers of {bytes} bytes, GB/s of data\n\
         | k+m | CPU generates | recovers | card generates | recovers |\n|---|---:|---:|---:|---:|\n"
    );
    for row in findings.bed.rows.of(Part::Generate, CPU).filter(|row| row.key.bytes == bytes) {
        let place = |part| RowKey { part, n: row.key.n, bytes, of: row.key.of };
        let rows = &findings.bed.rows;
        let _ = writeln!(
            text,
            "| {}+{} | {} | {} | {} | {} |",
            row.key.n,
            row.key.of,
            digits(Some(row)),
            digits(rows.at(place(Part::Recover), CPU)),
            digits(rows.at(place(Part::Generate), HOST)),
            digits(rows.at(place(Part::Recover), HOST)),
        );
    }
    text + "\n"
}

fn break_even_table(findings: &Findings) -> String {
    let mut text = String::from(
        "## Bytes of a segment from which the card is faster\n\
         | n | cores | measured | formula, measured rates | formula, assumed card |\n\
         |---:|---:|---:|---:|---:|\n",
    );
    let has_card = findings.card.is_ok();
    for point in &findings.break_even {
        let never = |value: Option<u64>, is_known: bool| match value {
            Some(bytes) => bytes.to_string(),
            None if is_known => "never".into(),
            None => NONE.into(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            point.n,
            point.cores,
            never(point.measured.map(|bytes| bytes as u64), has_card),
            never(point.model, has_card),
            never(point.before_measuring, true),
        );
    }
    text + "\n"
}

fn targets_table(findings: &Findings) -> String {
    let mut text =
        String::from("## Targets\n| measure | at least | measured | met |\n|---|---:|---:|---|\n");
    for Target { measure, target, ours, is_met } in targets(findings) {
        let measured = ours.map_or(NONE.into(), |value| format!("{value:.2}"));
        let met = match is_met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => NONE,
        };
        let _ = writeln!(text, "| {measure} | {target} | {measured} | {met} |");
    }
    text
}

/// Targets for a current card, in GB/s or as shares.
fn targets(findings: &Findings) -> Vec<Target> {
    let (rows, card) = (&findings.bed.rows, findings.card.as_ref().ok());
    let at = |part, n, bytes, of, who: &str| {
        Some(rows.at(RowKey { part, n, bytes, of }, who)?.rate / 1e9)
    };
    let encode = |technique: &str| at(Part::Encode, 128, 4096, 0, &format!("{DEVICE}{technique}"));
    let copies = ["in", "out"].map(|direction| Some(card?.copy_rate(direction)? / 1e9));
    let copy = copies[0].zip(copies[1]).map(|(to, from)| to.min(from));
    let of = |value: Option<f64>, whole: Option<f64>| value.zip(whole).map(|(v, whole)| v / whole);
    let limit = |technique: &str| Some(card?.limit(technique, 128)? / 1e9);
    let best = ["permute", "four-russians"].into_iter().filter_map(&encode).max_by(f64::total_cmp);
    let auto = format!("{DEVICE}auto");
    let many = at(Part::Decode, 128, 4096, 0, &auto);
    let buffer = findings.bed.scale.buffers.last().copied().unwrap_or_default();
    let generate = at(Part::Generate, 10, buffer, 4, HOST);
    let recover = at(Part::Recover, 10, buffer, 4, HOST);
    let together = rows.of(Part::Large, TOGETHER).filter_map(|row| {
        let place = RowKey { part: Part::Large, n: row.key.n, bytes: row.key.bytes, of: 0 };
        Some(row.rate / (rows.at(place, CPU)?.rate + rows.at(place, HOST)?.rate))
    });
    let copying = rows.of(Part::Large, COPYING).filter_map(|row| {
        let place = RowKey { part: Part::Large, n: row.key.n, bytes: row.key.bytes, of: 0 };
        Some(row.rate / rows.at(place, CPU)?.rate)
    });
    let dispatched = rows.of(Part::Single, DISPATCHER).filter_map(|row| {
        let at = |who, of| at(Part::Single, row.key.n, row.key.bytes, of, who);
        Some(row.rate / 1e9 / at(CPU, row.key.of)?.max(at(HOST, 0)?))
    });
    let target = |measure, target, ours: Option<f64>| Target {
        measure,
        target,
        ours,
        is_met: ours.map(|ours| ours >= target),
    };
    let small =
        rows.of(Part::Generate, HOST).filter(|row| row.key.of == 2 && row.key.bytes == buffer);
    let small = small.filter_map(|row| {
        let least = findings.bed.scale.buffers.first().copied()?;
        Some(at(Part::Generate, row.key.n, least, 2, HOST)? / (row.rate / 1e9))
    });
    vec![
        target("encode, resident, 128 x 4096, permute or four-russians, GB/s", 150.0, best),
        target("the same, bmma or wgmma, GB/s", 400.0, encode("wgmma").or(encode("bmma"))),
        target("permute, of what issue rates allow", 0.8, of(encode("permute"), limit("permute"))),
        target("four-russians, of that", 0.8, of(encode("four-russians"), limit("four-russians"))),
        target("bmma, of that", 0.8, of(encode("bmma"), limit("bmma"))),
        target("wgmma, of that", 0.8, of(encode("wgmma"), limit("wgmma"))),
        target(
            "encode, host to host, 128 x 4096, of the copy rate",
            0.85,
            of(at(Part::Encode, 128, 4096, 0, HOST), copy),
        ),
        target("decode, many, resident, 128 x 4096, GB/s", 100.0, many),
        target(
            "gain of many segments over one",
            2.7,
            of(many, at(Part::Decode, 128, 4096, 1, &auto)),
        ),
        target("stripes 10+4, host to host, of the copy rate", 0.85, of(generate, copy)),
        target("stripes 10+4: recovering, of generating", 0.9, of(recover, generate)),
        target("stripes k+2, buffers of a 32nd, of large ones", 0.5, small.min_by(f64::total_cmp)),
        target("CPU and card together, of the sum", 0.9, together.min_by(f64::total_cmp)),
        target("the same, rows copied, of the CPU alone", 1.0, copying.min_by(f64::total_cmp)),
        target(
            "dispatcher, of the better of CPU and card, worst",
            DISPATCHER_MIN,
            dispatched.min_by(f64::total_cmp),
        ),
    ]
}

/// Everything, as JSON.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write(path: &Path, findings: &Findings) -> Result<(), BenchError> {
    let (card, why_no_card) = match &findings.card {
        Ok(card) => (Some(&card.described), None),
        Err(reason) => (None, Some(reason)),
    };
    let all = json!({
        "benchmark": "gpu",
        "machine": findings.machine,
        "card": card,
        "why_no_card": why_no_card,
        "scale": findings.bed.scale,
        "seconds": findings.seconds,
        "targets": targets(findings),
        "break_even": findings.break_even,
        "left_out": findings.bed.troubles,
        "rows": shapes(&findings.bed.rows.0),
    });
    write_json(path, &all)
}

/// Every shape in the order of first rows, with its contenders; rates to a thousandth.
fn shapes(rows: &[Row]) -> Vec<Value> {
    let digits = |rate: f64| format!("{rate:.3e}").parse::<f64>().unwrap_or(rate);
    let mut shapes: Vec<(RowKey, Vec<Value>)> = Vec::new();
    for row in rows {
        let contender = json!({
            "best": digits(row.best),
            "rate": digits(row.rate),
            "samples": row.samples.iter().map(|&rate| digits(rate)).collect::<Vec<_>>(),
            "share": row.share,
            "who": row.who,
        });
        match shapes.iter_mut().find(|(key, _)| *key == row.key) {
            Some((_, contenders)) => contenders.push(contender),
            None => shapes.push((row.key, vec![contender])),
        }
    }
    let shape = |(RowKey { part, n, bytes, of }, contenders)| json!({ "part": part, "n": n, "bytes": bytes, "of": of, "contenders": contenders });
    shapes.into_iter().map(shape).collect()
}

/// The index of a folder of figures.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write_index(
    folder: &Path,
    summaries: &[Summary],
    findings: &Findings,
) -> Result<(), BenchError> {
    let mut text = format!(
        "# gpu\n\nWritten by `cargo run --release -p bench -- gpu`; \
         `docs/measurements/gpu.md` explains it.\n\
         {}.\n\n",
        findings.machine.heading()
    );
    if findings.card.is_err() {
        text += "**No card was there: every column of a card waits for one.** What is below is the \
                 CPU's.\n\n";
    }
    text += &self::text(findings);
    for Summary { name, title, .. } in summaries {
        let _ = write!(text, "\n![{title}]({name}.svg)\n");
    }
    results::write(&folder.join("README.md"), text)
}

fn digits(row: Option<&Row>) -> String {
    row.map_or(NONE.into(), |row| match row.rate / 1e9 {
        rate if rate < 10.0 => format!("{rate:.2}"),
        rate => format!("{rate:.1}"),
    })
}

const NONE: &str = "not measured";
