//! The agent's main loop: poll, verify, apply or leave alone, report.
//!
//! ```text
//!  fetch -> verify -> newer? -> check -> note -> write, reload -> well? -> confirm -> keep as good
//!    |         |        |         |                               |
//!    |         `--------+---------+---- refused, in words ---- back, by the note
//!    `-- no answer: as it is
//! ```
//!
//! Single-threaded. After an interruption at any point, by a signal or a crash, [`Agent::open`]
//! recovers: unconfirmed changes are rolled back.

use crate::bundle::{Bundle, BundleError};
use crate::daemon::{Began, Daemon, DaemonError};
use crate::key::Verifier;
use crate::settings::Settings;
use crate::source::{HttpError, Source};
use crate::status::{Status, VersionState};
use crate::store::{Doing, StaleError, Store, digest};
use recoded_secure::KeyError;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// First pause before a refused bundle is retried, since the obstacle may be gone.
const AGAIN_PAUSE: Duration = Duration::from_secs(10);

/// Longest such pause. It doubles, unless the source was down, which is no fault of the bundle.
const AGAIN_PAUSE_MAX: Duration = Duration::from_secs(600);

/// Poll interval while a changed box becomes well.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Why a bundle was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It is invalid, or for another box.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// It is not newer.
    #[error(transparent)]
    Stale(#[from] StaleError),
    /// The daemon refuses it.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The agent's own folder.
    #[error("{folder}: {source}: nothing is changed that cannot be written down first")]
    Store {
        /// The folder.
        folder: PathBuf,
        /// The error from Linux.
        source: io::Error,
    },
    /// The daemon accepted it, and the box was not well.
    #[error(
        "with it the box was not well within {seconds} s, and went back: {}",
        if *.is_reached { "the daemon did not answer" } else { "the source could not be reached" }
    )]
    NotWell {
        /// Time limit that was exceeded.
        seconds: u64,
        /// Whether the source was reachable.
        is_reached: bool,
    },
}

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The key of the settings.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Certificates.
    #[error(transparent)]
    Source(#[from] HttpError),
    /// The agent's own folder.
    #[error(
        "cannot use {folder} ({source}): it must be a folder that this user may write; to \
         start over, remove it, which forgets the versions that were seen"
    )]
    Store {
        /// The folder.
        folder: PathBuf,
        /// The error from Linux.
        source: io::Error,
    },
}

/// One box's agent.
pub struct Agent {
    settings: Settings,
    verifier: Verifier,
    source: Source,
    daemon: Daemon,
    store: Store,
    good: Option<Good>,
    refused: Option<Again>,
    status: Status,
}

/// Earlier verdict on the fetched bundle.
enum Judged {
    /// It is already applied.
    InForce,
    /// It was refused, and will be retried later.
    AsBefore,
}

/// The applied bundle.
struct Good {
    digest: String,
    configuration: String,
}

/// A refused bundle, and when it is retried.
struct Again {
    digest: String,
    at: Instant,
    pause: Duration,
}

