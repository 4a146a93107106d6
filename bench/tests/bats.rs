//! Runs the BATS benchmark for a moment, as a user would. Speeds are not checked: they mean nothing
//! on a busy machine or without optimisation.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs it with a sample or two; the table, and the rows of the JSON.
fn bats(arguments: &[&str]) -> (String, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bats.json");
    let moment = ["bats", "--rounds", "2", "--millis", "0.01", "--json"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    let output = command.args(moment).arg(&path).args(arguments).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    (table, rows(&path))
}

fn rows(path: &Path) -> Vec<Value> {
    let result: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(result["machine"]["date"].is_string() && result["kernel"].is_string());
    let rows = result["rows"].as_array().unwrap();
    for row in rows {
        let contestants = row["contestants"].as_array().unwrap();
        assert_eq!(contestants.len(), 3, "{row}");
        assert_eq!(row["left_out"], Value::Array(Vec::new()), "a rival failed its check: {row}");
        for who in contestants {
            for key in ["median", "best", "ours_to_it", "ours_to_it_low", "ours_to_it_high"] {
                assert!(who[key].as_f64().is_some_and(|number| number > 0.0), "{key} of {who}");
            }
            assert_eq!(who["samples"].as_array().unwrap().len(), 2, "{who}");
        }
    }
    rows.clone()
}

#[test]
fn bats_for_a_moment_every_code_is_measured_and_judged() {
    let (table, rows) = bats(&["--symbols", "256"]);
    assert!(table.contains("| decode | 2 times raptorq |"), "{table}");
    assert_eq!(rows.len(), 6);
    for row in rows {
        let verdicts = if row["code"] == "cyclic-shift" { 2 } else { 0 };
        assert_eq!(row["targets"].as_array().unwrap().len(), verdicts, "{row}");
    }
}

#[test]
fn bats_of_other_shapes_decode() {
    for [symbols, batch_size, bytes] in [["16", "1", "64"], ["100", "8", "68"], ["128", "32", "64"]]
    {
        let arguments = ["--symbols", symbols, "--batch-size", batch_size, "--bytes", bytes];
        let (table, rows) = bats(&arguments);
        assert_eq!(rows.len(), 2, "{table}");
        assert!(table.contains(&format!("| {symbols} | {batch_size} | {bytes} |")), "{table}");
    }
}
