//! First packets of connections that wait for their server: Linux answers a host only when the
//! server behind the other edge has answered.
//!
//! ```text
//!  SYN -> Linux logs and drops it -> request to the other edge
//!           server accepts: the SYN goes back to Linux, whose listener takes the connection
//!           server refuses: the SYN goes back to Linux, which refuses it
//!           no answer:      none; the host tries again, as without a split
//!           no other edge:  the SYN goes through the tunnel, and the connection is not split
//! ```
//! Bounds: of first packets beyond [`HELD_MAX`], and beyond the rate that the rules of the firewall
//! log, Linux answers those at once whose hosts complete the handshake (SYN cookies). Their servers
//! are then requested as late as that, so a flood from forged addresses reaches no server.

use crate::carry::{self, RESET, carry};
use crate::connections::Connections;
use crate::link::Link;
use crate::nflog::Log;
use crate::request::{Answer, Request};
use crate::server::{Requested, count, request};
use crate::syn::{Injector, Syn};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{sleep, timeout};

/// Most first packets that wait at once: those of 0.5 s at the rate that is logged, or of more
/// where hosts open fewer connections.
const HELD_MAX: usize = 1024;

/// Longest wait for the listener to have a connection whose server has answered: a host with a lost
/// answer tries again after 1 s and 3 s.
const TAKEN: Duration = Duration::from_secs(10);

/// Pause after an error of reading.
const PAUSE: Duration = Duration::from_millis(20);

/// Connections whose server is requested.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<HashMap<Request, Waiting>>);

#[derive(Debug)]
struct Waiting {
    /// Takes the connection from the listener.
    taker: oneshot::Sender<TcpStream>,
    /// Whether its server has answered.
    is_answered: bool,
}

/// What to do with a first packet.
#[derive(Debug)]
enum Step {
    /// Request its server.
    Request(oneshot::Receiver<TcpStream>),
    /// Have Linux answer it.
    Answer,
    /// Nothing: it is a repetition.
    Wait,
}

impl Held {
    fn waiting(&self) -> MutexGuard<'_, HashMap<Request, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The step for a first packet; notes those whose server is to be requested.
    fn step(&self, request: Request) -> Step {
        let mut waiting = self.waiting();
        match waiting.get(&request) {
            Some(Waiting { is_answered: true, .. }) => Step::Answer,
            Some(_) => Step::Wait,
            None if waiting.len() >= HELD_MAX => Step::Answer,
            None => {
                let (taker, taken) = oneshot::channel();
                waiting.insert(request, Waiting { taker, is_answered: false });
                Step::Request(taken)
            }
        }
    }

    /// Gives a connection of the listener to the task that requested its server. Returns it if
    /// there is none.
    pub(crate) fn give(&self, request: &Request, socket: TcpStream) -> Option<TcpStream> {
        match self.waiting().remove(request) {
            Some(Waiting { taker, .. }) => taker.send(socket).err(),
            None => Some(socket),
        }
    }

    fn answered(&self, request: &Request) {
        if let Some(waiting) = self.waiting().get_mut(request) {
            waiting.is_answered = true;
        }
    }

    fn end(&self, request: &Request) {
        self.waiting().remove(request);
    }
}

/// The parts that requests share.
#[derive(Debug)]
struct Shared {
    held: Arc<Held>,
    link: Arc<Link>,
    connections: Arc<Connections>,
    injector: Injector,
}

