//! `recodectl -f net.toml web`: the page, over HTTP and in a headless browser. A fake `ssh` answers
//! for the boxes, with hostile content.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod fixed;

use recoded_api::v1::Flow;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A hostile reply that tries to run a script in an operator's browser.
const HOSTILE: &str = "<img src=x onerror=\"document.title='taken'\">";

/// Box a runs, b reports a hostile error, c has no daemon.
const SSH: &str = r#"#!/bin/sh
root=$(dirname "$0")
while [ "$1" != -- ]; do shift; done
case $2 in
a) cat "$root/state.json" ;;
b) echo "ssh: <script>document.title='taken'</script> refused" >&2; exit 255 ;;
*) echo '{"error":{"exit_code":3,"kind":"x","message":"no daemon answers at /run/x"}}'; exit 3 ;;
esac
"#;

const NETWORK: &str = r#"auth = "none"
[nodes]
a = "a"
b = "b"
c = "c"

[[link]]
a = "10.0.1.1 dev eth0"
b = "10.0.1.2 dev eth0"

[[link]]
b = "10.0.2.1 dev eth1"
c = "10.0.2.2 dev eth0"

[[path]]
from = "a"
via = ["b"]
to = "c"
tunnel = ["10.99.0.1/24", "10.99.0.2/24"]
"#;

/// Debian's name for it, and those of other systems.
const BROWSERS: [&str; 3] = ["chromium-headless-shell", "chromium", "chromium-browser"];

const PATIENCE: Duration = Duration::from_secs(60);

/// A served page, which ends with this.
struct Web {
    folder: tempfile::TempDir,
    child: Child,
    url: String,
}

