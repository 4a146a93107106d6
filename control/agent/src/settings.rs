//! `agent.toml`: the source that an agent follows, and the daemon's paths.

use crate::bundle::is_node;
use crate::key::Verifier;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Path in the package.
pub const FILE_DEFAULT: &str = "/etc/recoded/agent.toml";

/// Status file of the running agent; systemd creates the folder.
pub const STATUS_DEFAULT: &str = "/run/recoded-agent/status.json";

/// The system's certificate authorities, on Debian and most other distributions.
pub const AUTHORITIES_DEFAULT: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Most endpoints of one etcd: clusters have 3 to 7 members.
const ENDPOINTS_MAX: usize = 16;

/// Longest poll interval, in seconds.
const POLL_SECONDS_MAX: u64 = 3600;

/// Default poll intervals, for etcd, whose members may fall silent without closing connections, and
/// for files.
const POLL_SECONDS_ETCD: u64 = 1;
const POLL_SECONDS: u64 = 10;

/// The settings, as in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name of this node, as in the network file.
    pub node: String,
    /// The key that verifies bundles, 32 bytes in base64.
    pub public_key: String,
    /// A folder with `NODE.bundle`.
    pub directory: Option<PathBuf>,
    /// Address of such a folder: `https://host/path`.
    pub https: Option<String>,
    /// Endpoints of an etcd: `https://host:2379`.
    pub etcd: Option<Vec<String>>,
    /// Prefix of the node's name in etcd keys.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// PEM file of the authorities that verify servers; the system's if not written.
    pub authorities: Option<PathBuf>,
    /// PEM file of the client certificate, with intermediate certificates.
    pub certificate: Option<PathBuf>,
    /// PEM file of its private key.
    pub certificate_key: Option<PathBuf>,
    /// Poll interval in seconds ([`Settings::poll_seconds`]).
    poll_seconds: Option<u64>,
    /// Time for a changed box to become well before it rolls back, in seconds.
    #[serde(default = "confirm_seconds")]
    pub confirm_seconds: u64,
    /// The daemon's configuration file, which the agent writes.
    #[serde(default = "config")]
    pub config: PathBuf,
    /// The daemon's control socket.
    #[serde(default = "socket")]
    pub socket: PathBuf,
    /// The daemon's program, which checks a configuration before any change.
    #[serde(default = "recoded")]
    pub recoded: PathBuf,
    /// Command and arguments that restart the daemon, for changes that require it. Without it, such
    /// changes are refused.
    pub restart: Option<Vec<String>>,
    /// The agent's own folder, with the last good bundle.
    #[serde(default = "state")]
    pub state: PathBuf,
}

/// Location of bundles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// In a folder.
    Directory(PathBuf),
    /// Below an address.
    Https(String),
    /// In etcd.
    Etcd(Vec<String>),
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read.
    #[error("cannot read {path} ({source}): name a file with --config")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error from Linux.
        source: std::io::Error,
    },
    /// It is not TOML, or has unknown keys.
    #[error("{path}: {message}")]
    Form {
        /// The file.
        path: PathBuf,
        /// The parser's message, with the line.
        message: String,
    },
    /// A rule is broken.
    #[error("{path}: {key}: {rule}")]
    Rule {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// The rule.
        rule: &'static str,
    },
}

fn prefix() -> String {
    "/recoded/".into()
}

fn confirm_seconds() -> u64 {
    60
}

fn config() -> PathBuf {
    "/etc/recoded/recoded.toml".into()
}

fn socket() -> PathBuf {
    recoded_api::SOCKET_DEFAULT.into()
}

fn recoded() -> PathBuf {
    "/usr/sbin/recoded".into()
}

fn state() -> PathBuf {
    "/var/lib/recoded-agent".into()
}

