//! `recodectl -f net.toml` as people and scripts see it, with boxes that are folders: an `ssh` that
//! runs the script here, a `recoded` and a `recodectl` that do as the files in the folder say.
//! `tests/netns` has the same with a real sshd and real daemons.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod fixed;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const SSH: &str = r#"#!/bin/sh
root=$(dirname "$0")
while [ "$1" != -- ]; do shift; done
host=$2 command=$3
case $host in
gone) echo "ssh: connect to host gone port 22: Connection refused" >&2; exit 255 ;;
slow) exec sleep 600 ;;
loud) exec yes loud ;;
esac
BOX=$root/$host PATH=$root/bin:$PATH
export BOX PATH
exec sh -c "$command"
"#;

/// Takes over what lies in `recoded.toml`; a configuration with the word SICK makes doctor fail.
const RECODECTL: &str = r#"#!/bin/sh
while :; do case $1 in --json) shift ;; --socket) shift 2 ;; *) break ;; esac; done
fail() { printf '{"error":{"exit_code":%s,"kind":"x","message":"%s"}}\n' "$1" "$2"; exit "$1"; }
case $1 in genkey) echo secret; exit ;; pubkey) cat >/dev/null; cat "$BOX/public"; exit ;; esac
[ ! -e "$BOX/stopped" ] || fail 3 "no daemon answers at /run/recoded/recoded.sock"
case $1 in
show) cat "$BOX/../state.json" ;;
ping)
    shift; echo "$*" > "$BOX/asked"
    [ ! -e "$BOX/deaf" ] || { cat "$BOX/../silence.json"; exit 5; }
    cat "$BOX/../echoes.json" ;;
doctor)
    grep -q SICK "$BOX/in-force" || { echo '{"errors":0,"findings":[]}'; exit; }
    echo '{"findings":[{"level":"error","subject":"link west","cause":"deaf","cure":"hear"}]}'
    exit 5 ;;
reload)
    grep -q RESTART "$BOX/recoded.toml" && fail 4 "this needs a restart of the daemon"
    cp "$BOX/in-force" "$BOX/old" && cp "$BOX/recoded.toml" "$BOX/in-force"
    touch "$BOX/waits"
    echo '{"changes":[{"what":"x","line":1,"cost":"live"}],"applied":true,"replaces":false,'
    echo '"edition":2,"number":2,"confirm_seconds":60}' ;;
confirm)
    [ ! -e "$BOX/deaf" ] || fail 1 "closed the connection"
    rm "$BOX/waits"; echo '{"number":2}' ;;
history) if [ -e "$BOX/waits" ]; then echo '{ "confirm_seconds_left": 9 }'; else echo '{}'; fi ;;
undo) cp "$BOX/in-force" "$BOX/new"; cp "$BOX/old" "$BOX/in-force"; rm -f "$BOX/waits"; echo '{}' ;;
esac
"#;

const RECODED: &str = r#"#!/bin/sh
file=$2
echo "$file: valid: links 1, tunnels 1, flows 2"
grep -q MISSING "$file" || { echo "this host fits it: errors 0, warnings 0"; exit 0; }
echo "error: link eth0: there is no interface eth0: correct its name"
echo "this host does not fit it: errors 1, warnings 0" >&2
exit 1
"#;

const KEYS: [&str; 3] = [
    "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
    "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
    "Xl0m7tSLYYxFbbpNJTPn8nVdP9Sx5Tk3dXz0f7sJ6xI=",
];

const OLD: &str = "# what was there before\n";

/// Starts what is stopped, unless the box has a file `broken`.
const SYSTEMCTL: &str = r#"#!/bin/sh
[ "$*" = "enable --now recoded" ] || exit 64
[ ! -e "$BOX/broken" ] || { echo "Job for recoded.service failed." >&2; exit 1; }
rm "$BOX/stopped" && cp "$BOX/recoded.toml" "$BOX/in-force"
"#;

/// Boxes a, b and c in a folder, and their network.
struct Boxes {
    folder: tempfile::TempDir,
}

