//! Durations and rates with a unit.

use super::*;

/// Texts that are no durations.
pub const NO_DURATIONS: [&str; 10] = [
    "",
    "ms",
    "20",
    "-20 ms",
    "NaN ms",
    "1e3 ms",
    "20 Mbit/s",
    "20 parsecs",
    "1.5 ns",
    "99999999999999999999 h",
];

/// Texts that are no rates.
pub const NO_RATES: [&str; 9] = [
    "",
    "Mbit/s",
    "50",
    "-50 Mbit/s",
    "NaN Mbit/s",
    "50 MB/s",
    "20 ms",
    "0 Mbit/s",
    "99999999999999999999 Gbit/s",
];

fn flow_of(role: &str, line: &str) -> Flow {
    parse(&format!("{HEAD}{role}{line}\n")).unwrap().flows.remove(0)
}

#[test]
fn text_with_a_unit_means_the_number() {
    for (role, key, number, texts) in [
        (SOURCE, "flush_timeout_us", 2_500, ["2.5 ms", "2500us"]),
        (SOURCE, "lag_timeout_us", 1_500_000, ["1.5 s", "1500 ms"]),
        (RELAY, "generation_timeout_us", 40_000, ["40 ms", "0.04 s"]),
        (SINK, "hold_timeout_us", 60_000_000, ["1 min", "60000 ms"]),
    ] {
        let expected = flow_of(role, &format!("{key} = {number}"));
        for text in texts {
            assert_eq!(flow_of(role, &format!("{key} = \"{text}\"")), expected, "{key} = {text}");
        }
    }
    let rate = |value: &str| {
        let text = format!("{HEAD}{SOURCE}").replacen(
            "[[link]]\n",
            &format!("[[link]]\nrate_mbit = {value}\n"),
            1,
        );
        parse(&text).unwrap().links[0].rate_mbit
    };
    assert_eq!(rate("\"50 Mbit/s\""), Some(50.0));
    assert_eq!(rate("\"2.5 Gbit/s\""), rate("2500"));
    assert_eq!(rate("\"128 kbit/s\""), rate("0.128"));
}

#[test]
fn wrong_units_are_named_with_those_that_exist() {
    let values = "1 to 1000000 microseconds, or with a unit, such as \"20 ms\"";
    let units = "; the units are ns, us, ms, s, min or h";
    for (value, verdict, units) in [
        ("2 parsecs", "has an unknown unit", units),
        ("20", "has no unit", units),
        ("-2 ms", "is negative", ""),
        ("", "does not begin with a number", ""),
        ("1.5 ns", "has too many decimals", ""),
        ("1 ns", "has too many decimals", ""),
        ("2 s", "is out of range", ""),
    ] {
        let text = format!("{HEAD}{SOURCE}flush_timeout_us = \"{value}\"\n");
        let expected = format!(
            "relay.toml:17: flow 1: flush_timeout_us = \"{value}\" {verdict}: {values}{units}"
        );
        assert_eq!(errors(&text), expected);
    }
}
