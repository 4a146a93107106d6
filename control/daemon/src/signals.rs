//! Signals to the supervisor, except those that stop it.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Requests by signal.
pub struct Signals {
    /// SIGHUP: reload the configuration.
    pub hangup: Signal,
    /// SIGUSR2: hand over to the program installed now.
    pub replace: Signal,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// Linux refuses a handler.
    pub fn listen() -> io::Result<Signals> {
        let replace = signal(SignalKind::user_defined2())?;
        Ok(Signals { hangup: signal(SignalKind::hangup())?, replace })
    }
}
