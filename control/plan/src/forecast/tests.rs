//! Compares forecasts with the results of `bench line` on the same lines.

use super::*;
use serde_json::Value;

const RESULTS: &str = include_str!("../../../../bench/results/line-2026-11-22.json");

/// Round trip of a line without configured delay: emulators and hosts.
const IDLE_ROUND_TRIP: f64 = 0.0006;

/// For Recoded, on measured lines.
const TOLERANCE: f64 = 0.15;

/// For TCP with losses, as a factor.
const TCP_FACTOR: f64 = 1.4;

/// Rates below this count as zero.
const NOTHING_MBIT: f64 = 1.0;

fn line_hops(line: &Value, rate_mbit: f64) -> Vec<Hop> {
    let number = |key: &str| line[key].as_f64().expect("a number");
    let hop = Hop {
        loss: LossModel { loss: number("loss"), burst_mean: number("burst") },
        rate_mbit,
        round_trip: 2.0 * number("delay_ms") / 1e3 + IDLE_ROUND_TRIP,
        mtu: 1500.0,
        longer_header_bytes: 0.0,
    };
    vec![hop; number("hops") as usize]
}

/// Lines with identical hops, a constant rate and no sharing.
fn is_plain(line: &Value) -> bool {
    line["rate_falls_to"].is_null()
        && line["beside"].is_null()
        && line["bad_loss"].is_null()
        && line["twins"] == false
        && line["relay_killed"] == false
}

/// Result with the better congestion control of each contender.
fn measured(series: &Value) -> f64 {
    let found = series["goodput_mbit"].as_array().into_iter().flatten();
    found.filter_map(|row| row["median"].as_f64()).fold(0.0, f64::max)
}

fn contender(name: &str) -> Option<Contender> {
    Some(match name {
        "cubic" => Contender::Cubic,
        "bbr" => Contender::Bbr,
        "split-bbr" => Contender::SplitBbr,
        "stream" => Contender::Stream,
        "rlnc" => Contender::Rlnc,
        "bats" => Contender::Bats,
        _ => return None,
    })
}

#[test]
fn forecasts_are_what_was_measured() {
    let results: Value = serde_json::from_str(RESULTS).expect("JSON");
    let rate_mbit = results["rate_mbit"].as_f64().expect("a rate");
    let (mut compared, mut wrong) = (0, Vec::new());
    for line in results["lines"].as_array().expect("lines") {
        let (series, line) = (&line["series"], &line["line"]);
        if !is_plain(line) {
            continue;
        }
        let hops = line_hops(line, rate_mbit);
        let forecast = Forecast::new(Direction::There, &hops).expect("a forecast");
        for series in series.as_array().expect("series") {
            let Some(contender) = contender(series["contender"].as_str().unwrap_or("")) else {
                continue;
            };
            let (row, measured) = (forecast.row(contender).expect("a row"), measured(series));
            let off = if contender.is_ours() {
                (row.mbit / measured.max(NOTHING_MBIT) - 1.0).abs() <= TOLERANCE
            } else {
                let ratio = row.mbit.max(NOTHING_MBIT) / measured.max(NOTHING_MBIT);
                (1.0 / TCP_FACTOR..=TCP_FACTOR).contains(&ratio)
            };
            let is_right = off || row.mbit.max(measured) < NOTHING_MBIT;
            let text = format!(
                "{:<20} {contender:?}: {:.1} expected, {measured:.1} measured, {:.2} x, packets {:?}",
                line["name"].as_str().unwrap_or(""),
                row.mbit,
                row.mbit / measured.max(1e-9),
                row.packets_per_symbol,
            );
            println!("{text}{}", if is_right { "" } else { "  WRONG" });
            compared += 1;
            if !is_right {
                wrong.push(text);
            }
        }
    }
    assert!(compared >= 40, "{compared} rows");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn hop(loss: f64, burst_mean: f64, round_trip_ms: f64) -> Hop {
    Hop {
        loss: LossModel { loss, burst_mean },
        rate_mbit: 100.0,
        round_trip: round_trip_ms / 1e3,
        mtu: 1500.0,
        longer_header_bytes: 0.0,
    }
}

fn verdict_of(hops: &[Hop]) -> Verdict {
    Forecast::new(Direction::There, hops).expect("a forecast").verdict
}

#[test]
fn verdicts_say_where_it_is_worth_it() {
    for (hops, expected) in [
        (vec![hop(0.0, 1.0, 10.0)], Verdict::No),
        (vec![hop(0.0005, 1.0, 20.0)], Verdict::No),
        (vec![hop(0.0, 1.0, 200.0)], Verdict::No),
        (vec![hop(0.05, 1.0, 5.0)], Verdict::Datagrams),
        (vec![hop(0.2, 1.0, 40.0); 4], Verdict::Yes),
        (vec![hop(0.1, 8.0, 40.0)], Verdict::Yes),
        (vec![hop(0.1, 1.0, 1.0); 4], Verdict::Split),
    ] {
        assert_eq!(verdict_of(&hops), expected, "{hops:?}");
    }
    assert_eq!(Forecast::new(Direction::There, &[]), None);
}

/// IPv6 headers are 20 bytes longer, for both TCP's and Recoded's packets.
#[test]
fn forecasts_over_ipv6_are_less_by_its_longer_headers() {
    let rows = |longer_header_bytes| {
        let hop = Hop { longer_header_bytes, ..hop(0.1, 1.0, 1.0) };
        Forecast::new(Direction::There, &[hop; 2]).expect("a forecast").rows
    };
    for (v4, v6) in rows(0.0).iter().zip(rows(20.0)) {
        let payload = match v4.packets_per_symbol {
            Some(_) => 1500.0 - 127.0,
            None => 1500.0 - 52.0,
        };
        let share = v6.mbit / v4.mbit;
        assert!((share - (payload - 20.0) / payload).abs() < 1e-9, "{v4:?} {v6:?}");
    }
}

/// Any measurement that passes the check.
#[test]
fn no_figures_lead_to_a_forecast_that_is_no_number() {
    let losses = [0.0, 1e-9, 0.01, 0.2, 0.5, 0.999];
    for loss in losses {
        for burst_mean in [1.0, 8.0, 1e6] {
            for (rate_mbit, round_trip) in [(1e-3, 0.0), (100.0, 0.05), (1e6, 100.0)] {
                let loss = LossModel { loss, burst_mean };
                let longer_header_bytes = 20.0;
                let hop = Hop { loss, rate_mbit, round_trip, mtu: 256.0, longer_header_bytes };
                for hops in [vec![hop], vec![hop; 3]] {
                    let forecast = Forecast::new(Direction::Back, &hops).expect("a forecast");
                    for row in &forecast.rows {
                        let most = rate_mbit * 1.1;
                        assert!(row.mbit >= 0.0 && row.mbit <= most, "{row:?} of {hop:?}");
                    }
                }
            }
        }
    }
}
