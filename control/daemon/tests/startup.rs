//! `recoded` as an operator sees it before it runs: messages and exit codes.

#![forbid(unsafe_code)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const RELAY: &str = r#"[daemon]
socket = "SOCKET"
[[link]]
name = "west"
interface = "recnone0"
local = "10.0.1.2"
[[flow]]
id = 1
role = "relay"
next_hops = [{ link = "west", address = "10.0.1.3" }]
upstream = { link = "west", address = "10.0.1.1" }
"#;

fn recoded(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recoded"));
    command.env_remove("RECODED_LOG").args(arguments).output().expect("recoded runs")
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("no signal");
    (code, text(&output.stdout), text(&output.stderr))
}

fn write(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("relay.toml");
    let socket = folder.join("run/control.sock");
    std::fs::write(&path, text.replace("SOCKET", &socket.to_string_lossy())).expect("write");
    path
}

#[test]
fn check_of_a_valid_file_says_what_is_in_it_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let path = write(folder.path(), RELAY);
    let file = path.to_string_lossy();
    let (code, stdout, stderr) = said(&recoded(&["--config", &file, "--check", "--offline"]));
    let expected = format!("{file}: valid: links 1, tunnels 0, flows 1\n");
    assert_eq!((code, stdout, stderr), (0, expected, String::new()));
    assert!(!folder.path().join("run").exists(), "no socket was made");
}

#[test]
fn offline_check_of_a_network_refuses_a_name_that_no_box_has() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("net.toml");
    let text = "auth = \"none\"\n[boxes]\na = { at = \"192.0.2.1\", tunnel = \"10.99.0.1/24\" }\n\
                b = { at = \"192.0.2.2\", tunnel = \"10.99.0.2/24\" }\n";
    std::fs::write(&path, text).expect("write");
    let file = path.to_string_lossy();
    let check = |name| said(&recoded(&["--config", &file, "--name", name, "--check", "--offline"]));
    let (code, stdout, stderr) = check("z");
    assert!(stderr.contains("there is no box z: the boxes are a, b"), "{stderr}");
    assert_eq!((code, stdout), (2, String::new()));
    assert_eq!(check("b"), (0, format!("{file}: valid: boxes 2, paths 1\n"), String::new()));
}

/// The file of another box, whose keys stay there.
#[test]
fn offline_check_needs_no_key_files_and_the_other_one_names_them() {
    let folder = tempfile::tempdir().expect("folder");
    let key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    let daemon = "[daemon]\nprivate_key = \"/nonexistent/private.key\"\nauth = \"hop\"\n";
    let neighbours = ["10.0.1.1", "10.0.1.3"].map(|address| {
        format!("[[neighbour]]\nlink = \"west\"\naddress = \"{address}\"\npublic_key = \"{key}\"\n")
    });
    let text = RELAY.replace("[daemon]\n", daemon) + &neighbours.concat();
    let path = write(folder.path(), &text);
    let file = path.to_string_lossy();
    let (code, stdout, stderr) = said(&recoded(&["--config", &file, "--check", "--offline"]));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let (code, _, stderr) = said(&recoded(&["--config", &file, "--check"]));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("/nonexistent/private.key: No such file"), "{stderr}");
}

#[test]
fn every_mistake_in_a_file_is_printed_and_the_exit_code_is_2() {
    let folder = tempfile::tempdir().expect("folder");
    let path = write(folder.path(), &RELAY.replace("\"relay\"", "\"relay\"\nfeild = 4\nid2 = 1"));
    let file = path.to_string_lossy();
    for arguments in [vec!["--config", &*file], vec!["--config", &*file, "--check"]] {
        let (code, stdout, stderr) = said(&recoded(&arguments));
        let expected = format!(
            "{file}:10: flow 1: unknown key feild: did you mean field?\n\
             {file}:11: flow 1: unknown key id2: did you mean id?\n"
        );
        assert_eq!((code, stdout, stderr), (2, String::new(), expected));
    }
}

