//! Metrics for Prometheus, by HTTP.
//!
//! ```text
//!  [daemon] metrics -> listen (before the sandbox) -> Listeners -> serve: GET /metrics
//!  reload ----------> listen (supervisor) ------------/               -> State -> text
//! ```
//!
//! Place: in the dataplane process, which has the counters, on the thread that answers the control
//! socket, never on that of a worker. That process cannot listen any more: the supervisor does so
//! where metrics are switched on later, and keeps nothing of it.
//!
//! Bounds: those of [`crate::http`], with [`CLIENTS_MAX`] connections and requests of at most
//! [`REQUEST_BYTES_MAX`]. The text is made anew at most ten times a second, whatever is asked.
//! Nothing that a client sends changes anything.

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

/// Connections at once: some servers of metrics, and a person.
pub const CLIENTS_MAX: usize = 8;

/// Longest head of a request; the least that hyper can be told. Prometheus sends under 500 bytes.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// Text younger than this is sent again, so that clients cannot keep the thread busy.
const FRESH: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics at {address} ({source}): configure an address of this host and a free \
     port with `metrics` in [daemon]"
)]
pub struct MetricsError {
    /// Where.
    pub address: SocketAddr,
    /// What Linux answered.
    pub source: io::Error,
}

/// Listens at `address`, to be called before the process gives up its privileges.
///
/// # Errors
///
/// The address is not of this host, or the port is taken.
pub fn listen(address: SocketAddr) -> Result<TcpListener, MetricsError> {
    let failed = |source| MetricsError { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "metrics: anyone who can reach this address can read them");
    }
    Ok(listener)
}

/// Where metrics are served: one listener or none, which changes while the process runs.
#[derive(Debug, Default)]
pub struct Listeners {
    /// The next listener, or that there is to be none.
    next: RefCell<Option<Option<TcpListener>>>,
    replaced: Notify,
}

impl Listeners {
    /// Begins with this one.
    pub fn new(first: Option<TcpListener>) -> Listeners {
        Listeners { next: RefCell::new(Some(first)), replaced: Notify::new() }
    }

    /// Stops listening, and goes on with another listener, if there is one.
    pub fn replace(&self, next: Option<TcpListener>) {
        *self.next.borrow_mut() = Some(next);
        self.replaced.notify_one();
    }

    /// Waits until there is a next one. One that was taken before it was heard of is no news.
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

/// The text, and when it was made.
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
