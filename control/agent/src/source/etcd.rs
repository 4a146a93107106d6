//! etcd over the JSON gateway of its version 3 API, which every server since 3.4 has on its client
//! port: linearizable reads, writes, and watches.
//!
//! Ownership: one client, which queries the member that answered last. If that one fails, it
//! queries all members at once, each in a thread that ends with the answer or a timeout, and the
//! first answer counts: unreachable members cost [`FIRST_TIMEOUT`], however many there are. Bounds:
//! answers hold one key.
//!
//! gRPC would need about ninety more crates and a compiler for protocol buffers.

use super::REQUEST_TIMEOUT;
use super::http::{self, Http, HttpError};
use crate::bundle::BUNDLE_BYTES_MAX;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

/// Longest answer, in bytes: a bundle in base64, and its metadata. A larger value is an error of
/// form.
const ANSWER_BYTES_MAX: usize = BUNDLE_BYTES_MAX / 3 * 4 + (16 << 10);

/// Time for a healthy member to answer: a linearizable read takes milliseconds. A shorter timeout
/// abandons busy members needlessly; a longer one delays updates behind a dead link.
const FIRST_TIMEOUT: Duration = Duration::from_millis(500);

/// Attempts of a write while others write the same key.
const TRIES: usize = 5;

/// An etcd of one or more members.
pub struct Etcd {
    http: Http,
    endpoints: Vec<String>,
    /// Index of the member to query.
    current: usize,
    /// Revision of the store at the last read.
    revision: i64,
}

/// Answer to a read or write. This API encodes 64-bit numbers as text.
#[derive(Deserialize)]
struct Answer {
    header: Header,
    #[serde(default)]
    kvs: Vec<Pair>,
    /// Writes: whether the condition held.
    #[serde(default)]
    succeeded: bool,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct Pair {
    #[serde(default)]
    value: String,
    /// Revision of the store at the last write of this key.
    #[serde(default)]
    mod_revision: String,
}

impl Etcd {
    /// A client for `endpoints`, which must not be empty. Sends no request yet.
    pub fn new(http: Http, endpoints: Vec<String>) -> Etcd {
        let endpoints = endpoints.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        Etcd { http, endpoints, current: 0, revision: 0 }
    }

    /// The value of `key`, confirmed by a quorum; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The last error, if no member answers for a quorum.
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, HttpError> {
        let mut answer = self.ask("range", &json!({ "key": STANDARD.encode(key) }))?;
        match answer.kvs.pop() {
            None => Ok(None),
            Some(Pair { value, .. }) => match STANDARD.decode(value) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(_) => Err(HttpError::Form { url: self.endpoint().to_owned() }),
            },
        }
    }

    /// Sets the value of `key`, on disk at a quorum. Each attempt is conditional on the value read
    /// before: a member that was suspended may execute a timed-out request long after a newer value
    /// has been written.
    ///
    /// # Errors
    ///
    /// The last error, if no member answers for a quorum; the value may have been written then.
    /// Also if others keep writing the same key.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), HttpError> {
        let (name, bytes) = (STANDARD.encode(key), STANDARD.encode(value));
        for _ in 0..TRIES {
            let read = self.ask("range", &json!({ "key": name }))?;
            // A missing key has revision 0.
            let revision = read.kvs.first().map_or("0", |pair| &pair.mod_revision);
            let is_same = json!(
                { "key": name, "target": "MOD", "result": "EQUAL", "mod_revision": revision }
            );
            let write = json!({ "request_put": { "key": name, "value": bytes } });
            let body = json!({ "compare": [is_same], "success": [write] });
            // A member that did not answer may have written it.
            if self.ask("txn", &body)?.succeeded || self.get(key)?.as_deref() == Some(value) {
                return Ok(());
            }
        }
        Err(HttpError::Contended { url: self.endpoint().to_owned() })
    }

    /// Waits until `key` changes after the last read, or for `pause`.
    ///
    /// # Errors
    ///
    /// The member ended the wait by itself.
    pub fn watch(&mut self, key: &str, pause: Duration) -> Result<(), HttpError> {
        let start = (self.revision + 1).to_string();
        let create = json!({ "key": STANDARD.encode(key), "start_revision": start });
        let url = format!("{}/v3/watch", self.endpoint());
        let body = json!({ "create_request": create }).to_string();
        let mut answer = self.http.post(&url, &body, pause)?;
        let mut reader = answer.body_mut().as_reader().take(ANSWER_BYTES_MAX as u64);
        let mut chunk = [0; 4096];
        let mut is_begun = false;
        loop {
            // Each message is a line. The first one announces the watch; the next is a change or
            // the end of the watch, and the next read shows which.
            let count = match reader.read(&mut chunk) {
                Ok(0) => return Err(HttpError::Form { url }),
                Ok(count) => count,
                // The time is over.
                Err(_) => return Ok(()),
            };
            match chunk[..count].iter().position(|byte| *byte == b'\n') {
                _ if is_begun => return Ok(()),
                Some(end) if end + 1 < count => return Ok(()),
                end => is_begun = end.is_some(),
            }
        }
    }

    fn endpoint(&self) -> &str {
        &self.endpoints[self.current]
    }

    /// Queries the member that answered last, and all of them if it fails.
    fn ask(&mut self, what: &'static str, body: &Value) -> Result<Answer, HttpError> {
        let body = body.to_string();
        let patience = if self.endpoints.len() == 1 { REQUEST_TIMEOUT } else { FIRST_TIMEOUT };
        let answer = match ask_one(&self.http, self.endpoint(), what, &body, patience) {
            Err(_) if self.endpoints.len() > 1 => self.ask_all(what, &body)?,
            answered => answered?,
        };
        let form = || HttpError::Form { url: self.endpoint().to_owned() };
        self.revision = answer.header.revision.parse().map_err(|_| form())?;
        Ok(answer)
    }

    /// The first answer of any member, which becomes the current one; the last error if none
    /// answers.
    fn ask_all(&mut self, what: &'static str, body: &str) -> Result<Answer, HttpError> {
        let (tell, told) = mpsc::channel();
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let (http, endpoint, body) = (self.http.clone(), endpoint.clone(), body.to_owned());
            let (tell, url) = (tell.clone(), endpoint.clone());
            let ask = move || {
                let answered = ask_one(&http, &endpoint, what, &body, REQUEST_TIMEOUT);
                // Another member was faster.
                let _ = tell.send((index, answered));
            };
            let thread = std::thread::Builder::new().name("etcd".into());
            thread.spawn(ask).map_err(|error| {
                let reason = format!("no thread to ask it with: {error}");
                HttpError::Unreachable { url, reason }
            })?;
        }
        drop(tell);
        let mut failed = None;
        for (index, answered) in told {
            match answered {
                Ok(answer) => {
                    self.current = index;
                    return Ok(answer);
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| HttpError::Form { url: self.endpoint().to_owned() }))
    }
}

fn ask_one(
    http: &Http,
    endpoint: &str,
    what: &str,
    body: &str,
    patience: Duration,
) -> Result<Answer, HttpError> {
    let url = format!("{endpoint}/v3/kv/{what}");
    let mut answer = http.post(&url, body, patience)?;
    let bytes = http::read(&url, &mut answer, ANSWER_BYTES_MAX)?;
    serde_json::from_slice(&bytes).map_err(|_| HttpError::Form { url })
}
