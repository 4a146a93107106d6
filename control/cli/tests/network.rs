//! `recodectl -f net.toml` as users and scripts see it, with boxes that are folders. `tests/netns`
//! does the same with a real sshd and real daemons.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod boxes;
#[allow(dead_code)]
mod fixed;

use boxes::{Boxes, KEYS, OLD, RECODECTL, SSH, recodectl};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

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
    // The option may follow the command, too.
    assert_eq!(boxes.recodectl("status -f net.toml"), (code, text));
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
    assert!(text.contains("applied") && text.contains("confirmed on all boxes"), "{text}");
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
fn difference_of_every_box_is_shown_and_nothing_changes() {
    let boxes = Boxes::new();
    let (code, text) = boxes.recodectl("apply -f net.toml --diff");
    assert_eq!(code, 0, "{text}");
    for name in ["a", "b", "c"] {
        assert!(text.contains(&format!("--- {name} (file: differs)\nlive     line 7: ")), "{text}");
        boxes.assert_as_before(name);
    }
    assert!(text.ends_with("nothing was changed on any box\n"), "{text}");
    assert_eq!(boxes.recodectl("-f net.toml apply").0, 0);
    let (code, json) = boxes.json("apply --diff");
    assert_eq!((code, &json["nodes"][0]["file"]), (0, &"same".into()), "{json}");
    assert_eq!(json["nodes"][0]["reload"]["changes"].as_array().map(Vec::len), Some(0), "{json}");

    // What apply would refuse has the same exit code.
    let b = |text: String| {
        text.replace("ssh = \"b\"", "ssh = \"b\", daemon = { socket = \"/run/RESTART\" }")
    };
    boxes.network("none", b);
    let (code, text) = boxes.recodectl("-f net.toml apply --diff");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("this needs a restart of the daemon"), "{text}");
    boxes.network("none", |text| text.replace("ssh = \"c\"", "ssh = \"gone\""));
    boxes.write("b/stopped", "");
    let (code, text) = boxes.recodectl("-f net.toml apply --diff");
    assert_eq!(code, 3, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("FAIL b no daemon runs there, while others do"), "{text}");
    assert!(words.contains("FAIL c ssh: connect to host gone"), "{text}");
    let (code, text) = boxes.recodectl("-f net.toml apply --diff --only b");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("no daemon runs there"), "{text}");
    assert_eq!(boxes.recodectl("-f net.toml apply --diff --force").0, 2);
}

/// As `set --save` changes it.
#[test]
fn change_of_a_file_on_its_box_is_overwritten_only_by_force() {
    let boxes = Boxes::new();
    assert_eq!(boxes.recodectl("-f net.toml apply").0, 0);
    let edited = boxes.read("b/recoded.toml") + "# tuned at night\n";
    boxes.write("b/recoded.toml", &edited);
    let before = boxes.read("a/recoded.toml");
    boxes.network("none", |text| text.replace("via =", "code = \"rlnc\"\nvia ="));
    let (code, json) = boxes.json("check");
    assert_eq!((code, &json["nodes"][1]["file"]), (0, &"changed".into()), "{json}");
    assert_eq!(json["nodes"][1]["findings"][0]["level"], "warning", "{json}");
    let (code, text) = boxes.recodectl("-f net.toml apply --diff");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("--- b (file: changed)") && text.contains("warn b"), "{text}");

    let (code, text) = boxes.recodectl("-f net.toml apply");
    assert_eq!(code, 4, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("was changed there since the last apply"), "{text}");
    assert!(words.contains("apply --force") && words.contains("nothing was changed"), "{text}");
    assert_eq!((boxes.read("b/recoded.toml"), boxes.read("a/recoded.toml")), (edited, before));
    ["a", "b", "c"].iter().for_each(|name| boxes.assert_tidy(name));

    let (code, text) = boxes.recodectl("-f net.toml apply --force");
    assert_eq!(code, 0, "{text}");
    assert!(!boxes.read("b/recoded.toml").contains("tuned"));
    assert_eq!(boxes.recodectl("-f net.toml apply").0, 0, "the next one needs no force");

    // Files that are only written are remembered, too.
    ["a", "b", "c"].iter().for_each(|name| boxes.write(&format!("{name}/stopped"), ""));
    boxes.network("none", |text| text);
    assert_eq!(boxes.recodectl("-f net.toml apply").0, 0);
    boxes.write("c/recoded.toml", "# mine\n");
    assert_eq!(boxes.recodectl("-f net.toml apply").0, 4);
    assert_eq!(boxes.read("c/recoded.toml"), "# mine\n");
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
    // The daemon of one box refuses a file that its check accepted.
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

    // A daemon that has already rolled back is not asked to undo that.
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

    // A box that was faulty before blocks neither the others nor itself.
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