impl Boxes {
    fn new() -> Boxes {
        let boxes = Boxes { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(boxes.path("bin")).unwrap();
        boxes.program("ssh", SSH);
        boxes.program("bin/recodectl", RECODECTL);
        boxes.program("bin/recoded", RECODED);
        boxes.program("bin/systemctl", SYSTEMCTL);
        boxes.write("state.json", &serde_json::to_string(&fixed::state()).unwrap());
        for (name, key) in ["a", "b", "c"].into_iter().zip(KEYS) {
            fs::create_dir(boxes.path(name)).unwrap();
            for file in ["recoded.toml", "in-force"] {
                boxes.write(&format!("{name}/{file}"), OLD);
            }
            boxes.write(&format!("{name}/public"), &format!("{key}\n"));
        }
        boxes.network("none", |text| text);
        boxes
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn program(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes net.toml as `change` makes it.
    fn network(&self, auth: &str, change: impl Fn(String) -> String) {
        let mut text = format!("auth = \"{auth}\"\n[nodes]\n");
        for name in ["a", "b", "c"] {
            let (config, key) = (self.path(name).join("recoded.toml"), self.path(name).join("key"));
            text += &format!(
                "{name} = {{ ssh = \"{name}\", config = \"{}\", private_key = \"{}\" }}\n",
                config.display(),
                key.display()
            );
        }
        text += "[[link]]\na = \"10.0.1.1 dev eth0\"\nb = \"10.0.1.2 dev eth0\"\n\
                 [[link]]\nb = \"10.0.2.1 dev eth1\"\nc = \"10.0.2.2 dev eth0\"\n\
                 [[path]]\nfrom = \"a\"\nvia = [\"b\"]\nto = \"c\"\n\
                 tunnel = [\"10.99.0.1/24\", \"10.99.0.2/24\"]\n";
        self.write("net.toml", &change(text));
    }

    /// Exit code and what was printed.
    fn recodectl(&self, arguments: &str) -> (i32, String) {
        let (code, out, err) = recodectl(self.folder.path(), arguments);
        (code, out + &err)
    }

    /// The same for all boxes, as JSON.
    fn json(&self, arguments: &str) -> (i32, Value) {
        let (code, out, err) =
            recodectl(self.folder.path(), &format!("-f net.toml --json {arguments}"));
        let value =
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
        (code, value)
    }

    /// Nothing of a box changed, and nothing is left there.
    fn assert_as_before(&self, name: &str) {
        for file in ["recoded.toml", "in-force"] {
            assert_eq!(self.read(&format!("{name}/{file}")), OLD, "{name}/{file}");
        }
        self.assert_tidy(name);
    }

    fn assert_tidy(&self, name: &str) {
        let files = fs::read_dir(self.path(name)).unwrap().map(|it| it.unwrap().file_name());
        let left: Vec<_> =
            files.filter(|name| name.to_string_lossy().starts_with("recoded.toml.")).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}

fn recodectl(folder: &Path, arguments: &str) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_recodectl"))
        .current_dir(folder)
        .env("RECODED_SSH", folder.join("ssh"))
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn status_is_a_line_for_each_box_and_what_is_wrong() {
    let boxes = Boxes::new();
    let (code, text) = boxes.recodectl("-f net.toml status");
    assert_eq!(code, 0, "{text}");
    let line = text.lines().find(|line| line.starts_with("b ")).unwrap();
    assert!(line.contains(" up ") && line.contains("0.1.0") && line.contains('%'), "{text}");
    assert!(text.contains("path a -> c (flow 1)\na\n└─ b  "), "{text}");
    assert!(text.contains("\n   └─ c  "), "{text}");

    boxes.write("b/in-force", "SICK");
    boxes.write("c/stopped", "");
    let (code, text) = boxes.recodectl("-f net.toml status");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("FAIL b") && text.contains("link west: deaf: hear"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("FAIL c no daemon answers"), "{text}");
    assert!(words.contains("systemctl enable --now recoded"), "{text}");
    let (code, json) = boxes.json("status --only a,b");
    assert_eq!(code, 5, "{json}");
    assert_eq!(
        (&json["nodes"][0]["state"], &json["nodes"][1]["state"]),
        (&"up".into(), &"wrong".into())
    );
    let (code, json) = boxes.json("doctor --only b");
    assert_eq!((code, &json["nodes"]["b"][0]["cause"]), (5, &"deaf".into()), "{json}");
    let (code, text) = boxes.recodectl("-f net.toml show links");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("--- a\n{") && text.contains("--- c\n  FAIL c "), "{text}");
    let (code, json) = boxes.json("show");
    assert_eq!((code, &json["nodes"]["a"]["version"]), (3, &"0.1.0".into()));
}

#[test]
fn boxes_that_do_not_answer_are_named_with_cause_and_cure() {
    let boxes = Boxes::new();
    let hosts = ["gone", "slow", "loud"];
    boxes.network("none", |text| {
        ["a", "b", "c"].iter().zip(hosts).fold(text, |text, (name, host)| {
            text.replace(&format!("ssh = \"{name}\""), &format!("ssh = \"{host}\""))
        })
    });
    let begun = Instant::now();
    let (code, text) = boxes.recodectl("-f net.toml --patience 3 status");
    assert!(begun.elapsed() < Duration::from_secs(60), "all at once, each for a bounded time");
    assert_eq!(code, 3, "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("FAIL a ssh: connect to host gone port 22: Connection refused"),
        "{text}"
    );
    assert!(text.contains("start sshd there"), "{text}");
    assert!(text.contains("FAIL b no answer within 3 s: see whether `ssh slow` works"), "{text}");
    assert!(
        text.contains("FAIL c it sent more than") || text.contains("FAIL c no answer"),
        "{text}"
    );
    let (code, text) = boxes.recodectl("-f net.toml --ssh /nonexistent/ssh status --only a");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("cannot run /nonexistent/ssh"), "{text}");
}

#[test]
fn apply_changes_all_boxes_and_leaves_nothing_behind() {
    let boxes = Boxes::new();
    let (code, text) = boxes.recodectl("-f net.toml check");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("differs") && text.contains("right"), "{text}");
    ["a", "b", "c"].iter().for_each(|name| boxes.assert_as_before(name));

    let (code, text) = boxes.recodectl("-f net.toml apply");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("in force") && text.contains("confirmed on all boxes"), "{text}");
    let (_, rendered) = boxes.json("render");
    for name in ["a", "b", "c"] {
        let file = boxes.read(&format!("{name}/recoded.toml"));
        assert_eq!(rendered["files"][name], file.as_str());
        assert_eq!(boxes.read(&format!("{name}/in-force")), file);
        boxes.assert_tidy(name);
    }
    let (code, json) = boxes.json("check");
    assert_eq!((code, &json["nodes"][2]["file"]), (0, &"same".into()), "{json}");
}

