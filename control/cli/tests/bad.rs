//! What else an operator may meet: daemons that hang or speak nonsense, disks that are full. Each
//! costs a message with its cause, and changes nothing. `../../../tests/BAD_INPUT.md` has the rest.

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

/// Answers each connection to a socket in `folder` with `reply`, once something is asked, and ends
/// it; without one, never.
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
            // A client that is gone is not looked for.
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
            assert!(output.stdout.is_empty(), "nothing is shown beside an error");
        })
    });
    looks.into_iter().for_each(|look| look.join().expect("as it should be"));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    for arguments in ["man", "--json man", "completion bash"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
        let output = recodectl(Path::new("/"), arguments).stdout(full).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let cause = "cannot write the output: No space left on device";
        // JSON would go where there is no room.
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

/// A full disk with a network file, in a namespace of mounts of its own: runs the other arguments
/// there, and fails if they leave a file behind.
const FULL_DISK: &str = r#"
mount -t tmpfs -o size=16k tmpfs "$1" && cd "$1" && cat > net.toml || exit 100
cat /dev/zero > filler 2>/dev/null
shift
"$@"
code=$?
[ "$(echo *)" = "filler net.toml" ] || { ls -la >&2; exit 101; }
exit $code
"#;

/// Exit code and what was printed by `recodectl` on such a disk.
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
