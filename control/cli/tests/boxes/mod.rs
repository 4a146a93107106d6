//! Boxes that are folders: an `ssh` that runs the script here, and a `recoded` and a `recodectl`
//! controlled by files in the folder.

use crate::fixed;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const SSH: &str = r#"#!/bin/sh
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

/// Applies `recoded.toml`; a configuration with the word SICK makes doctor fail.
pub const RECODECTL: &str = r#"#!/bin/sh
while :; do case $1 in --json) shift ;; --socket) shift 2 ;; *) break ;; esac; done
fail() { printf '{"error":{"exit_code":%s,"kind":"x","message":"%s"}}\n' "$1" "$2"; exit "$1"; }
case $1 in
genkey) cat "$BOX/genkey" 2>/dev/null || echo secret; exit ;;
pubkey) read -r key; cat "$BOX/public-$key" 2>/dev/null || cat "$BOX/public"; exit ;;
esac
[ ! -e "$BOX/stopped" ] || fail 3 "no daemon answers at /run/recoded/recoded.sock"
case $1 in
show) cat "$BOX/state.json" 2>/dev/null || cat "$BOX/../state.json" ;;
ping)
    shift; echo "$*" > "$BOX/asked"
    [ ! -e "$BOX/deaf" ] || { cat "$BOX/../silence.json"; exit 5; }
    cat "$BOX/../echoes.json" ;;
doctor)
    grep -q SICK "$BOX/in-force" || { echo '{"errors":0,"findings":[]}'; exit; }
    echo '{"findings":[{"level":"error","subject":"link west","cause":"deaf","cure":"hear"}]}'
    exit 5 ;;
reload)
    if [ "$2" = --diff ]; then
        grep -q RESTART "$4" && fail 4 "this needs a restart of the daemon"
        what='{"what":"flow 1: code is stream, not rlnc","line":7,"cost":"live"}'
        if cmp -s "$4" "$BOX/in-force"; then what=; fi
        echo '{"changes":['"$what"'],"applied":false,"replaces":false,"edition":2,"number":2,'
        echo '"confirm_seconds":null}'; exit
    fi
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

pub const KEYS: [&str; 3] = [
    "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
    "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
    "Xl0m7tSLYYxFbbpNJTPn8nVdP9Sx5Tk3dXz0f7sJ6xI=",
];

pub const OLD: &str = "# what was there before\n";

/// Log of a daemon that does not start, and of the one that systemd starts after it.
const JOURNALCTL: &str = r#"#!/bin/sh
[ "$*" = "-q -u recoded -t recoded -o cat -n 20" ] || exit 64
echo "2026-11-26T17:21:03Z  INFO recoded::events::log: daemon: recoded starts"
echo "no memory can be locked"
echo "2026-11-26T17:21:03Z  INFO recoded::events::log: daemon: recoded starts"
"#;

/// Starts stopped units, unless the box has a file `broken`.
const SYSTEMCTL: &str = r#"#!/bin/sh
[ "$*" = "enable --now recoded" ] || exit 64
[ ! -e "$BOX/broken" ] || { echo "Job for recoded.service failed." >&2; exit 1; }
rm "$BOX/stopped" && cp "$BOX/recoded.toml" "$BOX/in-force"
"#;

/// Boxes a, b and c in a folder, and their network.
pub struct Boxes {
    pub folder: tempfile::TempDir,
}

impl Boxes {
    pub fn new() -> Boxes {
        let boxes = Boxes { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(boxes.path("bin")).unwrap();
        boxes.program("ssh", SSH);
        boxes.program("bin/recodectl", RECODECTL);
        boxes.program("bin/recoded", RECODED);
        boxes.program("bin/systemctl", SYSTEMCTL);
        boxes.program("bin/journalctl", JOURNALCTL);
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn program(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes net.toml, modified by `change`.
    pub fn network(&self, auth: &str, change: impl Fn(String) -> String) {
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

    /// Exit code and output.
    pub fn recodectl(&self, arguments: &str) -> (i32, String) {
        let (code, out, err) = recodectl(self.folder.path(), arguments);
        (code, out + &err)
    }

    /// The same for all boxes, as JSON.
    pub fn json(&self, arguments: &str) -> (i32, Value) {
        let (code, out, err) =
            recodectl(self.folder.path(), &format!("-f net.toml --json {arguments}"));
        let value =
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
        (code, value)
    }

    /// Asserts that a box is unchanged, without leftovers.
    pub fn assert_as_before(&self, name: &str) {
        for file in ["recoded.toml", "in-force"] {
            assert_eq!(self.read(&format!("{name}/{file}")), OLD, "{name}/{file}");
        }
        self.assert_tidy(name);
    }

    pub fn assert_tidy(&self, name: &str) {
        let files = fs::read_dir(self.path(name)).unwrap().map(|it| it.unwrap().file_name());
        let left: Vec<_> =
            files.filter(|name| name.to_string_lossy().starts_with("recoded.toml.")).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}

pub fn recodectl(folder: &Path, arguments: &str) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_recodectl"))
        .current_dir(folder)
        .env("RECODED_SSH", folder.join("ssh"))
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}
