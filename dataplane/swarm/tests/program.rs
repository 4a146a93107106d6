//! The program as users run it, over the loopback interface: IPv4 and IPv6, keys, receivers that
//! serve, wrong arguments.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_recoded-swarm");

/// A program that listens, and its output so far.
struct Serving {
    child: Child,
    content: String,
    addresses: Vec<String>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("there is room"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("there is room");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("it exists")
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().expect("it starts")
    }

    fn serve(&self, arguments: &str, addresses: usize) -> Serving {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut line = || lines.next().expect("a line").expect("UTF-8");
        let content = line().strip_prefix("content ").expect("the id").to_owned();
        line();
        let address = |line: String| line.strip_prefix("listening on ").expect("one").to_owned();
        let addresses = (0..addresses).map(|_| address(line())).collect();
        Serving { child, content, addresses }
    }
}

fn example() -> Vec<u8> {
    (0..700_001_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn text(output: &Output) -> String {
    let bytes = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn file_arrives_over_both_families_by_file_and_pipe() {
    let place = Place::new();
    place.write("film", &example());
    let serving = place.serve("serve film --listen 127.0.0.1:0 --listen [::1]:0", 2);
    for (number, address) in serving.addresses.iter().enumerate() {
        let got = place.run(&format!("get {} {address} --out copy{number}", serving.content));
        assert!(got.status.success(), "{}", text(&got));
        assert_eq!(place.read(&format!("copy{number}")), example());
    }
    let second = place.run(&format!("serve film --listen {}", serving.addresses[0]));
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second).contains("cannot listen on 127.0.0.1:"), "{}", text(&second));
    let both = serving.addresses.join(" ");
    let got = place.run(&format!("get {} {both} --out -", serving.content));
    assert!(got.status.success() && got.stdout == example());
    let got = place.run(&format!("get {} {both} --out copy0", serving.content));
    assert_eq!(got.status.code(), Some(2));
    assert!(text(&got).contains("copy0 exists\nfix: "), "{}", text(&got));
}

#[test]
fn receiver_serves_others_when_the_source_has_gone() {
    let place = Place::new();
    place.write("film", &example());
    let source = place.serve("serve film --listen 127.0.0.1:0", 1);
    let content = source.content.clone();
    // A free port of this moment.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let free = free.expect("a port");
    let mut command = place.command(&format!(
        "get {content} {} --out first --serve {free} --linger 60",
        source.addresses[0]
    ));
    let mut first = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(first.stderr.take().expect("a pipe")).lines();
    let line = lines.next().expect("a line").expect("UTF-8");
    assert!(line.contains("700001 B in "), "{line}");
    drop(source);
    let got = place.run(&format!("get {content} {free} --out second"));
    let _ = first.kill();
    let _ = first.wait();
    assert!(got.status.success(), "{}", text(&got));
    assert_eq!(place.read("second"), example());
}

#[test]
fn keys_are_needed_and_the_id_stays_with_its_source_key() {
    let place = Place::new();
    place.write("film", &example()[..5000]);
    place.write("key", "07".repeat(32).as_bytes());
    place.write("other", "08".repeat(32).as_bytes());
    let arguments = "serve film --listen 127.0.0.1:0 --key key --source-key film.key";
    let serving = place.serve(arguments, 1);
    let (content, address) = (&serving.content, &serving.addresses[0]);
    for key in ["", "--key other"] {
        let got = place.run(&format!("get {content} {address} --out copy --timeout 1 {key}"));
        assert_eq!(got.status.code(), Some(1), "{}", text(&got));
        assert!(text(&got).contains("no answer\nfix: "), "{}", text(&got));
        assert!(!place.path("copy").exists());
    }
    let got = place.run(&format!("get {content} {address} --out copy --key key"));
    assert!(got.status.success(), "{}", text(&got));
    let again = place.serve(arguments, 1);
    assert_eq!(&again.content, content);
    // No drafts are left.
    assert_eq!(place.path("").read_dir().expect("it exists").count(), 5);
}

#[test]
fn wrong_arguments_exit_with_2_and_name_the_fix() {
    let place = Place::new();
    place.write("film", b"content");
    place.write("empty", b"");
    place.write("short", b"07");
    let id = "07".repeat(32);
    for (arguments, expected) in [
        ("", "Usage"),
        ("serve film --blocks 0", "0 blocks in a segment\nfix: choose 1 to 256"),
        ("serve film --block-bytes 5000", "a block of 5000 B\nfix: choose 64 to 4096"),
        ("serve empty", "fix: serve a file that is not empty"),
        ("serve film --key short", "short holds no key of 32 bytes"),
        ("serve film --listen nowhere", "invalid value"),
        ("get 07 127.0.0.1:1 --out copy", "fix: copy the id that `serve` printed"),
        (&format!("get {id} --out copy"), "required"),
        (&format!("get {id} 127.0.0.1:1"), "--out"),
        (&format!("get {id} 127.0.0.1:1 --out copy --linger 5"), "--serve"),
    ] {
        let refused = place.run(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments}: {}", text(&refused));
        assert!(text(&refused).contains(expected), "{arguments}: {}", text(&refused));
    }
    let absent = place.run("serve absent");
    assert_eq!(absent.status.code(), Some(1));
    assert!(text(&absent).contains("cannot read absent: No such file"), "{}", text(&absent));
}

#[test]
fn bench_prints_json() {
    let place = Place::new();
    let output = place.run("bench --peers 20 --seconds 1 --workers 1 --segments 4 --blocks 16");
    assert!(output.status.success(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["loads"][0]["joined"], 20);
    assert_eq!(report["loads"][0]["wrong"], 0);
}

/// A reader that does not read blocks the program, which must still end.
#[test]
fn second_signal_ends_a_program_whose_output_is_blocked() {
    let place = Place::new();
    place.write("film", &example());
    let serving = place.serve("serve film --listen 127.0.0.1:0", 1);
    let (content, address) = (&serving.content, &serving.addresses[0]);
    let mut command = place.command(&format!("get {content} {address} --out -"));
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..2 {
        let signal = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(signal.expect("it starts").success());
        std::thread::sleep(Duration::from_millis(500));
    }
    let status = child.try_wait().expect("it is a child");
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(status.and_then(|status| status.code()), Some(130));
}

#[test]
fn result_has_the_mode_of_any_new_file() {
    let place = Place::new();
    place.write("film", &example()[..5000]);
    let serving = place.serve("serve film --listen 127.0.0.1:0", 1);
    let (content, address) = (&serving.content, &serving.addresses[0]);
    let script = format!("umask 027; exec {PROGRAM} get {content} {address} --out copy");
    let mut shell = Command::new("sh");
    let got = shell.args(["-c", &script]).current_dir(place.path("")).output().expect("it starts");
    assert!(got.status.success(), "{}", text(&got));
    let mode = place.path("copy").metadata().expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn long_datagrams_are_warned_of() {
    let place = Place::new();
    place.write("film", &example());
    for (arguments, is_warned) in [("", false), ("--block-bytes 4096", true)] {
        let line = format!("serve film --listen 127.0.0.1:0 {arguments}");
        let mut command = place.command(&line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        assert_eq!(stdout.lines().take(3).count(), 3);
        let _ = child.kill();
        let output = child.wait_with_output().expect("it ended");
        assert_eq!(text(&output).contains("warning: datagrams"), is_warned, "{}", text(&output));
    }
}
