//! An HTTP server for a few local or trusted clients: metrics of the daemon, the page of `recodectl
//! web`.
//!
//! Bounds: [`Bounds::clients`] connections, one request each. The head of a request must arrive
//! within [`HEAD_TIMEOUT`] and be no longer than [`Bounds::request_bytes`]; the exchange must end
//! within [`CLIENT_TIMEOUT`]. When all connections are taken, a new one replaces the oldest that
//! has not sent its request yet, so that silent clients do not lock others out.
//!
//! Pages of other sites must not read responses. Browsers prevent that unless the site's name
//! resolves to this machine (DNS rebinding), so a request must have one `Host`, which [`Names`]
//! permits.

use futures_util::stream::{FuturesUnordered, StreamExt};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Time from the connection to the last byte of a request's head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// From the connection to the end of the response. Prometheus times out after 10 s by default.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after Linux refuses to accept, for example when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at once.
    pub clients: usize,
    /// Longest head of a request.
    pub request_bytes: usize,
    /// Host names that it answers to.
    pub names: Names,
}

/// Host names that a request may use for a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Names {
    /// Names of loopback.
    Loopback,
    /// Addresses, names without a dot, and names of this host. An attacker cannot make such a name
    /// resolve to this host without knowing the host's name.
    Host(String),
}

impl Names {
    /// Whether a request may use this host name, with or without a port.
    pub fn permit(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let address = match in_brackets {
            Some(name) => name.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => name.parse().ok().map(IpAddr::V4),
        };
        let name = name.to_ascii_lowercase();
        match self {
            Names::Loopback => name == "localhost" || address.is_some_and(|it| it.is_loopback()),
            Names::Host(own) => {
                let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
                let is_ours = first(&name) == first(&own.to_ascii_lowercase());
                !name.is_empty() && (address.is_some() || !name.contains('.') || is_ours)
            }
        }
    }
}

/// A connection, as the server sees it.
#[derive(Default)]
struct Client {
    /// Its request has arrived.
    is_served: Cell<bool>,
    /// Signals that it must close.
    closed: Notify,
}

