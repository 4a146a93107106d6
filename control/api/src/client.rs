//! The client side: a blocking client for command-line tools and tests, and the asynchronous proxy
//! it stands on.

use crate::error::ControlError;
use crate::exit;
use crate::parts::join;
use crate::service::Config;
use crate::v1::{Adopted, Confirmed, Engine, EngineSet, Events, History, Reloaded, State, Version};
use futures_util::{Stream, StreamExt};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;
use zlink::tokio::unix::{self, Connection};

/// Patience with the daemon. It waits at most two seconds for its workers itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The interface as asynchronous calls on a zlink connection.
#[zlink::proxy("org.recoded.Control1")]
pub trait ControlProxy {
    /// Which daemon answers.
    async fn get_version(&mut self) -> zlink::Result<Result<Version, ControlError>>;
    /// Everything the daemon knows, in parts.
    #[zlink(more)]
    async fn get_state(
        &mut self,
    ) -> zlink::Result<impl Stream<Item = zlink::Result<Result<State, ControlError>>>>;
    /// The active configuration.
    async fn get_config(&mut self) -> zlink::Result<Result<Config, ControlError>>;
    /// Changes parameters of a flow.
    async fn set_flow(
        &mut self,
        flow: i64,
        changes: &BTreeMap<String, String>,
    ) -> zlink::Result<Result<Adopted, ControlError>>;
    /// Changes parameters of a flow until they are confirmed.
    async fn set_flow_for(
        &mut self,
        flow: i64,
        changes: &BTreeMap<String, String>,
        confirm_seconds: i64,
    ) -> zlink::Result<Result<Adopted, ControlError>>;
    /// Changes who does bulk work.
    async fn set_engine(&mut self, mode: &str) -> zlink::Result<Result<EngineSet, ControlError>>;
    /// Changes parameters of a flow and the file.
    async fn save_flow(
        &mut self,
        flow: i64,
        changes: &BTreeMap<String, String>,
    ) -> zlink::Result<Result<Adopted, ControlError>>;
    /// Reads the configuration again.
    async fn reload(
        &mut self,
        diff: bool,
        confirm_seconds: Option<i64>,
    ) -> zlink::Result<Result<Reloaded, ControlError>>;
    /// Compares a configuration with the active one.
    async fn compare(&mut self, text: &str) -> zlink::Result<Result<Reloaded, ControlError>>;
    /// Confirms the last change.
    async fn confirm(&mut self) -> zlink::Result<Result<Confirmed, ControlError>>;
    /// Goes back.
    async fn undo(&mut self, number: Option<i64>) -> zlink::Result<Result<Reloaded, ControlError>>;
    /// Present and past configurations.
    async fn get_history(&mut self) -> zlink::Result<Result<History, ControlError>>;
    /// What happened.
    async fn get_events(&mut self, after: i64) -> zlink::Result<Result<Events, ControlError>>;
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens at the socket.
    #[error(
        "no daemon answers at {path}: is `recoded` running? Start it with \
         `sudo recoded --config FILE`, or name another socket with --socket ({source})"
    )]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// What connecting ended with.
        source: io::Error,
    },
    /// The socket is there, but not for this user.
    #[error(
        "this user may not open {path}: run as root, or as a member of the group that owns the \
         socket"
    )]
    Forbidden {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon went away in the middle, or closed the connection (it serves a bounded number).
    #[error(
        "the daemon at {path} closed the connection: it is stopping, or serves as many \
             clients as it can; try again"
    )]
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// No answer in time.
    #[error(
        "the daemon at {path} did not answer within {seconds} s: it hangs, or the host has no time \
         for it; `journalctl -u recoded` may say why, `systemctl restart recoded` starts another"
    )]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// Patience.
        seconds: u64,
    },
    /// The answer is not of this interface.
    #[error("the daemon at {path} answered in a way this client does not understand: {source}")]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// What was wrong.
        source: zlink::Error,
    },
    /// The daemon said no.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// This process could not set up what it needs.
    #[error("cannot set up the client: {0}")]
    Local(io::Error),
}

impl ClientError {
    /// Exit code that a client should end with.
    pub fn exit_code(&self) -> u8 {
        match self {
            ClientError::NotRunning { .. } | ClientError::Timeout { .. } => exit::NOT_RUNNING,
            ClientError::Forbidden { .. } => exit::REFUSED,
            ClientError::Control(error) => error.exit_code(),
            _ => exit::FAILED,
        }
    }

    /// Stable name of the kind, as in JSON output.
    pub fn kind(&self) -> &'static str {
        match self {
            ClientError::NotRunning { .. } => "not_running",
            ClientError::Forbidden { .. } => "forbidden",
            ClientError::Closed { .. } => "closed",
            ClientError::Timeout { .. } => "timeout",
            ClientError::Protocol { .. } => "protocol",
            ClientError::Control(error) => error.kind(),
            ClientError::Local(_) => "local",
        }
    }
}

