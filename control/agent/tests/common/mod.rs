//! A box with an agent, and a fake daemon that only has the control socket: it reads its file, and
//! rolls back unless a change is confirmed.
#![allow(dead_code)] // each test binary uses its own part

pub mod etcd;

use recoded_agent::agent::Agent;
use recoded_agent::bundle::Bundle;
use recoded_agent::key::Signer;
use recoded_agent::settings::Settings;
use recoded_api::error::ControlError;
use recoded_api::service::{Answer, Backend, Service, SetFuture};
use recoded_api::v1::{
    Change, Confirmed, Engine, Events, History, HistoryEntry, Reloaded, State, Version,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// State of the simulated daemon.
#[derive(Default)]
pub struct Running {
    file: PathBuf,
    pub in_force: String,
    pub number: u64,
    /// When it rolls back, and to which configuration.
    waits: Option<(Instant, String)>,
    /// All configurations that were ever active.
    pub seen: Vec<String>,
    pub confirmed: u64,
}

impl Running {
    fn expire(&mut self) {
        if let Some((_, before)) = self.waits.take_if(|(at, _)| *at <= Instant::now()) {
            self.enter(before);
        }
    }

    fn enter(&mut self, text: String) {
        self.seen.push(text.clone());
        self.in_force = text;
        self.number += 1;
    }
}

#[derive(Clone, Default)]
pub struct Simulated(Arc<Mutex<Running>>);

impl Simulated {
    pub fn get(&self) -> MutexGuard<'_, Running> {
        let mut running = self.0.lock().expect("no test panics while holding it");
        running.expire();
        running
    }
}

fn refused<T>() -> Result<T, ControlError> {
    Err(ControlError::Refused { reason: "not simulated".into() })
}

impl Backend for Simulated {
    fn version(&self) -> Version {
        let text = String::new;
        Version { version: text(), interface: text(), kernel: text(), edition: 1 }
    }

    fn state(&self) -> State {
        panic!("the agent never requests the state")
    }

    fn config(&self) -> String {
        self.get().in_force.clone()
    }

    fn set(&mut self, _: i64, _: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async { refused() })
    }

    fn set_engine(&mut self, _: &str) -> Answer<'_, Engine> {
        Box::pin(async { refused() })
    }

    fn save(&mut self, _: i64, _: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async { refused() })
    }

    /// A file with `restart` in it needs one; one with `fault` is refused; with `bad`, the daemon
    /// rolls back by itself at once.
    fn reload(&mut self, diff: bool, confirm_seconds: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(async move {
            let mut running = self.get();
            let text = fs::read_to_string(&running.file).unwrap_or_default();
            let cost = if text.contains("restart") { "stop" } else { "live" };
            let change = Change { what: "it".into(), line: None, cost: cost.into() };
            let changes = if text == running.in_force { vec![] } else { vec![change] };
            let applied = !diff && !changes.is_empty();
            if !diff && text.contains("fault") {
                return refused();
            }
            if applied {
                let before = running.in_force.clone();
                running.enter(text.clone());
                let wait = confirm_seconds.map(Duration::from_secs);
                running.waits = wait.map(|wait| (Instant::now() + wait, before.clone()));
            }
            let number = running.number;
            if applied && text.contains("bad") {
                running.waits = None;
                running.enter("back".into());
            }
            Ok(Reloaded { changes, applied, number, confirm_seconds, ..Reloaded::default() })
        })
    }

    fn confirm(&mut self) -> Answer<'_, Confirmed> {
        Box::pin(async move {
            let mut running = self.get();
            running.confirmed += u64::from(running.waits.take().is_some());
            Ok(Confirmed { number: running.number })
        })
    }

    fn undo(&mut self, _: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(async move {
            let mut running = self.get();
            if let Some((_, before)) = running.waits.take() {
                running.enter(before);
            }
            Ok(Reloaded { number: running.number, ..Reloaded::default() })
        })
    }

    fn history(&self) -> Answer<'_, History> {
        let running = self.get();
        let entry = HistoryEntry { number: running.number, ..HistoryEntry::default() };
        let confirm_seconds_left = running.waits.as_ref().map(|_| 1);
        let entries = vec![entry];
        Box::pin(async move { Ok(History { entries, confirm_seconds_left, ..History::default() }) })
    }

    fn events(&self, _: u64) -> Answer<'_, Events> {
        Box::pin(async { refused() })
    }
}

