//! etcd by the JSON form of its version 3 interface, which every server of 3.4 or later has on its
//! client port: reads that a quorum confirms, writes, and a wait for changes.
//!
//! Ownership: one client, one endpoint at a time; the next one after each failure, so that a member
//! that is cut off from its leader is left. Bounds: answers hold one key.
//!
//! Over gRPC the same would take some ninety more crates and a compiler for protocol buffers.

use super::REQUEST_TIMEOUT;
use super::http::{self, Http, HttpError};
use crate::bundle::BUNDLE_BYTES_MAX;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Read;
use std::time::Duration;

/// Longest answer, in bytes: a bundle in base64, and what is said about it. A larger value is an
/// error of form.
const ANSWER_BYTES_MAX: usize = BUNDLE_BYTES_MAX / 3 * 4 + (16 << 10);

/// Tries of a write while others write the same key.
const TRIES: usize = 5;

/// An etcd of one or more members.
pub struct Etcd {
    http: Http,
    endpoints: Vec<String>,
    /// The one that is asked.
    current: usize,
    /// Revision of the store at the last read.
    revision: i64,
}

/// What a read or write is answered with. Numbers of 64 bits are texts in this form.
#[derive(Deserialize)]
struct Answer {
    header: Header,
    #[serde(default)]
    kvs: Vec<Pair>,
    /// Of a write: whether its condition held.
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
    /// Revision of the store at the last write of it.
    #[serde(default)]
    mod_revision: String,
}

impl Etcd {
    /// A client for `endpoints`, of which there is at least one. Asks nothing yet.
    pub fn new(http: Http, endpoints: Vec<String>) -> Etcd {
        let endpoints = endpoints.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        Etcd { http, endpoints, current: 0, revision: 0 }
    }

    /// The value of `key` as a quorum has it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The last one, when no member answers for a quorum.
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

    /// Sets the value of `key`; a quorum has it on disk. Each try holds only while the value is the
    /// one that was read before: a member that stood still while it was asked, and did not answer
    /// in time, may do what it was asked when something newer has long been written.
    ///
    /// # Errors
    ///
    /// The last one, when no member answers for a quorum; it may have been written then. And when
    /// others write the same key all the time.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), HttpError> {
        let (name, bytes) = (STANDARD.encode(key), STANDARD.encode(value));
        for _ in 0..TRIES {
            let read = self.ask("range", &json!({ "key": name }))?;
            // A key that there is not has revision 0.
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
            // Each message is a line. The first one says that the wait has begun; what comes after
            // it is a change, or the end of the wait: the next read tells which.
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

    /// Asks member after member, each once.
    fn ask(&mut self, what: &str, body: &Value) -> Result<Answer, HttpError> {
        let body = body.to_string();
        let mut members = self.endpoints.len();
        loop {
            match self.ask_one(what, &body) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    self.current = (self.current + 1) % self.endpoints.len();
                    members -= 1;
                    if members == 0 {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn ask_one(&mut self, what: &str, body: &str) -> Result<Answer, HttpError> {
        let url = format!("{}/v3/kv/{what}", self.endpoint());
        let mut answer = self.http.post(&url, body, REQUEST_TIMEOUT)?;
        let bytes = http::read(&url, &mut answer, ANSWER_BYTES_MAX)?;
        let answer: Answer =
            serde_json::from_slice(&bytes).map_err(|_| HttpError::Form { url: url.clone() })?;
        self.revision = answer.header.revision.parse().map_err(|_| HttpError::Form { url })?;
        Ok(answer)
    }
}