impl Settings {
    /// Poll interval in seconds. etcd reports changes at once while its member responds.
    #[must_use]
    pub fn poll_seconds(&self) -> u64 {
        let usual = if self.etcd.is_some() { POLL_SECONDS_ETCD } else { POLL_SECONDS };
        self.poll_seconds.unwrap_or(usual)
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// [`SettingsError`], with the fix.
    pub fn read(path: &Path) -> Result<Settings, SettingsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::Read { path: path.into(), source })?;
        Settings::parse(path, &text)
    }

    /// The same for the text of a file.
    ///
    /// # Errors
    ///
    /// As [`Settings::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Settings, SettingsError> {
        let settings: Settings = toml::from_str(text).map_err(|error| {
            let message = error.to_string().trim_end().to_owned();
            SettingsError::Form { path: path.into(), message }
        })?;
        match settings.broken_rule() {
            Some((key, rule)) => Err(SettingsError::Rule { path: path.into(), key, rule }),
            None => Ok(settings),
        }
    }

    fn broken_rule(&self) -> Option<(&'static str, &'static str)> {
        let is_address = |scheme: &[&str], url: &String| {
            let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic()) && url.len() <= 512;
            is_plain && scheme.iter().any(|scheme| url.strip_prefix(scheme).is_some_and(is_some))
        };
        let etcd = self.etcd.iter().flatten();
        let is_absolute = [&self.config, &self.socket, &self.recoded, &self.state];
        let rules = [
            (is_node(&self.node), "node", "1 to 32 letters, digits, - and _"),
            (
                self.public_key.parse::<Verifier>().is_ok(),
                "public_key",
                "44 characters, as recoded-agent pubkey prints them",
            ),
            (
                [self.directory.is_some(), self.https.is_some(), self.etcd.is_some()]
                    .iter()
                    .filter(|is_there| **is_there)
                    .count()
                    == 1,
                "directory, https, etcd",
                "write one of them, which says where bundles are",
            ),
            (
                self.https.iter().all(|url| is_address(&["https://"], url)),
                "https",
                "https://HOST/FOLDER",
            ),
            (
                etcd.clone().all(|url| is_address(&["https://", "http://"], url))
                    && self
                        .etcd
                        .as_ref()
                        .is_none_or(|all| (1..=ENDPOINTS_MAX).contains(&all.len())),
                "etcd",
                "1 to 16 endpoints, each https://HOST:PORT",
            ),
            (
                self.certificate.is_some() == self.certificate_key.is_some(),
                "certificate, certificate_key",
                "write both or none",
            ),
            (
                (1..=POLL_SECONDS_MAX).contains(&self.poll_seconds()),
                "poll_seconds",
                "1 to 3600 seconds",
            ),
            ((3..=3600).contains(&self.confirm_seconds), "confirm_seconds", "3 to 3600 seconds"),
            (
                is_absolute.iter().all(|path| path.is_absolute()),
                "config, socket, recoded, state",
                "absolute paths",
            ),
            (
                self.restart.as_ref().is_none_or(|words| !words.is_empty()),
                "restart",
                "a command and its arguments, such as [\"systemctl\", \"restart\", \"recoded\"]",
            ),
        ];
        rules.into_iter().find(|(holds, ..)| !holds).map(|(_, key, rule)| (key, rule))
    }

    /// Location of bundles.
    pub fn origin(&self) -> Origin {
        match (&self.directory, &self.https, &self.etcd) {
            (Some(folder), ..) => Origin::Directory(folder.clone()),
            (_, Some(url), _) => Origin::Https(url.clone()),
            (.., endpoints) => Origin::Etcd(endpoints.clone().unwrap_or_default()),
        }
    }
}

fn is_some(text: &str) -> bool {
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    fn parsed(more: &str) -> Result<Settings, SettingsError> {
        let text = format!("node = \"a\"\npublic_key = \"{KEY}\"\n{more}\n");
        Settings::parse(Path::new("agent.toml"), &text)
    }

    #[test]
    fn file_of_three_lines_is_enough() {
        let settings =
            parsed("etcd = [\"https://10.0.0.1:2379\", \"http://127.0.0.1:1\"]").unwrap();
        assert!(matches!(settings.origin(), Origin::Etcd(endpoints) if endpoints.len() == 2));
        assert_eq!(settings.config, Path::new("/etc/recoded/recoded.toml"));
        let settings = parsed("directory = \"/srv\"").unwrap();
        assert_eq!(settings.origin(), Origin::Directory("/srv".into()));
        let example = include_str!("../package/agent.toml").replace("\n#= ", "\n");
        let settings = Settings::parse(Path::new("agent.toml"), &example).unwrap();
        assert_eq!(settings.origin(), Origin::Https("https://fleet.example/recoded".into()));
    }

    #[test]
    fn mistakes_name_key_and_rule() {
        let cases = [
            ("", "directory, https, etcd: write one of them"),
            ("directory = \"/a\"\nhttps = \"https://b\"", "directory, https, etcd: write one"),
            ("https = \"http://a\"", "https: https://HOST/FOLDER"),
            ("https = \"https://\"", "https: https://HOST/FOLDER"),
            ("etcd = []", "etcd: 1 to 16 endpoints"),
            ("etcd = [\"10.0.0.1:2379\"]", "etcd: 1 to 16 endpoints"),
            ("directory = \"/a\"\npoll_seconds = 0", "poll_seconds: 1 to 3600"),
            ("directory = \"/a\"\nconfirm_seconds = 1", "confirm_seconds: 3 to 3600"),
            (
                "directory = \"/a\"\ncertificate = \"/b\"",
                "certificate, certificate_key: write both",
            ),
            ("directory = \"/a\"\nstate = \"b\"", "config, socket, recoded, state: absolute"),
            ("directory = \"/a\"\nrestart = []", "restart: a command and its arguments"),
            ("directory = \"/a\"\ncolour = 3", "unknown field `colour`"),
            ("directory = 3", "line 3"),
        ];
        for (more, expected) in cases {
            let refused = parsed(more).unwrap_err().to_string();
            assert!(refused.contains(expected), "{more}: {refused}");
        }
    }
}
