//! The page of the book that lists all metrics, made from the same tables as the metrics.

use super::{rules, state};
use recoded::metrics::gauges::GAUGES;
use recoded::metrics::names::{Form, GROUPS, Group};
use recoded::metrics::text;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The page, from the folder of this crate.
const PAGE: &str = "../../docs/reference/metrics.md";

const INTRODUCTION: &str = "\
# Metrics

What `metrics` in `[daemon]` exports to Prometheus (OpenMetrics 1.0). Counters start from zero with the process that sees packets. The
package has alert rules and a dashboard (`/usr/share/recoded`: `alerts.yml`, `dashboard.json`). This page is generated:
`RECODED_WRITE_METRICS=1 cargo test -p recoded --test metrics`.
";

/// Labels of each metric, as a daemon exports them.
fn labels() -> BTreeMap<String, BTreeSet<String>> {
    let text = text::text(state(2)).expect("text");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once([' ', '{']).expect("a sample");
        let named = found.entry(name.to_owned()).or_default();
        let is_labelled = line.as_bytes().get(name.len()) == Some(&b'{');
        // Values of the state in this test hold no `="`.
        let parts = rest.split("=\"").filter(|_| is_labelled);
        let parts: Vec<&str> = parts.collect();
        for part in parts.iter().take(parts.len().saturating_sub(1)) {
            let label = part.rsplit(['{', ',']).next().unwrap_or(part);
            named.insert(label.to_owned());
        }
    }
    found
}

fn listed(labels: Option<&BTreeSet<String>>) -> String {
    let labels = labels.into_iter().flatten().map(|label| format!("`{label}`"));
    labels.collect::<Vec<_>>().join(", ")
}

/// A row for the counters of a group.
fn row(group: &Group, labels: &BTreeMap<String, BTreeSet<String>>) -> String {
    let first = group.table.counters().next().expect("a counter");
    let selector = group.selector(first);
    let of_first = labels.get(selector.split('{').next().unwrap_or(&selector));
    let name = match group.form {
        Form::Each(words) => format!("{words}NAME_total"),
        Form::All(name, _) => format!("{name}_total"),
    };
    let owner = group.table.owner;
    let count = group.table.counters().count();
    format!("| `{name}` | {} | {count} counters of {owner} | `{selector}` |\n", listed(of_first))
}

fn page() -> String {
    let labels = labels();
    let mut text = INTRODUCTION.to_owned();
    text += "\n## Values\n| metric | labels | meaning |\n|---|---|---|\n";
    for gauge in GAUGES {
        let of = listed(labels.get(gauge.name));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{}` | {of} | {} |", gauge.name, gauge.meaning);
    }
    text += "\n## Counters\n`NAME` is a counter of [counters.md](counters.md), which has its meaning, \
             and the fix of a fault. Times are in\nseconds there: `_nanos` becomes `_seconds`; a \
             longest time (`_nanos_max`) becomes `_max_seconds`, without `_total`.\n\n\
             | metric | labels | counts | first of them |\n|---|---|---|---|\n";
    GROUPS.iter().for_each(|group| text += &row(group, &labels));
    text
}

#[test]
fn page_lists_every_metric_with_its_labels() {
    let page = page();
    let known = labels();
    let lacking: Vec<_> =
        GAUGES.iter().map(|it| it.name).filter(|name| !known.contains_key(*name)).collect();
    assert!(lacking.is_empty(), "the state of this test has no {lacking:?}");
    rules::hold(PAGE, &page);
}