/// A connection to a daemon. Calls block the calling thread, each for a bounded time.
pub struct Client {
    path: PathBuf,
    connection: Connection,
    // Last: the connection is registered with this runtime and must go first.
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// Connects to the daemon at `path`.
    ///
    /// # Errors
    ///
    /// [`ClientError::NotRunning`] when nothing listens there, [`ClientError::Forbidden`] when the
    /// socket is not for this user.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ClientError::Local)?;
        let connected =
            runtime.block_on(async { timeout(ANSWER_TIMEOUT, unix::connect(path)).await });
        let connection = answered(path, connected)?;
        Ok(Client { path: path.to_owned(), connection, runtime })
    }

    /// Which daemon answers.
    pub fn version(&mut self) -> Result<Version, ClientError> {
        call(&self.runtime, &self.path, self.connection.get_version())
    }

    /// Everything the daemon knows.
    pub fn state(&mut self) -> Result<State, ClientError> {
        call(&self.runtime, &self.path, whole_state(&mut self.connection))
    }

    /// The active configuration, as TOML.
    pub fn config(&mut self) -> Result<String, ClientError> {
        Ok(call(&self.runtime, &self.path, self.connection.get_config())?.toml)
    }

    /// Changes parameters of a flow, all or none; returns once every worker adopted them.
    pub fn set(
        &mut self,
        flow: i64,
        changes: &BTreeMap<String, String>,
    ) -> Result<Adopted, ClientError> {
        call(&self.runtime, &self.path, self.connection.set_flow(flow, changes))
    }

    /// The same; the daemon rolls back after `confirm_seconds`, unless [`Client::confirm`] comes
    /// first.
    pub fn set_for(
        &mut self,
        flow: i64,
        changes: &BTreeMap<String, String>,
        confirm_seconds: u64,
    ) -> Result<Adopted, ClientError> {
        let seconds = i64::try_from(confirm_seconds).unwrap_or(i64::MAX);
        call(&self.runtime, &self.path, self.connection.set_flow_for(flow, changes, seconds))
    }

    /// Changes who does bulk work: auto, cpu, cuda or fpga.
    pub fn set_engine(&mut self, mode: &str) -> Result<Engine, ClientError> {
        Ok(call(&self.runtime, &self.path, self.connection.set_engine(mode))?.engine)
    }

    /// Changes parameters of a flow, and the configuration file: both or neither.
    pub fn save(
        &mut self,
        flow: i64,
        changes: &BTreeMap<String, String>,
    ) -> Result<Adopted, ClientError> {
        call(&self.runtime, &self.path, self.connection.save_flow(flow, changes))
    }

    /// Reads the configuration file again; with `diff` only to compare. With `confirm_seconds` the
    /// daemon rolls back after this time, unless [`Client::confirm`] is called.
    pub fn reload(
        &mut self,
        diff: bool,
        confirm_seconds: Option<u64>,
    ) -> Result<Reloaded, ClientError> {
        let seconds = confirm_seconds.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
        call(&self.runtime, &self.path, self.connection.reload(diff, seconds))
    }

    /// Compares `text` as the configuration file with the active configuration; changes nothing.
    pub fn compare(&mut self, text: &str) -> Result<Reloaded, ClientError> {
        call(&self.runtime, &self.path, self.connection.compare(text))
    }

    /// Confirms the last change.
    pub fn confirm(&mut self) -> Result<Confirmed, ClientError> {
        call(&self.runtime, &self.path, self.connection.confirm())
    }

    /// Goes back to the configuration of this number, or to the previous one.
    pub fn undo(&mut self, number: Option<u64>) -> Result<Reloaded, ClientError> {
        let number = number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        call(&self.runtime, &self.path, self.connection.undo(number))
    }

    /// The present and past configurations.
    pub fn history(&mut self) -> Result<History, ClientError> {
        call(&self.runtime, &self.path, self.connection.get_history())
    }

    /// What happened after the event of this number; 0 for all that is kept.
    pub fn events(&mut self, after: u64) -> Result<Events, ClientError> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        call(&self.runtime, &self.path, self.connection.get_events(after))
    }
}

/// All parts of a state; a daemon that knows of none sends one.
async fn whole_state(connection: &mut Connection) -> zlink::Result<Result<State, ControlError>> {
    let mut parts = pin!(connection.get_state().await?);
    let mut whole: Option<State> = None;
    while let Some(part) = parts.next().await {
        match (part?, &mut whole) {
            (Err(error), _) => return Ok(Err(error)),
            (Ok(part), None) => whole = Some(part),
            (Ok(part), Some(whole)) => join(whole, part),
        }
    }
    Ok(Ok(whole.ok_or(zlink::Error::UnexpectedEof)?))
}

fn call<T>(
    runtime: &tokio::runtime::Runtime,
    path: &Path,
    call: impl Future<Output = zlink::Result<Result<T, ControlError>>>,
) -> Result<T, ClientError> {
    let result = runtime.block_on(async { timeout(ANSWER_TIMEOUT, call).await });
    Ok(answered(path, result)??)
}

fn answered<T>(
    path: &Path,
    result: Result<zlink::Result<T>, tokio::time::error::Elapsed>,
) -> Result<T, ClientError> {
    let path = path.to_owned();
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(transport_error(path, error)),
        Err(_) => Err(ClientError::Timeout { path, seconds: ANSWER_TIMEOUT.as_secs() }),
    }
}

fn transport_error(path: PathBuf, error: zlink::Error) -> ClientError {
    match error {
        zlink::Error::Io(source) => match source.kind() {
            io::ErrorKind::PermissionDenied => ClientError::Forbidden { path },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                ClientError::Closed { path }
            }
            _ => ClientError::NotRunning { path, source },
        },
        zlink::Error::UnexpectedEof => ClientError::Closed { path },
        source => ClientError::Protocol { path, source },
    }
}
