//! The wire contract: the interface description, raw Varlink over a Unix socket, and the client.

#![forbid(unsafe_code)]

use recoded_api::client::{Client, ClientError};
use recoded_api::error::ControlError;
use recoded_api::service::{Answer, Backend, Service, SetFuture};
use recoded_api::v1::{
    Adopted, Confirmed, Engine, Event, Events, Flow, History, HistoryEntry, Link, Parameters,
    Reloaded, State, Version,
};
use recoded_api::{IDL, INTERFACE};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use zlink::varlink_service::Proxy;

/// A daemon with one flow that refuses changes on demand.
struct Fake;

impl Backend for Fake {
    fn version(&self) -> Version {
        Version {
            version: "1.2.3".into(),
            interface: INTERFACE.into(),
            kernel: "naive".into(),
            edition: 7,
        }
    }

    fn state(&self) -> State {
        state()
    }

    fn config(&self) -> String {
        "[daemon]\n".into()
    }

    fn set(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async move {
            if flow != 1 {
                let reason = format!("flow {flow} is not configured here");
                return Err(ControlError::UnknownFlow { flow, reason });
            }
            match changes.get("generation_size").map(String::as_str) {
                Some("32") => Ok(Adopted {
                    flow: 1,
                    edition: 8,
                    parameters: Parameters { generation_size: Some(32), ..Parameters::default() },
                    notices: vec!["code".into()],
                }),
                Some("33") => {
                    Err(ControlError::NotAdopted { edition: 8, reason: "worker 0 is stuck".into() })
                }
                _ => Err(ControlError::Refused { reason: "no \"such\" rule".into() }),
            }
        })
    }

    fn set_engine(&mut self, mode: &str) -> Answer<'_, Engine> {
        let mode = mode.to_owned();
        Box::pin(async move {
            if mode == "abacus" {
                return Err(ControlError::Refused { reason: "no \"such\" engine".into() });
            }
            Ok(Engine { mode, ..Engine::default() })
        })
    }

    fn save(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        self.set(flow, changes)
    }

    fn reload(&mut self, diff: bool, confirm_seconds: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(async move {
            if confirm_seconds == Some(0) {
                return Err(ControlError::Failed { reason: "no \"such\" disk".into() });
            }
            Ok(Reloaded { applied: !diff, number: 3, confirm_seconds, ..Reloaded::default() })
        })
    }

    fn confirm(&mut self) -> Answer<'_, Confirmed> {
        Box::pin(async { Ok(Confirmed { number: 3 }) })
    }

    fn undo(&mut self, number: Option<u64>) -> Answer<'_, Reloaded> {
        let number = number.unwrap_or(2);
        Box::pin(async move { Ok(Reloaded { number, ..Reloaded::default() }) })
    }

    fn history(&self) -> Answer<'_, History> {
        let entry = HistoryEntry { number: 1, cause: "start".into(), ..HistoryEntry::default() };
        Box::pin(async { Ok(History { entries: vec![entry], ..History::default() }) })
    }

    fn events(&self, after: u64) -> Answer<'_, Events> {
        let event = Event { number: after + 1, kind: "link_down".into(), ..Event::default() };
        Box::pin(async { Ok(Events { newest: event.number, events: vec![event], began_ms: 5 }) })
    }
}

fn state() -> State {
    State {
        sessions: Vec::new(),
        version: "1.2.3".into(),
        protocol: 3,
        edition: 7,
        uptime_seconds: 61,
        kernel: "naive".into(),
        links: vec![Link { name: "east".into(), rate_mbit: Some(300.0), ..Link::default() }],
        workers: vec![],
        flows: vec![Flow {
            id: u64::from(u32::MAX),
            role: "relay".into(),
            next_hops: vec!["east:10.0.2.2".into()],
            upstreams: vec!["west:10.0.1.1".into()],
            epoch: 3,
            field: 16,
            generation_size: 16,
            symbol_bytes: 1428,
            planned: 20,
            held: 2,
            rank_histogram: vec![0, 1, 2],
            rank_ratio: Some(0.9975),
            overhead_theory: Some(1.297),
            ..Flow::default()
        }],
        tunnels: vec![],
        verdicts: BTreeMap::from([("redirected".into(), 12)]),
        drops: BTreeMap::from([("replayed".into(), 0)]),
        engine: Engine { mode: "auto".into(), offered: 3, ..Engine::default() },
        config: "[daemon]\n".into(),
    }
}

/// Serves a [`Fake`] from a thread of its own until the test process ends.
fn serve(folder: &Path) -> PathBuf {
    let path = folder.join("control.sock");
    let (ready, started) = std::sync::mpsc::channel();
    let bound = path.clone();
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let listener = zlink::tokio::unix::bind(&bound).expect("bind");
            ready.send(()).expect("the test waits");
            zlink::Server::new(listener, Service::new(Box::new(Fake))).run().await
        })
    });
    started.recv().expect("the server starts");
    path
}

/// Sends one raw request, as `printf '...\0' | socat - UNIX:...` would, and returns the reply.
fn raw(path: &Path, request: &str) -> serde_json::Value {
    let mut stream = UnixStream::connect(path).expect("connect");
    stream.write_all(request.as_bytes()).expect("write");
    stream.write_all(&[0]).expect("write");
    let mut reply = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).expect("read") == 1 && byte[0] != 0 {
        reply.push(byte[0]);
    }
    serde_json::from_slice(&reply).expect("the reply is JSON")
}

