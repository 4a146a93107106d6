//! The daemon as the agent sees it: a program for checks, a file, a control socket.
//!
//! Stateless: the agent records each change before it makes it, and calls [`Daemon::back`] if the
//! change was not completed.

use crate::bundle::CONFIGURATION_BYTES_MAX;
use crate::files;
use crate::settings::Settings;
use recoded_api::client::{Client, ClientError};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the daemon's program to check a configuration, or for a restart.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Poll interval for a command or daemon.
const PAUSE: Duration = Duration::from_millis(50);

/// Bytes of a command's output that are kept.
const OUTPUT_BYTES_MAX: usize = 2000;

/// How a configuration was applied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Began {
    /// The daemon already ran with it.
    Same,
    /// The daemon runs it under this number of its history, until it is confirmed or rolled back.
    Waits(u64),
    /// The daemon was restarted with it.
    Restarted,
    /// Only the file was written: no daemon runs, and none should be started.
    Written,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The daemon's program refuses it.
    #[error("recoded --check refuses it: {0}")]
    Check(String),
    /// The running daemon refuses it.
    #[error("the daemon refuses it: {0}")]
    Reload(#[from] ClientError),
    /// It cannot be changed in a running daemon.
    #[error(
        "a running daemon cannot change this ({0}): name a command with restart in agent.toml, or \
         write the daemon's file by hand once, and restart it"
    )]
    NeedsRestart(String),
    /// The daemon runs with another configuration.
    #[error("the daemon went back to configuration {0} by itself: its log says why")]
    WentBack(u64),
    /// A file.
    #[error("{path}: {source}: nothing was changed")]
    File {
        /// Its path.
        path: PathBuf,
        /// The error from Linux.
        source: io::Error,
    },
    /// A command.
    #[error("{program}: {reason}")]
    Command {
        /// Its first word.
        program: String,
        /// Why it failed.
        reason: String,
    },
}

/// A daemon on this host.
pub struct Daemon {
    config: PathBuf,
    socket: PathBuf,
    recoded: PathBuf,
    restart: Option<Vec<String>>,
    confirm: Duration,
    /// Folder for drafts and output.
    scratch: PathBuf,
}

impl Daemon {
    /// The daemon that the settings name.
    pub fn new(settings: &Settings) -> Daemon {
        Daemon {
            config: settings.config.clone(),
            socket: settings.socket.clone(),
            recoded: settings.recoded.clone(),
            restart: settings.restart.clone(),
            confirm: Duration::from_secs(settings.confirm_seconds),
            scratch: settings.state.clone(),
        }
    }

    /// Whether a daemon answers.
    pub fn is_running(&self) -> bool {
        Client::connect(&self.socket).and_then(|mut client| client.version()).is_ok()
    }

    /// The content of the configuration file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn file(&self) -> Result<Option<String>, DaemonError> {
        let read = files::read_if_there(&self.config, CONFIGURATION_BYTES_MAX);
        let bytes = read.map_err(failed(&self.config))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Writes the configuration file.
    ///
    /// # Errors
    ///
    /// It cannot be written; it is unchanged.
    pub fn write(&self, text: &str) -> Result<(), DaemonError> {
        files::replace(&self.config, text.as_bytes(), 0o600).map_err(failed(&self.config))
    }

    /// Checks this configuration with the daemon's own program, on this host in its present state.
    ///
    /// # Errors
    ///
    /// [`DaemonError::Check`] with its message.
    pub fn check(&self, text: &str) -> Result<(), DaemonError> {
        let draft = self.scratch.join("draft.toml");
        files::replace(&draft, text.as_bytes(), 0o600).map_err(failed(&draft))?;
        let mut command = Command::new(&self.recoded);
        command.arg("--check").arg("--config").arg(&draft);
        let (is_well, output) = self.run(command)?;
        // The operator does not know the draft's name.
        let output = output.replace(&format!("{}:", draft.display()), "line ");
        if is_well { Ok(()) } else { Err(DaemonError::Check(output)) }
    }

