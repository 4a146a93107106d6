//! Requests from the supervisor to the dataplane process, sent over the control socket like any
//! client's.

use recoded_api::client::{Client, ClientError};
use recoded_api::v1::Reloaded;
use std::path::PathBuf;

/// The supervisor's client of a dataplane process.
pub struct Asks {
    socket: PathBuf,
}

impl Asks {
    /// Uses the control socket at this path.
    pub fn new(socket: PathBuf) -> Asks {
        Asks { socket }
    }

    /// Requests that the file be reread.
    pub fn reload(&self) {
        self.ask("reload", |client| client.reload(false, None));
    }

    /// Requests that the last change be undone.
    pub fn undo(&self) {
        self.ask("undo", |client| client.undo(None));
    }

    /// Sends a request from a thread, since the reply takes time; the result is logged.
    fn ask(
        &self,
        what: &'static str,
        ask: impl FnOnce(&mut Client) -> Result<Reloaded, ClientError> + Send + 'static,
    ) {
        let socket = self.socket.clone();
        let asked = std::thread::Builder::new().name("recoded-ask".into()).spawn(move || {
            match Client::connect(&socket).and_then(|mut client| ask(&mut client)) {
                Ok(outcome) => {
                    for change in &outcome.changes {
                        tracing::info!("{what}: {} ({})", change.what, change.cost);
                    }
                    tracing::info!("{what}: configuration {} is active", outcome.number);
                }
                Err(error) => tracing::error!("{what}: {error}"),
            }
        });
        if let Err(error) = asked {
            tracing::error!(%error, "{what} needs a thread: raise the process's limits");
        }
    }
}