impl Web {
    fn start() -> Web {
        let folder = tempfile::tempdir().unwrap();
        let ssh = folder.path().join("ssh");
        fs::write(&ssh, SSH).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        let mut state = fixed::state();
        state.version = HOSTILE.into();
        // A flow of the return path; only its sink answers.
        let back =
            Flow { id: 2, role: "sink".into(), goodput_mbit: Some(48.3), ..state.flows[0].clone() };
        state.flows.push(back);
        fs::write(folder.path().join("state.json"), serde_json::to_string(&state).unwrap())
            .unwrap();
        fs::write(folder.path().join("net.toml"), NETWORK).unwrap();
        let mut child = recodectl(folder.path(), &["web", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.ends_with(" shows net.toml, until Ctrl-C\n"), "{line}");
        let url = line.split(' ').next().unwrap().to_owned();
        let web = Web { folder, child, url };
        let begun = Instant::now();
        while web.map()["nodes"][0]["state"] != "up" {
            assert!(begun.elapsed() < PATIENCE, "{}", web.map());
            std::thread::sleep(Duration::from_millis(100));
        }
        web
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches('/')
    }

    /// The response to a request, including its head.
    fn ask(&self, method: &str, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn map(&self) -> Value {
        let text = self.ask("GET", "/map.json", self.address());
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn recodectl(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.current_dir(folder).env("RECODED_SSH", folder.join("ssh"));
    command.args(["-f", "net.toml"]).args(arguments);
    command
}

#[test]
fn map_has_what_boxes_say_and_why_others_do_not() {
    let web = Web::start();
    let map = web.map();
    let states: Vec<&str> =
        map["nodes"].as_array().unwrap().iter().map(|it| it["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["up", "no answer", "no daemon"]);
    assert!(map["nodes"][1]["why"].as_str().unwrap().contains("<script>"), "{map}");
    let why = map["nodes"][2]["why"].as_str().unwrap();
    assert!(why.contains("no daemon answers") && why.contains("systemctl enable"), "{map}");
    assert_eq!(map["flows"][0]["nodes"], serde_json::json!([0, 1, 2]));
    assert_eq!(map["flows"][0]["code"], "rlnc", "{map}");
    assert_eq!(map["flows"][1]["state"], Value::Null, "its source is no daemon");
}

#[test]
fn requests_that_are_not_for_this_machine_or_change_something_are_refused() {
    let web = Web::start();
    let own = web.address().to_owned();
    let cases = [
        ("GET", "/", own.as_str(), "200 OK"),
        ("GET", "/page.js", "localhost:1", "200 OK"),
        ("GET", "/map.json", "attacker.example", "403 Forbidden"),
        ("GET", "/", "127.0.0.1.attacker.example:9429", "403 Forbidden"),
        ("GET", "/../etc/passwd", own.as_str(), "404 Not Found"),
        ("POST", "/map.json", own.as_str(), "405 Method Not Allowed"),
    ];
    for (method, path, host, status) in cases {
        let text = web.ask(method, path, host);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{method} {path}: {text}");
        // A refused request gets no script either.
        let policy = match status.starts_with("403") {
            true => "default-src 'none'; frame-ancestors 'none'",
            false => "default-src 'none'; script-src 'self'",
        };
        assert!(text.contains(policy), "{text}");
    }
    // Idle connections block others only until their time limit.
    let idle: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(web.address()).unwrap()).collect();
    assert_eq!(web.map()["network"], "net.toml");
    drop(idle);
}

#[test]
fn addresses_that_cannot_be_listened_at_are_refused_with_a_cure() {
    let web = Web::start();
    let folder = web.folder.path();
    let cases = [
        ("0.0.0.0:9429", 2, "the page has no password, so it is for this machine alone"),
        ("192.0.2.1:9429", 2, "take it elsewhere by ssh -L"),
        (web.address(), 1, "give a free port with --listen, 0 for any"),
        ("loopback", 2, "invalid value 'loopback'"),
    ];
    for (address, code, said) in cases {
        let Output { status, stdout, stderr } =
            recodectl(folder, &["web", "--listen", address]).output().unwrap();
        let text = String::from_utf8([stdout, stderr].concat()).unwrap();
        assert_eq!(status.code(), Some(code), "{address}: {text}");
        assert!(text.contains(said), "{address}: {text}");
    }
    let output = recodectl(folder, &["--json", "web", "--listen", "0.0.0.0:1"]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["error"]["kind"], &json["error"]["exit_code"]), (&"usage".into(), &2.into()));
}

/// The browser; `None`, with the reason printed, if there is none.
fn browser() -> Option<&'static str> {
    let is_there = |name: &&&str| Command::new(**name).arg("--version").output().is_ok();
    let found = BROWSERS.iter().find(is_there).copied();
    if found.is_none() {
        let reason = "there is no Chromium (scripts/test installs chromium-headless-shell)";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
        println!("skipped: {reason}");
    }
    found
}

/// Runs the browser; returns standard output and standard error.
fn browse(program: &str, web: &Web, arguments: &[&str]) -> (String, String) {
    let profile = web.folder.path().join("profile");
    let Output { stdout, stderr, .. } = Command::new(program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--enable-logging=stderr", "--hide-scrollbars"])
        .args(["--virtual-time-budget=5000", "--timeout=60000", "--window-size=1200,800"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(&web.url)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&stdout), text(&stderr))
}

#[test]
fn page_in_a_browser_shows_the_network_and_runs_nothing_that_boxes_say() {
    let Some(program) = browser() else { return };
    let web = Web::start();
    let (page, log) = browse(program, &web, &["--dump-dom"]);
    for shown in ["net.toml", "1 of 3 boxes up", "a → b → c", "c → b → a", "rlnc", "no daemon"]
    {
        assert!(page.contains(shown), "{shown}: {page}\n{log}");
    }
    // The flows' figures as in the map: a's flow 1 is a source, and its flow 2 a sink.
    let map = web.map();
    let number = |flow: usize, key: &str| {
        let value = map["flows"][flow][key].as_f64();
        value.unwrap_or_else(|| panic!("flow {flow} has no {key}: {map}"))
    };
    let loss = map["flows"][0]["loss"][0].as_f64().expect("a loss");
    let shown = [
        format!("<td>{:.1} Mbit/s</td>", number(1, "goodput_mbit")),
        format!("<td>{:.2}x</td>", number(0, "ratio")),
        format!("<td>{:.4}</td>", number(0, "rank")),
        format!("<td>{:.4}</td>", number(0, "rank_theory")),
        format!("<td>{:.2} %, ", 100.0 * loss),
        format!("lost {:.2} %</text>", 100.0 * loss),
    ];
    for shown in shown {
        assert!(page.contains(&shown), "{shown}: {page}");
    }
    // As text, in its cell, and the title is unchanged.
    assert!(page.contains("&lt;img src=x onerror="), "{page}");
    assert!(page.contains("&lt;script&gt;document.title"), "{page}");
    assert!(!page.contains("<img") && page.contains("<title>Recoded</title>"), "{page}");
    for complaint in ["Refused", "Uncaught", "Content Security Policy", "ERR_"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(!lines.iter().any(|line| line.contains(complaint)), "{lines:?}");
    }

    let picture = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("web.png");
    let _ = fs::remove_file(&picture);
    let (_, log) = browse(program, &web, &[&format!("--screenshot={}", picture.display())]);
    let bytes = fs::read(&picture).unwrap_or_else(|error| panic!("{error}: {log}"));
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000, "{} bytes", bytes.len());
    println!("{}", picture.display());
}
