//! `recodectl ping` as users see it, over the loopback interface and without a daemon.
//! `tests/netns` runs it through tunnels.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.args(["--socket", "/nonexistent/none.sock"]).args(arguments.split_whitespace());
    command
}

fn ping(arguments: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(arguments).output().expect("recodectl runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// Whether this user may send echoes; if not, checks the suggested fix.
fn may_ping() -> bool {
    let (code, _, said) = ping("ping 127.0.0.1 -c 1");
    if code == Some(0) {
        return true;
    }
    assert!(said.contains("net.ipv4.ping_group_range"), "{said}");
    println!("skipped: this user may not send ICMP echoes");
    false
}

#[test]
fn echoes_are_answered_counted_and_shown_without_a_daemon() {
    if !may_ping() {
        return;
    }
    let (code, text, said) = ping("ping 127.0.0.1 -c 3 -i 0.01");
    assert_eq!((code, said.as_str()), (Some(0), ""), "{text}");
    assert!(text.starts_with("ping 127.0.0.1 from 127.0.0.1: 56 bytes every 0.01 s\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with(" ms")).count(), 4, "{text}");
    assert!(text.contains("sent 3, answered 3, lost 0 (0.0 %)"), "{text}");
    assert!(text.contains("no daemon answers at /nonexistent/none.sock"), "{text}");
    let (code, text, _) = ping("--json ping localhost -c 40 -i 0.01 -s 8972");
    let json: Value = serde_json::from_str(&text).expect("nothing but JSON");
    assert_eq!((code, &json["figures"]["answered"]), (Some(0), &40.into()), "{json}");
    assert_eq!((&json["tunnel"], &json["bytes"]), (&Value::Null, &8972.into()));
    let trips = &json["figures"]["round_trip_us"];
    let of = |name: &str| trips[name].as_f64().expect("a number");
    assert!(of("min") > 0.0 && of("min") <= of("mean") && of("mean") <= of("max"), "{trips}");
    let (code, text, _) = ping("ping 127.0.0.1 -c 3 -i 0.01 --quiet");
    assert!(code == Some(0) && !text.contains("every"), "{text}");
}

#[test]
fn echoes_of_ipv6_are_answered() {
    if !may_ping() {
        return;
    }
    let (code, text, said) = ping("ping ::1 -c 3 -i 0.01");
    if said.contains("no route to ::1") {
        println!("skipped: this host has no IPv6 on its loopback interface");
        return;
    }
    assert!(code == Some(0) && text.contains("answered 3"), "{text}{said}");
}

#[test]
fn interrupted_ping_says_what_came_so_far() {
    if !may_ping() {
        return;
    }
    let mut child = command("ping 127.0.0.1 -c 0 -i 0.05")
        .stdout(Stdio::piped())
        .spawn()
        .expect("recodectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    while !next().ends_with(" ms") {}
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    while !next().contains("lost 0 (0.0 %)") {}
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn hosts_and_numbers_that_make_no_sense_are_refused() {
    for arguments in [
        "ping",
        "ping 1",
        "ping 127.0.0.1 -c -1",
        "ping 127.0.0.1 -i 0",
        "ping 127.0.0.1 -i nan",
        "ping 127.0.0.1 -W 61",
        "ping 127.0.0.1 -s 15",
        "ping 127.0.0.1 -s 8973",
    ] {
        let (code, _, said) = ping(arguments);
        assert_eq!(code, Some(2), "{arguments}: {said}");
    }
    let (code, _, said) = ping("ping 1");
    assert!(code == Some(2) && said.contains("such as 10.99.0.2"), "{said}");
    let unknown = command("--json ping").arg("no such host").output().expect("it runs");
    let json: Value = serde_json::from_slice(&unknown.stdout).expect("JSON");
    assert_eq!((unknown.status.code(), &json["error"]["kind"]), (Some(1), &"ping".into()));
}
