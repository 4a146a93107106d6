//! The agent's status: a file that it replaces after every poll, and that `recoded-agent status`
//! reads.

use crate::daemon::Began;
use crate::files;
use crate::settings::{Origin, Settings};
use crate::source::SourceError;
use recoded_api::exit;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest file, in bytes.
const STATUS_BYTES_MAX: usize = 64 << 10;

/// Longest refusal that is kept, in characters.
const WORDS_MAX: usize = 4000;

/// Allowed silence beyond the poll interval and the confirmation time. After that, the agent counts
/// as gone.
const SILENCE_SECONDS_MAX: u64 = 90;

/// State of the last good version.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionState {
    /// No good version yet; the daemon has the operator's configuration, if any.
    None,
    /// The daemon runs with it, as far as the agent knows.
    InForce,
    /// It was only written to the daemon's file; no daemon ran when it arrived.
    Written,
}

impl VersionState {
    /// The state after a change of this kind.
    pub fn of(began: Began) -> VersionState {
        match began {
            Began::Written => VersionState::Written,
            Began::Same | Began::Waits(_) | Began::Restarted => VersionState::InForce,
        }
    }
}

/// The status of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Name of the node.
    pub node: String,
    /// Location of bundles.
    pub source: String,
    /// State of `version`.
    pub state: VersionState,
    /// The last good version; null if there is none.
    pub version: Option<u64>,
    /// Newest version that was verified.
    pub newest: u64,
    /// Why the source's bundle is not active; null if it is.
    pub refusal: Option<String>,
    /// Why the source provided nothing; null if it did.
    pub trouble: Option<String>,
    /// Time of the source's last answer, in seconds since 1970; null if it never answered.
    pub reached_at: Option<u64>,
    /// Whether the daemon's file differs from the good version.
    pub differs: bool,
    /// Time of this status, in seconds since 1970.
    pub at: u64,
    /// Seconds within which the next status must follow.
    pub next_within_seconds: u64,
}

impl Status {
    /// Status of an agent that has done nothing yet.
    pub fn new(settings: &Settings) -> Status {
        let source = match settings.origin() {
            Origin::Directory(folder) => folder.display().to_string(),
            Origin::Https(url) => url,
            Origin::Etcd(endpoints) => format!("etcd {}", endpoints.join(", ")),
        };
        Status {
            node: settings.node.clone(),
            source,
            state: VersionState::None,
            version: None,
            newest: 0,
            refusal: None,
            trouble: None,
            reached_at: None,
            differs: false,
            at: now(),
            next_within_seconds: settings.poll_seconds()
                + settings.confirm_seconds
                + SILENCE_SECONDS_MAX,
        }
    }

    /// Updates it after a poll of the source.
    pub fn looked(&mut self, is_reached: bool, error: Option<&SourceError>) {
        self.at = now();
        if is_reached {
            self.reached_at = Some(self.at);
        }
        let trouble = error.map(|error| words(&error.to_string()));
        if trouble != self.trouble {
            match &trouble {
                Some(trouble) => tracing::warn!("{trouble}: the box stays as it is"),
                None => tracing::info!("the source answers"),
            }
        }
        self.trouble = trouble;
    }

    /// Updates it after a bundle was applied or refused.
    pub fn judged(&mut self, refusal: Option<String>) {
        let refusal = refusal.map(|refusal| words(&refusal));
        if refusal != self.refusal
            && let Some(refusal) = &refusal
        {
            tracing::error!("refused: {refusal}");
        }
        self.refusal = refusal;
        self.at = now();
    }

    /// Writes it for `recoded-agent status`.
    ///
    /// # Errors
    ///
    /// The error from Linux.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        files::replace(path, &serde_json::to_vec_pretty(self)?, 0o644)
    }

    /// Reads an agent's status file.
    ///
    /// # Errors
    ///
    /// There is none, or it has another format.
    pub fn read(path: &Path) -> io::Result<Status> {
        Ok(serde_json::from_slice(&files::read(path, STATUS_BYTES_MAX)?)?)
    }

    /// Its exit code, as in all programs of Recoded.
    pub fn exit_code(&self) -> u8 {
        let is_well = self.state == VersionState::InForce && self.refusal.is_none();
        match self.is_silent(now()) {
            true => exit::NOT_RUNNING,
            false if is_well && self.trouble.is_none() && !self.differs => exit::OK,
            false => exit::UNHEALTHY,
        }
    }

    fn is_silent(&self, now: u64) -> bool {
        now.saturating_sub(self.at) > self.next_within_seconds
    }

    /// Formats it as text.
    pub fn text(&self) -> String {
        self.text_at(now())
    }

    fn text_at(&self, now: u64) -> String {
        let Status { node, source, newest, .. } = self;
        let version = match (self.version, self.state) {
            (None, _) => "none yet".to_owned(),
            (Some(version), VersionState::Written) => {
                format!("{version}, in the file: no daemon ran")
            }
            (Some(version), _) => format!("{version}, active"),
        };
        let ago = |at: u64| format!("{} s ago", now.saturating_sub(at));
        let reached = self.reached_at.map_or("never".into(), ago);
        let mut text =
            format!("node     {node}\nversion  {version}\nsource   {source}, reached {reached}\n");
        if self.version != Some(*newest) && *newest > 0 {
            text += &format!("newest   {newest}\n");
        }
        for (what, words) in [("refused", &self.refusal), ("trouble", &self.trouble)] {
            if let Some(words) = words {
                text += &format!("{what}  {}\n", words.replace('\n', "\n         "));
            }
        }
        if self.differs {
            text += "differs  the daemon's file was changed by hand; the next bundle replaces it\n";
        }
        if self.is_silent(now) {
            let ago = ago(self.at);
            text += &format!("silent   this was written {ago}: systemctl status recoded-agent\n");
        }
        text
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// At most [`WORDS_MAX`] characters, without terminal control characters.
fn words(text: &str) -> String {
    let shown = text.chars().filter(|letter| *letter == '\n' || !letter.is_control());
    shown.take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let text = "node = \"a\"\npublic_key = \"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\"\n\
                    directory = \"/srv\"\n";
        Status::new(&Settings::parse(Path::new("agent.toml"), text).unwrap())
    }

    #[test]
    fn status_says_what_is_wrong_and_has_an_exit_code() {
        let mut status = status();
        assert_eq!(status.exit_code(), exit::UNHEALTHY);
        assert_eq!(
            status.text_at(status.at),
            "node     a\nversion  none yet\nsource   /srv, reached never\n"
        );
        (status.version, status.newest, status.state) = (Some(7), 7, VersionState::InForce);
        status.looked(true, None);
        assert_eq!(status.exit_code(), exit::OK);
        status.newest = 8;
        status.judged(Some("one\ntwo\u{1b}[31m".into()));
        assert_eq!(status.exit_code(), exit::UNHEALTHY);
        let text = status.text_at(status.at + 3);
        assert_eq!(
            text,
            "node     a\nversion  7, active\nsource   /srv, reached 3 s ago\nnewest   8\n\
             refused  one\n         two[31m\n"
        );
        status.judged(None);
        status.at -= status.next_within_seconds + 1;
        assert_eq!(status.exit_code(), exit::NOT_RUNNING);
    }
}
