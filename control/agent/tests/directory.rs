//! An agent's reaction to bundles, good and bad, from a folder.

#![forbid(unsafe_code)]

mod common;

use common::{FIRST, Node, bundle, until};
use recoded_agent::agent::Agent;
use recoded_agent::bundle::{BUNDLE_BYTES_MAX, Bundle};
use recoded_agent::key::Signer;
use recoded_agent::status::VersionState;
use std::fs;

fn running() -> Node {
    let mut node = Node::new("a");
    node.start();
    node
}

/// The refusal message for the source's bundle.
fn refusal(agent: &mut Agent) -> String {
    agent.step();
    agent.status().refusal.clone().unwrap_or_default()
}

#[test]
fn new_bundle_is_in_force_confirmed_and_kept() {
    let node = running();
    let mut agent = node.agent();
    agent.step();
    let trouble = agent.status().trouble.clone().unwrap_or_default();
    assert!(trouble.contains("there is no bundle for this node at"), "{trouble}");
    node.publish(&bundle("a", 7, "# seven\n"));
    assert_eq!(refusal(&mut agent), "");
    assert_eq!((node.in_force().as_str(), node.file().as_str()), ("# seven\n", "# seven\n"));
    assert_eq!(node.daemon.get().confirmed, 1);
    let status = agent.status().clone();
    assert_eq!((status.version, status.newest, status.state), (Some(7), 7, VersionState::InForce));
    assert_eq!((status.trouble.clone(), status.differs, status.exit_code()), (None, false, 0));

    // Nothing is applied twice, not even by another agent.
    agent.step();
    let mut again = node.agent();
    again.step();
    assert_eq!(node.daemon.get().number, 2);
    assert_eq!((again.status().version, again.status().exit_code()), (Some(7), 0));

    // Manual changes by an operator stay, and are reported.
    fs::write(node.folder.path().join("recoded.toml"), "# by hand\n").unwrap();
    again.step();
    assert!(again.status().differs && node.file() == "# by hand\n");
}

#[test]
fn bundles_that_are_forged_stale_or_for_another_box_change_nothing() {
    let node = running();
    let mut agent = node.agent();
    node.publish(&bundle("a", 7, "# seven\n"));
    agent.step();
    let forged = Bundle::new("a", 9, "# x\n").unwrap().sign(&Signer::from_seed(&[8; 32]));
    let mut flipped = bundle("a", 9, "# x\n");
    *flipped.last_mut().unwrap() ^= 1;
    let cases: [(&[u8], &str); 7] = [
        (forged.as_bytes(), "the signature is wrong"),
        (&flipped, "the signature is wrong"),
        (&bundle("b", 9, "# x\n"), "it is for node b, and this is node a"),
        (&bundle("a", 6, "# six\n"), "version 6 is older than version 7"),
        (&bundle("a", 7, "# other\n"), "version 7 was another configuration"),
        (&vec![b'#'; BUNDLE_BYTES_MAX + 9], "it is larger than"),
        (b"", "it is not a bundle"),
    ];
    for (bytes, expected) in cases {
        node.publish(bytes);
        let words = refusal(&mut agent);
        assert!(words.contains(expected), "{expected}: {words}");
        assert_eq!((node.in_force().as_str(), node.file().as_str()), ("# seven\n", "# seven\n"));
        assert_eq!((agent.status().version, agent.status().exit_code()), (Some(7), 5));
    }
    // Nor does a refused version permit an older one: another agent still knows it.
    let mut agent = node.agent();
    node.publish(&bundle("a", 6, "# six\n"));
    assert!(refusal(&mut agent).contains("version 6 is older"));
    node.publish(&bundle("a", 8, "# eight\n"));
    assert_eq!(refusal(&mut agent), "");
    assert_eq!(node.in_force(), "# eight\n");
}

#[test]
fn configuration_that_is_refused_goes_back_with_words() {
    let node = running();
    let mut agent = node.agent();
    let cases = [
        (1, "# refused\n", "recoded --check refuses it: line 1: refused"),
        (2, "# fault\n", "the daemon refuses it: not simulated"),
        (3, "# restart\n", "a running daemon cannot change this (it): name a command"),
        (4, "# bad\n", "the daemon went back to configuration"),
    ];
    for (version, text, expected) in cases {
        node.publish(&bundle("a", version, text));
        let words = refusal(&mut agent);
        assert!(words.contains(expected), "{expected}: {words}");
        assert_eq!(node.file(), FIRST, "{text}");
        until("it is as before", || ["back", FIRST].contains(&node.in_force().as_str()));
        let status = agent.status();
        assert_eq!(
            (status.version, status.newest, status.state),
            (None, version, VersionState::None)
        );
    }
    // It is not retried at once, and the message stays.
    let number = node.daemon.get().number;
    assert!(refusal(&mut agent).contains("the daemon went back"));
    assert_eq!(node.daemon.get().number, number);
    node.publish(&bundle("a", 5, "# good\n"));
    assert_eq!(refusal(&mut agent), "");
    assert_eq!(node.in_force(), "# good\n");
}

