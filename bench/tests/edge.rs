//! Runs the edge benchmark for a moment, as a user would, and checks that it did the work. Rates
//! are not checked: that would fail on a busy machine.

mod common;

use std::process::Command;

use serde_json::Value;

/// Why the benchmark cannot run here, if it cannot.
fn obstacle() -> Option<&'static str> {
    match (rustix::process::geteuid().is_root(), common::has("iperf3"), common::has("ethtool")) {
        (false, ..) => Some("needs root for network namespaces"),
        (true, false, _) => Some("needs iperf3"),
        (true, true, false) => Some("needs ethtool"),
        _ => None,
    }
}

#[test]
fn edge_for_a_moment_measures_or_says_why_not() {
    if !common::can_run(obstacle()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.json");
    let bench = std::path::Path::new(env!("CARGO_BIN_EXE_bench"));
    let mut contenders = "linux,linux-no-offload,boringtun".to_owned();
    if bench.with_file_name("recoded").is_file() {
        contenders.push_str(",rlnc");
    } else {
        println!("without recoded: `cargo build -p recoded` makes it");
    }
    let output = Command::new(bench)
        .args(["edge", "--quick", "--boringtun", "/nonexistent/boringtun-cli"])
        .args(["--contenders", &contenders, "--json"])
        .arg(&path)
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    assert!(table.contains("| boringtun | skipped: no `/nonexistent/boringtun-cli`"), "{table}");

    let result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for series in result["series"].as_array().unwrap() {
        if series["contender"] == "boringtun" {
            assert!(series["gbit_median"].is_null() && series["skipped"].is_string(), "{series}");
            continue;
        }
        let sample = &series["samples"][0];
        assert!(sample["gbit"].as_f64().unwrap() > 0.01, "{series}");
        assert!(sample["cores_busy"].as_f64().unwrap() > 0.1, "{series}");
    }
}