#[test]
fn nothing_changes_anywhere_when_one_box_refuses_or_does_not_answer() {
    let boxes = Boxes::new();
    let b = |with: &'static str| {
        move |text: String| text.replace("ssh = \"b\"", &format!("ssh = \"b\", {with}"))
    };
    boxes.network("none", b("daemon = { socket = \"/run/MISSING\" }"));
    for command in ["check", "apply"] {
        let (code, text) = boxes.recodectl(&format!("-f net.toml {command}"));
        assert_eq!(code, 4, "{text}");
        assert!(text.contains("link eth0: there is no interface eth0: correct its name"), "{text}");
        ["a", "b", "c"].iter().for_each(|name| boxes.assert_as_before(name));
    }
    // The daemon of one refuses what its check took.
    boxes.network("none", b("daemon = { socket = \"/run/RESTART\" }"));
    let (code, text) = boxes.recodectl("-f net.toml apply");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("this needs a restart of the daemon"), "{text}");
    assert!(text.contains("all boxes are as they were before"), "{text}");
    ["a", "b", "c"].iter().for_each(|name| boxes.assert_as_before(name));

    boxes.network("none", |text| text.replace("ssh = \"b\"", "ssh = \"gone\""));
    let (code, text) = boxes.recodectl("-f net.toml apply");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("FAIL b") && text.contains("nothing was changed"), "{text}");
    ["a", "b", "c"].iter().for_each(|name| boxes.assert_as_before(name));
}

