use super::*;
use crate::fixed::{self, assert_golden};
use session::RoundTrips;

fn options(words: &[&str]) -> PingOptions {
    use clap::Parser;
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: PingOptions,
    }
    Line::parse_from([&["ping"], words].concat()).options
}

fn figures() -> Figures {
    let round_trip_us =
        RoundTrips { min: 40_812.0, mean: 41_377.25, max: 46_002.5, deviation: 1_203.0 };
    Figures {
        sent: 10,
        answered: 9,
        lost: 1,
        loss: Some(0.1),
        copies: 2,
        late: 0,
        round_trip_us: Some(round_trip_us),
    }
}

fn report(tunnel: Option<&str>) -> PingReport {
    let state = fixed::state();
    PingReport {
        host: "far".into(),
        address: "10.99.0.2".into(),
        from: "10.99.0.1".into(),
        tunnel: tunnel.map(str::to_owned),
        bytes: 56,
        interval_seconds: 1.0,
        figures: figures(),
        refusals: BTreeMap::from([("host unreachable".to_owned(), 3)]),
        not_known: None,
        ways: tunnel.map_or(Vec::new(), |name| of_tunnel(&state, name)),
    }
}

#[test]
fn reports_are_golden_and_fit_100_columns() {
    let through = report(Some("rec0"));
    assert!(!through.ways.is_empty(), "the fixed state has flows of this tunnel");
    let dead = PingReport {
        figures: Figures {
            sent: 4,
            lost: 4,
            loss: Some(1.0),
            round_trip_us: None,
            ..Figures::default()
        },
        refusals: BTreeMap::new(),
        ..report(None)
    };
    let alone = PingReport { not_known: Some("no daemon answers".into()), ..report(None) };
    let options = options(&["far", "-s", "100", "-i", "0.5"]);
    let shown = [
        show::head(&options, "far", "10.99.0.2", "10.99.0.1"),
        show::answer(1, session::Answer::First(Duration::from_micros(41_377))).expect("a line"),
        show::lost(2, &options),
        text(&through),
        text(&dead),
        text(&alone),
    ];
    let shown = shown.join("\n");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert_golden("ping.txt", &shown);
    assert_golden("ping.json", &crate::json::pretty(&through).expect("JSON"));
}

/// Hosts are resolved by name, in brackets, and an IPv4-mapped IPv6 address becomes IPv4.
#[test]
fn hosts_are_addresses_and_numbers_are_refused() {
    for (host, address) in
        [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")]
    {
        assert_eq!(resolve(host).expect("an address").to_string(), address);
    }
    let error = resolve("no such host").expect_err("no name").to_string();
    assert!(error.contains("no such host") && error.contains("10.99.0.2"), "{error}");
    for wrong in ["", "1", "4294967295"] {
        assert!(host(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn longest_time_of_a_ping_is_known_unless_it_has_no_end() {
    let longest = |words: &[&str]| options(words).longest();
    assert_eq!(longest(&["-c", "10"]), Some(Duration::from_secs(13)));
    assert_eq!(longest(&["-c", "1", "-i", "3600", "-W", "0.5"]), Some(Duration::from_millis(500)));
    assert_eq!(longest(&["-c", "0"]), None);
    assert_eq!(longest(&["-c", "18446744073709551615"]), None);
    assert_eq!(options(&["-i", "0.2"]).words(), "-c 10 -i 0.2 -W 4 -s 56");
}
