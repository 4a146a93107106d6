//! The page and the newest map over HTTP, for browsers on this machine.
//!
//! Requests must name loopback. The page runs scripts only from this server
//! (Content-Security-Policy), and never interprets data from the network as HTML.
//!
//! Bounds: those of [`recoded::http`], with [`CLIENTS_MAX`] connections and requests of at most
//! [`REQUEST_BYTES_MAX`].

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use recoded::http::{self, Bounds, Names};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

/// Concurrent connections: some windows of a browser, each with a few.
const CLIENTS_MAX: usize = 16;

/// Longest head of a request; browsers send the cookies of all services on this machine.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");

const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; \
                      style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Serves until the process ends.
pub fn serve(listener: TcpListener, map: impl Fn() -> Arc<str>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (clients, request_bytes) = (CLIENTS_MAX, REQUEST_BYTES_MAX);
    let bounds = Bounds { clients, request_bytes, names: Names::Loopback };
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        http::serve(listener, &bounds, |request| respond(request, &map())).await;
        Ok(())
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The program contains all assets of the page, and no script turns text into HTML.
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