/// Handles logged first packets, without end.
pub(crate) async fn hold(
    log: Log,
    injector: Injector,
    held: Arc<Held>,
    link: Arc<Link>,
    connections: Arc<Connections>,
) {
    let shared = Arc::new(Shared { held, link, connections, injector });
    let mut buffer = Vec::new();
    loop {
        let Ok(packets) = log.next(&mut buffer).await else {
            // More came than the buffer has room for.
            sleep(PAUSE).await;
            continue;
        };
        for syn in packets.into_iter().filter_map(Syn::parse) {
            match shared.held.step(syn.request) {
                Step::Wait => {}
                Step::Answer => shared.injector.answer(&syn),
                Step::Request(taken) => {
                    let Some(place) = shared.connections.place() else {
                        shared.connections.count().counters.full += 1;
                        shared.held.end(&syn.request);
                        continue;
                    };
                    tokio::spawn(Arc::clone(&shared).connect(syn, taken, place));
                }
            }
        }
    }
}

impl Shared {
    /// Requests the server of a first packet, and carries the connection, while `_place` is taken.
    async fn connect(
        self: Arc<Self>,
        syn: Syn,
        mut taken: oneshot::Receiver<TcpStream>,
        _place: OwnedSemaphorePermit,
    ) {
        if !self.link.is_connected() {
            self.held.end(&syn.request);
            return self.injector.pass(&syn);
        }
        let Requested { mut out, mut back } = match request(syn.request, &self.link).await {
            Ok(requested) => requested,
            Err(answer) => return self.refuse(&syn, answer, taken),
        };
        self.held.answered(&syn.request);
        self.injector.answer(&syn);
        let socket = timeout(TAKEN, &mut taken).await.ok().and_then(Result::ok);
        self.held.end(&syn.request);
        match socket {
            Some(socket) => {
                self.connections.count().counters.opened += 1;
                carry(socket, out, back, &self.connections.turns[0], &self.connections).await;
            }
            // The host is gone, or never was.
            None => {
                self.connections.count().counters.reset += 1;
                let _ = out.reset(RESET);
                let _ = back.stop(RESET);
            }
        }
    }

    fn refuse(&self, syn: &Syn, answer: Answer, mut taken: oneshot::Receiver<TcpStream>) {
        count(&self.connections, &syn.request, answer);
        self.held.end(&syn.request);
        if answer.is_refusal() {
            self.injector.refuse(syn);
        }
        // Linux answered a repetition of it.
        if let Ok(socket) = taken.try_recv() {
            carry::reset(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(port: u16) -> Request {
        let parse = |end: &str| end.parse().expect("an address");
        Request { host: parse(&format!("10.61.0.5:{port}")), server: parse("10.62.0.9:443") }
    }

    #[test]
    fn repetitions_wait_until_the_server_answered_and_then_are_answered() {
        let held = Held::default();
        let Step::Request(_taken) = held.step(request(1)) else { panic!("it is new") };
        assert!(matches!(held.step(request(1)), Step::Wait));
        held.answered(&request(1));
        assert!(matches!(held.step(request(1)), Step::Answer));
        held.end(&request(1));
        assert!(matches!(held.step(request(1)), Step::Request(_)));
    }

    #[test]
    fn first_packets_that_wait_are_bounded_and_others_are_answered_at_once() {
        let held = Held::default();
        let steps: Vec<Step> = (0..HELD_MAX as u16).map(|port| held.step(request(port))).collect();
        assert!(steps.iter().all(|step| matches!(step, Step::Request(_))));
        assert!(matches!(held.step(request(60_000)), Step::Answer));
        held.end(&request(7));
        assert!(matches!(held.step(request(60_000)), Step::Request(_)));
    }

    #[tokio::test]
    async fn connections_go_to_the_task_that_waits_and_others_come_back() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let at = listener.local_addr().expect("an address");
        let held = Held::default();
        let Step::Request(taken) = held.step(request(1)) else { panic!("it is new") };
        let socket = TcpStream::connect(at).await.expect("a connection");
        let local = socket.local_addr().expect("an address");
        assert!(held.give(&request(1), socket).is_none());
        assert_eq!(taken.await.expect("a socket").local_addr().expect("an address"), local);
        let other = TcpStream::connect(at).await.expect("a connection");
        assert!(held.give(&request(1), other).is_some(), "it was taken");
    }
}
