//! Sources of bundles. A source is not trusted: it yields bytes, up to a bound.
//!
//! Calls block for bounded times. An unreachable origin is an ordinary error without further
//! consequences.

mod etcd;
mod http;

pub use etcd::Etcd;
pub use http::{Http, HttpError};

use crate::bundle::BUNDLE_BYTES_MAX;
use crate::files;
use crate::settings::{Origin, Settings};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time for one request to one server.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after an origin failed to answer.
const FAILED_PAUSE: Duration = Duration::from_millis(500);

/// Source of one node's bundle.
pub struct Source {
    node: String,
    kind: Kind,
    is_reached: bool,
}

enum Kind {
    Directory(PathBuf),
    Https { http: Http, folder: String },
    Etcd { etcd: Etcd, key: String },
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No bundle for the node.
    #[error("there is no bundle for this node at {place}: recoded-agent sign writes it there")]
    None {
        /// The place searched.
        place: String,
    },
    /// A file.
    #[error("cannot read {path} ({source})")]
    File {
        /// Its path.
        path: PathBuf,
        /// The error from Linux.
        source: io::Error,
    },
    /// A server.
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl Source {
    /// The configured source. Sends no request yet.
    ///
    /// # Errors
    ///
    /// Certificates or keys cannot be read.
    pub fn open(settings: &Settings) -> Result<Source, HttpError> {
        let shown = settings.certificate.as_deref().zip(settings.certificate_key.as_deref());
        let http = |urls: &[String]| Http::with(urls, settings.authorities.as_deref(), shown);
        let kind = match settings.origin() {
            Origin::Directory(folder) => Kind::Directory(folder),
            Origin::Https(url) => {
                let folder = url.trim_end_matches('/').to_owned();
                Kind::Https { http: http(&[url])?, folder }
            }
            Origin::Etcd(endpoints) => {
                let etcd = Etcd::new(http(&endpoints)?, endpoints);
                Kind::Etcd { etcd, key: format!("{}{}", settings.prefix, settings.node) }
            }
        };
        Ok(Source { node: settings.node.clone(), kind, is_reached: false })
    }

    /// Fetches the present content as bytes: at most one more than [`BUNDLE_BYTES_MAX`].
    ///
    /// # Errors
    ///
    /// [`SourceError`].
    pub fn fetch(&mut self) -> Result<Vec<u8>, SourceError> {
        let file = format!("{}.bundle", self.node);
        let (place, found) = match &mut self.kind {
            Kind::Directory(folder) => {
                let path = folder.join(file);
                let found = files::read_if_there(&path, BUNDLE_BYTES_MAX);
                let place = path.display().to_string();
                (place, found.map_err(|source| SourceError::File { path, source }))
            }
            Kind::Https { http, folder } => {
                let url = format!("{folder}/{file}");
                let found = http.get(&url, BUNDLE_BYTES_MAX);
                (url, found.map_err(SourceError::from))
            }
            Kind::Etcd { etcd, key } => {
                let found = etcd.get(key).map_err(SourceError::from);
                (format!("key {key} of etcd"), found)
            }
        };
        self.is_reached = found.is_ok();
        found?.ok_or(SourceError::None { place })
    }

    /// Whether the origin answered the last request, with or without a bundle.
    pub fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Waits for a change, or for `pause`; for less if the origin did not answer.
    pub fn wait(&mut self, pause: Duration) {
        match &mut self.kind {
            _ if !self.is_reached => std::thread::sleep(FAILED_PAUSE.min(pause)),
            Kind::Etcd { etcd, key } => {
                if etcd.watch(key, pause).is_err() {
                    // The next read shows the state. This limits requests to a server that ends
                    // each watch at once.
                    std::thread::sleep(FAILED_PAUSE.min(pause));
                }
            }
            _ => std::thread::sleep(pause),
        }
    }
}
