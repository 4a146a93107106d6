//! Runs the line benchmark for a moment, as a user would, and checks that it did the work. Rates
//! are not checked: that would fail on a busy machine.

mod common;

use std::process::Command;

use serde_json::Value;

/// Why the benchmark cannot run here, if it cannot.
fn obstacle() -> Option<&'static str> {
    match (rustix::process::geteuid().is_root(), common::has("ethtool")) {
        (false, _) => Some("needs root for network namespaces"),
        (true, false) => Some("needs ethtool"),
        _ => None,
    }
}

#[test]
fn line_for_a_moment_measures_or_says_why_not() {
    if !common::can_run(obstacle()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (json, svg) = (folder.path().join("line.json"), folder.path().join("line.svg"));
    let bench = std::path::Path::new(env!("CARGO_BIN_EXE_bench"));
    let mut contenders = "cubic,split-bbr".to_owned();
    if bench.with_file_name("recoded").is_file() {
        contenders.push_str(",rlnc,stream");
    } else {
        println!("without recoded: `cargo build -p recoded` makes it");
    }
    let output = Command::new(bench)
        .args(["line", "--lines", "4hops-10%-10ms", "--seconds", "1", "--contenders", &contenders])
        .args(["--json".as_ref(), json.as_os_str(), "--svg".as_ref(), svg.as_os_str()])
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    println!("{table}");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("</svg>"));

    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let series = result["lines"][0]["series"].as_array().unwrap();
    assert_eq!(series.len(), contenders.split(',').count());
    for series in series {
        let sample = &series["samples"][0];
        let streams = sample["streams"].as_array().unwrap();
        assert!(!streams.is_empty(), "{series}");
        for stream in streams {
            // Four links of 10 ms, and of 10 % loss where packets are repaired.
            assert!(stream["probe"]["p50_ms"].as_f64().unwrap() >= 39.8, "{stream}");
            if series["contender"] == "cubic" {
                assert!(stream["probe"]["lost"].as_u64().unwrap() > 0, "{stream}");
                continue;
            }
            assert!(stream["mbit"].as_f64().unwrap() > 1.0, "{stream}");
            // A proxy may hold data that crossed its link before the first counted second, and
            // forward it within that second: then a link carried less than arrived. So may a relay,
            // on a busy machine.
            let least = if series["contender"] == "split-bbr" { 0.0 } else { 0.5 };
            for packets in stream["packets_per_symbol"].as_array().unwrap() {
                assert!(packets.as_f64().unwrap() > least, "{stream}");
            }
        }
        // Linux treats datagrams the same, however TCP is carried.
        let has_datagrams = sample["idle"].is_object();
        if has_datagrams {
            // Waiting for earlier packets never makes a delay shorter.
            let load = |name: &str| sample["load"][name].as_f64().unwrap();
            assert!(load("in_order_p99_ms") >= load("p99_ms"), "{series}");
        }
        assert_eq!(has_datagrams, series["contender"] != "split-bbr", "{series}");
    }
}

#[test]
fn twins_and_a_rate_that_falls_have_figures_of_their_own() {
    if !common::can_run(obstacle()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("line.json");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["line", "--lines", "1hop-twins-10ms,2hops-rate-falls-5ms", "--contenders", "bbr"])
        // A third of twice as many leaves some after the two that do not count.
        .args(["--seconds", "4", "--json", json.to_str().unwrap()])
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    println!("{table}");
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let series = |line: usize| &result["lines"][line]["series"][0];
    let stream = |line: usize| &series(line)["samples"][0]["streams"][0];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{result}"));

    let [one, other] = ["mbit", "beside_mbit"].map(|name| number(&stream(0)[name]));
    assert!(one > 1.0 && other > 1.0, "{one} and {other} Mbit/s");
    let jain = (one + other).powi(2) / (2.0 * (one * one + other * other));
    assert!((number(&stream(0)["jain"]) - jain).abs() < 1e-9);
    // Both together cannot exceed the rate of the link.
    assert!(one + other < 300.0, "{one} and {other} Mbit/s");
    // A single run has no spread.
    let goodput = &series(0)["goodput_mbit"][0];
    assert_eq!([&goodput["least"], &goodput["most"]], [&goodput["median"]; 2]);

    // At most the length of the link's queue: 25 ms, and the packet in transmission.
    let queue = number(&stream(1)["standing_queue_ms"]);
    assert!((0.0..25.5).contains(&queue), "{queue} ms");
    assert!(stream(0)["standing_queue_ms"].is_null());
}
