//! Events between the two processes: reported by the process that sees packets, kept by the
//! supervisor.
//!
//! A separate channel: the keeper of configurations may wait for a disk, and readers of events must
//! not wait for it.

use super::{Happened, Log};
use crate::lifecycle::{read, written};
use recoded_api::error::ControlError;
use recoded_api::v1::Events;
use recoded_runtime::channel::Channel;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Events in one message: with the longest texts, the message has room for three times as many.
const TOLD_MAX: usize = 8;

/// Events of one look. Only the start of a node with hundreds of flows has more.
const LOOK_MAX: usize = 1024;

#[derive(Serialize, Deserialize)]
enum Ask {
    /// This happened.
    Tell(Vec<Happened>),
    /// Requests the events after this number.
    Since(u64),
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Noted,
    /// They follow as JSON.
    Events,
}

/// Serves a dataplane process until it hangs up.
///
/// # Errors
/// The message was not a request, or Linux refused to carry messages.
pub fn serve(log: &Log, channel: &Channel) -> io::Result<()> {
    while let Some((ask, _)) = channel.receive::<Ask>()? {
        let (answer, text) = match ask {
            Ask::Tell(told) => {
                let known = told.into_iter().filter(|happened| happened.kind.is_of_dataplane());
                known.for_each(|happened| log.note(happened));
                (Answer::Noted, None)
            }
            Ask::Since(number) => {
                log.flush();
                (Answer::Events, Some(serde_json::to_string(&log.after(number))?))
            }
        };
        let file = text.as_deref().map(written).transpose()?;
        let fds: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        match channel.send(&answer, &fds) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            sent => sent?,
        }
    }
    Ok(())
}

/// The dataplane process's side of the channel.
#[derive(Clone, Debug)]
pub struct Client(Arc<Mutex<Channel>>);

impl Client {
    /// Reports and requests events over `channel`.
    pub fn new(channel: Channel) -> Client {
        Client(Arc::new(Mutex::new(channel)))
    }

    /// Reports events. Without a supervisor they are only logged.
    pub async fn tell(&self, mut happened: Vec<Happened>) {
        if happened.is_empty() {
            return;
        }
        happened.truncate(LOOK_MAX);
        let lost = happened.clone();
        let told = self.blocking(move |channel| {
            for some in happened.chunks(TOLD_MAX) {
                let some = some.iter().cloned().map(Happened::cleaned).collect();
                exchange(channel, &Ask::Tell(some))?;
            }
            Ok(())
        });
        if told.await.is_err() {
            lost.iter().for_each(|it| tracing::warn!("{}: {}", it.subject, it.text));
        }
    }

    /// Returns the events after this number.
    ///
    /// # Errors
    /// The supervisor does not answer.
    pub async fn since(&self, number: u64) -> Result<Events, ControlError> {
        let asked = self.blocking(move |channel| {
            let text = exchange(channel, &Ask::Since(number))?;
            Ok(serde_json::from_str(&text)?)
        });
        asked.await.map_err(|error| ControlError::Failed {
            reason: format!("the supervisor, which keeps events, does not answer ({error})"),
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Channel) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let channel = self.0.clone();
        let done = tokio::task::spawn_blocking(move || {
            work(&channel.lock().unwrap_or_else(PoisonError::into_inner))
        });
        done.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

fn exchange(channel: &Channel, ask: &Ask) -> io::Result<String> {
    channel.send(ask, &[])?;
    let answered = channel.receive::<Answer>()?;
    let (answer, fds) = answered.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
    match (answer, fds.into_iter().next()) {
        (Answer::Noted, None) => Ok(String::new()),
        (Answer::Events, Some(file)) => read(file),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KEPT_MAX, Kind};
    use super::*;

    fn pair() -> (Arc<Log>, Client, tokio::runtime::Runtime) {
        let (server, client) = Channel::pair().unwrap();
        let log = Arc::new(Log::default());
        let kept = log.clone();
        std::thread::spawn(move || serve(&kept, &server));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        (log, Client::new(client), runtime)
    }

    #[test]
    fn what_is_told_is_kept_and_comes_back_by_number() {
        let (log, client, runtime) = pair();
        log.note(Happened::new(Kind::DaemonStarted, "daemon", "runs"));
        let down = Happened::new(Kind::LinkDown, "link east", "eth0 is down");
        runtime.block_on(client.tell(vec![down]));
        let events = runtime.block_on(client.since(0)).unwrap();
        let kinds: Vec<&str> = events.events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!((kinds, events.newest), (vec!["daemon_started", "link_down"], 2));
        assert_eq!(runtime.block_on(client.since(1)).unwrap().events.len(), 1);
    }

    #[test]
    fn dataplane_process_cannot_tell_what_the_supervisor_does() {
        let (log, client, runtime) = pair();
        let forged = Happened::new(Kind::ConfigApplied, "configuration", "configuration 9");
        runtime.block_on(client.tell(vec![forged]));
        assert_eq!(log.after(0).newest, 0);
    }

    #[test]
    fn as_many_and_as_long_as_there_can_be_fit_a_message() {
        let (_log, client, runtime) = pair();
        let long = "\"".repeat(300);
        let one = |number| {
            let rising = Happened::new(Kind::DropsRising, format!("{number}{long}"), &long[..]);
            rising.about(&long[..])
        };
        for round in 0..4 {
            runtime
                .block_on(client.tell((0..LOOK_MAX).map(|n| one(n + round * LOOK_MAX)).collect()));
        }
        let events = runtime.block_on(client.since(0)).unwrap();
        // A slow run may let a few more follow.
        let count = events.events.len();
        assert!((256..4 * LOOK_MAX).contains(&count), "as many as may come at once: {count}");
        // A full log whose events all have the longest texts.
        let text = serde_json::to_string(&events).unwrap();
        let most = crate::config::document::FILE_BYTES_MAX as usize;
        assert!(text.len() * KEPT_MAX / count < most, "{} bytes", text.len());
    }

    #[test]
    fn without_a_supervisor_the_answer_is_an_error_and_nothing_hangs() {
        let (server, client) = Channel::pair().unwrap();
        drop(server);
        let client = Client::new(client);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(client.tell(vec![Happened::new(Kind::LinkDown, "link east", "down")]));
        let error = runtime.block_on(client.since(0)).unwrap_err().to_string();
        assert!(error.contains("does not answer"), "{error}");
    }
}
