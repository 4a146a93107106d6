//! `recodectl bugreport`: the archive's content, and the absence of keys.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod fixed;

use flate2::read::GzDecoder;
use recoded_api::error::ControlError;
use recoded_api::service::{Answer, Backend, Service, SetFuture};
use recoded_api::v1::{Confirmed, Engine, Events, History, Reloaded, State, Version};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Keys that an operator may have put anywhere: RFC 7748 section 6.1, in two forms.
const PRIVATE: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const PRIVATE_HEX: &str = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ac177fba51db92c2a";
const PRESHARED: &str = "XasIfmJKiksODWCwSTGxSXBxzGB1M8axMtCyZTWlT+s=";

fn secrets() -> String {
    format!("key {PRIVATE} and {PRIVATE_HEX}, preshared_key={PRESHARED} \"{PRESHARED}\"")
}

/// A daemon with keys in all its replies.
struct Leaky;

impl Backend for Leaky {
    fn version(&self) -> Version {
        let (version, interface) = ("0.1.0".into(), "org.recoded.Control1".into());
        Version { version, interface, kernel: secrets(), edition: 4 }
    }

    fn state(&self) -> State {
        let mut state = fixed::state();
        state.config = format!(
            "[daemon]\nprivate_key = \"{PRIVATE}\"\nauth = \"full\"\n# {}\n[[neighbour]]\n\
             preshared_key = \"/etc/recoded/psk\"\npublic_key = \"{PRESHARED}\"\n",
            secrets()
        );
        state.links[0].reason = secrets();
        state.flows[0].tunnel = Some(secrets());
        state.sessions[0].key = PRIVATE.into();
        state.sessions[2].refusal = secrets();
        state
    }

    fn config(&self) -> String {
        self.state().config
    }

    fn set(&mut self, flow: i64, _: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async move { Err(ControlError::UnknownFlow { flow, reason: String::new() }) })
    }

    fn set_engine(&mut self, _: &str) -> Answer<'_, Engine> {
        Box::pin(async { Ok(fixed::engine()) })
    }

    fn save(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        self.set(flow, changes)
    }

    fn reload(&mut self, diff: bool, _: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(async move { Ok(fixed::reloaded(diff)) })
    }

    fn confirm(&mut self) -> Answer<'_, Confirmed> {
        Box::pin(async { Ok(Confirmed::default()) })
    }

    fn undo(&mut self, _: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(async { Ok(Reloaded::default()) })
    }

    fn history(&self) -> Answer<'_, History> {
        Box::pin(async { Ok(History { trouble: secrets(), ..fixed::history() }) })
    }

    fn events(&self, _: u64) -> Answer<'_, Events> {
        let mut events = fixed::events();
        events.events[2].text = secrets();
        Box::pin(async { Ok(events) })
    }
}

fn serve(path: &Path) {
    let (ready, started) = std::sync::mpsc::channel();
    let bound = path.to_owned();
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let listener = zlink::tokio::unix::bind(&bound).expect("bind");
            ready.send(()).expect("the test waits");
            zlink::Server::new(listener, Service::new(Box::new(Leaky))).run().await
        })
    });
    started.recv().expect("the server starts");
}

/// Commands that print keys, and one that does not end in time.
fn commands(folder: &Path) -> PathBuf {
    let path = folder.join("bin");
    fs::create_dir(&path).expect("folder");
    for (name, body) in [
        ("ip", format!("echo '{} {}'", "$*", secrets())),
        ("journalctl", format!("echo 'recoded[1]: {}'", secrets())),
        ("bpftool", "exec /bin/sleep 60".to_owned()),
    ] {
        let file = path.join(name);
        fs::write(&file, format!("#!/bin/sh\n{body}\n")).expect("write");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("mode");
    }
    path
}

fn bugreport(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.env("PATH", folder.join("bin")).env_remove("RECODED_SOCKET").current_dir(folder);
    command.arg("--socket").arg(folder.join("control.sock")).arg("bugreport").args(arguments);
    command.output().expect("recodectl runs")
}

/// The files of an archive by their names.
fn files(archive: &Path) -> BTreeMap<String, String> {
    let file = fs::File::open(archive).expect("the archive");
    assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entries = archive.entries().expect("entries").map(|entry| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (name.replace("recoded-bugreport/", ""), text)
    });
    entries.collect()
}

#[test]
fn archive_has_what_was_said_and_no_key() {
    let folder = tempfile::tempdir().expect("folder");
    serve(&folder.path().join("control.sock"));
    commands(folder.path());
    let output = bugreport(folder.path(), &["--out", "report.tar.gz"]);
    assert!(output.status.success(), "{output:?}");
    let files = files(&folder.path().join("report.tar.gz"));
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let expected = [
        "README.txt",
        "addresses.txt",
        "bpf.txt",
        "doctor.txt",
        "drivers.txt",
        "events.json",
        "history.json",
        "host.txt",
        "links.txt",
        "log.txt",
        "recoded.toml",
        "routes.txt",
        "state.json",
        "versions.txt",
    ];
    assert_eq!(names, expected);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = files.iter().map(|(name, text)| format!("{name}\n{text}")).chain([said.clone()]);
    for text in all {
        for secret in [PRIVATE, PRESHARED, PRIVATE_HEX] {
            let bare = secret.trim_end_matches('=');
            assert!(!text.contains(bare), "{secret} in {text}");
        }
    }
    for (file, has) in [
        ("versions.txt", "recoded 0.1.0"),
        ("host.txt", "Linux"),
        ("links.txt", "[key "),
        ("log.txt", "recoded[1]: key [key "),
        ("recoded.toml", "private_key = [removed]"),
        ("recoded.toml", "preshared_key = \"/etc/recoded/psk\""),
        ("recoded.toml", "auth = \"full\""),
        ("state.json", "\"enp129s0f1np1\""),
        ("events.json", "next_hop_silent"),
        ("history.json", "unconfirmed"),
        ("README.txt", "bpf.txt: programs on interfaces, 0 bytes; bpftool did not end within"),
    ] {
        assert!(files[file].contains(has), "{has:?} in {file}: {}", files[file]);
    }
    let state: State = serde_json::from_str(&files["state.json"]).expect("a state");
    assert_eq!(state.flows.len(), fixed::state().flows.len());
    for part in expected {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn archive_without_a_daemon_says_what_is_missing() {
    let folder = tempfile::tempdir().expect("folder");
    // The folder of commands is empty.
    fs::create_dir(folder.path().join("bin")).expect("folder");
    let output = bugreport(folder.path(), &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let file = report["file"].as_str().expect("a name");
    assert!(file.starts_with("recoded-bugreport-") && file.ends_with(".tar.gz"), "{file}");
    let files = files(&folder.path().join(file));
    assert!(files["host.txt"].contains("/proc/cpuinfo"));
    let contents = &files["README.txt"];
    for part in ["versions.txt", "state.json", "events.json", "doctor.txt"] {
        let line = contents.lines().find(|line| line.starts_with(part)).expect("named");
        assert!(line.contains("no daemon answers at"), "{line}");
    }
    assert!(contents.contains("journalctl: No such file"), "{contents}");
}

#[test]
fn archive_that_is_there_is_not_overwritten() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("report.tar.gz"), "mine").expect("write");
    let output = bugreport(folder.path(), &["--out", "report.tar.gz"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot write report.tar.gz") && said.contains("--out"), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("report.tar.gz")).expect("there"), "mine");
}