/// A box that is lost during the change restores its old file by itself.
#[test]
fn box_that_is_lost_puts_its_old_file_back_by_itself() {
    let boxes = Boxes::new();
    // After the change, c is unreachable.
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

    // A box that cannot be started is named; the others run, and all keep their files.
    stop();
    boxes.write("b/broken", "");
    let (code, text) = boxes.recodectl("-f net.toml apply --start");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("not all are started; files stay"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "FAIL b no memory can be locked: `journalctl -u recoded` there says more";
    assert!(words.contains(said), "{text}");
    assert!(!boxes.path("c/stopped").exists());
    assert!(boxes.path("b/stopped").exists());

    // A started box that is not well is reported when the time is over.
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
        text.contains("net.toml:3: box a: a has no key: `recodectl -f net.toml keys --save`"),
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

    // A box with another key is never mistaken for the old one.
    boxes.write("b/public", &format!("{}\n", KEYS[0]));
    let before = boxes.read("net.toml");
    let (code, json) = boxes.json("keys --save");
    assert_eq!((code, &json["nodes"][1]["file"]), (4, &"differs".into()), "{json}");
    assert_eq!(boxes.read("net.toml"), before);
    let (code, text) = boxes.recodectl("-f net.toml check");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("its public key is"), "{text}");
}

/// Boxes with keys. The next key is the fourth, on box b.
fn with_keys() -> Boxes {
    let boxes = Boxes::new();
    boxes.network("full", |text| text);
    assert_eq!(boxes.recodectl("-f net.toml keys --save").0, 0);
    assert_eq!(boxes.recodectl("-f net.toml apply").0, 0);
    boxes.write("b/genkey", "second\n");
    boxes.write("b/public-second", &format!("{NEXT_KEY}\n"));
    boxes
}

const NEXT_KEY: &str = "3tn4RiNuRM+DzxUCxpjVoHTVAjlhTZsjiOnQTWb6yEk=";

#[test]
fn key_of_a_box_is_replaced_everywhere_or_nowhere() {
    let boxes = with_keys();
    let before = boxes.read("net.toml");
    let (code, text) = boxes.recodectl("-f net.toml keys --rotate b");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("confirmed on all boxes") && text.contains("b has a new key"), "{text}");
    assert!(!text.contains("second"), "no private key is printed: {text}");
    let second = boxes.path("b").join("key-2");
    let after = boxes.read("net.toml");
    assert!(after.contains(NEXT_KEY) && !after.contains(KEYS[1]), "{after}");
    assert!(after.contains(&second.display().to_string()), "{after}");
    assert_eq!(after.lines().count(), before.lines().count(), "{after}");
    assert_eq!(fs::read_to_string(&second).unwrap(), "second\n");
    assert_eq!(fs::metadata(&second).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!boxes.path("b/key").exists(), "the old one is of no use");
    for name in ["a", "c"] {
        assert!(boxes.read(&format!("{name}/in-force")).contains(NEXT_KEY));
        assert!(boxes.path(name).join("key").exists());
    }
    assert!(boxes.read("b/in-force").contains("key-2"));
    assert_eq!(boxes.recodectl("-f net.toml check").0, 0);
    let (code, json) = boxes.json("keys --save");
    assert_eq!((code, &json["nodes"][1]["file"]), (0, &"same".into()), "{json}");

    // The next one has the next file.
    boxes.write("b/genkey", "third\n");
    boxes.write("b/public-third", &format!("{}\n", KEYS[1]));
    let (code, json) = boxes.json("keys --rotate b");
    assert_eq!((code, &json["rotated"]["key"]), (0, &KEYS[1].into()), "{json}");
    assert!(boxes.path("b/key-3").exists() && !second.exists());
}

