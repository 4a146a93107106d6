//! Signals to the supervisor, except those that stop it, and the event of a restored machine.

use crate::vm_generation::VmGeneration;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Requests by signal, and by Linux.
pub struct Signals {
    /// SIGHUP: reload the configuration.
    pub hangup: Signal,
    /// SIGUSR2: hand over to the program installed now.
    pub replace: Signal,
    /// This machine was restored from a snapshot, or copied.
    pub generation: VmGeneration,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// Linux refuses a handler.
    pub fn listen() -> io::Result<Signals> {
        let replace = signal(SignalKind::user_defined2())?;
        let hangup = signal(SignalKind::hangup())?;
        Ok(Signals { hangup, replace, generation: VmGeneration::listen() })
    }
}
