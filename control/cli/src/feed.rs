//! Repeated requests to a daemon, which may disappear and return meanwhile.

use recoded_api::client::{Client, ClientError};
use recoded_api::exit;
use recoded_api::v1::{Event, State};
use std::path::{Path, PathBuf};

/// Queries a daemon over a connection that is re-established after errors.
pub struct Feed {
    socket: PathBuf,
    client: Option<Client>,
    /// The daemon whose events were seen, and the newest number.
    began_ms: Option<u64>,
    newest: u64,
    is_away: bool,
}

/// Events not seen before.
pub struct Fresh {
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Whether a different daemon answers than before.
    pub is_another: bool,
}

impl Feed {
    /// Connects to the daemon at this socket.
    pub fn new(socket: &Path) -> Feed {
        Feed { socket: socket.to_owned(), client: None, began_ms: None, newest: 0, is_away: false }
    }

    /// The daemon's complete state.
    pub fn state(&mut self) -> Result<State, ClientError> {
        self.ask(Client::state)
    }

    /// Events since the last call; at first, all that are kept.
    pub fn events(&mut self) -> Result<Fresh, ClientError> {
        let after = self.newest;
        let mut got = self.ask(|client| client.events(after))?;
        let is_another = self.began_ms.is_some_and(|began| began != got.began_ms);
        // Its numbers start at 1.
        if is_another && after > 0 {
            got = self.ask(|client| client.events(0))?;
        }
        (self.began_ms, self.newest) = (Some(got.began_ms), got.newest);
        Ok(Fresh { events: got.events, is_another })
    }

    /// Handles an error of a followed daemon: waits for it, and reports the outage once on stderr.
    ///
    /// # Errors
    /// This user is no longer permitted to query it.
    pub fn wait(&mut self, error: ClientError) -> Result<(), ClientError> {
        if error.exit_code() == exit::REFUSED {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_away, true) {
            note(&format!("{error}; waiting for it"));
        }
        Ok(())
    }

    /// Records an answer from the same daemon or another one.
    pub fn answered(&mut self, is_another: bool) {
        if is_another {
            note("another daemon answers: what follows is since its start");
        } else if self.is_away {
            note("the daemon answers again");
        }
        self.is_away = false;
    }

    fn ask<T>(
        &mut self,
        ask: impl Fn(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let is_old = self.client.is_some();
        let answered = self.ask_once(&ask);
        // The dataplane process that had the connection may have been replaced.
        if is_old && matches!(answered, Err(ClientError::Closed { .. })) {
            return self.ask_once(&ask);
        }
        answered
    }

    fn ask_once<T>(
        &mut self,
        ask: impl Fn(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.socket)?,
        };
        let client = self.client.insert(client);
        let answered = ask(client);
        if answered.is_err() {
            self.client = None;
        }
        answered
    }
}

fn note(words: &str) {
    eprintln!("recodectl: {words}");
}
