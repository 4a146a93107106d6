//! Runs the benchmark of the longest times for a moment, as a user would. Times are not checked:
//! they mean nothing on a busy machine or without optimisation.

use std::process::Command;

use serde_json::Value;

#[test]
fn worst_for_a_moment_every_role_and_code_has_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worst.json");
    let arguments = ["worst", "--quick", "--json"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).arg(&path).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}{errors}");
    assert!(table.contains("| rlnc 64, GF(256) | relay |"), "{table}");

    let result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert!(rows.len() >= 4 * 4 && rows.len().is_multiple_of(4), "{} rows", rows.len());
    for row in rows {
        assert!(row["packets"].as_u64().unwrap() > 0, "no packet reached this node: {row}");
        assert!(row["worst"].as_f64().is_some() && row["met"].is_boolean(), "{row}");
    }
    // A node that decodes completes units.
    let completes =
        |row: &&Value| row["worst_completing"].as_f64().is_some_and(|micros| micros > 0.0);
    assert!(rows.iter().filter(completes).count() > rows.len() / 4, "{table}");
}
