//! A plan as text: measurements, expected goodput, a recommendation, and how to begin. Every line
//! fits 80 columns.

use super::figures::{COLUMNS, decimals, least, percent};
use super::{PathForecast, PlanReport};
use crate::table::{Align, clean, paragraph, table};
use recoded_plan::forecast::{Contender, Forecast, Verdict};
use recoded_plan::measured::{Measured, OneWayMeasurement};
use std::fmt::Write;

/// Formats a report.
pub fn text(report: &PlanReport) -> String {
    match report {
        PlanReport::Plan(plan) => plan_text(plan),
        PlanReport::Ways(network) => super::ways::text(network),
        PlanReport::Served(served) => format!(
            "time is up; sessions {}, refused {}, packets ignored {}\n",
            served.sessions, served.refused, served.ignored
        ),
    }
}

fn plan_text(plan: &PathForecast) -> String {
    let mut text = String::new();
    for measured in plan.all() {
        text += &hop(measured);
        text.push('\n');
    }
    text += &rows(&plan.forecasts);
    text.push('\n');
    for forecast in &plan.forecasts {
        let label = if forecast.direction == recoded_plan::forecast::Direction::There {
            "there"
        } else {
            "back"
        };
        text += &paragraph(&format!("{label}: {}", verdict(forecast)), COLUMNS);
    }
    if plan.forecasts.iter().any(|forecast| forecast.verdict != Verdict::No) {
        text.push('\n');
        text += &snippet(plan);
    }
    text
}

/// Measurements of one hop.
fn hop(measured: &Measured) -> String {
    let Measured { from, to, there, back, round_trip, notes, .. } = measured;
    let mut text = format!("{} to {}\n", clean(from), clean(to));
    let _ = writeln!(
        text,
        "round trip {:.2} ms, median {:.2}, p99 {:.2}\n",
        round_trip.min_ms, round_trip.median_ms, round_trip.p99_ms
    );
    let row = |name: &str, of: &dyn Fn(&OneWayMeasurement) -> String| {
        [name.to_owned(), of(there), of(back)]
    };
    let head = [("", Align::Left), ("there", Align::Right), ("back", Align::Right)];
    text += &table(
        head,
        &[
            row("lost", &|way| format!("{} +- {}", percent(way.loss), percent(spread(way)))),
            row("  of packets", &|way| way.packets.to_string()),
            row("  at Mbit/s", &|way| decimals(way.measured_at_mbit)),
            row("  mean burst", &|way| format!("{:.2}", way.burst_mean)),
            row("rate, Mbit/s", &|way| least(way.rate_is_least, decimals(way.rate_mbit))),
            row("queue, ms", &|way| least(way.queue_is_least, decimals(way.queue_ms))),
            row("reordered", &|way| percent(way.reordered)),
            row("MTU", &|way| way.mtu.to_string()),
        ],
    );
    for note in notes.iter().take(8) {
        text += &paragraph(&format!("note: {}", clean(note)), COLUMNS);
    }
    text
}

/// Without losses, the bound on undetected loss: three over the number of packets.
fn spread(way: &OneWayMeasurement) -> f64 {
    if way.lost == 0 { 3.0 / way.packets.max(1) as f64 } else { way.loss_deviation }
}

fn rows(forecasts: &[Forecast]) -> String {
    let Some(first) = forecasts.first() else { return String::new() };
    let cell = |forecast: Option<&Forecast>, contender| {
        let row = forecast.and_then(|forecast| forecast.row(contender));
        row.map_or_else(
            || ("-".to_owned(), "-".to_owned(), "-".to_owned()),
            |row| {
                let (least, most) = row.range_mbit;
                let packets = row.packets_per_symbol;
                (
                    decimals(row.mbit),
                    format!("{} to {}", decimals(least), decimals(most)),
                    packets.map_or("-".into(), |packets| format!("{packets:.2}")),
                )
            },
        )
    };
    let rows: Vec<[String; 6]> = first
        .rows
        .iter()
        .map(|row| {
            let (there, there_range, packets) = cell(Some(first), row.contender);
            let (back, back_range, _) = cell(forecasts.get(1), row.contender);
            [row.contender.name().into(), there, there_range, packets, back, back_range]
        })
        .collect();
    let head = [
        ("forecast, Mbit/s", Align::Left),
        ("there", Align::Right),
        ("range", Align::Right),
        ("packets", Align::Right),
        ("back", Align::Right),
        ("range", Align::Right),
    ];
    table(head, &rows)
}

