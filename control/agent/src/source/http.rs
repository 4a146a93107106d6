//! HTTP and HTTPS requests: blocking, without redirects, bounded in time and bytes.

use super::REQUEST_TIMEOUT;
use crate::files;
use crate::settings::AUTHORITIES_DEFAULT;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Response;
use ureq::tls::{
    Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem,
};
use ureq::{Agent, Body};

/// Longest file of certificates, in bytes: a system's bundle has 200 kB.
const PEM_BYTES_MAX: usize = 4 << 20;

/// A client. Connections are kept between requests, and clones share them.
#[derive(Clone)]
pub struct Http(Agent);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A PEM file.
    #[error("cannot use {path} ({reason}): name a PEM file {what}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
        /// Its expected content.
        what: &'static str,
    },
    /// No connection, an untrusted certificate, or no answer in time.
    #[error("{url} does not answer: {reason}")]
    Unreachable {
        /// The requested URL.
        url: String,
        /// The cause.
        reason: String,
    },
    /// An answer with an error status.
    #[error("{url} answers with status {status}")]
    Status {
        /// The requested URL.
        url: String,
        /// The status.
        status: u16,
    },
    /// An answer in another format.
    #[error("{url} answers in a way that is not etcd's")]
    Form {
        /// The requested URL.
        url: String,
    },
    /// A write that kept conflicting with others.
    #[error("{url}: others write the same key all the time: try again when they are done")]
    Contended {
        /// The URL.
        url: String,
    },
}

impl Http {
    /// A client for `urls`, with the authorities in `authorities`, or otherwise the system's, if
    /// any URL uses HTTPS, and a client certificate with its private key. If all URLs use HTTPS, no
    /// request is ever sent in the clear.
    ///
    /// # Errors
    ///
    /// [`HttpError::Pem`].
    pub fn with(
        urls: &[String],
        authorities: Option<&Path>,
        shown: Option<(&Path, &Path)>,
    ) -> Result<Http, HttpError> {
        let is_tls = |url: &String| url.starts_with("https:");
        let authorities = authorities.unwrap_or(Path::new(AUTHORITIES_DEFAULT));
        let roots = if urls.iter().any(is_tls) { certificates(authorities)? } else { Vec::new() };
        let shown = match shown {
            Some((certificate, key)) => {
                Some(ClientCert::new_with_certs(&certificates(certificate)?, private_key(key)?))
            }
            None => None,
        };
        let is_tls = urls.iter().all(is_tls);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(shown)
            .build();
        let config = Agent::config_builder()
            .https_only(is_tls)
            .max_redirects(0)
            .http_status_as_error(false)
            .proxy(None)
            .user_agent(concat!("recoded-agent/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(REQUEST_TIMEOUT))
            .tls_config(tls)
            .build();
        Ok(Http(config.into()))
    }

    /// Reads `url`: `None` if the server has nothing there; at most one byte more than `bytes_max`.
    ///
    /// # Errors
    ///
    /// [`HttpError`].
    pub fn get(&self, url: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, HttpError> {
        let mut answer = self.0.get(url).call().map_err(|error| unreachable(url, &error))?;
        match answer.status().as_u16() {
            200 => Ok(Some(read(url, &mut answer, bytes_max)?)),
            404 | 410 => Ok(None),
            status => Err(HttpError::Status { url: url.into(), status }),
        }
    }

    /// Sends JSON and returns the answer's body for reading, within `timeout`.
    ///
    /// # Errors
    ///
    /// [`HttpError`].
    pub fn post(
        &self,
        url: &str,
        json: &str,
        timeout: Duration,
    ) -> Result<Response<Body>, HttpError> {
        let request = self.0.post(url).config().timeout_global(Some(timeout)).build();
        let request = request.header("content-type", "application/json");
        let answer = request.send(json).map_err(|error| unreachable(url, &error))?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            status => Err(HttpError::Status { url: url.into(), status }),
        }
    }
}

/// Reads a whole body, or one byte more than `bytes_max` of a longer one.
///
/// # Errors
///
/// [`HttpError::Unreachable`].
pub fn read(
    url: &str,
    answer: &mut Response<Body>,
    bytes_max: usize,
) -> Result<Vec<u8>, HttpError> {
    use io::Read;
    let mut bytes = Vec::new();
    let body = answer.body_mut().as_reader().take(bytes_max as u64 + 1).read_to_end(&mut bytes);
    body.map_err(|error| unreachable(url, &error))?;
    Ok(bytes)
}

fn unreachable(url: &str, error: &dyn std::error::Error) -> HttpError {
    let mut reason = error.to_string();
    if let Some(source) = error.source() {
        reason += &format!(": {source}");
    }
    HttpError::Unreachable { url: url.into(), reason }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, HttpError> {
    let what = "with certificates";
    let mut found = Vec::new();
    for item in items(path, what)? {
        if let PemItem::Certificate(certificate) = item {
            found.push(certificate);
        }
    }
    match found.is_empty() {
        true => Err(pem(path, "there is none", what)),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, HttpError> {
    let what = "with a private key";
    let key = items(path, what)?.into_iter().find_map(|item| match item {
        PemItem::PrivateKey(key) => Some(key),
        _ => None,
    });
    key.ok_or_else(|| pem(path, "there is none", what))
}

fn items(path: &Path, what: &'static str) -> Result<Vec<PemItem<'static>>, HttpError> {
    let bytes = files::read(path, PEM_BYTES_MAX).map_err(|error| pem(path, error, what))?;
    let items: Result<Vec<_>, _> = parse_pem(&bytes).collect();
    items.map_err(|error| pem(path, error, what))
}

fn pem(path: &Path, reason: impl ToString, what: &'static str) -> HttpError {
    HttpError::Pem { path: path.into(), reason: reason.to_string(), what }
}
