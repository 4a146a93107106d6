//! `recodectl engines` as a user runs it: correct with and without a card.

use serde_json::Value;
use std::process::{Command, Output};

fn engines(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.args(["--socket", "/nonexistent/recoded", "engines"]).args(arguments);
    command.output().expect("recodectl runs")
}

#[test]
fn engines_are_listed_and_measured_and_an_absent_card_is_explained() {
    let output = engines(&["--seconds", "1", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let engines = report["engines"].as_array().expect("engines");
    let named = |name: &str| engines.iter().find(|engine| engine["name"] == name);
    assert_eq!(named("cpu-1").expect("one thread")["available"], true);
    let card = named("cuda").expect("listed, present or not");
    assert!(card["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{card}");
    for engine in engines {
        let rates = engine["rates"].as_array().expect("rates");
        assert_eq!(rates.is_empty(), engine["available"] == false, "{engine}");
        let is_positive = |rate: &Value| rate["gigabytes"].as_f64().is_some_and(|rate| rate > 0.0);
        assert!(rates.iter().all(is_positive), "{engine}");
    }
    let fpga = named("fpga").expect("listed, named or not");
    assert_eq!(fpga["available"], false, "no card was named");
    if card["available"] == false {
        println!("skipped: no card is measured here: {}", card["detail"]);
        assert_eq!(report["break_even"].as_array().map(Vec::len), Some(0));
    }
}

/// A simulated card is labelled as such, and its speed is not compared with hardware.
#[test]
fn simulated_card_is_not_measured() {
    let output = engines(&["--seconds", "1", "--fpga", "simulated", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let engines = report["engines"].as_array().expect("engines");
    let card = engines.iter().find(|engine| engine["name"] == "fpga").expect("listed");
    assert_eq!(card["rates"].as_array().map(Vec::len), Some(0), "{card}");
    let detail = card["detail"].as_str().unwrap_or_default();
    assert_eq!(card["available"], cfg!(feature = "fpga-sim"), "{detail}");
    let said = if cfg!(feature = "fpga-sim") { "no card" } else { "`fpga-sim`" };
    assert!(detail.contains(said), "{detail}");
    assert_eq!(report["break_even"].as_array().map(Vec::len), Some(0));
}

#[test]
fn name_of_no_card_is_a_usage_error() {
    let output = engines(&["--fpga", "abacus"]);
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(!output.status.success() && text.contains("simulated"), "{text}");
}

#[test]
fn table_fits_the_terminal_and_zero_seconds_measure_nothing() {
    let output = engines(&["--seconds", "0"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("cpu-1") && text.contains("cuda"), "{text}");
    assert!(!text.contains("GB/s"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
