//! Metrics for Prometheus over HTTP.
//!
//! ```text
//!  [daemon] metrics -> listen (before the sandbox) -> Listeners -> serve: GET /metrics
//!  reload ----------> listen (supervisor) ------------/               -> State -> text
//! ```
//!
//! Place: in the dataplane process, which has the counters, on the control socket's thread, never
//! on a worker's. That process can no longer listen: if metrics are switched on later, the
//! supervisor listens for it and keeps nothing of the socket.
//!
//! Bounds: those of [`crate::http`], with [`CLIENTS_MAX`] connections and requests of at most
//! [`REQUEST_BYTES_MAX`]. The text is rendered at most ten times a second, whatever the request
//! rate. No request changes state.

pub mod gauges;
mod labels;
pub mod names;
pub mod text;

use crate::http::{self, Bounds, Names, plain};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use recoded_api::v1::State;
use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Concurrent connections: some Prometheus servers, and a user.
pub const CLIENTS_MAX: usize = 8;

/// Longest head of a request; the minimum that hyper accepts. Prometheus sends under 500 bytes.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// Text younger than this is reused, so that clients cannot keep the thread busy.
const FRESH: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics at {address} ({source}): configure an address of this host and a free \
     port with `metrics` in [daemon]"
)]
pub struct MetricsError {
    /// The address.
    pub address: SocketAddr,
    /// The error from Linux.
    pub source: io::Error,
}

/// Listens at `address`. Call it before the process drops its privileges.
///
/// # Errors
///
/// The address is not of this host, or the port is in use.
pub fn listen(address: SocketAddr) -> Result<TcpListener, MetricsError> {
    let failed = |source| MetricsError { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "metrics: anyone who can reach this address can read them");
    }
    Ok(listener)
}

/// The listener for metrics, if any, which changes while the process runs.
#[derive(Debug, Default)]
pub struct Listeners {
    /// The pending change: another listener, or none.
    next: RefCell<Option<Option<TcpListener>>>,
    replaced: Notify,
}

impl Listeners {
    /// Begins with this listener.
    pub fn new(first: Option<TcpListener>) -> Listeners {
        Listeners { next: RefCell::new(Some(first)), replaced: Notify::new() }
    }

    /// Stops listening, and continues with another listener, if there is one.
    pub fn replace(&self, next: Option<TcpListener>) {
        *self.next.borrow_mut() = Some(next);
        self.replaced.notify_one();
    }

    /// Waits for the next change. A change that was already taken does not count.
    async fn changed(&self) {
        while self.next.borrow().is_none() {
            self.replaced.notified().await;
        }
    }
}

/// Serves `state` on the newest of `listeners` until dropped; connections end with their listener.
pub async fn serve(listeners: &Listeners, state: impl Fn() -> State) {
    loop {
        listeners.changed().await;
        let listener = listeners.next.take().flatten();
        tokio::select! {
            () = listeners.changed() => {}
            () = serve_on(listener, &state) => {}
        }
    }
}

/// Serves `state` on `listener` until dropped; without one, waits.
async fn serve_on(listener: Option<TcpListener>, state: impl Fn() -> State) {
    let Some(listener) = listener else { return std::future::pending().await };
    let local = listener.local_addr();
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "metrics are not served");
            return std::future::pending().await;
        }
    };
    let names = match local {
        Ok(local) if local.ip().is_loopback() => Names::Loopback,
        _ => Names::Host(rustix::system::uname().nodename().to_string_lossy().into_owned()),
    };
    let bounds = Bounds { clients: CLIENTS_MAX, request_bytes: REQUEST_BYTES_MAX, names };
    let page = Page { state, last: RefCell::default() };
    http::serve(listener, &bounds, |request| page.respond(request)).await;
}

/// The rendered text, and its time.
struct Page<S> {
    state: S,
    last: RefCell<Option<(Instant, Bytes)>>,
}

impl<S: Fn() -> State> Page<S> {
    fn text(&self) -> Option<Bytes> {
        let mut last = self.last.borrow_mut();
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let text = Bytes::from(text::text((self.state)()).ok()?);
        *last = Some((Instant::now(), text.clone()));
        Some(text)
    }

    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.uri().path() != "/metrics" {
            return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
        }
        if request.method() != Method::GET {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "GET alone is served\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        let Some(text) = self.text() else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written\n");
        };
        let mut response = Response::new(Full::from(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
        response
    }
}
