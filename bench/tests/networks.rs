//! Runs a part of the network benchmark for a moment, as a user would, and checks that it did the
//! work. Rates are not checked: that would fail on a busy machine.

mod common;

use std::process::Command;

use serde_json::Value;

#[test]
fn tree_for_a_moment_measures_or_says_why_not() {
    let bench = std::path::Path::new(env!("CARGO_BIN_EXE_bench"));
    let has_daemon = bench.with_file_name("recoded").is_file();
    let obstacle = match (rustix::process::geteuid().is_root(), common::has("ethtool")) {
        (false, _) => Some("needs root for network namespaces"),
        (true, false) => Some("needs ethtool"),
        _ if !has_daemon => Some("needs recoded: `cargo build -p recoded` makes it"),
        _ => None,
    };
    if !common::can_run(obstacle) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("networks.json");
    let output = Command::new(bench)
        .args(["networks", "--only", "tree", "--sinks", "2", "--seconds", "1", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    println!("{table}");
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let tree = &result["networks"][0];
    let rows = tree["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{result}");
    let is_theory = |row: &&Value| row["contender"].as_str().unwrap().ends_with("in theory");
    assert_eq!(rows.iter().filter(is_theory).count(), 1, "{result}");
    for row in rows {
        assert!(row["failed"].is_null(), "{row}");
        let figure = |name: &str| {
            let mut figures = row["figures"].as_array().unwrap().iter();
            let found = figures.find(|figure| figure["name"] == name);
            found.and_then(|figure| figure["value"].as_f64()).unwrap_or_else(|| panic!("{row}"))
        };
        // Links to a sink and to its relay lose 6 to 11 % together.
        let is_linux = row["contender"].as_str().unwrap().starts_with("Linux");
        assert!(!is_linux || figure("lost, worst") > 0.03, "{row}");
        assert!(figure("packets, source") > 0.5, "{row}");
        // Two links of 10 ms.
        assert!(figure("p99, worst") >= 19.8, "{row}");
    }
    assert_eq!(tree["aims"].as_array().unwrap().len(), 2);
}