#[test]
fn key_stays_where_a_box_does_not_follow() {
    let boxes = with_keys();
    let network = boxes.read("net.toml");
    let (a, b) = (boxes.read("a/in-force"), boxes.read("b/in-force"));
    let assert_unchanged = |text: &str| {
        assert_eq!(boxes.read("net.toml"), network, "{text}");
        assert_eq!((boxes.read("a/in-force"), boxes.read("b/in-force")), (a.clone(), b.clone()));
        assert!(boxes.path("b/key").exists() && !boxes.path("b/key-2").exists(), "{text}");
        ["a", "b", "c"].iter().for_each(|name| boxes.assert_tidy(name));
        assert_eq!(fs::read_dir(boxes.folder.path()).unwrap().count(), 7, "no draft is left");
    };
    boxes.write("c/deaf", "");
    let (code, text) = boxes.recodectl("-f net.toml keys --rotate b");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("FAIL c") && text.contains("b keeps its key"), "{text}");
    assert_unchanged(&text);
    fs::remove_file(boxes.path("c/deaf")).unwrap();
    boxes.write("c/stopped", "");
    let (code, text) = boxes.recodectl("-f net.toml keys --rotate b");
    assert_eq!(code, 3, "{text}");
    assert_unchanged(&text);
    fs::remove_file(boxes.path("c/stopped")).unwrap();

    // A key that is there is never overwritten.
    boxes.write("b/key-2", "in use?\n");
    let (code, text) = boxes.recodectl("-f net.toml keys --rotate b");
    assert_eq!(code, 4, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("key-2 exists") && words.contains("nothing was changed"), "{text}");
    assert_eq!(boxes.read("b/key-2"), "in use?\n");

    for (arguments, said) in [
        ("-f net.toml keys --rotate d", "there is no box d: the boxes are a, b, c"),
        ("-f net.toml keys --rotate b --only b", "leave --only out"),
        ("-f net.toml keys --rotate b --save", "cannot be used with"),
        ("keys --rotate b", "name its file"),
    ] {
        let (code, text) = boxes.recodectl(arguments);
        assert!(code == 2 && text.contains(said), "{arguments}: {code}: {text}");
    }
    boxes.network("none", |text| text);
    let (code, text) = boxes.recodectl("-f net.toml keys --rotate b");
    assert!(code == 2 && text.contains("b has no key to rotate"), "{text}");
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

/// The daemon's parser reads units of a network, too, and its errors name the line.
#[test]
fn rates_and_times_of_a_network_may_have_units() {
    let boxes = Boxes::new();
    let with = |rate: &str, time: &str| {
        boxes.network("none", |text| {
            let rate = format!("[[link]]\nrate_mbit = {rate}\na =");
            let time = format!("[[path]]\nlag_timeout_us = {time}\n");
            text.replacen("[[link]]\na =", &rate, 1).replace("[[path]]\n", &time)
        });
        boxes.recodectl("render net.toml")
    };
    let (code, text) = with("\"50 Mbit/s\"", "\"20 ms\"");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("rate_mbit = \"50 Mbit/s\""), "{text}");
    let (code, text) = with("\"50 MB/s\"", "\"20 parsecs\"");
    assert_eq!(code, 2, "{text}");
    let rate = "rate_mbit = \"50 MB/s\" has an unknown unit: 0.001 to 1000000 Mbit/s, or with a \
                unit, such as \"50 Mbit/s\"; the units are bit/s, kbit/s, Mbit/s or Gbit/s";
    assert!(text.contains("net.toml:") && text.contains(rate), "{text}");
    assert!(text.contains("lag_timeout_us = \"20 parsecs\" has an unknown unit"), "{text}");
}

#[test]
fn wrong_command_lines_and_networks_are_refused_in_words() {
    let boxes = Boxes::new();
    boxes.write("wrong.toml", "auth = \"none\"\n[nodes]\na = 3\n");
    let cases = [
        ("status", "name its file, recodectl -f net.toml status"),
        ("apply", "name its file"),
        ("render", "name the network: recodectl render net.toml"),
        ("show --only a", "--only is for the boxes of a network"),
        ("render net.toml --diff", "name their folder with --out"),
        ("-f nothing.toml status", "cannot read nothing.toml"),
        ("-f wrong.toml status", "wrong.toml:3: box a: a = 3 is wrong"),
        ("-f net.toml --only x status", "there is no box x: the boxes are a, b, c"),
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

/// Pings each path from the box where it begins, to the address of its other end.
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
    // The command would be killed, and print nothing.
    for endless in ["-c 0", "-c 60", "-c 2 -i 30"] {
        let (code, text) = boxes.recodectl(&format!("-f net.toml ping {endless}"));
        assert!(code == 2 && text.contains("--patience"), "{endless}: {text}");
    }
    let (code, text) = boxes.recodectl("-f net.toml ping 10.99.0.2");
    assert!(code == 2 && text.contains("name no host"), "{text}");
    let (code, text) = boxes.recodectl("-f net.toml show --watch");
    assert!(code == 2 && text.contains("recodectl -f net.toml web"), "{text}");
}
