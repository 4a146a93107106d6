//! `recodectl plan` as users see it: output for measured hops, and refusals.
//!
//! `RECODED_BLESS=1 cargo test -p recodectl` rewrites the golden file.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/plan.txt");
const WAYS_GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/plan-ways.txt");

fn plan(arguments: &[&str]) -> Output {
    plan_in(Path::new("."), arguments)
}

fn plan_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.current_dir(folder).arg("plan").args(arguments).output().expect("run")
}

fn way(loss: f64, rate_mbit: f64) -> Value {
    json!({
        "loss": loss, "loss_deviation": loss / 50.0, "packets": 20_000,
        "lost": (loss * 2e4) as u64, "measured_at_mbit": 0.6 * rate_mbit, "burst_mean": 1.2,
        "good_to_bad": 0.1, "bad_to_good": 0.9, "runs": [90, 9, 1, 0, 0, 0, 0, 0],
        "rate_mbit": rate_mbit, "rate_is_least": false, "queue_ms": 25.0,
        "queue_is_least": true, "reordered": 0.0, "duplicated": 0.0, "mtu": 1500,
    })
}

fn hop(loss: f64) -> Value {
    json!({ "measured": {
        "from": "192.0.2.1", "interface": "eth0", "to": "192.0.2.2",
        "there": way(loss, 100.0), "back": way(0.0, 40.0),
        "round_trip": { "min_ms": 50.0, "median_ms": 50.3, "p99_ms": 61.0, "answers": 150 },
        "notes": ["the far end allows 100 Mbit/s at most"],
    }})
}

fn file(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("written");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn hops_are_printed_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let lossy = file(folder.path(), "a.json", &hop(0.2).to_string());
    let good = file(folder.path(), "b.json", &hop(0.0).to_string());
    let output = plan(&["--hops", text(&lossy), text(&lossy), text(&good)]);
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    if std::env::var_os("RECODED_BLESS").is_some() {
        std::fs::write(GOLDEN, &printed).expect("written");
    }
    assert_eq!(printed, std::fs::read_to_string(GOLDEN).expect("the golden file"));
    let output = plan(&["--json", "--hops", text(&lossy), text(&good)]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["hops"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["forecasts"][0]["verdict"], "yes");
    assert_eq!(report["forecasts"][1]["verdict"], "no");
}

/// Two ways to one receiver, then three receivers, two of them behind one link.
#[test]
fn ways_are_compared_and_one_network_is_recommended() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, loss) in [("dsl.json", 0.1), ("lte.json", 0.02), ("up.json", 0.05)] {
        file(folder.path(), name, &hop(loss).to_string());
    }
    let mut printed = String::new();
    for ways in [
        &["dsl.json", "up.json,lte.json"][..],
        &["up.json,dsl.json", "up.json,lte.json"],
        &["near=up.json,dsl.json", "other=up.json,lte.json"],
        &["near=dsl.json", "other=lte.json"],
        &["up.json,dsl.json"],
    ] {
        let arguments: Vec<&str> = ["--ways"].iter().chain(ways).copied().collect();
        let output = plan_in(folder.path(), &arguments);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success(), "{text}");
        printed += &format!("$ recodectl plan {}\n{text}\n", arguments.join(" "));
    }
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    if std::env::var_os("RECODED_BLESS").is_some() {
        std::fs::write(WAYS_GOLDEN, &printed).expect("written");
    }
    assert_eq!(printed, std::fs::read_to_string(WAYS_GOLDEN).expect("the golden file"));
    let output = plan_in(folder.path(), &["--json", "--ways", "dsl.json", "up.json,lte.json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let best = report["recommended"].as_u64().expect("a number") as usize;
    assert_eq!(
        (&report["choices"][best]["shape"], &report["why"]),
        (&json!("sum"), &json!("adds"))
    );
    assert_eq!(report["links"].as_array().map(Vec::len), Some(3));
}

#[test]
fn ways_that_cannot_be_are_refused_with_their_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    file(folder.path(), "a.json", &hop(0.1).to_string());
    for (ways, code, expected) in [
        (&["a.json,a.json"][..], 1, "way 1 takes a link twice"),
        (&["a.json", "a.json"], 1, "ways 1 and 2 take the same links"),
        (&["x=", "a.json"], 2, "--ways x=: write files"),
        (&["=a.json"], 2, "--ways =a.json: write files"),
        (&["a.json,b.json"], 1, "cannot read b.json"),
    ] {
        let arguments: Vec<&str> = ["--ways"].iter().chain(ways).copied().collect();
        let output = plan_in(folder.path(), &arguments);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(output.status.code() == Some(code) && error.contains(expected), "{error}");
    }
}

#[test]
fn files_that_are_no_measurements_are_refused_with_their_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut impossible = hop(0.2);
    impossible["measured"]["there"]["loss"] = json!(-3.0);
    for (content, expected) in [
        (String::new(), "is no result of"),
        ("{\"measured\": 3}".into(), "is no result of"),
        ("[".repeat(100_000), "is no result of"),
        (impossible.to_string(), "loss = -3 is out of range: a share is 0 to 1"),
    ] {
        let path = file(folder.path(), "hop.json", &content);
        let output = plan(&["--hops", text(&path)]);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(expected) && error.contains("hop.json"), "{error}");
    }
    let output = plan(&["--json", "--hops", "no-such-file"]);
    let error: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&error["error"]["kind"], output.status.code()), (&json!("plan"), Some(1)));
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    for arguments in [
        &[][..],
        &["a", "--listen"],
        &["--listen", "no address"],
        &["a", "--hops", "b"],
        &["a", "--ways", "b"],
        &["--hops", "a", "--ways", "b"],
        &["a", "--seconds", "0"],
        &["a", "--rate-max", "nan"],
        &["a", "--for", "1m"],
        &["--listen", "--for", "1x"],
    ] {
        let output = plan(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    let output = plan(&["--listen", "192.0.2.1", "--for", "1s"]);
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.code() == Some(1) && error.contains("cannot listen at"), "{error}");
}
