//! `recodectl events`: changes, in words.

use crate::Failure;
use crate::durations;
use crate::feed::Feed;
use crate::json;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use recoded_api::v1::{Event, Events};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Interval of requests to a daemon. It detects changes once a second.
const PAUSE: Duration = Duration::from_millis(500);

/// Earlier events shown when events are followed.
const BEFORE: usize = 10;

/// Selection of events.
pub struct Wanted {
    /// Not older than this time.
    pub since: Option<Timestamp>,
}

/// The kept events, as text or JSON.
pub fn kept(socket: &Path, wanted: &Wanted, is_json: bool) -> Result<String, Failure> {
    let mut events = recoded_api::client::Client::connect(socket)?.events(0)?;
    events.events.retain(|event| wanted.takes(event));
    Ok(if is_json { json::pretty(&events)? } else { text(&events) })
}

/// Prints events as they arrive, until the reader closes the output. JSON has one event per line.
pub fn follow(socket: &Path, wanted: &Wanted, is_json: bool) -> Result<(), Failure> {
    let mut feed = Feed::new(socket);
    let mut first = feed.events()?.events;
    first.retain(|event| wanted.takes(event));
    let before = if wanted.since.is_some() { first.len() } else { BEFORE };
    let mut fresh = first.split_off(first.len().saturating_sub(before));
    let zone = TimeZone::system();
    loop {
        for event in &fresh {
            let line = if is_json { serde_json::to_string(event)? } else { line(event, &zone) };
            match writeln!(io::stdout(), "{line}") {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        std::thread::sleep(PAUSE);
        fresh = match feed.events() {
            Ok(more) => {
                feed.answered(more.is_another);
                more.events
            }
            Err(error) => {
                feed.wait(error)?;
                Vec::new()
            }
        };
    }
}

impl Wanted {
    fn takes(&self, event: &Event) -> bool {
        let since = self.since.map_or(i64::MIN, Timestamp::as_millisecond);
        i64::try_from(event.at_ms).unwrap_or(i64::MAX) >= since
    }
}

fn text(events: &Events) -> String {
    if events.events.is_empty() {
        return "no events since then; older ones are in the log: journalctl -u recoded\n"
            .to_owned();
    }
    let zone = TimeZone::system();
    events.events.iter().map(|event| line(event, &zone) + "\n").collect()
}

/// One event as text: local time, a mark for faults, subject, description.
pub fn line(event: &Event, zone: &TimeZone) -> String {
    let date =
        at(event, zone).map_or("-".into(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string());
    format!("{date} {} {}", mark(event), words(event))
}

/// Time of an event in this zone.
pub fn at(event: &Event, zone: &TimeZone) -> Option<Zoned> {
    let millis = i64::try_from(event.at_ms).ok()?;
    Some(Timestamp::from_millisecond(millis).ok()?.to_zoned(zone.clone()))
}

/// One character that marks faults.
pub fn mark(event: &Event) -> char {
    match event.level.as_str() {
        "info" => ' ',
        "warning" => '!',
        _ => '#',
    }
}

/// Subject and description, and the number of suppressed similar events.
pub fn words(event: &Event) -> String {
    let Event { subject, text, left_out, .. } = event;
    let more = match left_out {
        0 => String::new(),
        more => format!(" ({more} events about this left out before)"),
    };
    let words = format!("{subject}: {text}{more}");
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A time in the past: an age (`10m`, `1h30m`, `2d`), a time of day, or a date and time.
pub fn since(text: &str) -> Result<Timestamp, String> {
    since_at(text, &Zoned::now())
}

fn since_at(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let rule = || {
        "write how long ago, such as 90s, 10m, 2h or 1d, a time of today such as 07:30, or a date \
         and time such as \"2026-11-23 07:30\""
            .to_owned()
    };
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant);
    }
    let zone = now.time_zone();
    let zoned = if let Some(ago) = durations::duration(text) {
        now.checked_sub(ago).ok()
    } else if let Ok(date) = text.parse::<DateTime>() {
        date.to_zoned(zone.clone()).ok()
    } else if let Some(time) = text.contains(':').then(|| text.parse::<Time>().ok()).flatten() {
        let today = now.datetime().date().to_datetime(time).to_zoned(zone.clone());
        // A time still to come today means yesterday.
        today.ok().and_then(|it| if it > *now { it.yesterday().ok() } else { Some(it) })
    } else {
        None
    };
    zoned.map(|zoned| zoned.timestamp()).ok_or_else(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_how_long_ago_of_day_or_a_date() {
        let now: Zoned = "2026-11-23T07:45:00+01:00[Europe/Berlin]".parse().expect("a time");
        let cases = [
            ("10m", "2026-11-23T06:35:00Z"),
            ("1h30m", "2026-11-23T05:15:00Z"),
            ("90s", "2026-11-23T06:43:30Z"),
            ("90", "2026-11-23T06:43:30Z"),
            ("2d", "2026-11-21T06:45:00Z"),
            ("1.5 h", "2026-11-23T05:15:00Z"),
            ("10 min", "2026-11-23T06:35:00Z"),
            ("07:30", "2026-11-23T06:30:00Z"),
            ("08:00", "2026-11-22T07:00:00Z"),
            ("2026-11-22 07:00", "2026-11-22T06:00:00Z"),
            ("2026-11-22", "2026-11-21T23:00:00Z"),
            ("2026-11-22T07:00:00Z", "2026-11-22T07:00:00Z"),
        ];
        for (text, expected) in cases {
            let got = since_at(text, &now).map(|at| at.to_string());
            assert_eq!(got.as_deref(), Ok(expected), "{text}");
        }
        for wrong in ["", "soon", "7:3", "25:00", "9999999999999h", "-"] {
            assert!(since_at(wrong, &now).is_err(), "{wrong}: {:?}", since_at(wrong, &now));
        }
    }

    #[test]
    fn line_is_in_the_time_of_its_reader_and_moves_no_cursor() {
        let event = Event {
            at_ms: 1_795_419_912_345,
            level: "warning".into(),
            subject: "link east".into(),
            text: "eth1 \u{1b}[2J is down".into(),
            left_out: 3,
            ..Event::default()
        };
        let said = "! link east: eth1  [2J is down (3 events about this left out before)";
        let line = line(&event, &TimeZone::UTC);
        assert_eq!(line, format!("2026-11-23 07:45:12 {said}"));
    }
}
