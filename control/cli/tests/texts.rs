//! Output of `recodectl -f`, `configure` and wrong command lines, verbatim: `golden/texts`.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod boxes;
#[allow(dead_code)]
mod fixed;

use boxes::{Boxes, recodectl};
use std::process::Command;

/// Output and exit code of one command, as users see them, without the folder's path.
fn said(boxes: &Boxes, arguments: &str) -> String {
    let (code, out, err) = recodectl(boxes.folder.path(), arguments);
    let place = boxes.folder.path().to_string_lossy().into_owned();
    let text = (out + &err).replace(&place, "FOLDER");
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("$ recodectl {arguments}\n{text}{newline}[{code}]\n\n")
}

fn all(boxes: &Boxes, commands: &[&str]) -> String {
    commands.iter().map(|arguments| said(boxes, arguments)).collect()
}

#[test]
fn network_commands_say_what_they_did() {
    let boxes = Boxes::new();
    let text = all(
        &boxes,
        &[
            "-f net.toml status",
            "-f net.toml doctor",
            "-f net.toml check",
            "-f net.toml apply",
            "-f net.toml check",
            "render net.toml",
        ],
    );
    fixed::assert_golden("texts/network.txt", &text);
    let boxes = Boxes::new();
    boxes.network("full", |text| text);
    let text = all(&boxes, &["-f net.toml check", "-f net.toml keys", "-f net.toml keys --save"]);
    fixed::assert_golden("texts/keys.txt", &text);
}

#[test]
fn network_commands_say_what_is_wrong_on_boxes() {
    let boxes = Boxes::new();
    boxes.write("b/in-force", "SICK");
    boxes.write("c/stopped", "");
    let mut text = all(
        &boxes,
        &["-f net.toml status", "-f net.toml doctor", "-f net.toml trace", "-f net.toml apply"],
    );
    let b = |with: &'static str| {
        move |text: String| text.replace("ssh = \"b\"", &format!("ssh = \"b\", {with}"))
    };
    let boxes = Boxes::new();
    for daemon in ["/run/MISSING", "/run/RESTART", "/run/SICK"] {
        let with = format!("daemon = {{ socket = \"{daemon}\" }}");
        boxes.network("none", b(with.leak()));
        text += &said(&boxes, "-f net.toml apply --confirm 10s");
    }
    boxes.network("none", |text| text.replace("ssh = \"b\"", "ssh = \"gone\""));
    text += &all(&boxes, &["-f net.toml status --only b", "-f net.toml apply"]);
    boxes.network("none", |text| text);
    ["a", "b", "c"].iter().for_each(|name| boxes.write(&format!("{name}/stopped"), ""));
    boxes.write("b/broken", "");
    text += &said(&boxes, "-f net.toml apply --start");
    fixed::assert_golden("texts/network-wrong.txt", &text);
}

#[test]
fn wrong_command_lines_and_files_are_refused_in_these_words() {
    let boxes = Boxes::new();
    boxes.write("wrong.toml", "auth = \"some\"\n[nodes]\na = 3\nb = {}\n[[link]]\na = \"eth0\"\n");
    boxes.write("no.toml", "this is no TOML\n");
    let text = all(
        &boxes,
        &[
            "status",
            "check",
            "apply",
            "keys",
            "web",
            "render",
            "show --only a",
            "render net.toml --diff",
            "-f nothing.toml status",
            "-f wrong.toml status",
            "-f no.toml check",
            "-f net.toml --only x status",
            "-f net.toml history",
            "-f net.toml trace 7",
            "-f net.toml --ssh ' status",
            "-f net.toml --ssh /nonexistent/ssh status --only a",
            "-f net.toml apply --confirm 1s",
            "-f net.toml ping 10.99.0.2",
            "-f net.toml ping -c 0",
            "-f net.toml show --watch",
            "-f net.toml web --listen 192.0.2.1:80",
            "--json -f net.toml --only x status",
            "configure",
            "configure host --config nothing.toml",
            "configure host --config no.toml",
            "configure host --dry-run --apply",
            "--json configure host --config nothing.toml",
            "reload --diff --confirm 60s",
            "set 1",
            "set one code=rlnc",
            "set 1 code=rlnc redundancy=1.5 code=bats",
            "check net.toml",
            "apply ok.toml --start",
            "--json keys ok.toml",
            "status x.toml",
            "plan 127.0.0.1:70000",
            "plan --seconds 1s 192.0.2.1",
            "ping 10.99.0.2 -i 2h",
            "show --watch=0.1s",
            "web --listen 1.2.3.4",
            "trace one",
            "man nothing",
            "nothing",
        ],
    );
    fixed::assert_golden("texts/wrong.txt", &text);
}

const HOST: &str = r#"
[daemon]
auth = "none"
[[link]]
name = "west"
interface = "recnone0"
local = "10.0.1.2"
[[link]]
name = "east"
interface = "lo"
local = "10.0.2.1"
[[tunnel]]
name = "rec0"
address = "10.99.0.1/24"
[[flow]]
id = 1
role = "source"
tunnel = "rec0"
next_hops = [{ link = "east", address = "10.0.2.2" }]
"#;

/// In a separate network namespace with only a loopback interface that is down.
#[test]
fn configure_says_what_it_would_change_and_what_is_left() {
    if !rustix::process::geteuid().is_root() {
        let reason = "a network namespace of its own needs root";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
        println!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("recoded.toml"), HOST).expect("written");
    let mut text = String::new();
    // Each runs in a new namespace, so a second run must follow a first one there.
    for (arguments, is_second) in [
        ("configure host --config recoded.toml --dry-run", false),
        ("configure host --config recoded.toml --apply", false),
        ("configure host --config recoded.toml --apply", true),
        ("--json configure host --config recoded.toml", false),
    ] {
        let before =
            if is_second { format!("\"$0\" {arguments} > /dev/null; ") } else { "".into() };
        let script = format!("{before}exec \"$0\" {arguments}");
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", &script, env!("CARGO_BIN_EXE_recodectl")]);
        let output = command.current_dir(folder.path()).output().expect("unshare runs");
        let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        let code = output.status.code().expect("no signal");
        let again = if is_second { " # again" } else { "" };
        text += &format!("$ recodectl {arguments}{again}\n{said}[{code}]\n\n");
    }
    fixed::assert_golden("texts/configure.txt", &text);
}