/// The check passed, and the daemon ended when Linux refused the tunnel's address.
#[test]
fn check_refuses_an_ipv6_tunnel_that_a_stream_has_no_room_for() {
    let folder = tempfile::tempdir().expect("folder");
    let source = RELAY.replace("upstream = { link = \"west\", address = \"10.0.1.1\" }\n", "");
    let source =
        source.replace("\"relay\"\n", "\"source\"\ntunnel = \"rec0\"\ncode = \"stream\"\n");
    let tunnel = "[[tunnel]]\nname = \"rec0\"\naddress = \"fd99::1/64\"\n";
    let path = write(folder.path(), &format!("{source}symbol_bytes = 1200\n{tunnel}"));
    let (code, _, stderr) = said(&recoded(&["--config", &path.to_string_lossy(), "--check"]));
    let rule = "each packet takes a symbol, and symbols of 1200 bytes have room for 1200 bytes, but \
                tunnel rec0 has mtu 1280, the least of an IPv6 tunnel: the file can give the flow \
                symbol_bytes = 1280, the least that works\n";
    assert!(code == 2 && stderr.ends_with(rule), "{code} {stderr}");
}

#[test]
fn unreadable_file_and_wrong_command_line_end_with_exit_code_2() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("none.toml").to_string_lossy().into_owned();
    let (code, _, stderr) = said(&recoded(&["--config", &file]));
    let expected = format!(
        "cannot read {file} (No such file or directory (os error 2)): name a readable TOML file \
         with --config\n"
    );
    assert_eq!((code, stderr), (2, expected));
    assert_eq!(said(&recoded(&[])).0, 2);
    assert_eq!(said(&recoded(&["--config", &file, "--log", "a=b=c"])).0, 2);
    let (code, stdout, _) = said(&recoded(&["--help"]));
    assert!(code == 0 && stdout.contains("Exit codes:"), "{stdout}");
}

#[test]
fn file_without_end_is_refused_by_size() {
    let (code, _, stderr) = said(&recoded(&["--config", "/dev/zero"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("is larger than 1048576 bytes"), "{stderr}");
}

/// The daemon ended, and systemd restarted it ten times a second.
#[test]
fn missing_interface_is_waited_for_and_named_and_nothing_stays_behind() {
    if !rustix::process::geteuid().is_root() {
        let reason = "opening a dataplane needs root";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"), "{reason}");
        println!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = write(folder.path(), RELAY);
    let log = folder.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_recoded"));
    let command = command.env_remove("RECODED_LOG").arg("--config").arg(&path);
    let mut daemon = command.stderr(File::create(&log).expect("a log")).spawn().expect("it runs");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let waits = "link west waits: interface recnone0 is missing";
    let begun = Instant::now();
    while !said().contains(waits) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(said().matches(waits).count(), 1, "{}", said());
    let pid = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw).expect("a number");
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(daemon.wait().expect("it ends").code(), Some(0), "{}", said());
    assert!(!folder.path().join("run/control.sock").exists());
}

/// The check accepted this file, and the daemon did not start.
#[test]
fn check_of_this_host_names_what_is_missing_with_its_cure() {
    let folder = tempfile::tempdir().expect("folder");
    let path = write(folder.path(), RELAY);
    let (code, stdout, stderr) = said(&recoded(&["--config", &path.to_string_lossy(), "--check"]));
    let said = "warning: link west: waits for recnone0: there is no such interface in this network \
                namespace: plug it in, or correct interface; there are lo";
    assert!(stdout.contains(said), "{stdout}{stderr}");
    assert_eq!(code, 0, "{stdout}{stderr}");
}

/// `journalctl -p warning` was empty: all lines had the same priority, and a second timestamp.
#[test]
fn lines_for_the_journal_have_priorities_and_no_time() {
    let folder = tempfile::tempdir().expect("folder");
    let log = File::create(folder.path().join("log")).expect("a log");
    let stat = rustix::fs::fstat(&log).expect("a file");
    let said = |stream: String| {
        log.set_len(0).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_recoded"));
        command.args(["--config", "/nowhere/at-all.toml"]).env("JOURNAL_STREAM", stream);
        let mut to = log.try_clone().expect("a file");
        std::io::Seek::rewind(&mut to).expect("a file");
        assert_eq!(command.stderr(to).status().expect("it runs").code(), Some(2));
        std::fs::read_to_string(folder.path().join("log")).expect("text")
    };
    let journal = said(format!("{}:{}", stat.st_dev, stat.st_ino));
    assert!(journal.starts_with("<3>cannot read /nowhere/at-all.toml"), "{journal}");
    let other = said(format!("{}:{}", stat.st_dev, stat.st_ino + 1));
    assert!(other.starts_with("cannot read"), "{other}");
}
