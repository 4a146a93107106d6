//! Whether a dataplane process runs, by what it says.

use crate::threads;
use recoded::lifecycle::{Looked, News};
use recoded_runtime::channel::Channel;
use sd_notify::NotifyState;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A process that says nothing for so long hangs: twelve times as long as it says something. A busy
/// host may keep a thread waiting for a second.
const HANG: Duration = Duration::from_secs(3);
/// Until it runs, sockets and cards may take their time.
const START_PATIENCE: Duration = Duration::from_secs(130);
/// What is known of a dataplane process.
pub struct Health {
    /// Since when packets flow.
    pub started: Option<Instant>,
    /// Whether the service manager knows that it started.
    pub is_told: bool,
    /// When it was last heard of.
    heard: Instant,
}

impl Health {
    /// Of one that was just made.
    pub fn new() -> Health {
        Health { started: None, is_told: false, heard: Instant::now() }
    }

    /// Whether it was not heard for too long.
    pub fn hangs(&self) -> bool {
        self.heard.elapsed() > if self.started.is_some() { HANG } else { START_PATIENCE }
    }
}

/// Notes what the dataplane process `pid` says until it hangs up.
///
/// # Errors
///
/// It said what is no news, or Linux refused to carry messages.
pub fn hear(channel: &Channel, pid: u32, health: &Mutex<Health>) -> io::Result<()> {
    while let Some((news, _)) = channel.receive::<News>()? {
        if news == News::Stuck {
            log_threads(pid);
            channel.send(&Looked, &[])?;
        }
        let mut health = lock(health);
        health.heard = Instant::now();
        if news == News::Started {
            let now = health.heard;
            health.started.get_or_insert(now);
        }
    }
    Ok(())
}

/// Says what the threads of a process do that is about to be replaced.
pub fn log_threads(pid: u32) {
    for line in threads::describe(pid) {
        tracing::error!("{line}");
    }
}

/// A thread that panicked has published what it did until then.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells systemd, if it asked to be told.
pub fn notify(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::debug!(%error, "systemd was not told");
    }
}
