//! Other faults that an operator may meet: daemons that hang or send garbage, full disks. Each
//! produces a message with its cause, and changes nothing. `../../../tests/BAD_INPUT.md` covers the
//! rest.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

fn recodectl(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.current_dir(folder).args(arguments.split(' '));
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Replies to each connection to a socket in `folder` with `reply`, after a request, and closes it;
/// without a reply, keeps it open.
fn daemon(folder: &Path, reply: Option<&'static [u8]>) {
    let listener = UnixListener::bind(folder.join("socket")).expect("a socket");
    thread::spawn(move || {
        let mut kept = Vec::new();
        for connection in listener.incoming() {
            let mut connection = connection.expect("a connection");
            let Some(reply) = reply else {
                kept.push(connection);
                continue;
            };
            let mut request = [0; 4096];
            // A client may be gone.
            let _ = connection.read(&mut request).and_then(|_| connection.write_all(reply));
        }
    });
}

#[test]
fn daemon_that_hangs_or_speaks_nonsense_is_named() {
    let cases: [(Option<&'static [u8]>, i32, &str); 4] = [
        (None, 3, "did not answer within 10 s"),
        (Some(b""), 1, "closed the connection"),
        (Some(b"HTTP/1.1 400 Bad Request\r\n\r\n\0"), 1, "socket"),
        (Some(b"{\"parameters\":{\"version\":7}}\0"), 1, "socket"),
    ];
    let looks = cases.map(|(reply, code, cause)| {
        thread::spawn(move || {
            let folder = tempfile::tempdir().expect("a folder");
            daemon(folder.path(), reply);
            let output = recodectl(folder.path(), "--socket socket show").output().expect("runs");
            let words = said(&output);
            assert_eq!(output.status.code(), Some(code), "{words}");
            assert!(words.contains(cause), "{words}");
            assert!(output.stdout.is_empty(), "an error leaves standard output empty");
        })
    });
    looks.into_iter().for_each(|look| look.join().expect("as it should be"));
}

/// All commands.
fn commands() -> Vec<String> {
    let list = recodectl(Path::new("/"), "help commands").output().expect("runs");
    let list = String::from_utf8(list.stdout).expect("text");
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_names_an_option_that_it_does_not_have() {
    for command in commands() {
        let output = recodectl(Path::new("/"), &format!("{command} --no-such")).output();
        let output = output.expect("runs");
        let words = said(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {words}");
        assert!(words.contains("'--no-such'") && words.contains("--help"), "{command}: {words}");
        let output = recodectl(Path::new("/"), &format!("--json {command} --no-such")).output();
        let json: serde_json::Value =
            serde_json::from_slice(&output.expect("runs").stdout).expect("JSON");
        let error = &json["error"];
        assert_eq!((&error["exit_code"], &error["kind"]), (&2.into(), &"usage".into()), "{json}");
        let message = error["message"].as_str().expect("words");
        assert!(message.contains("'--no-such'"), "{json}");
        assert!(!message.contains("--help"), "that is for people at a terminal: {json}");
    }
}

/// Lists every command: a new one must be added here, with or without the need for a daemon.
#[test]
fn every_command_without_a_daemon_works_or_says_what_to_start() {
    let daemon = [
        "show",
        "set 1 field=4",
        "reload",
        "confirm",
        "undo",
        "history",
        "doctor",
        "trace 1",
        "events",
        "version",
        "set engine cpu",
        "show flows",
        "reload --diff",
        "undo 1",
    ];
    // With the exit code for valid arguments.
    let alone = [
        (1, "configure host --config none.toml"),
        (1, "plan 127.0.0.1:9"),
        (2, "top"),
        (2, "render none.toml"),
        (2, "-f none.toml status"),
        (2, "-f none.toml check"),
        (2, "-f none.toml apply"),
        (2, "-f none.toml keys"),
        (2, "-f none.toml web"),
        (0, "ping 127.0.0.1 -c 1"),
        (0, "bugreport"),
        (0, "kernels --seconds 0"),
        (0, "engines --seconds 0"),
        #[cfg(feature = "bats")]
        (1, "degrees --rank-histogram none.json"),
        (0, "init --name a --config new.toml --key new.key"),
        (1, "invite a --config none.toml"),
        (2, "join recoded1_"),
        (0, "genkey"),
        (1, "pubkey"),
        (0, "genpsk"),
        (0, "completion bash"),
        (0, "man"),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    for json in ["", " --json"] {
        for command in daemon {
            let arguments = format!("--socket none {command}{json}");
            let output = recodectl(folder.path(), &arguments).output().expect("runs");
            let words = said(&output) + &String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(3), "{arguments}: {words}");
            let cure = "no daemon answers at none: is `recoded` running? Start it with";
            assert!(words.contains(cure), "{arguments}: {words}");
            assert!(json.is_empty() || words.contains("\"kind\": \"not_running\""), "{words}");
        }
    }
    for (code, command) in alone {
        let arguments = format!("--socket none {command}");
        let output = recodectl(folder.path(), &arguments).stdin(Stdio::null()).output();
        let output = output.expect("runs");
        let words = said(&output);
        let may_not = command.starts_with("ping") && words.contains("ping_group_range");
        assert!(output.status.code() == Some(code) || may_not, "{arguments}: {words}");
        // A cause, and the fix after the last colon.
        assert!(code == 0 || words.contains(": "), "{arguments}: {words}");
        assert!(code == 0 || !words.contains("no daemon"), "{arguments}: {words}");
    }
    let is_of = |name: &str, arguments: &str| arguments.split(' ').any(|word| word == name);
    for name in commands() {
        let known = daemon.iter().chain(alone.iter().map(|(_, arguments)| arguments));
        assert!(known.into_iter().any(|arguments| is_of(&name, arguments)), "{name} is not tried");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    for arguments in ["man", "--json man", "completion bash"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
        let output = recodectl(Path::new("/"), arguments).stdout(full).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let cause = "cannot write the output: No space left on device";
        // JSON would go to the full disk.
        assert!(said(&output).contains(cause) || arguments.contains("--json"), "{}", said(&output));
    }
}

const NETWORK: &str = r#"
auth = "none"
[nodes]
a = { ssh = "a" }
b = { ssh = "b" }
[[link]]
a = "10.0.1.1 dev eth0"
b = "10.0.1.2 dev eth0"
[[path]]
from = "a"
to = "b"
tunnel = ["10.99.0.1/24", "10.99.0.2/24"]
"#;

/// A full disk with a network file, in a separate mount namespace: runs the other arguments there,
/// and fails if they leave a file behind.
const FULL_DISK: &str = r#"
mount -t tmpfs -o size=16k tmpfs "$1" && cd "$1" && cat > net.toml || exit 100
cat /dev/zero > filler 2>/dev/null
shift
"$@"
code=$?
[ "$(echo *)" = "filler net.toml" ] || { ls -la >&2; exit 101; }
exit $code
"#;

/// Exit code and output of `recodectl` on such a disk.
fn on_a_full_disk(arguments: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", FULL_DISK, "sh"]);
    command.arg(folder.path()).arg(env!("CARGO_BIN_EXE_recodectl")).args(arguments.split(' '));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("unshare starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(NETWORK.as_bytes()).expect("taken");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), said(&output) + &String::from_utf8_lossy(&output.stdout))
}

#[test]
fn full_disk_is_named_and_keeps_no_half_of_a_file() {
    if !rustix::process::geteuid().is_root() {
        let reason = "a disk of its own needs root";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
        println!("skipped: {reason}");
        return;
    }
    for arguments in ["--socket none bugreport --out report.tar.gz", "render net.toml --out ."] {
        for json in ["", "--json "] {
            let (code, words) = on_a_full_disk(&format!("{json}{arguments}"));
            assert_eq!(code, Some(1), "{arguments}: {words}");
            assert!(words.contains("No space left on device"), "{arguments}: {words}");
        }
    }
}