/// The operator's key.
pub fn signer() -> Signer {
    Signer::from_seed(&[7; 32])
}

/// A bundle of `text`, signed.
pub fn bundle(node: &str, version: u64, text: &str) -> Vec<u8> {
    Bundle::new(node, version, text).expect("it is one").sign(&signer()).into_bytes()
}

/// A box with an optional daemon, in a folder of its own.
pub struct Node {
    pub name: String,
    pub folder: tempfile::TempDir,
    pub daemon: Simulated,
    serving: Option<(tokio::sync::oneshot::Sender<()>, JoinHandle<()>)>,
}

/// The daemon's first configuration.
pub const FIRST: &str = "# first\n";

impl Node {
    pub fn new(name: &str) -> Node {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path();
        fs::create_dir(path.join("source")).expect("folder");
        fs::write(path.join("recoded.toml"), FIRST).expect("file");
        // Refuses a file with `refused` in it, with a message that names the file.
        let check = "#!/bin/sh\n! grep -q refused \"$3\" || { echo \"$3:1: refused\"; exit 2; }\n";
        fs::write(path.join("check"), check).expect("file");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(path.join("check"), mode).expect("mode");
        let daemon = Simulated::default();
        daemon.get().file = path.join("recoded.toml");
        Node { name: name.into(), folder, daemon, serving: None }
    }

    /// Starts the daemon, which reads its file.
    pub fn start(&mut self) {
        let file = self.file();
        self.daemon.get().enter(file);
        let socket = self.folder.path().join("control.sock");
        let _ = fs::remove_file(&socket);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let daemon = self.daemon.clone();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("rt");
            runtime.block_on(async {
                let listener = zlink::tokio::unix::bind(&socket).expect("bound");
                ready.send(()).expect("the test waits");
                let server = zlink::Server::new(listener, Service::new(Box::new(daemon)));
                tokio::select! {
                    _ = stopped => {}
                    served = server.run() => served.expect("it serves"),
                }
            });
        });
        is_ready.recv().expect("it starts");
        self.serving = Some((stop, thread));
    }

    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.serving.take() {
            drop(stop);
            thread.join().expect("it does not panic");
        }
    }

    /// Settings with `source`, a line of TOML, and `more`.
    pub fn settings_text(&self, source: &str, more: &str) -> String {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        format!(
            "node = \"{}\"\npublic_key = \"{}\"\n{source}\npoll_seconds = 1\n\
             confirm_seconds = 3\nconfig = \"{}\"\nsocket = \"{}\"\nrecoded = \"{}\"\n\
             state = \"{}\"\n{more}\n",
            self.name,
            signer().verifier(),
            path("recoded.toml"),
            path("control.sock"),
            path("check"),
            path("state"),
        )
    }

    pub fn settings(&self, source: &str, more: &str) -> Settings {
        let text = self.settings_text(source, more);
        Settings::parse(Path::new("agent.toml"), &text).expect("settings")
    }

    /// A line for a source in a folder of the box.
    pub fn directory(&self) -> String {
        format!("directory = \"{}\"", self.folder.path().join("source").display())
    }

    /// An agent that follows [`Node::directory`].
    pub fn agent(&self) -> Agent {
        Agent::open(self.settings(&self.directory(), "")).expect("it starts")
    }

    pub fn publish(&self, bytes: &[u8]) {
        let path = self.folder.path().join("source").join(format!("{}.bundle", self.name));
        fs::write(path, bytes).expect("written");
    }

    pub fn file(&self) -> String {
        fs::read_to_string(self.folder.path().join("recoded.toml")).expect("file")
    }

    pub fn in_force(&self) -> String {
        self.daemon.get().in_force.clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Prints why a test is skipped; fails if all tests must run.
pub fn skipped(reason: &str) {
    let all = std::env::var_os("RECODED_REQUIRE_ALL");
    assert!(all.is_none_or(|all| all != "1"), "{reason}");
    println!("skipped: {reason}");
}

/// Waits until `is_so`.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Resident memory of a process, in bytes.
pub fn memory_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<u64>().expect("a number") << 10
}