/// Serves until dropped.
pub async fn serve(
    listener: TcpListener,
    bounds: &Bounds,
    respond: impl Fn(&Request<Incoming>) -> Response<Full<Bytes>>,
) {
    let mut running: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + '_>>> =
        FuturesUnordered::new();
    let mut clients: VecDeque<Rc<Client>> = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = running.next(), if !running.is_empty() => {
                // A finished task has dropped its reference.
                clients.retain(|client| Rc::strong_count(client) > 1);
            }
            accepted = listener.accept(), if has_room(&clients, bounds.clients) => match accepted {
                Ok((stream, _)) => {
                    if clients.len() >= bounds.clients {
                        close_oldest(&mut clients);
                    }
                    let client = Rc::new(Client::default());
                    clients.push_back(client.clone());
                    running.push(Box::pin(answer(stream, client, bounds, &respond)));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client of HTTP");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Whether there is a free slot, or one that can be freed.
fn has_room(clients: &VecDeque<Rc<Client>>, most: usize) -> bool {
    clients.len() < most || clients.iter().any(|client| !client.is_served.get())
}

fn close_oldest(clients: &mut VecDeque<Rc<Client>>) {
    let oldest = clients.iter().position(|client| !client.is_served.get());
    if let Some(client) = oldest.and_then(|at| clients.remove(at)) {
        client.closed.notify_one();
    }
}

/// Serves one request of one client; its errors affect no other client.
async fn answer(
    stream: TcpStream,
    client: Rc<Client>,
    bounds: &Bounds,
    respond: &impl Fn(&Request<Incoming>) -> Response<Full<Bytes>>,
) {
    let service = |request: Request<Incoming>| {
        client.is_served.set(true);
        let response = refusal(&request, bounds).unwrap_or_else(|| respond(&request));
        async move { Ok::<_, Infallible>(response) }
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(bounds.request_bytes)
        .serve_connection(TokioIo::new(stream), service_fn(service));
    tokio::select! {
        () = client.closed.notified() => tracing::debug!("a silent client of HTTP was closed"),
        ended = timeout(CLIENT_TIMEOUT, connection) => match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a client of HTTP"),
            Err(_) => tracing::debug!("a client of HTTP was too slow"),
        },
    }
}

/// The response to a request that is too long or has a wrong host name.
fn refusal(request: &Request<Incoming>, bounds: &Bounds) -> Option<Response<Full<Bytes>>> {
    let headers = request.headers();
    let length: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if length > bounds.request_bytes {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Some(plain(status, "the head of this request is too long\n"));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    if hosts.next().is_none() && host.is_some_and(|host| bounds.names.permit(host)) {
        return None;
    }
    let text = match bounds.names {
        Names::Loopback => "use 127.0.0.1, [::1] or localhost as host\n",
        Names::Host(_) => "use an address or the name of this host\n",
    };
    Some(plain(StatusCode::FORBIDDEN, text))
}

/// A response of one line.
pub fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn names_of_loopback_are_told_from_others() {
        let permits = |host: &str| Names::Loopback.permit(host);
        for name in ["127.0.0.1", "127.0.0.1:9429", "localhost:1", "[::1]:80", "[::1]"] {
            assert!(permits(name), "{name}");
        }
        for name in ["", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil", "0.0.0.0:1"]
        {
            assert!(!permits(name), "{name}");
        }
    }

    #[test]
    fn names_of_a_host_are_told_from_those_that_others_can_have() {
        let permits = |host: &str| Names::Host("relay1".into()).permit(host);
        let ours = ["192.0.2.1:9427", "[2001:db8::1]:9427", "relay1", "Relay1.example.net:9427"];
        for name in ours.into_iter().chain(["localhost", "metrics:9427"]) {
            assert!(permits(name), "{name}");
        }
        for name in ["", ":9427", "evil.example", "192.0.2.1.evil.example", "relay10.evil.example"]
        {
            assert!(!permits(name), "{name}");
        }
        assert!(!Names::Host(String::new()).permit("evil.example"));
    }

    /// The response to a request from a server with two slots.
    async fn asked(port: u16, request: String) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text).await;
        text
    }

    fn with_server<F: Future<Output = ()>>(test: impl FnOnce(u16) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let bounds = Bounds { clients: 2, request_bytes: 8192, names: Names::Loopback };
            let served = serve(listener, &bounds, |_| plain(StatusCode::OK, "here\n"));
            tokio::select! {
                () = served => {}
                () = test(port) => {}
            }
        });
    }

    #[test]
    fn silent_clients_keep_nobody_out() {
        with_server(async |port| {
            let mut silent = Vec::new();
            for number in 0..40 {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                if number % 2 == 0 {
                    stream.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
                }
                silent.push(stream);
            }
            let begin = Instant::now();
            let text = asked(port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".into()).await;
            assert!(text.ends_with("here\n"), "{text}");
            assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
            // A head that arrives byte by byte ends at its deadline.
            let begin = Instant::now();
            let mut slow = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            let mut text = String::new();
            let _ = slow.read_to_string(&mut text).await;
            assert!(begin.elapsed() < 2 * HEAD_TIMEOUT, "{:?}", begin.elapsed());
        });
    }

    #[test]
    fn requests_with_other_names_or_long_heads_are_refused() {
        with_server(async |port| {
            let with = |lines: String| asked(port, format!("GET / HTTP/1.1\r\n{lines}\r\n"));
            let status = |text: &str| text.split(' ').nth(1).unwrap_or_default().to_owned();
            assert_eq!(status(&with("Host: 127.0.0.1\r\n".into()).await), "200");
            assert_eq!(status(&with("Host: evil.example\r\n".into()).await), "403");
            assert_eq!(status(&with(String::new()).await), "403");
            let two = with("Host: localhost\r\nHost: evil.example\r\n".into()).await;
            assert_eq!(status(&two), "403", "{two}");
            let long = format!("Host: localhost\r\nCookie: {}\r\n", "a".repeat(100_000));
            assert_ne!(status(&with(long).await), "200");
        });
    }
}
