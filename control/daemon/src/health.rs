//! Health of a dataplane process, from its reports.

use crate::threads;
use recoded::lifecycle::{Looked, News};
use recoded_runtime::channel::Channel;
use sd_notify::NotifyState;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Silence after which a process counts as hung: twelve report intervals. A busy host may delay a
/// thread for a second.
const HANG: Duration = Duration::from_secs(3);
/// Longest time counted between two looks, twice the supervisor's interval on a busy host. A longer
/// gap means that this process was itself suspended and could not receive reports.
const STEP: Duration = Duration::from_millis(250);
/// Upper bound on the silence if the machine is overloaded.
const HANG_MAX: Duration = Duration::from_secs(24);
/// Silence allowed until it runs: sockets and cards may be slow to open.
const START_PATIENCE: Duration = Duration::from_secs(130);
/// Known state of a dataplane process.
pub struct Health {
    /// When packets started to flow.
    pub started: Option<Instant>,
    /// Whether the service manager was notified of the start.
    pub is_told: bool,
    /// Duration of the silence, and when it was last updated.
    silent: Duration,
    looked: Instant,
    /// Allowed silence: longer if the machine is overloaded.
    patience: Duration,
}

impl Health {
    /// State of a process that was just started.
    pub fn new() -> Health {
        let (silent, looked) = (Duration::ZERO, Instant::now());
        Health { started: None, is_told: false, silent, looked, patience: HANG }
    }

    /// Whether it was silent for too long; called many times a second.
    pub fn hangs(&mut self, now: Instant) -> bool {
        self.silent += now.saturating_duration_since(self.looked).min(STEP);
        self.looked = now;
        self.silent > if self.started.is_some() { self.patience } else { START_PATIENCE }
    }

    /// Extends the allowed silence because the machine is overloaded. Returns whether it could.
    pub fn excuses(&mut self) -> bool {
        self.patience *= 2;
        self.started.is_some() && self.patience <= HANG_MAX
    }

    /// Records a report.
    fn hears(&mut self, news: News) {
        self.silent = Duration::ZERO;
        self.patience = HANG;
        if news == News::Started {
            self.started.get_or_insert_with(Instant::now);
        }
    }
}

/// Records the reports of dataplane process `pid` until it hangs up.
///
/// # Errors
///
/// The message was not a report, or Linux refused to carry messages.
pub fn hear(channel: &Channel, pid: u32, health: &Mutex<Health>) -> io::Result<()> {
    while let Some((news, _)) = channel.receive::<News>()? {
        if news == News::Stuck {
            let is_starved = is_starved(pid);
            channel.send(&Looked { is_starved }, &[])?;
        }
        lock(health).hears(news);
    }
    Ok(())
}

/// Whether a late process suffers from an overloaded machine. If not, logs the state of its
/// threads, as the process is about to be replaced.
pub fn is_starved(pid: u32) -> bool {
    let threads = threads::look(pid);
    if threads.is_starved {
        tracing::warn!("the dataplane process waits for a core: this machine is too busy for it");
    } else {
        threads.lines.iter().for_each(|line| tracing::error!("{line}"));
    }
    threads.is_starved
}

/// A thread that panicked had published its state up to then.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notifies systemd if it requests notification.
pub fn notify(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::debug!(%error, "systemd was not told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(100);

    /// When a process that is silent from `begun` counts as hung.
    fn hangs_after(health: &mut Health, begun: Instant) -> Duration {
        let looks = (1..10_000).map(|look| LOOK * look);
        let mut looks = looks.skip_while(|after| !health.hangs(begun + *after));
        looks.next().expect("it never hangs")
    }

    #[test]
    fn process_that_says_nothing_hangs_after_three_seconds() {
        let (mut health, begun) = (Health::new(), Instant::now());
        health.hears(News::Started);
        let after = hangs_after(&mut health, begun);
        assert!(after >= HANG && after <= HANG + 3 * LOOK, "{after:?}");
        health.hears(News::Beat);
        assert!(!health.hangs(begun + after + LOOK));
        let after = hangs_after(&mut Health::new(), Instant::now());
        assert!(after >= START_PATIENCE, "it has not started yet: {after:?}");
    }

    #[test]
    fn process_that_waits_for_a_core_has_more_time_and_not_without_end() {
        let (mut health, begun) = (Health::new(), Instant::now());
        health.hears(News::Started);
        let mut excused = vec![hangs_after(&mut health, begun)];
        while health.excuses() {
            let begun = begun + excused.iter().sum::<Duration>();
            excused.push(hangs_after(&mut health, begun));
        }
        let silent: Duration = excused.iter().sum();
        assert!(silent >= HANG_MAX && silent < HANG_MAX + HANG, "{excused:?}");
        health.hears(News::Beat);
        let after = hangs_after(&mut health, begun + silent);
        assert!(after <= HANG + 3 * LOOK, "the beat counts: {after:?}");
    }

    /// All processes of a box are suspended for a minute (a paused container, a closed laptop):
    /// silence in that time is not counted.
    #[test]
    fn process_that_stood_still_together_with_its_observer_does_not_hang() {
        let (mut health, begun) = (Health::new(), Instant::now());
        health.hears(News::Started);
        let thawed = begun + Duration::from_secs(60);
        assert!(!health.hangs(thawed));
        assert!(!health.hangs(thawed + LOOK));
        let after = hangs_after(&mut health, thawed + LOOK);
        assert!(after > HANG - STEP - 3 * LOOK, "it is judged from then on: {after:?}");
    }
}
