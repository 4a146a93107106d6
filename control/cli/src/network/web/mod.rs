//! `web`: a page that shows the nodes and paths of a network live, on this machine only.
//!
//! ```text
//!  thread: ssh, `recodectl --json show` on all boxes ─> Map ─> JSON ──┐ the newest one
//!  server: GET /          page.html                                   v
//!          GET /page.js   page.js, which requests    GET /map.json <──┘
//! ```
//!
//! Bounds: boxes are queried once after the previous round has ended, whatever browsers request;
//! the server has those of `server`. It changes nothing, and serves loopback only: anyone who can
//! connect to this machine's loopback ports can see it. `ssh -L` forwards it elsewhere.

mod map;
mod server;

use super::Boxes;
use super::ssh::{Answer, NoAnswer};
use super::status::{refused, values};
use map::{BoxState, Map};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Pause between two rounds: each round takes a connection to every box.
const PAUSE: Duration = Duration::from_secs(2);

/// The page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The address is not of loopback.
    #[error(
        "--listen {0}: the page has no password, so it is for this machine alone: give 127.0.0.1 or \
         [::1] and a port, and take it elsewhere by ssh -L"
    )]
    NotLoopback(SocketAddr),
    /// The port is unavailable.
    #[error("cannot listen at {address} ({source}): give a free port with --listen, 0 for any")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error from Linux.
        source: std::io::Error,
    },
}

/// Serves the page until the process ends; prints its address.
pub fn run(boxes: Boxes, address: SocketAddr, json: bool) -> Result<(), crate::Failure> {
    if !address.ip().is_loopback() {
        return Err(WebError::NotLoopback(address).into());
    }
    let failed = |source| WebError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let newest = Arc::new(Mutex::new(text(&Map::begin(&boxes.network))?));
    say(&boxes, address, json)?;
    let shown = newest.clone();
    thread::spawn(move || {
        loop {
            if let Ok(map) = look(&boxes)
                && let Ok(text) = text(&map)
            {
                *newest.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
            thread::sleep(PAUSE);
        }
    });
    let map = || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
    server::serve(listener, map).map_err(|source| failed(source).into())
}

fn say(boxes: &Boxes, address: SocketAddr, json: bool) -> Result<(), crate::Failure> {
    let url = format!("http://{address}/");
    let mut out = std::io::stdout().lock();
    match json {
        true => writeln!(out, "{}", serde_json::json!({ "url": url }))?,
        false => writeln!(out, "{url} shows {}, until Ctrl-C", boxes.network.file)?,
    }
    Ok(out.flush()?)
}

fn text(map: &Map) -> Result<Arc<str>, crate::Failure> {
    Ok(serde_json::to_string(map)?.into())
}

/// Queries all boxes.
fn look(boxes: &Boxes) -> Result<Map, crate::Failure> {
    let answers = boxes.ask(|place| place.ask(true, "show"))?;
    let mut seen: Vec<BoxState> = boxes.network.nodes.iter().map(|_| BoxState::NotAsked).collect();
    for (index, answer) in boxes.chosen.iter().zip(answers) {
        seen[*index] = seen_by(answer);
    }
    Ok(Map::of(&boxes.network, &seen))
}

fn seen_by(answer: Result<Answer, NoAnswer>) -> BoxState {
    let answer = match answer {
        Ok(answer) => answer,
        Err(NoAnswer { cause, cure }) => return BoxState::NoAnswer(format!("{cause}: {cure}")),
    };
    let state = values(&answer.text).into_iter().next();
    match state.and_then(|state| serde_json::from_value(state).ok()) {
        Some(state) if answer.code == 0 => BoxState::Up(Box::new(state)),
        _ => {
            let (cause, cure) = refused(&answer);
            let between = if cure.is_empty() { "" } else { ": " };
            BoxState::NoDaemon(format!("{cause}{between}{cure}"))
        }
    }
}
