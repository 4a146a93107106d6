//! `reload`, `undo` and `history`: changes, their costs, and earlier configurations.

use crate::table::{Align, sentence, table};
use recoded_api::REQUEST_BYTES_MAX;
use recoded_api::client::{Client, ClientError};
use recoded_api::v1::{History, Reloaded};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for another dataplane process to answer.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// Interval of queries.
const START_PAUSE: Duration = Duration::from_millis(20);

/// Longest file to compare: the rest of a request is its envelope.
const COMPARE_BYTES_MAX: u64 = REQUEST_BYTES_MAX as u64 - 1024;

/// Costs of changes, the highest first.
const COSTS: [(&str, &str); 5] = [
    (
        "stop",
        "reload cannot do it: a running daemon keeps its control socket; restart it to change the \
         lines with stop",
    ),
    (
        "restart",
        "costs some tenths of a second: the daemon restarts, tunnels that stay keep their routes",
    ),
    ("gap", "costs a gap of about 0.1 s: another process takes over, other tunnels stay"),
    ("flow", "costs packets of the recreated flows only"),
    ("live", "costs no packet"),
];

/// Why a configuration is not active although the daemon accepted it.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The next process did not start with it.
    #[error(
        "no process starts with this configuration: rolled back to configuration {number}; the \
         log of the daemon says why"
    )]
    Back {
        /// Number of the active configuration.
        number: u64,
    },
    /// The file to compare cannot be read.
    #[error("cannot read {} ({source}): name a configuration", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is no configuration.
    #[error(
        "{} has more than {COMPARE_BYTES_MAX} bytes: put it into the file of the daemon, and run \
         recodectl reload --diff",
        .0.display()
    )]
    TooLarge(PathBuf),
}

/// The text of a file to compare; `-` is standard input.
pub fn file(path: &Path) -> Result<String, ReloadError> {
    let failed = |source| ReloadError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let mut read = |from: &mut dyn Read| from.take(COMPARE_BYTES_MAX + 1).read_to_string(&mut text);
    let read = match path == Path::new("-") {
        true => read(&mut io::stdin().lock()),
        false => File::open(path).and_then(|mut file| read(&mut file)),
    };
    read.map_err(failed)?;
    // Line ends and quotes take two bytes of a request.
    let escaped = text.bytes().map(|byte| if b"\n\r\t\"\\".contains(&byte) { 2 } else { 1 });
    if escaped.sum::<u64>() > COMPARE_BYTES_MAX {
        return Err(ReloadError::TooLarge(path.to_owned()));
    }
    Ok(text)
}

/// If another process takes over, waits until it runs, and checks its configuration.
pub fn settled(
    mut client: Client,
    outcome: Reloaded,
    socket: &Path,
) -> Result<Reloaded, crate::Failure> {
    if !(outcome.applied && outcome.replaces) {
        return Ok(outcome);
    }
    let deadline = Instant::now() + START_PATIENCE;
    // The process that answered is about to end.
    while client.version().is_ok() && Instant::now() < deadline {
        std::thread::sleep(START_PAUSE);
    }
    let history = loop {
        match Client::connect(socket).and_then(|mut client| client.history()) {
            Ok(history) => break history,
            Err(ClientError::Forbidden { path }) => {
                return Err(ClientError::Forbidden { path }.into());
            }
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(START_PAUSE),
        }
    };
    let number = history.entries.last().map_or(0, |entry| entry.number);
    if number != outcome.number {
        return Err(ReloadError::Back { number }.into());
    }
    Ok(outcome)
}

/// A line for each change, and, for planned ones, their cost.
pub fn changes(outcome: &Reloaded) -> String {
    let mut text = String::new();
    for change in &outcome.changes {
        let line = change.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        text += &format!("{:<8} {line}{}\n", change.cost, change.what);
    }
    if outcome.changes.is_empty() {
        return "nothing to change: the configuration is applied already\n".to_owned();
    }
    if outcome.applied {
        return text;
    }
    let has = |cost: &str| outcome.changes.iter().any(|change| change.cost == cost);
    let (_, cost) = COSTS.iter().find(|(cost, _)| has(cost)).unwrap_or(&COSTS[4]);
    text + "\n" + cost + "\n"
}

/// Actual or planned changes.
pub fn text(outcome: &Reloaded) -> String {
    let mut text = changes(outcome);
    if outcome.changes.is_empty() {
        return text;
    }
    if !outcome.applied {
        let is_stop = outcome.changes.iter().any(|change| change.cost == "stop");
        let does = if is_stop { "" } else { "; recodectl reload does it" };
        return text + "nothing was changed" + does + "\n";
    }
    let (number, edition) = (outcome.number, outcome.edition);
    text += &match outcome.replaces {
        true => format!("configuration {number} is applied, in a new process\n"),
        false => format!("configuration {number} applied (edition {edition})\n"),
    };
    text + &rolling_back(outcome.confirm_seconds)
}

/// A line about a change that waits for confirmation.
pub fn rolling_back(confirm_seconds: Option<u64>) -> String {
    confirm_seconds.map_or_else(String::new, |seconds| {
        format!("rolling back in {seconds} s; run `recodectl confirm` to keep it\n")
    })
}

/// Earlier configurations, newest first.
pub fn history(history: &History) -> String {
    let head = [("number", Align::Right), ("for", Align::Right), ("by", Align::Left)];
    let rows = history.entries.iter().rev().enumerate().map(|(index, entry)| {
        let in_force = if index == 0 { " (active)" } else { "" };
        [entry.number.to_string(), age(entry.age_seconds), format!("{}{in_force}", entry.cause)]
    });
    let mut text = table(head, &rows.collect::<Vec<_>>()) + "\n";
    let memory = "in memory only: start recoded with --state DIR to keep it on disk";
    text += &match (&history.directory, history.trouble.is_empty()) {
        (Some(directory), true) => sentence("kept", &format!("in {directory}")),
        (Some(_), false) => sentence("not kept", &history.trouble),
        (None, _) => sentence("kept", memory),
    };
    text + &rolling_back(history.confirm_seconds_left)
}

/// Formats an age.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
