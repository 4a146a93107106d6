//! The page and the newest map, by HTTP, to browsers on this machine.
//!
//! A page from elsewhere must not read the map: browsers keep it from that unless its name is made
//! to mean this machine (DNS rebinding), so requests must name loopback. Scripts of the page come
//! from here alone (Content-Security-Policy), and nothing from the network is ever HTML.
//!
//! Bounds: [`CLIENTS_MAX`] connections, one request each, of [`REQUEST_BYTES_MAX`] and
//! [`CLIENT_TIMEOUT`] at most.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connections at once: some windows of a browser, each with a few.
const CLIENTS_MAX: usize = 16;

/// Longest head of a request; browsers send cookies of all that runs on this machine.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// From the connection to the end of the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after Linux refused to accept, such as when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");

const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; \
                      style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Serves until the process ends.
pub fn serve(listener: TcpListener, map: impl Fn() -> Arc<str>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut clients = JoinSet::new();
        loop {
            while clients.len() >= CLIENTS_MAX {
                clients.join_next().await;
            }
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        clients.spawn_local(answer(stream, map()));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = clients.join_next(), if !clients.is_empty() => {}
            }
        }
    })
}

/// One request of one client; what is wrong with it is its own affair.
async fn answer(stream: TcpStream, map: Arc<str>) {
    let respond = |request| {
        let map = map.clone();
        async move { Ok::<_, Infallible>(respond(&request, &map)) }
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(respond));
    let _ = timeout(CLIENT_TIMEOUT, connection).await;
}

fn respond(request: &Request<Incoming>, map: &str) -> Response<Full<Bytes>> {
    let (status, kind, text) = answered(request, map);
    let mut response = Response::new(Full::from(text.to_owned()));
    *response.status_mut() = status;
    let headers: [(HeaderName, &'static str); 5] = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    }
    response
}

fn answered<'a>(request: &Request<Incoming>, map: &'a str) -> (StatusCode, &'static str, &'a str) {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_loopback) {
        let words = "ask for 127.0.0.1, [::1] or localhost\n";
        return (StatusCode::FORBIDDEN, PLAIN, words);
    }
    if request.method() != Method::GET {
        return (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "GET alone is served\n");
    }
    match request.uri().path() {
        "/" => (StatusCode::OK, "text/html; charset=utf-8", PAGE),
        "/page.js" => (StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT),
        "/map.json" => (StatusCode::OK, "application/json", map),
        _ => (StatusCode::NOT_FOUND, PLAIN, "there are /, /page.js and /map.json\n"),
    }
}

/// Whether a name in a request, with or without a port, is that of loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    ["127.0.0.1", "localhost", "[::1]"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_loopback_are_told_from_others() {
        for name in ["127.0.0.1", "127.0.0.1:9429", "localhost:1", "[::1]:80", "[::1]"] {
            assert!(is_loopback(name), "{name}");
        }
        for name in ["", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil", "0.0.0.0:1"]
        {
            assert!(!is_loopback(name), "{name}");
        }
    }

    /// All that the page needs is in the program, and nothing makes text into HTML.
    #[test]
    fn page_asks_for_nothing_from_elsewhere() {
        for asset in [PAGE, SCRIPT] {
            let urls: Vec<&str> = asset.match_indices("//").map(|(at, _)| &asset[at..]).collect();
            let known = "//www.w3.org/2000/svg";
            let foreign =
                urls.iter().find(|url| !url.starts_with(known) && !url.starts_with("// "));
            assert_eq!(foreign, None);
            for maker in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
                assert!(!asset.contains(maker), "{maker}");
            }
        }
    }
}