#[test]
fn all_boxes_go_back_when_one_is_not_well_or_does_not_confirm() {
    let boxes = Boxes::new();
    boxes.network("none", |text| {
        text.replace("ssh = \"b\"", "ssh = \"b\", daemon = { socket = \"/run/SICK\" }")
    });
    let (code, text) = boxes.recodectl("-f net.toml apply --confirm 10s");
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("link west: deaf: hear"), "{text}");
    ["a", "b", "c"].iter().for_each(|name| boxes.assert_as_before(name));

    // One whose daemon has gone back by itself meanwhile is not told to undo that.
    let late =
        "confirm) cp \"$BOX/old\" \"$BOX/in-force\"; echo SICK > \"$BOX/old\"; rm \"$BOX/waits\"";
    boxes.network("none", |text| text);
    boxes.program(
        "bin/recodectl",
        &RECODECTL.replace("confirm)", &format!("{late}; fail 4 late;;\nno)")),
    );
    let (code, text) = boxes.recodectl("-f net.toml apply");
    assert_eq!(code, 4, "{text}");
    ["a", "b", "c"].iter().for_each(|name| boxes.assert_as_before(name));
    boxes.program("bin/recodectl", RECODECTL);

    // A box that was ill before does not keep the others from changing, or itself.
    boxes.write("b/in-force", "SICK before");
    let (code, text) = boxes.recodectl("-f net.toml apply --confirm 30s");
    assert_eq!(code, 0, "{text}");

    let boxes = Boxes::new();
    boxes.write("c/deaf", "");
    let (code, text) = boxes.recodectl("-f net.toml apply --confirm 30s");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("FAIL c") && text.contains("closed the connection"), "{text}");
    ["a", "b", "c"].iter().for_each(|name| boxes.assert_as_before(name));
}

/// The file of a box that is lost on the way is put back by the box itself.
#[test]
fn box_that_is_lost_puts_its_old_file_back_by_itself() {
    let boxes = Boxes::new();
    // After the change, no connection to c comes about.
    let lost = SSH.replace("gone)", "c) if [ -e \"$root/c/old\" ]; then exit 255; fi ;;\ngone)");
    boxes.program("ssh", &lost);
    let (code, text) = boxes.recodectl("-f net.toml apply --confirm 10s");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("lost") && text.contains("goes back by itself"), "{text}");
    boxes.assert_as_before("a");
    boxes.assert_as_before("b");
    let begun = Instant::now();
    while boxes.read("c/recoded.toml") != OLD {
        assert!(begun.elapsed() < Duration::from_secs(60), "the file is still the new one");
        std::thread::sleep(Duration::from_millis(100));
    }
    boxes.assert_tidy("c");
}

#[test]
fn files_are_written_where_no_daemon_runs_and_not_where_some_do() {
    let boxes = Boxes::new();
    boxes.write("c/stopped", "");
    let (code, text) = boxes.recodectl("-f net.toml apply");
    assert_eq!(code, 3, "{text}");
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains("apply --only c"),
        "{text}"
    );
    ["a", "b", "c"].iter().for_each(|name| boxes.assert_as_before(name));
    fs::remove_file(boxes.path("c/recoded.toml")).unwrap();
    let (code, text) = boxes.recodectl("-f net.toml apply --only c");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("absent") && text.contains("written"), "{text}");
    assert!(boxes.read("c/recoded.toml").contains("role = \"sink\""));
    boxes.assert_as_before("a");
}