/// A change that cuts a box off from its source is rolled back.
#[test]
fn box_that_no_longer_reaches_its_source_goes_back() {
    let node = running();
    let path = node.folder.path();
    let mut agent = node.agent();
    node.publish(&bundle("a", 1, "# one\n"));
    agent.step();
    // The folder disappears with the change: the check program removes it.
    let (source, away) = (path.join("source"), path.join("away"));
    let cut = format!("#!/bin/sh\nmv {} {}\n", source.display(), away.display());
    let check = fs::read_to_string(path.join("check")).unwrap();
    fs::write(path.join("check"), cut).unwrap();
    node.publish(&bundle("a", 2, "# two\n"));
    // A missing folder has no bundle; a file instead of a folder is unreachable.
    fs::write(path.join("file"), "").unwrap();
    let cut = fs::read_to_string(path.join("check")).unwrap();
    let cut = format!("{cut}mv {} {}\n", path.join("file").display(), source.display());
    fs::write(path.join("check"), cut).unwrap();
    let words = refusal(&mut agent);
    assert!(words.contains("went back: the source could not be reached"), "{words}");
    assert_eq!((node.in_force().as_str(), node.file().as_str()), ("# one\n", "# one\n"));
    let seen = node.daemon.get().seen.clone();
    assert_eq!(seen[seen.len() - 2..], ["# two\n", "# one\n"], "it was active meanwhile");

    fs::remove_file(&source).unwrap();
    fs::rename(&away, &source).unwrap();
    fs::write(path.join("check"), check).unwrap();
    let mut agent = node.agent();
    assert_eq!(refusal(&mut agent), "", "and is taken once that works");
    assert_eq!(node.in_force(), "# two\n");
}

/// The source goes down while a bundle is tried, and stays down after the rollback. That is not the
/// bundle's fault, so its second retry comes as early as the first.
#[test]
fn bundle_does_not_wait_longer_because_its_source_was_away() {
    let node = running();
    let path = |name: &str| node.folder.path().join(name);
    let (source, away, file) = (path("source"), path("away"), path("file"));
    let mut agent = node.agent();
    node.publish(&bundle("a", 1, "# one\n"));
    agent.step();
    assert_eq!((agent.status().version, agent.again_pause()), (Some(1), None));
    node.publish(&bundle("a", 2, "# two\n"));
    // A file instead of the folder is unreachable.
    fs::write(&file, "").unwrap();
    let check = fs::read_to_string(path("check")).unwrap();
    let [from, to, other] = [&source, &away, &file].map(|path| path.display().to_string());
    fs::write(path("check"), format!("#!/bin/sh\nmv {from} {to}\nmv {other} {from}\n")).unwrap();
    let come_back = || {
        fs::rename(&source, &file).unwrap();
        fs::rename(&away, &source).unwrap();
    };
    assert!(refusal(&mut agent).contains("the source could not be reached"));
    let pause = agent.again_pause().expect("it waits");
    come_back();
    until("the agent retries", || {
        agent.step();
        away.exists()
    });
    assert_eq!(agent.again_pause(), Some(pause));
    come_back();
    fs::write(path("check"), check).unwrap();
    until("it is active", || refusal(&mut agent).is_empty());
    assert_eq!((node.in_force().as_str(), agent.status().version), ("# two\n", Some(2)));
}

/// Killed between the write of the file and the confirmation.
#[test]
fn next_agent_takes_back_what_was_not_confirmed() {
    let node = running();
    let state = node.folder.path().join("state");
    let mut agent = node.agent();
    node.publish(&bundle("a", 1, "# one\n"));
    agent.step();
    drop(agent);
    fs::write(state.join("before.toml"), "# one\n").unwrap();
    let memory = fs::read_to_string(state.join("memory.json")).unwrap();
    let half = memory.replace("\"Nothing\"", "\"Changing\"");
    assert_ne!(half, memory);
    fs::write(state.join("memory.json"), &half).unwrap();
    fs::write(node.folder.path().join("recoded.toml"), "# two\n").unwrap();
    node.daemon.get().in_force = "# two\n".into();
    fs::remove_file(node.folder.path().join("source/a.bundle")).unwrap();
    let mut agent = node.agent();
    assert_eq!((node.in_force().as_str(), node.file().as_str()), ("# one\n", "# one\n"));
    agent.step();
    assert_eq!(agent.status().version, Some(1));
    assert_eq!(fs::read_to_string(state.join("memory.json")).unwrap(), memory);
}

#[test]
fn box_without_a_daemon_has_the_file_for_the_next_start() {
    let mut node = Node::new("a");
    let mut agent = node.agent();
    node.publish(&bundle("a", 1, "# one\n"));
    assert_eq!(refusal(&mut agent), "");
    assert_eq!((node.file().as_str(), agent.status().state), ("# one\n", VersionState::Written));
    node.start();
    assert_eq!(node.in_force(), "# one\n");

    // A box whose file is lost, and whose source is down, has the last good one.
    fs::remove_file(node.folder.path().join("recoded.toml")).unwrap();
    fs::remove_dir_all(node.folder.path().join("source")).unwrap();
    let _agent = node.agent();
    assert_eq!(node.file(), "# one\n");
}

#[test]
fn daemon_is_restarted_where_the_operator_said_how() {
    let node = running();
    let mark = node.folder.path().join("restarted");
    let restart = format!("restart = [\"touch\", \"{}\"]", mark.display());
    let mut agent = Agent::open(node.settings(&node.directory(), &restart)).unwrap();
    node.publish(&bundle("a", 1, "# restart\n"));
    assert_eq!(refusal(&mut agent), "");
    assert!(mark.exists());
    assert_eq!((node.file().as_str(), agent.status().version), ("# restart\n", Some(1)));
    // A command that fails; the previous file returns.
    let mut agent = Agent::open(node.settings(&node.directory(), "restart = [\"false\"]")).unwrap();
    node.publish(&bundle("a", 2, "# restart, too\n"));
    let words = refusal(&mut agent);
    assert!(words.starts_with("false: "), "{words}");
    assert_eq!(node.file(), "# restart\n");
}
