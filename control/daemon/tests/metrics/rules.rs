//! Alert rules: some by hand, and one for each counter of a fault, with its meaning and fix.

use crate::{samples, state};
use recoded::metrics::names::{Form, GROUPS};
use recoded::metrics::text;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// Path within the crate.
pub const FILE: &str = "metrics/alerts.yml";

/// Name, expression, duration, severity, meaning, fix.
const RULES: [[&str; 6]; 11] = [
    [
        "Down",
        "up{job=~\".*recoded.*\"} == 0",
        "30s",
        "critical",
        "recoded does not answer Prometheus",
        "See systemctl status recoded and its log; the job of Prometheus must have recoded in its name.",
    ],
    [
        "Restarted",
        "resets(recoded_uptime_seconds[15m]) > 0",
        "0s",
        "warning",
        "The process that sees packets was replaced",
        "See the log of recoded for the end of the previous process.",
    ],
    [
        "NextHopSilent",
        "recoded_next_hop_silent == 1",
        "10s",
        "critical",
        "A next hop does not answer, although packets are sent to it",
        "Run recodectl doctor on this host: is recoded running there, and does the link carry packets?",
    ],
    [
        "TunnelDown",
        "recoded_tunnel_up == 0",
        "10s",
        "critical",
        "A tunnel is gone or has no carrier, since no next hop of its stream answers",
        "Run recodectl doctor on this host and on its next hops.",
    ],
    [
        "LinkDown",
        "recoded_link_up == 0",
        "10s",
        "critical",
        "The interface of a link is down or gone",
        "See ip link: set it up, or repair what it is connected to.",
    ],
    [
        "NeighbourUnresolved",
        "recoded_neighbour_resolved == 0",
        "1m",
        "warning",
        "The Ethernet address of a neighbour is not known, so nothing can be sent to it",
        "Check that it is up, on this link, and answers ARP or neighbour discovery.",
    ],
    [
        "NeighbourDisagrees",
        "recoded_neighbour_disagreements > 0",
        "1m",
        "critical",
        "The configurations of this node and a neighbour do not fit: packets of a flow are lost",
        "See recodectl show on either host: it says which flow, why, and what to change.",
    ],
    [
        "NoSession",
        "recoded_session_age_seconds > 300",
        "1m",
        "critical",
        "There are no keys in use with a neighbour or the other end of a flow",
        "See recodectl show: it says why. Compare public keys and clocks of both hosts.",
    ],
    [
        "PathMtuReduced",
        "recoded_tunnel_mtu_bytes < recoded_tunnel_mtu_configured_bytes",
        "5m",
        "info",
        "The path carries smaller packets than the tunnel was configured for",
        "Raise the MTU of the path, or lower mtu of the tunnel.",
    ],
    [
        "ResidualLoss",
        "rate(recoded_flow_generations_failed_total[5m]) > 0.001 * rate(recoded_flow_generations_total[5m])",
        "5m",
        "warning",
        "More than one in a thousand generations is given up at a sink",
        "Raise redundancy or redundancy_max at the source, or hold_timeout_us at the sink.",
    ],
    [
        "OverheadAboveTheory",
        "recoded_flow_overhead_ratio > 1.5 * recoded_flow_overhead_theory_ratio",
        "30m",
        "info",
        "A flow takes half as many packets again as theory needs",
        "Compare losses per hop in recodectl show flows; bursts and sparse traffic take more.",
    ],
];

/// Prefix of the cure of counters that rise occasionally in normal operation.
const HARMLESS: &str = "Nothing";

/// Alert thresholds in events a second, for faults and for routine counters.
const RATES: [&str; 2] = ["0.1", "10"];

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string")
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn rule(text: &mut String, rule: [&str; 6]) {
    let [name, expression, time, severity, meaning, cure] = rule;
    let _ = write!(
        text,
        "      - alert: Recoded{name}\n        expr: {}\n        for: {time}\n        labels:\n          \
         severity: {severity}\n        annotations:\n          summary: {}\n          description: {}\n",
        quoted(expression),
        quoted(&words(meaning)),
        quoted(&words(cure)),
    );
}

/// Converts `rx_no_keys` to `RxNoKeys`.
fn camel(name: &str) -> String {
    let part = |part: &str| part[..1].to_uppercase() + &part[1..];
    name.split('_').filter(|it| !it.is_empty()).map(part).collect()
}

/// The content of the file.
pub fn alerts() -> String {
    let mut text = "# Alert rules for Prometheus, written by control/daemon/tests/metrics. The second group has a rule for\n\
        # each counter of a fault; its description is the cure.\n\
        groups:\n  - name: recoded\n    rules:\n"
        .to_owned();
    RULES.into_iter().for_each(|it| rule(&mut text, it));
    text.push_str("  - name: recoded-faults\n    rules:\n");
    for group in GROUPS {
        let of = match group.form {
            Form::Each(words) => words.trim_start_matches("recoded_"),
            Form::All(name, _) => name.trim_start_matches("recoded_"),
        };
        for counter in group.table.counters().filter(|counter| counter.is_fault()) {
            let name = format!("{}{}", camel(of), camel(counter.name));
            let [often, now_and_then] = RATES;
            let rate = if counter.cure.starts_with(HARMLESS) { now_and_then } else { often };
            let expression = format!("rate({}[5m]) > {rate}", group.selector(counter));
            rule(&mut text, [&name, &expression, "10m", "info", counter.meaning, counter.cure]);
        }
    }
    text
}

/// Asserts that the committed file matches the tables; `RECODED_WRITE_METRICS=1` rewrites it.
pub fn hold(file: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("RECODED_WRITE_METRICS").is_some() {
        std::fs::write(&path, expected).expect("written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let cure = "RECODED_WRITE_METRICS=1 cargo test -p recoded --test metrics";
    assert!(found == expected, "{file} is not what the tables of counters give: {cure}");
}

/// Metrics that a text names and that do not exist.
pub fn unknown(text: &str) -> Vec<String> {
    let known = samples(&text::text(state(1)).expect("text"));
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("recoded_"));
    words.filter(|word| !known.contains(*word)).map(str::to_owned).collect()
}

#[test]
fn rules_follow_from_the_tables_and_name_metrics_that_exist() {
    let text = alerts();
    assert_eq!(unknown("rate(recoded_flow_recieved_total[5m])"), ["recoded_flow_recieved_total"]);
    assert_eq!(unknown(&text), [""; 0]);
    hold(FILE, &text);
}

#[test]
fn rules_are_right_by_promtool() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let Ok(output) = Command::new("promtool").args(["check", "rules"]).arg(file).output() else {
        let reason = "promtool is not installed (package prometheus)";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"), "{reason}");
        println!("skipped: {reason}");
        return;
    };
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    println!("{said}");
}
