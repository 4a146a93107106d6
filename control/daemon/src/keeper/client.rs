//! The dataplane process's side. A disk may delay the reply, so a thread waits for it.

use super::{Answer, Ask, Coming, Past};
use crate::config::names::Names;
use crate::lifecycle::{read, written};
use recoded_api::error::ControlError;
use recoded_api::v1::Split;
use recoded_runtime::channel::Channel;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Sends requests to the supervisor.
#[derive(Clone, Debug)]
pub struct Client(Arc<Mutex<Channel>>);

/// A configuration from the supervisor.
#[derive(Clone, PartialEq, Debug)]
pub struct Text {
    /// Number of the applied configuration.
    pub number: u64,
    /// The name of its file.
    pub file: String,
    /// Its text.
    pub text: String,
    /// MTUs of the interfaces that it names.
    pub mtus: BTreeMap<String, u32>,
    /// Addresses of the host names in it.
    pub names: Names,
    /// Whether it was derived from the file of a network, which has other lines.
    pub is_derived: bool,
}

/// The result of applying a configuration.
#[derive(Debug)]
pub struct Taken {
    /// Its number.
    pub number: u64,
    /// The new listener for metrics, if this process continues with a changed one.
    pub metrics: Option<TcpListener>,
}

impl Client {
    /// Sends requests over `channel`.
    pub fn new(channel: Channel) -> Client {
        Client(Arc::new(Mutex::new(channel)))
    }

    /// The present file, checked; `changes` states whether it is to be applied.
    ///
    /// # Errors
    /// Mistakes in the file, or a required step that is missing.
    pub async fn read(&self, changes: bool) -> Result<Text, ControlError> {
        self.text(Ask::Read { changes }, Vec::new()).await
    }

    /// `text`, checked as the file would be.
    ///
    /// # Errors
    /// Mistakes in it.
    pub async fn compare(&self, text: String) -> Result<Text, ControlError> {
        self.text(Ask::Compare, vec![text]).await
    }

    /// An earlier configuration; without a number, the one to roll back to.
    ///
    /// # Errors
    /// There is none, or it is no longer valid.
    pub async fn past(&self, number: Option<u64>) -> Result<Text, ControlError> {
        self.text(Ask::Past { number }, Vec::new()).await
    }

    /// The file, for editing.
    ///
    /// # Errors
    /// It has changed since it was last read.
    pub async fn open(&self) -> Result<Text, ControlError> {
        self.text(Ask::Open, Vec::new()).await
    }

    /// Applies `text`, which users read as `shown`, at once or when another process runs; returns
    /// its number.
    ///
    /// # Errors
    /// The supervisor refuses it, or no process could start with it.
    pub async fn in_force(
        &self,
        coming: Coming,
        text: String,
        shown: String,
    ) -> Result<Taken, ControlError> {
        match self.ask(Ask::InForce(coming), vec![text, shown]).await? {
            (Answer::Done { number }, metrics) => {
                Ok(Taken { number, metrics: metrics.map(TcpListener::from) })
            }
            other => Err(unexpected(&other.0)),
        }
    }

    /// Confirms the pending change.
    ///
    /// # Errors
    /// No change is pending.
    pub async fn confirm(&self) -> Result<u64, ControlError> {
        self.done(Ask::Confirm, Vec::new()).await
    }

    /// Writes a draft of the file.
    ///
    /// # Errors
    /// The disk, or a concurrent change of the file.
    pub async fn prepare(&self, text: String) -> Result<(), ControlError> {
        self.done(Ask::Prepare, vec![text]).await.map(|_| ())
    }

    /// Replaces the file with the draft.
    ///
    /// # Errors
    /// The same.
    pub async fn finish(&self) -> Result<(), ControlError> {
        self.done(Ask::Finish, Vec::new()).await.map(|_| ())
    }

    /// Removes the draft.
    pub async fn discard(&self) {
        let _ = self.done(Ask::Discard, Vec::new()).await;
    }

    /// The configurations applied so far.
    ///
    /// # Errors
    /// The supervisor does not answer.
    pub async fn history(&self) -> Result<Past, ControlError> {
        match self.ask(Ask::History, Vec::new()).await? {
            (Answer::History(past), _) => Ok(past),
            other => Err(unexpected(&other.0)),
        }
    }

    /// State of the programs that split TCP connections, by tunnel.
    ///
    /// # Errors
    /// The supervisor does not answer.
    pub async fn splits(&self) -> Result<BTreeMap<String, Split>, ControlError> {
        match self.ask(Ask::Splits, Vec::new()).await? {
            (Answer::Splits(splits), _) => Ok(splits),
            other => Err(unexpected(&other.0)),
        }
    }

    async fn text(&self, ask: Ask, texts: Vec<String>) -> Result<Text, ControlError> {
        match self.ask(ask, texts).await? {
            (Answer::Text { number, file, mtus, names, is_derived }, Some(text)) => {
                let text = read(text).map_err(|error| silent(&error))?;
                Ok(Text { number, file, text, mtus, names, is_derived })
            }
            other => Err(unexpected(&other.0)),
        }
    }

    async fn done(&self, ask: Ask, texts: Vec<String>) -> Result<u64, ControlError> {
        match self.ask(ask, texts).await? {
            (Answer::Done { number }, _) => Ok(number),
            other => Err(unexpected(&other.0)),
        }
    }

    async fn ask(
        &self,
        ask: Ask,
        texts: Vec<String>,
    ) -> Result<(Answer, Option<OwnedFd>), ControlError> {
        let channel = self.0.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let channel = channel.lock().unwrap_or_else(PoisonError::into_inner);
            exchange(&channel, &ask, &texts)
        });
        let answered = asked.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (answer, along) = answered.map_err(|error| silent(&error))?;
        let reason = |along: Option<OwnedFd>| {
            along.map(read).transpose().map(Option::unwrap_or_default).unwrap_or_default()
        };
        match answer {
            Answer::Refused => Err(ControlError::Refused { reason: reason(along) }),
            Answer::Failed => Err(ControlError::Failed { reason: reason(along) }),
            answer => Ok((answer, along)),
        }
    }
}

fn exchange(
    channel: &Channel,
    ask: &Ask,
    texts: &[String],
) -> io::Result<(Answer, Option<OwnedFd>)> {
    let files = texts.iter().map(|text| written(text)).collect::<io::Result<Vec<_>>>()?;
    let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    channel.send(ask, &fds)?;
    let answered = channel.receive::<Answer>()?;
    let (answer, fds) = answered.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
    Ok((answer, fds.into_iter().next()))
}

fn silent(error: &io::Error) -> ControlError {
    let reason = format!("the supervisor does not answer ({error}): restart the daemon");
    ControlError::Failed { reason }
}

fn unexpected(answer: &Answer) -> ControlError {
    ControlError::Failed {
        reason: format!("the supervisor answered what was not asked: {answer:?}"),
    }
}