#[test]
fn apply_starts_all_boxes_when_told_so_and_says_which_are_not_well() {
    let boxes = Boxes::new();
    let stop = || ["a", "b", "c"].map(|name| boxes.write(&format!("{name}/stopped"), ""));
    stop();
    let (code, text) = boxes.recodectl("-f net.toml apply");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("`apply --start` starts all of them"), "{text}");
    assert!(boxes.path("a/stopped").exists());

    let (code, text) = boxes.recodectl("-f net.toml apply --start");
    assert_eq!(code, 0, "{text}");
    assert!(text.ends_with("started on all boxes, and well\n"), "{text}");
    for name in ["a", "b", "c"] {
        let config = boxes.read(&format!("{name}/recoded.toml"));
        assert!(config.contains("by recodectl render"), "{config}");
        assert_eq!(boxes.read(&format!("{name}/in-force")), config);
        boxes.assert_tidy(name);
    }

    // One that cannot be started is named; the others run, and all keep their files.
    stop();
    boxes.write("b/broken", "");
    let (code, text) = boxes.recodectl("-f net.toml apply --start");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("not all are started; files stay"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "FAIL b Job for recoded.service failed.: `journalctl -u recoded` there says why";
    assert!(words.contains(said), "{text}");
    assert!(!boxes.path("c/stopped").exists());
    assert!(boxes.path("b/stopped").exists());

    // One that is started and not well says so when the time is over.
    fs::remove_file(boxes.path("b/broken")).unwrap();
    stop();
    let sick = "ssh = \"b\", daemon = { socket = \"/run/SICK\" }";
    boxes.network("none", |text| text.replace("ssh = \"b\"", sick));
    let (code, json) = boxes.json("apply --start --confirm 10s");
    assert_eq!((code, &json["nodes"][1]["findings"][0]["cause"]), (5, &"deaf".into()), "{json}");
    assert_eq!(json["nodes"][1]["state"], "started", "{json}");
}

#[test]
fn keys_are_made_on_their_boxes_and_public_ones_kept() {
    let boxes = Boxes::new();
    boxes.network("full", |text| text);
    let (code, text) = boxes.recodectl("-f net.toml status");
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("net.toml:3: node a: a has no key: `recodectl -f net.toml keys --save`"),
        "{text}"
    );
    boxes.write("b/key", "was there\n");
    let (code, text) = boxes.recodectl("-f net.toml keys --save");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("3 written into net.toml"), "{text}");
    for (name, key) in ["a", "b", "c"].into_iter().zip(KEYS) {
        assert!(text.contains(key) && boxes.read("net.toml").contains(key), "{text}");
        let private = boxes.path(name).join("key");
        if name != "b" {
            assert_eq!(fs::metadata(private).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
    assert_eq!(boxes.read("b/key"), "was there\n", "never replaced");
    assert_eq!(boxes.recodectl("-f net.toml status").0, 0);

    // A box whose key is another one is never taken for the old one.
    boxes.write("b/public", &format!("{}\n", KEYS[0]));
    let before = boxes.read("net.toml");
    let (code, json) = boxes.json("keys --save");
    assert_eq!((code, &json["nodes"][1]["file"]), (4, &"differs".into()), "{json}");
    assert_eq!(boxes.read("net.toml"), before);
    let (code, text) = boxes.recodectl("-f net.toml check");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("its public key is"), "{text}");
}

#[test]
fn files_are_rendered_into_a_folder_and_compared() {
    let boxes = Boxes::new();
    let (code, text) = boxes.recodectl("render net.toml --out files");
    assert_eq!(code, 0, "{text}");
    assert_eq!(text, "files/a.toml\nfiles/b.toml\nfiles/c.toml\n");
    let (code, text) = boxes.recodectl("render net.toml --out files --diff");
    assert_eq!((code, text.as_str()), (0, "nothing would change\n"));
    boxes.network("none", |text| text.replace("via =", "code = \"rlnc\"\nvia ="));
    let (code, text) = boxes.recodectl("render net.toml --out files --diff");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("--- files/a.toml") && text.contains("+flow = [{ id = 1"), "{text}");
    assert!(!text.contains("files/b.toml"), "a relay is not told: {text}");
    assert!(!boxes.read("files/a.toml").contains("rlnc"));
    let (code, text) = boxes.recodectl("render net.toml");
    assert!(code == 0 && text.contains("# c of net.toml"), "{text}");
}