fn verdict(forecast: &Forecast) -> String {
    let mbit = |contender| forecast.row(contender).map_or(0.0, |row| row.mbit);
    let plain = mbit(Contender::Cubic).max(mbit(Contender::Bbr));
    let (ours, name) = (mbit(forecast.code), forecast.code.name());
    let lost = percent(forecast.loss);
    let added = forecast.row(Contender::Stream).and_then(|row| row.added_p99_ms);
    let added = added.map_or(String::new(), |added| {
        format!(", and one packet in a hundred is {} ms late or later", decimals(added))
    });
    match forecast.verdict {
        Verdict::No => format!(
            "not worth it: {lost} is lost, and plain TCP with BBR does as well ({} Mbit/s); use \
             that (sysctl net.ipv4.tcp_congestion_control=bbr)",
            decimals(mbit(Contender::Bbr))
        ),
        Verdict::Datagrams => format!(
            "not worth it for TCP: with BBR it carries {} Mbit/s as it is, {name} {}; worth it for \
             calls, games and other UDP, of which {lost} is lost as it is and next to nothing \
             inside{added}",
            decimals(mbit(Contender::Bbr)),
            decimals(ours)
        ),
        Verdict::Split => format!(
            "worth it for what is not TCP, of which {lost} is lost as it is. For TCP alone, a proxy \
             with BBR at every relay carries as much: {} Mbit/s, {name} {}, plain TCP {}{added}",
            decimals(mbit(Contender::SplitBbr)),
            decimals(ours),
            decimals(plain)
        ),
        Verdict::Yes => format!(
            "worth it: {name} carries {} Mbit/s, plain TCP {}; of {lost} lost as it is next to \
             nothing is left{added}",
            decimals(ours),
            decimals(plain)
        ),
    }
}

/// Configuration snippet for the near end.
fn snippet(plan: &PathForecast) -> String {
    let Some((first, code)) = plan.all().first().zip(plan.forecasts.first()) else {
        return String::new();
    };
    let interface = first.interface.as_deref().unwrap_or("eth0");
    let code = match code.code {
        Contender::Rlnc => "rlnc",
        Contender::Bats => "bats",
        _ => "stream",
    };
    // A stream estimates its rate; the other codes need it configured.
    let rate = format!("rate_mbit = {:.0}\n", (0.97 * first.there.rate_mbit).max(1.0));
    let rate = if code == "stream" { String::new() } else { rate };
    let (from, to) = (clean(&first.from), clean(&first.to));
    let interface = clean(interface);
    let mut text = paragraph(
        "To begin, in /etc/recoded/recoded.toml of the near end; the far end has the same with the \
         addresses, ids and roles exchanged, a relay as in docs/operate.md:",
        COLUMNS,
    );
    let _ = write!(
        text,
        "\n[[link]]\nname = \"wan\"\ninterface = \"{interface}\"\nlocal = \"{from}\"\n{rate}\n\
         [[tunnel]]\nname = \"rec0\"\naddress = \"10.99.0.1/24\"\n\n\
         [[flow]]\nid = 1\nrole = \"source\"\ntunnel = \"rec0\"\ncode = \"{code}\"\n\
         next_hops = [{{ link = \"wan\", address = \"{to}\" }}]\n\n\
         [[flow]]\nid = 2\nrole = \"sink\"\ntunnel = \"rec0\"\n\
         upstream = {{ link = \"wan\", address = \"{to}\" }}\n"
    );
    text
}