/// The words of a description, comments included, without its layout: comments may wrap anywhere.
fn words(text: &str) -> Vec<String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('#', " ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// The reply to `GetState` of a build of 2026-11-29, and replies with keys of later builds.
#[test]
fn states_of_older_and_newer_daemons_are_read() {
    let older: serde_json::Value = serde_json::from_str(include_str!("older/state.json")).unwrap();
    let read = |it: &serde_json::Value| serde_json::from_value::<State>(it.clone()).unwrap();
    let state = read(&older);
    assert_eq!((state.protocol, state.links.len(), state.flows.len()), (0, 2, 2));
    assert_eq!(state.links[0].neighbours[0].other_protocol, None);
    assert_eq!(state.links[0].neighbours[0].version, "0.1.0");
    let mut newer = older.clone();
    add_keys(&mut newer);
    let newer = read(&newer);
    // Counters are maps of names, so a client lists those that it does not know.
    assert!(newer.flows[0].counters.contains_key("of_later_builds"));
    assert_eq!(newer.tunnels, state.tunnels);
    assert_eq!((newer.version, newer.sessions), (state.version, state.sessions));
}

/// Adds a key to every object.
fn add_keys(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(all) => {
            all.values_mut().for_each(add_keys);
            all.insert("of_later_builds".into(), 1.into());
        }
        serde_json::Value::Array(all) => all.iter_mut().for_each(add_keys),
        _ => {}
    }
}

#[test]
fn interface_description_served_equals_the_contract_file() {
    let folder = tempfile::tempdir().expect("folder");
    let path = serve(folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("rt");
    let served = runtime.block_on(async {
        let mut connection = zlink::tokio::unix::connect(&path).await.expect("connect");
        let name = INTERFACE.try_into().expect("a valid name");
        let description = connection.get_interface_description(name).await.expect("answer");
        let description = description.expect("the interface is known");
        description.as_raw().expect("text").to_owned()
    });
    assert!(
        words(&served) == words(IDL),
        "org.recoded.control.varlink must say, layout apart, what the service says:\n{served}"
    );
}

#[test]
fn raw_request_gets_a_nul_terminated_json_reply() {
    let folder = tempfile::tempdir().expect("folder");
    let path = serve(folder.path());
    let reply = raw(&path, r#"{"method":"org.recoded.Control1.GetVersion"}"#);
    assert_eq!(reply["parameters"]["version"], "1.2.3");
    let reply = raw(
        &path,
        r#"{"method":"org.recoded.Control1.SetFlow","parameters":{"flow":2,"changes":{}}}"#,
    );
    assert_eq!(reply["error"], "org.recoded.Control1.UnknownFlow");
    assert_eq!(reply["parameters"]["flow"], 2);
    let reply = raw(&path, r#"{"method":"org.recoded.Control1.Explode"}"#);
    assert_eq!(reply["error"], "org.varlink.service.MethodNotFound");
    let reply = raw(&path, r#"{"method":"org.varlink.service.GetInfo"}"#);
    assert_eq!(reply["parameters"]["product"], "recoded");
}

/// Tools without support for parts get one reply; those that set `more` get the end marked.
#[test]
fn state_is_one_reply_or_as_many_as_are_asked_for() {
    let folder = tempfile::tempdir().expect("folder");
    let path = serve(folder.path());
    let reply = raw(&path, r#"{"method":"org.recoded.Control1.GetState"}"#);
    assert!(reply.get("continues").is_none(), "{reply}");
    let whole: State = serde_json::from_value(reply["parameters"].clone()).expect("a state");
    assert_eq!(whole, state());
    let first = raw(&path, r#"{"method":"org.recoded.Control1.GetState","more":true}"#);
    assert_eq!(first["continues"], true);
    assert_eq!(first["parameters"]["flows"].as_array().map(Vec::len), Some(0), "{first}");
}

#[test]
fn client_gets_back_exactly_what_the_backend_said() {
    let folder = tempfile::tempdir().expect("folder");
    let mut client = Client::connect(&serve(folder.path())).expect("connect");
    assert_eq!(client.state().expect("state"), state());
    assert_eq!(client.version().expect("version").edition, 7);
    assert_eq!(client.config().expect("config"), "[daemon]\n");
    let changes = |value: &str| BTreeMap::from([("generation_size".into(), value.into())]);
    assert_eq!(client.set(1, &changes("32")).expect("adopted").edition, 8);

    let events = client.events(41).expect("events");
    assert_eq!((events.newest, events.events[0].number, events.began_ms), (42, 42, 5));
    assert_eq!(client.set_engine("cpu").expect("set").mode, "cpu");
    let refused = client.set_engine("abacus").expect_err("refused");
    assert_eq!((refused.to_string().as_str(), refused.exit_code()), ("no \"such\" engine", 4));
    let refused = client.set(1, &changes("999")).expect_err("refused");
    assert_eq!(refused.to_string(), "no \"such\" rule");
    assert_eq!((refused.exit_code(), refused.kind()), (4, "refused"));
    let stuck = client.set(1, &changes("33")).expect_err("stuck");
    assert_eq!((stuck.exit_code(), stuck.kind()), (1, "not_adopted"));
    let unknown = client.set(-1, &changes("32")).expect_err("unknown");
    assert_eq!((unknown.exit_code(), unknown.kind()), (4, "unknown_flow"));
}

#[test]
fn client_without_a_daemon_says_what_to_start() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("nothing.sock");
    let error = Client::connect(&path).map(|_| ()).expect_err("nothing listens");
    assert!(matches!(error, ClientError::NotRunning { .. }), "{error:?}");
    assert_eq!(error.exit_code(), 3);
    assert!(error.to_string().contains("is `recoded` running? Start it with"), "{error}");

    // A socket that a killed daemon left behind refuses connections.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    let error = Client::connect(&path).map(|_| ()).expect_err("no server accepts");
    assert_eq!(error.exit_code(), 3);
}
