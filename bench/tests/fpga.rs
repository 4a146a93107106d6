//! Runs the benchmark of the simulated card for a moment, as a user would.

use std::process::Command;

use serde_json::Value;

#[test]
fn fpga_for_a_moment_every_part_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let (json, svg) = (folder.path().join("fpga.json"), folder.path().join("fpga.svg"));
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.args(["fpga", "--quick", "--json"]).arg(&json).arg("--figure").arg(&svg);
    let output = bench.output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{table}{errors}");
    assert!(table.contains("300 MHz assumed"), "{table}");

    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let lengths = [("jobs", 16), ("experiments", 11), ("makespans", 3), ("luts_per_product", 5)];
    for (part, rows) in lengths {
        assert_eq!(report[part].as_array().map(Vec::len), Some(rows), "{part}");
    }
    for row in report["experiments"].as_array().unwrap() {
        assert!(row["gbit_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
    }
    assert!(std::fs::read_to_string(&svg).unwrap().contains("the paper's unit"));
}
