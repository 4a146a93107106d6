//! Messages of clients on the control socket, as the daemon serves them, with live changes of a
//! configuration and workers that adopt every change.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::rc::Rc;

use recoded::config::{Config, EngineChoice};
use recoded::control::bounded::serve;
use recoded::dataplane::{Dataplane, Observation, Refused};
use recoded::keeper::Text;
use recoded::live::Live;
use recoded_api::error::ControlError;
use recoded_api::service::{Answer, Backend, Service, SetFuture};
use recoded_api::v1::{Confirmed, Engine, Events, History, Reloaded, State, Version};
use recoded_pipeline::params::Snapshot;
use recoded_runtime::secure::PublicKey;
use tokio::io::AsyncReadExt;

use crate::configuration::{assert_written, parse};

const FILE: &str = include_str!("../../../control/daemon/recoded.toml");

/// Workers that adopt everything at once.
#[derive(Default)]
struct Workers(Cell<u64>);

impl Dataplane for Workers {
    fn publish(&self, snapshot: Snapshot) -> Result<(), Refused> {
        assert!(snapshot.edition > self.0.get(), "editions only go up");
        self.0.set(snapshot.edition);
        Ok(())
    }

    fn editions(&self) -> Vec<u64> {
        vec![self.0.get()]
    }

    fn set_engine(&self, _: EngineChoice) {}

    fn set_rate(&self, _: usize, _: Option<f64>) {}

    fn set_sinks(&self, _: Vec<(u32, Vec<PublicKey>)>) {}

    fn observe(&self) -> Observation {
        Observation::default()
    }
}

/// A daemon without a supervisor: it keeps no file and no history.
struct Daemon(Live<Workers>);

impl Daemon {
    /// Checks after every request that the active configuration is valid.
    fn check<T>(&self, answer: T) -> T {
        let text = self.0.config();
        assert_written(&parse(&text).unwrap_or_else(|(message, _)| panic!("{message}\n{text}")));
        answer
    }
}

fn unsupervised<'a, T: 'a>() -> Answer<'a, T> {
    let reason = "there is no supervisor".to_owned();
    Box::pin(async { Err(ControlError::Refused { reason }) })
}

impl Backend for Daemon {
    fn version(&self) -> Version {
        self.0.version()
    }

    fn state(&self) -> State {
        self.0.state()
    }

    fn config(&self) -> String {
        self.0.config()
    }

    fn set(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async move {
            let adopted = self.0.set(flow, changes).await;
            self.check(adopted)
        })
    }

    fn set_engine(&mut self, mode: &str) -> Answer<'_, Engine> {
        let engine = self.0.set_engine(mode);
        let engine = self.check(engine);
        Box::pin(async move { engine })
    }

    fn save(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async move {
            let (file, text) = ("recoded.toml".to_owned(), FILE.to_owned());
            let (mtus, names) = (BTreeMap::new(), Default::default());
            let file = Text { number: 1, file, text, mtus, names, is_derived: false };
            let edited = self.0.edited(&file, flow, &changes)?;
            let adopted = self.0.set(flow, changes).await;
            if adopted.is_ok() {
                assert!(parse(&edited).is_ok(), "{edited}");
            }
            self.check(adopted)
        })
    }

    fn reload(&mut self, _: bool, _: Option<u64>) -> Answer<'_, Reloaded> {
        unsupervised()
    }

    fn confirm(&mut self) -> Answer<'_, Confirmed> {
        unsupervised()
    }

    fn undo(&mut self, _: Option<u64>) -> Answer<'_, Reloaded> {
        unsupervised()
    }

    fn history(&self) -> Answer<'_, History> {
        unsupervised()
    }

    fn events(&self, _: u64) -> Answer<'_, Events> {
        unsupervised()
    }
}

thread_local! {
    /// Numbers the sockets of a thread.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Listens where no other process or thread does.
fn listen() -> (UnixListener, UnixStream) {
    let number = NUMBER.get();
    NUMBER.set(number + 1);
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let name = format!("recoded-fuzz-{process}-{thread:?}-{number}");
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("a free address");
    listener.set_nonblocking(true).expect("a socket");
    let client = UnixStream::connect_addr(&address).expect("a server listens");
    (listener, client)
}

/// All data that a client sends before it closes. Each answer is JSON; after an invalid request a
/// client gets no more answers.
pub(crate) fn target(bytes: &[u8]) {
    for answer in answers(bytes).split(|byte| *byte == 0).filter(|answer| !answer.is_empty()) {
        let value: Result<serde_json::Value, _> = serde_json::from_slice(answer);
        assert!(value.is_ok_and(|value| value.is_object()), "{}", answer.escape_ascii());
    }
}

/// Answers to a client that sends these bytes.
fn answers(bytes: &[u8]) -> Vec<u8> {
    let (document, mtus, config) =
        Config::parse("recoded.toml", FILE, &|_| Some(1500)).expect("the example is valid");
    let live = Live::new(document, mtus, config, Rc::new(Workers::default()));
    let (listener, mut client) = listen();
    client.write_all(bytes).expect("as much fits");
    client.shutdown(Shutdown::Write).expect("a socket");
    client.set_nonblocking(true).expect("a socket");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut client = tokio::net::UnixStream::from_std(client).expect("a socket");
        let mut answers = Vec::new();
        tokio::select! {
            served = serve(listener, Service::new(Box::new(Daemon(live)))) => {
                panic!("the service ended: {served:?}")
            }
            // A connection that the daemon ends with bytes unread is reset.
            _ = client.read_to_end(&mut answers) => {}
        }
        answers
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the corpus reaches its purpose.
    #[test]
    fn questions_and_changes_of_the_corpus_are_answered() {
        let questions = answers(include_bytes!("../corpus/control/questions"));
        assert!(questions.iter().filter(|byte| **byte == 0).count() >= 5);
        let changes = answers(include_bytes!("../corpus/control/set"));
        let changes = String::from_utf8(changes).expect("JSON");
        assert_eq!(changes.matches("\"edition\"").count(), 3, "{changes}");
    }
}
