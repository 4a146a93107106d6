//! Runs the benchmark of tags and the simulated attacks for a moment, as a user would. Speeds are
//! not checked: they mean nothing on a busy machine or without optimisation.

use std::process::Command;

use serde_json::Value;

/// Runs `bench secure` with these arguments. Returns its table and its JSON.
fn secure(arguments: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secure.json");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    let output = bench.arg("secure").args(arguments).arg("--json").arg(&path).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}{errors}");
    (table, serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap())
}

#[test]
fn secure_for_a_moment_every_row_is_complete() {
    let (table, result) = secure(&["--rounds", "1", "--millis", "0.01", "--bytes", "500"]);
    assert!(table.contains("boringtun"), "{table}");
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 29);
    for row in rows {
        assert!(row["median_nanos"].as_f64().is_some_and(|nanos| nanos > 0.0), "{row}");
    }
    assert!(result["relay_nanos"].as_f64().is_some_and(|nanos| nanos > 0.0));
}

/// In virtual time results depend on no machine: aims are checked.
#[test]
fn simulated_attacks_are_all_in_the_report_and_meet_the_aims() {
    let (table, result) = secure(&["--attack", "--simulated", "--quick"]);
    assert_eq!(result["benchmark"], "secure --attack --simulated");
    assert!(result["machine"]["date"].as_str().is_some_and(|date| date.starts_with("20")));
    let adversaries = &result["adversaries"];
    for (kind, count) in [("liars", 11), ("cookies", 5), ("forged", 9)] {
        assert_eq!(adversaries[kind].as_array().map(Vec::len), Some(count), "{kind}");
    }
    assert_eq!(adversaries["met"], true, "{table}");
    assert!(table.contains("replays symbols | stream, every"), "{table}");
}
