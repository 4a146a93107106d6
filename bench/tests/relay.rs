//! Runs the relay benchmark for a moment, as a user would, and checks that it did the work. Times
//! are not checked: that would fail on a busy machine.

mod common;

use std::process::Command;

use serde_json::Value;

/// Why the benchmark cannot run here, if it cannot.
fn obstacle() -> Option<&'static str> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match (rustix::process::geteuid().is_root(), cores) {
        (false, _) => Some("needs root for network namespaces, XDP and AF_XDP"),
        (true, 1) => Some("needs two cores"),
        _ => None,
    }
}

#[test]
fn relay_for_a_moment_every_case_proves_its_work() {
    if !common::can_run(obstacle()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.json");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["relay", "--seconds", "0.1", "--rounds", "1", "--workers", "1,2", "--json"])
        .arg(&path)
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    assert!(table.contains("| 1500 | XDP redirect |"), "{table}");
    assert!(table.contains("| 1500 | recoding relay, 2 workers |"), "{table}");

    let result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let series = result["series"].as_array().unwrap();
    assert_eq!(series.len(), 12);
    for series in series {
        let proof = &series["samples"][0]["proof"];
        let number = |key: &str| proof[key].as_f64().unwrap();
        assert!(number("arrived") > 1000.0, "{series}");
        if series["case"].as_str().unwrap().starts_with("relay") {
            let recoded = number("arrived_recoded") / number("generations");
            assert!((1.4..1.8).contains(&recoded), "{series}");
            let rank = proof["relay"]["rank_ratio"].as_f64().unwrap();
            assert!((0.89..0.91).contains(&rank), "{series}");
            let lost = number("sent") - proof["relay"]["received"].as_f64().unwrap();
            assert!(lost.abs() < 0.01 * number("sent"), "{series}");
        } else {
            assert_eq!(number("arrived_recoded"), 0.0, "{series}");
        }
    }
}

#[test]
fn relay_with_one_core_for_both_refuses() {
    if obstacle().is_some() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["relay", "--load-core", "0", "--relay-core", "0"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("core 0 cannot be used"), "{text}");
}
