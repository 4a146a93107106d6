//! Requests to the host, which makes QEMU do what a guest cannot: unplug a card, reset the machine.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Guest, Line, RESULTS, SHARED, write};
use crate::LabError;

/// Timeout for an answer of the host, beyond the delay of the request.
const PATIENCE: Duration = Duration::from_secs(90);

/// Commands for QEMU, one after the other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Number that no other request of the machine has.
    pub number: u64,
    /// Whether they are for the QEMU of the peer.
    pub to_peer: bool,
    /// Delay before the first command.
    pub delay_millis: u64,
    /// Commands of the QEMU Machine Protocol.
    pub commands: Vec<Value>,
}

impl Request {
    /// Name of the file of answers in the shared folder.
    pub fn answer(&self) -> String {
        format!("answer-{}", self.number)
    }
}

impl Guest {
    /// Has QEMU execute commands, and waits for the results.
    ///
    /// # Errors
    /// When the host does not answer, or a command fails.
    pub fn qemu(&self, commands: &[Value]) -> Result<(), LabError> {
        Guest::request(commands, false, Duration::ZERO)
    }

    /// Has the QEMU of the peer execute commands after a delay, and waits for the results.
    ///
    /// # Errors
    /// As [`Guest::qemu`].
    pub fn qemu_of_peer(&self, commands: &[Value], delay: Duration) -> Result<(), LabError> {
        Guest::request(commands, true, delay)
    }

    fn request(commands: &[Value], to_peer: bool, delay: Duration) -> Result<(), LabError> {
        let results = Path::new(SHARED).join(RESULTS);
        // The file only grows, so its size is a unique request number.
        let number = fs::metadata(&results).map_or(0, |found| found.len());
        let delay_millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let request = Request { number, to_peer, delay_millis, commands: commands.to_vec() };
        write(&results, &Line::Request(request.clone()));
        let answer = Path::new(SHARED).join(request.answer());
        let deadline = Instant::now() + delay + PATIENCE;
        while Instant::now() < deadline {
            let Ok(text) = fs::read_to_string(&answer) else {
                sleep(Duration::from_millis(50));
                continue;
            };
            return match text.contains("\"error\"") {
                true => LabError::wrong(format!("QEMU: {text}")),
                false => Ok(()),
            };
        }
        LabError::wrong("the host does not answer a request")
    }
}
