//! QEMU's monitor, by the QEMU Machine Protocol over its standard input and output.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Timeout for QEMU's answer to a command.
const PATIENCE: Duration = Duration::from_secs(60);

/// A monitor. Each command waits for its answer; events received meanwhile are dropped.
#[derive(Debug)]
pub struct Monitor {
    commands: ChildStdin,
    answers: Receiver<Value>,
}

impl Monitor {
    /// The monitor of a QEMU that was started with `-qmp stdio`.
    pub fn new(commands: ChildStdin, output: ChildStdout) -> Monitor {
        let (sender, answers) = channel();
        // It ends with QEMU, or with the first message after the monitor is dropped.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                let is_answer = ["return", "error"].iter().any(|key| message.get(key).is_some());
                if is_answer && sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut monitor = Monitor { commands, answers };
        // Required before any other command. If QEMU has exited, that is reported elsewhere.
        let _ = monitor.execute(&json!({ "execute": "qmp_capabilities" }));
        monitor
    }

    /// Executes a command and returns the answer, or an error of the same form.
    pub fn execute(&mut self, command: &Value) -> Value {
        let failed = |reason: &str| json!({ "error": { "desc": reason } });
        if writeln!(self.commands, "{command}").is_err() {
            return failed("QEMU has ended");
        }
        self.answers.recv_timeout(PATIENCE).unwrap_or_else(|_| failed("QEMU does not answer"))
    }
}