#[test]
fn wrong_command_lines_and_networks_are_refused_in_words() {
    let boxes = Boxes::new();
    boxes.write("wrong.toml", "auth = \"none\"\n[nodes]\na = 3\n");
    let cases = [
        ("status", "name its file, recodectl -f net.toml status"),
        ("apply", "name its file"),
        ("render", "name its file"),
        ("show --only a", "--only is for the boxes of a network"),
        ("render net.toml --diff", "name their folder with --out"),
        ("-f nothing.toml status", "cannot read nothing.toml"),
        ("-f wrong.toml status", "wrong.toml:3: node a: a = 3 is wrong"),
        ("-f net.toml --only x status", "there is no node x: the nodes are a, b, c"),
        ("-f net.toml history", "history is for one host: leave -f out"),
        ("-f net.toml --ssh ' status", "write a program and its arguments"),
        ("-f net.toml apply --confirm 1s", "10s to 24h"),
    ];
    for (arguments, said) in cases {
        let (code, text) = boxes.recodectl(arguments);
        assert_eq!(code, 2, "{arguments}: {text}");
        assert!(text.contains(said), "{arguments}: {text}");
    }
    let (code, out, _) = recodectl(boxes.folder.path(), "--json -f wrong.toml status");
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["error"]["kind"]), (2, &"network".into()), "{json}");
}

/// Each path from the box where it begins, to the address of its other end.
#[test]
fn every_path_is_pinged_from_where_it_begins() {
    let boxes = Boxes::new();
    boxes.write(
        "echoes.json",
        r#"{"figures":{"sent":4,"answered":3,"lost":1,"loss":0.25,
            "round_trip_us":{"min":9000.0,"mean":10000.0,"max":12500.0,"deviation":1.0}}}"#,
    );
    boxes.write(
        "silence.json",
        r#"{"figures":{"sent":4,"answered":0,"lost":4,"loss":1.0,"round_trip_us":null}}"#,
    );
    boxes.network("none", |text| {
        text + "[[path]]\nfrom = \"c\"\nto = \"b\"\ntunnel = [\"10.98.0.1/24\", \"10.98.0.2/24\"]\n"
    });
    let (code, text) = boxes.recodectl("-f net.toml ping -c 4 -i 0.5");
    assert_eq!(code, 0, "{text}");
    let rows: Vec<Vec<&str>> =
        text.lines().map(|line| line.split("  ").filter(|it| !it.is_empty()).collect()).collect();
    let columns = |row: &[&str]| row.iter().map(|it| it.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(columns(&rows[1]), ["a -> c", "4", "3", "25.0 %", "9.0", "10.0", "12.5"], "{text}");
    assert_eq!(columns(&rows[2])[0], "c -> b", "{text}");
    assert_eq!(boxes.read("a/asked"), "10.99.0.2 -c 4 -i 0.5 -W 4 -s 56\n");
    assert_eq!(boxes.read("c/asked"), "10.98.0.2 -c 4 -i 0.5 -W 4 -s 56\n");

    boxes.write("c/deaf", "");
    let (code, json) = boxes.json("ping -c 4 -i 0.5");
    assert_eq!((code, &json["paths"][1]["ping"]["figures"]["lost"]), (5, &4.into()), "{json}");
    boxes.write("a/stopped", "");
    let (code, text) = boxes.recodectl("-f net.toml ping --only a");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("FAIL a -> c") && !text.contains("c -> b"), "{text}");
    // It would be cut off, and say nothing.
    for endless in ["-c 0", "-c 60", "-c 2 -i 30"] {
        let (code, text) = boxes.recodectl(&format!("-f net.toml ping {endless}"));
        assert!(code == 2 && text.contains("--patience"), "{endless}: {text}");
    }
    let (code, text) = boxes.recodectl("-f net.toml ping 10.99.0.2");
    assert!(code == 2 && text.contains("name no host"), "{text}");
    let (code, text) = boxes.recodectl("-f net.toml show --watch");
    assert!(code == 2 && text.contains("recodectl -f net.toml web"), "{text}");
}
