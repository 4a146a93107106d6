//! Runs the benchmark of tags for a moment, as a user would. Speeds are not checked: they mean
//! nothing on a busy machine or without optimisation.

use std::process::Command;

use serde_json::Value;

#[test]
fn secure_for_a_moment_every_row_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secure.json");
    let arguments = ["secure", "--rounds", "1", "--millis", "0.01", "--bytes", "500", "--json"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).arg(&path).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}{errors}");
    assert!(table.contains("boringtun"), "{table}");

    let result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 29);
    for row in rows {
        assert!(row["median_nanos"].as_f64().is_some_and(|nanos| nanos > 0.0), "{row}");
    }
    assert!(result["relay_nanos"].as_f64().is_some_and(|nanos| nanos > 0.0));
}