impl Agent {
    /// Recovers from the previous run: rolls back an unconfirmed change. A box without a
    /// configuration file gets the one in the last good bundle.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(settings: Settings) -> Result<Agent, OpenError> {
        let folder = settings.state.clone();
        let failed = |source| OpenError::Store { folder: folder.clone(), source };
        let verifier: Verifier = settings.public_key.parse()?;
        let source = Source::open(&settings)?;
        let store = Store::open(&settings.state).map_err(failed)?;
        let daemon = Daemon::new(&settings);
        let status = Status::new(&settings);
        let (good, refused) = (None, None);
        let mut agent = Agent { settings, verifier, source, daemon, store, good, refused, status };
        if agent.store.memory.doing == Doing::Changing {
            tracing::warn!("unfinished change: rolling back to the previous configuration");
            let before = agent.store.before().map_err(failed)?;
            agent.go_back(before.as_deref());
        }
        let good = agent.store.good(&agent.settings.node, &agent.verifier);
        if let Some((bundle, bytes)) = good {
            agent.take_up(&bundle, &bytes);
        }
        agent.status.newest = agent.store.memory.version;
        Ok(agent)
    }

    /// The status for users.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// The pause before the refused bundle is retried; `None` if none was refused.
    pub fn again_pause(&self) -> Option<Duration> {
        self.refused.as_ref().map(|again| again.pause)
    }

    /// Polls once, and acts on the result.
    pub fn step(&mut self) {
        let fetched = self.source.fetch();
        self.status.looked(self.source.is_reached(), fetched.as_ref().err());
        if let Ok(bytes) = fetched {
            let outcome = self.consider(&bytes);
            self.status.newest = self.store.memory.version;
            match outcome {
                Ok(Judged::InForce) => self.status.judged(None),
                Ok(Judged::AsBefore) => {}
                Err(refusal) => self.status.judged(Some(refusal.to_string())),
            }
        }
        let good = self.good.as_ref().map(|good| good.configuration.as_str());
        self.status.differs = match self.daemon.file() {
            Ok(file) => good.is_some() && file.as_deref() != good,
            Err(_) => false,
        };
    }

    /// Waits until the next poll is due or the source changes.
    pub fn wait(&mut self) {
        let pause = Duration::from_secs(self.settings.poll_seconds());
        let now = Instant::now();
        let again = self.refused.as_ref().map(|again| again.at.saturating_duration_since(now));
        self.source.wait(again.map_or(pause, |again| pause.min(again.max(LOOK_PAUSE))));
    }

    fn consider(&mut self, bytes: &[u8]) -> Result<Judged, Refusal> {
        let bundle = Bundle::open(bytes, &self.settings.node, &self.verifier)?;
        let digest = digest(bytes);
        if self.good.as_ref().is_some_and(|good| good.digest == digest) {
            self.refused = None;
            return Ok(Judged::InForce);
        }
        let folder = self.settings.state.clone();
        let failed = |source| Refusal::Store { folder, source };
        self.store.admit(&bundle, bytes).map_err(failed)??;
        let known = self.refused.take_if(|again| again.digest == digest);
        if let Some(again) = known.as_ref().filter(|again| again.at > Instant::now()) {
            tracing::trace!(pause = ?again.pause, "not yet again");
            self.refused = known;
            return Ok(Judged::AsBefore);
        }
        tracing::info!(version = bundle.version(), "a new bundle");
        let outcome = self.apply(&bundle, bytes);
        match &outcome {
            Ok(began) => {
                self.status.state = VersionState::of(*began);
                tracing::info!(version = bundle.version(), state = ?self.status.state, "applied");
            }
            Err(refusal) => {
                let is_away = self.is_source_away(refusal);
                let pause = pause_after(known.map(|again| again.pause), is_away);
                self.refused = Some(Again { digest, at: Instant::now() + pause, pause });
            }
        }
        outcome.map(|_| Judged::InForce)
    }

    /// Whether the source itself failed. After a rollback, a source that the bundle cut off answers
    /// again; one that is down does not.
    fn is_source_away(&mut self, refusal: &Refusal) -> bool {
        if !matches!(refusal, Refusal::NotWell { is_reached: false, .. }) {
            return false;
        }
        let _ = self.source.fetch();
        !self.source.is_reached()
    }

    /// Applies the bundle, or leaves everything unchanged.
    fn apply(&mut self, bundle: &Bundle, bytes: &[u8]) -> Result<Began, Refusal> {
        self.daemon.check(bundle.configuration())?;
        let before = self.daemon.file()?;
        let folder = self.settings.state.clone();
        let failed = |source| Refusal::Store { folder: folder.clone(), source };
        self.store.begin(before.as_deref()).map_err(failed)?;
        let done = self.bring(bundle.configuration()).and_then(|began| {
            self.store.end(Some(bytes)).map_err(failed)?;
            Ok(began)
        });
        match &done {
            Ok(_) => self.take_up(bundle, bytes),
            Err(_) => self.go_back(before.as_deref()),
        }
        done
    }

    /// Writes the configuration to the file, applies it, and confirms it once the box is well.
    fn bring(&mut self, configuration: &str) -> Result<Began, Refusal> {
        self.daemon.write(configuration)?;
        let began = self.daemon.begin()?;
        // The rest of the time is reserved for confirming, and for a slow daemon.
        let patience = Duration::from_secs(self.settings.confirm_seconds) * 2 / 3;
        let deadline = Instant::now() + patience;
        while !self.is_well(began)? {
            if Instant::now() >= deadline {
                let is_reached = self.source.is_reached();
                return Err(Refusal::NotWell { seconds: patience.as_secs(), is_reached });
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        self.daemon.confirm(began)?;
        Ok(began)
    }

    /// Whether the daemon runs with the change and the operator can still reach this box, judged by
    /// the reachability of the source.
    fn is_well(&mut self, began: Began) -> Result<bool, Refusal> {
        if matches!(began, Began::Same | Began::Written) {
            return Ok(true);
        }
        Ok(self.daemon.is_well(began)? && {
            let _ = self.source.fetch();
            self.source.is_reached()
        })
    }

    fn take_up(&mut self, bundle: &Bundle, bytes: &[u8]) {
        let configuration = bundle.configuration().to_owned();
        self.status.version = Some(bundle.version());
        self.status.state = VersionState::InForce;
        self.good = Some(Good { digest: digest(bytes), configuration });
        if let Ok(None) = self.daemon.file()
            && let Err(error) = self.daemon.write(bundle.configuration())
        {
            tracing::warn!("{error}");
        }
    }

    /// Rolls back to `before`; if that fails, the next agent retries it.
    fn go_back(&mut self, before: Option<&str>) {
        let back = self.daemon.back(before).map_err(|error| error.to_string());
        match back.and_then(|()| self.store.end(None).map_err(|error| error.to_string())) {
            Ok(()) => {}
            Err(error) => {
                tracing::error!("cannot roll back to the previous configuration: {error}")
            }
        }
    }
}

/// The pause after another refusal of a bundle, from the previous pause.
fn pause_after(last: Option<Duration>, is_source_away: bool) -> Duration {
    match last {
        None => AGAIN_PAUSE,
        Some(last) if is_source_away => last,
        Some(last) => (last * 2).min(AGAIN_PAUSE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_up_to_a_bound_unless_the_source_is_away() {
        let mut pause = pause_after(None, true);
        assert_eq!(pause, AGAIN_PAUSE);
        pause = pause_after(Some(pause), false);
        assert_eq!(pause, 2 * AGAIN_PAUSE);
        assert_eq!(pause_after(Some(pause), true), pause);
        for _ in 0..9 {
            pause = pause_after(Some(pause), false);
        }
        assert_eq!(pause, AGAIN_PAUSE_MAX);
    }
}
