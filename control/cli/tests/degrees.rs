//! `recodectl degrees` as a user runs it, without a daemon.

#![cfg(feature = "bats")]
#![forbid(unsafe_code)]

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Ranks of 1000 batches of 8 symbols.
const RANKS: [u64; 9] = [0, 2, 10, 40, 110, 210, 280, 240, 108];

fn recodectl(arguments: &str, stdin: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.args(["--socket", "/nonexistent/recoded", "degrees", "--rank-histogram", "-"]);
    command.args(arguments.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("recodectl runs");
    // It may have ended without reading, after a wrong command line.
    let _ = child.stdin.take().expect("piped").write_all(stdin.as_bytes());
    child.wait_with_output().expect("recodectl ends")
}

fn lines(counts: &[u64]) -> String {
    counts.iter().map(|count| format!("{count}\n")).collect()
}

fn report(arguments: &str, stdin: &str) -> Value {
    let output = recodectl(&format!("{arguments} --json"), stdin);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("{key} is a number in {report}"))
}

#[test]
fn report_is_consistent_and_nearly_all_rank_is_used() {
    let found = report("", &lines(&RANKS));
    assert_eq!((&found["batch_size"], &found["batches"]), (&json!(8), &json!(1000)));
    let mean = RANKS.iter().zip(0..).map(|(count, rank)| count * rank).sum::<u64>() as f64 / 1000.0;
    assert!((number(&found, "expected_rank") - mean).abs() < 1e-9);
    let efficiency = number(&found, "efficiency");
    assert!((0.99..1.0).contains(&efficiency), "{efficiency}");
    assert!((number(&found, "theta") * 0.99 / mean - efficiency).abs() < 1e-9);
    let entries = found["distribution"].as_array().expect("a list");
    let sum = |weigh: fn(&Value) -> f64| entries.iter().map(weigh).sum::<f64>();
    let probability = |entry: &Value| number(entry, "probability");
    assert!((sum(probability) - 1.0).abs() < 1e-9);
    let weighted = sum(|entry| number(entry, "probability") * number(entry, "degree"));
    assert!((weighted - number(&found, "mean_degree")).abs() < 1e-9);
}

#[test]
fn options_have_their_effect() {
    let plain = report("", &lines(&RANKS));
    let last = |report: &Value| report["distribution"].as_array()?.last()?["degree"].as_u64();
    let capped = report("--max-degree 40", &lines(&RANKS));
    assert!(last(&capped) <= Some(40) && last(&plain) > Some(40));
    assert!(number(&capped, "theta") < number(&plain, "theta"));
    let precoded = report("--eta 0.1", &lines(&RANKS));
    assert!(number(&precoded, "mean_degree") < number(&plain, "mean_degree"));
    let binary = report("--field 2", &lines(&RANKS));
    assert!(number(&binary, "theta") < 0.9 * number(&plain, "theta"));
    let larger = report("--batch-size 16", &lines(&RANKS));
    assert_eq!(larger["batch_size"], 16);
}

#[test]
fn histograms_are_read_from_lines_lists_and_states() {
    let plain = report("", &lines(&RANKS));
    let commented = format!("# ranks\n\n{}\n", lines(&RANKS).replace('\n', " \r\n"));
    let flow = |id: u64, own: Value, remote: Value| json!({"id": id, "rank_histogram": own, "remote": remote});
    let sink = flow(7, json!(RANKS), Value::Null);
    let source = flow(3, json!([]), json!({"rank_histogram": RANKS}));
    let silent = flow(1, json!([0, 0, 0]), Value::Null);
    for (arguments, text) in [
        ("", commented),
        ("", json!(RANKS).to_string()),
        ("", json!({"rank_histogram": RANKS}).to_string()),
        ("", json!({"flows": [sink, silent]}).to_string()),
        ("--flow 3", json!({"flows": [sink, source]}).to_string()),
    ] {
        assert_eq!(report(arguments, &text), plain, "{arguments}: {text}");
    }
}

#[test]
fn table_fits_the_terminal_and_ends_in_a_summary() {
    let output = recodectl("", &lines(&RANKS));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.starts_with("degree  probability  cumulative\n"), "{text}");
    for label in ["ranks", "theta", "efficiency", "mean degree", "considered", "use"] {
        assert!(text.contains(&format!("\n  {label}")), "{label} in {text}");
    }
}

/// A user looked for the key.
#[test]
fn report_says_that_no_key_takes_degrees_and_none_does() {
    let output = recodectl("", &lines(&RANKS));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("no key takes degrees"), "{text}");
    let mut keys = recoded_api::keys::FLOW.keys.iter();
    assert!(!keys.any(|key| key.name.contains("degree")), "there is one: say so");
}

#[test]
fn errors_name_what_is_wrong_and_whose_fault_it_is() {
    let two = json!({"flows": [
        {"id": 4, "rank_histogram": RANKS},
        {"id": 9, "rank_histogram": RANKS},
    ]})
    .to_string();
    let ranks = lines(&RANKS);
    for (code, arguments, stdin, part) in [
        (1, "", "3\nmany\n", "line 2 of the rank histogram, `many`"),
        (1, "", "3\n-1\n", "line 2 of the rank histogram, `-1`"),
        (1, "", "[1, 2", "is not valid JSON"),
        (1, "", "{\"ranks\": [1, 2]}", "holds no list of counts"),
        (1, "", "[1, \"2\"]", "holds no list of counts"),
        (1, "", &two, "--flow: 4, 9"),
        (1, "--flow 5", &two, "flow 5 is not in this JSON"),
        (1, "--flow 5", &ranks, "--flow 5 says nothing"),
        (1, "", "", "0 ranks"),
        (1, "", "7\n0\n", "nothing to decode"),
        (1, "--batch-size 4", &ranks, "counts rank 8"),
        (2, "--batch-size 129", &ranks, "1..=128"),
        (2, "--eta 0.9", &ranks, "0.001 to 0.5"),
        (2, "--eta nan", &ranks, "0.001 to 0.5"),
        (2, "--max-degree 0", &ranks, "1 to 65535"),
        (2, "--field 8", &ranks, "2, 4, 16 or 256"),
    ] {
        let output = recodectl(arguments, stdin);
        let message = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{arguments}: {message}");
        assert!(message.contains(part), "{arguments}: {message}");
    }
    let output = recodectl("--json", "nothing");
    let error: Value = serde_json::from_slice(&output.stdout).expect("errors are JSON too");
    assert_eq!(
        (&error["error"]["kind"], &error["error"]["exit_code"]),
        (&json!("degrees"), &json!(1))
    );
}

#[test]
fn missing_files_are_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    let output =
        command.args(["degrees", "--rank-histogram", "/nonexistent/ranks"]).output().expect("runs");
    let message = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message.contains("cannot read the rank histogram /nonexistent/ranks: No such file"),
        "{message}"
    );
}
