//! What the supervisor asks of the dataplane process by the control socket, like any client.

use recoded_api::client::{Client, ClientError};
use recoded_api::v1::Reloaded;
use std::path::PathBuf;

/// What the supervisor asks of a dataplane process, as any client does.
pub struct Asks {
    socket: PathBuf,
}

impl Asks {
    /// By the control socket at this path.
    pub fn new(socket: PathBuf) -> Asks {
        Asks { socket }
    }

    /// Has the file read again.
    pub fn reload(&self) {
        self.ask("reload", |client| client.reload(false, None));
    }

    /// Has the last change taken back.
    pub fn undo(&self) {
        self.ask("undo", |client| client.undo(None));
    }

    /// In a thread, for an answer takes its time; what comes of it is in the log.
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
