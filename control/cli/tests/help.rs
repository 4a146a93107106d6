//! The help of every command, verbatim: `golden/help`.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod fixed;

use std::collections::BTreeSet;
use std::process::Command;

/// Output of `--help` for a command; an empty one is the program.
fn help(command: &[String]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    // Help shows their values.
    for name in ["RECODED_SOCKET", "RECODED_SSH"] {
        program.env_remove(name);
    }
    let output = program.args(command).arg("--help").output().expect("it runs");
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Commands below one, from a list of the program or from a help.
fn listed(command: &[String], help: &str) -> Vec<String> {
    if command.is_empty() {
        let mut program = Command::new(env!("CARGO_BIN_EXE_recodectl"));
        let output = program.args(["help", "commands"]).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        return text.lines().filter_map(first_word).collect();
    }
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    let names = list.filter(|line| !line.starts_with("   ")).filter_map(first_word);
    names.filter(|name| *name != "help").collect()
}

fn first_word(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_owned)
}

/// Compares the help of a command and of its subcommands; returns the names of the files.
fn compare(command: &[String]) -> BTreeSet<String> {
    let help = help(command);
    let name = if command.is_empty() { "recodectl".to_owned() } else { command.join("-") };
    let file = format!("{name}.txt");
    fixed::assert_golden(&format!("help/{file}"), &help);
    let below = listed(command, &help).into_iter().map(|name| [command, &[name]].concat());
    below.flat_map(|command| compare(&command)).chain([file]).collect()
}

#[test]
fn help_of_every_command_is_golden() {
    let compared = compare(&[]);
    assert!(compared.len() > 25, "{compared:?}");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/help");
    let files = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|file| file.expect("a file").file_name().into_string().expect("text"));
    // Without the code there is no command for it.
    let of_code = |name: &String| cfg!(not(feature = "bats")) && name == "degrees.txt";
    let stale: Vec<String> =
        files.filter(|name| !compared.contains(name) && !of_code(name)).collect();
    assert!(stale.is_empty(), "of no command: {stale:?}");
}
