//! The report as a table.

use super::{EngineComparison, EngineReport};
use crate::table::{Align, sentence, table};

/// Lays out a report.
pub fn text(report: &EngineComparison) -> String {
    let mut text = String::new();
    for engine in &report.engines {
        let state = if engine.available { "" } else { "none: " };
        text += &sentence(&format!("{:<8}", engine.name), &format!("{state}{}", engine.detail));
    }
    if report.seconds == 0 {
        return text;
    }
    text += &format!(
        "\nGB/s of coded symbols from host memory to host memory, measured in {} s: as many symbols of\n\
         {} bytes coded as there are source symbols.\n\n",
        report.seconds, report.symbol_bytes
    );
    let head = [
        ("source symbols", Align::Right),
        ("cpu-1", Align::Right),
        ("cpu", Align::Right),
        ("cuda", Align::Right),
        ("fpga", Align::Right),
        ("card pays from", Align::Right),
    ];
    let sizes = report.engines.iter().find(|engine| !engine.rates.is_empty());
    let sizes = sizes.map_or(&[][..], |engine| &engine.rates);
    let row = |(index, size): (usize, &super::Rate)| {
        let rate = |name| cell(&report.engines, name, index);
        let pays = match report.break_even.get(index) {
            None => "-".into(),
            Some(found) => {
                found.bytes.map_or("never".into(), |bytes| format!("{} kB", bytes / 1000))
            }
        };
        let [one, all, cuda, fpga] = ["cpu-1", "cpu", "cuda", "fpga"].map(rate);
        [size.source_symbols.to_string(), one, all, cuda, fpga, pays]
    };
    let rows: Vec<[String; 6]> = sizes.iter().enumerate().map(row).collect();
    text + &table(head, &rows)
}

fn cell(engines: &[EngineReport], name: &str, index: usize) -> String {
    let engine = engines.iter().find(|engine| engine.name == name);
    let rate = engine.and_then(|engine| engine.rates.get(index));
    rate.map_or("-".into(), |rate| format!("{:.2}", rate.gigabytes))
}
