//! Wrong arguments: exit code 2, and a message that names the fix.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Place;

#[test]
fn wrong_arguments_exit_with_2() {
    let place = Place::new();
    place.write("file", b"content");
    place.write("there", b"");
    for (arguments, expected) in [
        ("", "Usage"),
        ("encode file", "--data"),
        ("encode file -k 0 -m 1 -o set", "0 is not in 1..=255"),
        ("encode file -k 1 -m 0 -o set", "0 is not in 1..=255"),
        ("encode file -k x -m 1 -o set", "invalid value"),
        ("encode file -k 200 -m 57 -o set", "fix: choose at least 1 of each, at most 256 in all"),
        ("encode file -k 200 -m 56 --unit-kib 1024 -o set", "fix: choose shorter units"),
        ("encode file -k 2 -m 1 --unit-kib 0 -o set", "0 is not in 1..=1024"),
        ("encode file -k 2 -m 1 -o there", "there exists\nfix: choose another output"),
        ("update set", "--at"),
        ("update set --at -1", "'-1'"),
        ("plan -k 200 -m 57", "fix: choose at least 1 of each, at most 256 in all"),
        ("plan -k 10 -m 4 --mttf-hours 0", "must be a number from 1e-6 to 1e18"),
        ("plan -k 10 -m 4 --repair-hours NaN", "must be a number from 1e-6 to 1e18"),
        ("shrink set", "unrecognized subcommand"),
    ] {
        let refused = place.run(arguments);
        assert_eq!(refused.code, 2, "{arguments}: {}", refused.text);
        assert!(refused.text.contains(expected), "{arguments}: {}", refused.text);
    }
    assert_eq!(place.path("").read_dir().expect("it exists").count(), 2);
}

#[test]
fn missing_files_are_named() {
    let place = Place::new();
    place.write("file", b"content");
    std::fs::create_dir(place.path("empty")).expect("it is new");
    for (arguments, expected) in [
        ("encode absent -k 2 -m 1 -o set", "cannot read absent: No such file"),
        ("encode file -k 2 -m 1 -o absent/set", "cannot create absent/set: No such file"),
        ("verify absent", "cannot open the folder absent: No such file"),
        ("verify file", "cannot open the folder file: "),
        ("verify empty", "no shard with a valid header\nfix: name the folder"),
        ("info empty", "no shard with a valid header"),
    ] {
        let refused = place.run(arguments);
        assert_eq!(refused.code, 1, "{arguments}: {}", refused.text);
        assert!(refused.text.contains(expected), "{arguments}: {}", refused.text);
    }
}

#[test]
fn existing_output_is_not_overwritten() {
    let place = Place::new();
    place.write("file", b"content");
    place.succeed("encode file -k 2 -m 1 -o set");
    assert_eq!(place.run("encode file -k 2 -m 1 -o set").code, 2);
    assert_eq!(place.run("recover set -o file").code, 2);
    std::fs::create_dir(place.path("empty")).expect("it is new");
    place.succeed("encode file -k 2 -m 1 -o empty");
    place.succeed("verify empty");
}

#[test]
fn set_in_use_is_refused() {
    let place = Place::new();
    place.write("file", b"content");
    place.succeed("encode file -k 2 -m 1 -o set");
    // It waits for its input, and uses the set meanwhile.
    let mut update = Command::new(env!("CARGO_BIN_EXE_recoded-stripes"))
        .args(["update", "set", "--at", "0"])
        .current_dir(place.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !place.path("set/update.journal.partial").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let refused = place.run("verify set");
    assert_eq!(refused.code, 1, "{}", refused.text);
    assert!(refused.text.contains("another process uses set\nfix: wait"), "{}", refused.text);
    drop(update.stdin.take());
    assert!(update.wait().expect("it ends").success());
    place.succeed("verify set");
}

#[test]
fn help_has_examples() {
    let place = Place::new();
    for (arguments, expected) in [
        ("--help", "recoded-stripes encode film.mkv --data 10 --parity 4 --output film.set"),
        ("encode --help", "pg_dump shop | recoded-stripes encode -"),
        ("recover --help", "recoded-stripes recover film.set --output film.mkv"),
        ("update --help", "| recoded-stripes update disk.set --at 4096"),
        ("verify --help", "Exit code 0: healthy"),
    ] {
        let text = place.succeed(arguments).text;
        assert!(text.contains(expected), "{arguments}: {text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
}

#[test]
fn plan_prints_the_papers_figures() {
    let place = Place::new();
    for (arguments, expected) in [
        ("-k 14 -m 2", "after 1.0e8 years on average"),
        ("-k 10 -m 1", "without such an error with 92.3 %"),
        ("-k 14 -m 2 --json", "\"disk_read_error_probability\": 0.008"),
        ("-k 1 -m 255", "more than 1e304 years"),
        ("-k 1 -m 255 --json", "\"mean_years_to_loss\": null"),
    ] {
        let plan = place.succeed(&format!("plan {arguments}")).text;
        assert!(plan.contains(expected), "{arguments}: {plan}");
    }
}

#[test]
fn files_of_the_package_name_every_command() {
    let place = Place::new();
    for format in ["bash", "zsh", "fish", "man"] {
        let text = place.succeed(&format!("print {format}")).text;
        for command in ["encode", "verify", "recover", "update", "info", "plan"] {
            assert!(text.contains(command), "{format}: {command}");
        }
    }
    assert!(place.succeed("print man encode").text.contains("Length of a unit in KiB"));
    assert_eq!(place.run("print man shrink").code, 1);
}
