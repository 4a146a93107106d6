//! Progress on standard error: one line per step, with the elapsed time ticking on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use recoded_netns::sweep;

/// How often a running step's line is redrawn.
const REDRAW: Duration = Duration::from_millis(500);

/// Numbers the steps.
pub struct Progress {
    number: usize,
    total: usize,
    is_terminal: bool,
}

/// Messages of a running step.
pub struct Note(Mutex<String>);

impl Note {
    /// Replaces the note.
    pub fn say(&self, text: impl Display) {
        // A panicking writer leaves at worst an old note behind.
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = text.to_string();
    }

    fn read(&self) -> String {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Progress {
    /// Starts a run of `total` steps.
    pub fn new(total: usize) -> Progress {
        Progress { number: 0, total, is_terminal: std::io::stderr().is_terminal() }
    }

    /// Runs a step and reports how it ended, with the text next to the result.
    pub fn step<R, E>(
        &mut self,
        title: &str,
        work: impl FnOnce(&Note) -> Result<(R, String), E>,
    ) -> Result<R, E> {
        self.number += 1;
        let head = format!("[{}/{}] {title}", self.number, self.total);
        let note = Note(Mutex::new(String::new()));
        let started = Instant::now();
        if !self.is_terminal {
            eprintln!("{head} ...");
        }
        let result = std::thread::scope(|scope| {
            let (done, ended) = mpsc::channel::<()>();
            if self.is_terminal {
                let (note, head) = (&note, &head);
                scope.spawn(move || {
                    while ended.recv_timeout(REDRAW) == Err(mpsc::RecvTimeoutError::Timeout) {
                        let seconds = started.elapsed().as_secs();
                        eprint!("\r\x1b[K{head} ... {seconds} s {}", note.read());
                        // A closed terminal is no reason to stop.
                        let _ = std::io::stderr().flush();
                    }
                });
            }
            let result = work(&note);
            drop(done);
            result
        });
        if result.is_err() {
            sweep::wait_if_interrupted();
        }
        let findings = match &result {
            Ok((_, text)) => text.as_str(),
            Err(_) => "failed",
        };
        let start = if self.is_terminal { "\r\x1b[K" } else { "" };
        eprintln!("{start}{head}: {findings}");
        result.map(|(value, _)| value)
    }
}