    /// Applies the configuration in the file, pending [`Daemon::confirm`].
    ///
    /// # Errors
    ///
    /// It is not active; the caller must restore the file.
    pub fn begin(&self) -> Result<Began, DaemonError> {
        let mut client = match Client::connect(&self.socket) {
            Ok(client) => client,
            Err(ClientError::NotRunning { .. }) => {
                return if self.restart()? { Ok(Began::Restarted) } else { Ok(Began::Written) };
            }
            Err(error) => return Err(error.into()),
        };
        let changes = client.reload(true, None)?.changes;
        if changes.is_empty() {
            return Ok(Began::Same);
        }
        if let Some(change) = changes.iter().find(|change| change.cost == "stop") {
            let is_done = self.restart()?;
            return match is_done {
                true => Ok(Began::Restarted),
                false => Err(DaemonError::NeedsRestart(change.what.clone())),
            };
        }
        let outcome = client.reload(false, Some(self.confirm.as_secs()))?;
        if outcome.applied && outcome.replaces {
            // The reply confirms the request only; another process must still start with it.
            let deadline = Instant::now() + self.confirm / 2;
            while client.version().is_ok() && Instant::now() < deadline {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(if outcome.applied { Began::Waits(outcome.number) } else { Began::Same })
    }

    /// Whether the daemon runs as expected after [`Daemon::begin`]. `Err` if it certainly does not.
    ///
    /// # Errors
    ///
    /// [`DaemonError::WentBack`].
    pub fn is_well(&self, began: Began) -> Result<bool, DaemonError> {
        let history = Client::connect(&self.socket).and_then(|mut client| client.history());
        match (began, history) {
            (Began::Same | Began::Written, _) => Ok(true),
            (Began::Restarted, history) => Ok(history.is_ok()),
            (Began::Waits(_), Err(_)) => Ok(false),
            (Began::Waits(number), Ok(history)) => {
                match history.entries.last().map_or(0, |entry| entry.number) {
                    found if found == number => Ok(true),
                    // A previous process that has not ended yet reports a lower one.
                    found if found < number => Ok(false),
                    found => Err(DaemonError::WentBack(found)),
                }
            }
        }
    }

    /// Confirms the pending configuration.
    ///
    /// # Errors
    ///
    /// The daemon does not answer, or nothing is pending any more.
    pub fn confirm(&self, began: Began) -> Result<(), DaemonError> {
        if let Began::Waits(_) = began {
            Client::connect(&self.socket)?.confirm()?;
        }
        Ok(())
    }

    /// Rolls back: restores `before`, or the absence of a file, and applies it. A running daemon
    /// would also roll back by itself, later.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the daemon refuses it.
    pub fn back(&self, before: Option<&str>) -> Result<(), DaemonError> {
        match before {
            Some(before) => self.write(before)?,
            None => match std::fs::remove_file(&self.config) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&self.config)(error));
                }
                _ => return Ok(()),
            },
        }
        let mut client = match Client::connect(&self.socket) {
            Ok(client) => client,
            Err(ClientError::NotRunning { .. }) => return self.restart().map(|_| ()),
            Err(error) => return Err(error.into()),
        };
        if client.history()?.confirm_seconds_left.is_some() {
            client.undo(None)?;
            return Ok(());
        }
        let changes = client.reload(true, None)?.changes;
        if changes.iter().any(|change| change.cost == "stop") {
            self.restart()?;
        } else if !changes.is_empty() {
            client.reload(false, None)?;
        }
        Ok(())
    }

    /// Restarts the daemon, if the operator configured a command.
    fn restart(&self) -> Result<bool, DaemonError> {
        let Some([program, arguments @ ..]) = self.restart.as_deref() else { return Ok(false) };
        let mut command = Command::new(program);
        command.args(arguments);
        match self.run(command)? {
            (true, _) => Ok(true),
            (false, reason) => Err(DaemonError::Command { program: program.clone(), reason }),
        }
    }

    /// Runs a command for a bounded time. Returns whether it succeeded, and the beginning of its
    /// output.
    fn run(&self, mut command: Command) -> Result<(bool, String), DaemonError> {
        let path = self.scratch.join("output");
        let output = File::create(&path).map_err(failed(&path))?;
        let errors = output.try_clone().map_err(failed(&path))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let program = command.get_program().to_string_lossy().into_owned();
        let ended = command.spawn().and_then(|mut child| {
            let status = ended(&mut child);
            if !matches!(status, Ok(Some(_))) {
                child.kill()?;
                child.wait()?;
            }
            status
        });
        let error = |reason| DaemonError::Command { program: program.clone(), reason };
        let status = ended.map_err(|source| error(source.to_string()))?;
        let status = status
            .ok_or_else(|| error(format!("not done after {} s", COMMAND_TIMEOUT.as_secs())))?;
        let bytes = files::read(&path, OUTPUT_BYTES_MAX).map_err(failed(&path))?;
        Ok((status.success(), String::from_utf8_lossy(&bytes).trim().to_owned()))
    }
}

/// Its exit status; `None` if it is still running after [`COMMAND_TIMEOUT`].
fn ended(child: &mut Child) -> io::Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + COMMAND_TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(None)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> DaemonError + use<> {
    let path = path.to_owned();
    move |source| DaemonError::File { path, source }
}
