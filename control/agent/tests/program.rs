//! `recoded-agent` as scripts see it.

#![forbid(unsafe_code)]

use std::process::{Command, Output};

fn agent(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recoded-agent"));
    command.args(arguments.split_whitespace()).output().expect("it runs")
}

/// Scripts that request JSON get it, even if no agent runs or the command line is wrong.
#[test]
fn errors_are_json_where_that_is_asked_for() {
    let cases = [
        ("status --json --status /nonexistent/status.json", 3, "not_running", "is recoded-agent"),
        ("status --json --colour", 2, "usage", "unexpected argument '--colour'"),
        ("explode --json", 2, "usage", "unrecognized subcommand 'explode'"),
    ];
    for (arguments, code, kind, words) in cases {
        let Output { status, stdout, stderr } = agent(arguments);
        let json: serde_json::Value = serde_json::from_slice(&stdout).expect("JSON");
        let error = &json["error"];
        assert_eq!((status.code(), &error["exit_code"]), (Some(code), &code.into()), "{json}");
        assert_eq!(error["kind"], kind, "{json}");
        let said = error["message"].as_str().expect("words");
        assert!(said.contains(words) && !said.contains("Usage"), "{json}");
        assert_eq!(String::from_utf8_lossy(&stderr), "", "{arguments}");
    }
}

#[test]
fn errors_are_sentences_for_people() {
    for (arguments, code) in [("status --status /nonexistent/status.json", 3), ("explode", 2)] {
        let Output { status, stdout, stderr } = agent(arguments);
        assert_eq!((status.code(), stdout.len()), (Some(code), 0), "{arguments}");
        assert!(!stderr.starts_with(b"{") && !stderr.is_empty(), "{arguments}");
    }
    assert_eq!(agent("--help --json").status.code(), Some(0), "help is no error");
}
