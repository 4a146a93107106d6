//! `recodectl` as scripts see it: output for a fixed state, and exit codes.
//!
//! Golden files are in `tests/golden`; `RECODED_BLESS=1 cargo test -p recodectl` rewrites them.

#![forbid(unsafe_code)]

mod fixed;

use fixed::{assert_golden, engine, source_parameters, state};
use recoded_api::INTERFACE;
use recoded_api::error::ControlError;
use recoded_api::keys::FLOW;
use recoded_api::service::{Answer, Backend, Service, SetFuture};
use recoded_api::v1::{
    Adopted, Confirmed, Engine, Event, Events, History, Reloaded, State, Version,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

struct Fake;

impl Backend for Fake {
    fn version(&self) -> Version {
        Version {
            version: "0.1.0".into(),
            interface: INTERFACE.into(),
            kernel: "avx2".into(),
            edition: 4,
        }
    }

    fn state(&self) -> State {
        state()
    }

    fn config(&self) -> String {
        state().config
    }

    fn set(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async move {
            if flow != 1 {
                let reason = format!("no flow {flow} here: there is 1, 2");
                return Err(ControlError::UnknownFlow { flow, reason });
            }
            if changes.get("generation_size").is_some_and(|size| size == "300") {
                let reason = "flow 1: generation_size = 300 is out of range: a generation has 1 \
                              to 256 symbols"
                    .to_owned();
                return Err(ControlError::Refused { reason });
            }
            if changes.contains_key("field") {
                let reason = "edition 5 was not adopted".to_owned();
                return Err(ControlError::NotAdopted { edition: 5, reason });
            }
            let notices = match changes.contains_key("redundancy") {
                true => vec!["code = \"auto\" is rlnc now and was stream before".to_owned()],
                false => Vec::new(),
            };
            Ok(Adopted { flow: 1, edition: 5, parameters: source_parameters(), notices })
        })
    }

    fn set_for(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
        confirm_seconds: u64,
    ) -> SetFuture<'_> {
        assert_eq!(confirm_seconds, 300);
        self.set(flow, changes)
    }

    fn set_engine(&mut self, mode: &str) -> Answer<'_, Engine> {
        let mode = mode.to_owned();
        Box::pin(async move {
            if !["auto", "cpu", "cuda"].contains(&mode.as_str()) {
                let reason = format!("engine = \"{mode}\" is not a choice");
                return Err(ControlError::Refused { reason });
            }
            Ok(Engine { mode, ..engine() })
        })
    }

    fn save(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        if changes.contains_key("repair") {
            let reason = "cannot write /etc/recoded/recoded.toml (No space left on device (os \
                          error 28)): make room there; nothing was changed";
            return Box::pin(async { Err(ControlError::Failed { reason: reason.into() }) });
        }
        self.set(flow, changes)
    }

    fn reload(&mut self, diff: bool, confirm_seconds: Option<u64>) -> Answer<'_, Reloaded> {
        let outcome = Reloaded {
            applied: !diff,
            edition: 5,
            number: 7,
            confirm_seconds,
            ..fixed::reloaded(diff)
        };
        Box::pin(async { Ok(outcome) })
    }

    fn compare(&mut self, text: String) -> Answer<'_, Reloaded> {
        let outcome = match text.as_str() {
            "same" => Reloaded { edition: 5, number: 7, ..Reloaded::default() },
            _ => Reloaded { edition: 5, number: 7, ..fixed::reloaded(true) },
        };
        Box::pin(async { Ok(outcome) })
    }

    fn confirm(&mut self) -> Answer<'_, Confirmed> {
        Box::pin(async { Ok(Confirmed { number: 7 }) })
    }

    fn undo(&mut self, number: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(async move {
            if let Some(number) = number {
                let reason = format!("there is no configuration {number}: there is 1, 2, 3");
                return Err(ControlError::Refused { reason });
            }
            Ok(Reloaded { applied: true, edition: 5, number: 7, ..Reloaded::default() })
        })
    }

    fn history(&self) -> Answer<'_, History> {
        Box::pin(async { Ok(fixed::history()) })
    }

    fn events(&self, after: u64) -> Answer<'_, Events> {
        let mut events = fixed::events();
        events.events.retain(|event| event.number > after);
        Box::pin(async { Ok(events) })
    }
}

/// Serves a [`Fake`] until the test process ends.
fn serve(folder: &Path) -> PathBuf {
    let path = folder.join("control.sock");
    let (ready, started) = std::sync::mpsc::channel();
    let bound = path.clone();
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let listener = zlink::tokio::unix::bind(&bound).expect("bind");
            ready.send(()).expect("the test waits");
            zlink::Server::new(listener, Service::new(Box::new(Fake))).run().await
        })
    });
    started.recv().expect("the server starts");
    path
}

fn recodectl(socket: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.env_remove("RECODED_SOCKET").env("TZ", "UTC").arg("--socket").arg(socket);
    command.args(arguments.split_whitespace()).output().expect("recodectl runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

#[test]
fn output_for_a_fixed_state_is_golden_and_fits_100_columns() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let cases = [
        ("show.txt", "show"),
        ("show-all.txt", "show -v"),
        ("show-flows.txt", "show flows"),
        ("show-links.txt", "show links"),
        ("show-workers.txt", "show workers"),
        ("show-drops.txt", "show drops"),
        ("show-config.txt", "show config"),
        ("show-engine.txt", "show engine"),
        ("set-engine.txt", "set engine cpu"),
        ("set.txt", "set 1 generation_size=32 repair=false"),
        ("set-save.txt", "set 1 generation_size=32 --save"),
        ("reload-diff.txt", "reload --diff"),
        ("reload.txt", "reload"),
        ("reload-confirm.txt", "reload --confirm 5m"),
        ("confirm.txt", "confirm"),
        ("undo.txt", "undo"),
        ("history.txt", "history"),
        ("events.txt", "events"),
        ("events.json", "--json events --since 2026-11-23T07:45:13Z"),
        ("trace.txt", "trace"),
        ("trace.json", "trace 5 --json"),
        ("version.txt", "version"),
        ("show.json", "--json show"),
        ("show-drops.json", "show drops --json"),
        ("show-config.json", "show config --json"),
        ("set.json", "set 1 generation_size=32 --json"),
        ("reload-diff.json", "reload --diff --json"),
        ("confirm.json", "confirm --json"),
        ("undo-refused.json", "undo 9 --json"),
        ("save-failed.json", "set 1 repair=false --save --json"),
        ("history.json", "history --json"),
        ("version.json", "version --json"),
        ("refused.json", "--json set 1 generation_size=300"),
    ];
    for (file, arguments) in cases {
        let output = recodectl(&socket, arguments);
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments}");
        let too_long = printed.lines().find(|line| line.chars().count() > 100);
        // An event is one line, so that grep finds all of it.
        let is_bounded = file.ends_with(".txt") && file != "events.txt";
        assert_eq!(too_long.filter(|_| is_bounded), None, "{arguments}");
        assert_golden(file, &printed);
    }
}

/// `recodectl` with data on standard input, and no daemon.
fn with_input(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("recodectl starts");
    // A command that does not read may have ended.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("recodectl ends")
}

//= RFC 7748 section 6.1: the keys of Alice
#[test]
fn pubkey_of_a_fixed_key_is_golden() {
    let private = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n";
    let cases: [(&str, &[&str], &str); 3] = [
        ("pubkey.txt", &["pubkey"], private),
        ("pubkey.json", &["--json", "pubkey"], private),
        ("pubkey-refused.json", &["--json", "pubkey"], "no key"),
    ];
    for (file, arguments, input) in cases {
        let printed = String::from_utf8(with_input(arguments, input).stdout).expect("text");
        assert_golden(file, &printed);
    }
}

#[test]
fn generated_keys_have_44_characters_and_pubkey_reads_them() {
    for command in ["genkey", "genpsk"] {
        let output = with_input(&[command], "");
        let key = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && key.len() == 45 && key.ends_with("=\n"), "{command}");
    }
    let private = String::from_utf8(with_input(&["genkey"], "").stdout).expect("text");
    assert!(with_input(&["pubkey"], &private).status.success());
    let refused = with_input(&["pubkey"], &private[1..]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("44 characters") && !said.contains(&private[1..40]), "{said}");
}

#[test]
fn parts_as_json_equal_the_parts_of_the_whole() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let parse = |arguments: &str| -> serde_json::Value {
        serde_json::from_slice(&recodectl(&socket, arguments).stdout).expect("JSON")
    };
    let whole = parse("show --json");
    for part in ["flows", "links", "workers", "config"] {
        assert_eq!(parse(&format!("show {part} --json"))[part], whole[part]);
    }
    let back: State = serde_json::from_value(whole).expect("the state");
    assert_eq!(back, state());
}

#[test]
fn exit_codes_are_what_scripts_rely_on() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let cases = [
        (0, "show"),
        (0, "set 1 generation_size=32"),
        (1, "set 1 field=4"),
        (2, ""),
        (2, "explode"),
        (2, "show everything"),
        (2, "set 1"),
        (2, "set 1 generation_size"),
        (2, "set one generation_size=1"),
        (2, "man explode"),
        (2, "top"),
        (2, "top --json"),
        (2, "events --since soon"),
        (2, "show --watch=0"),
        (2, "show --watch=soon"),
        (4, "set 1 generation_size=300"),
        (4, "set 7 generation_size=16"),
        (4, "trace 9"),
    ];
    for (expected, arguments) in cases {
        let output = recodectl(&socket, arguments);
        assert_eq!(code(&output), expected, "recodectl {arguments}: {output:?}");
        let is_json = arguments.contains("--json");
        assert_eq!(output.stderr.is_empty(), expected == 0 || is_json, "recodectl {arguments}");
    }
    let refused = recodectl(&socket, "set 1 generation_size=300");
    assert_eq!(
        String::from_utf8_lossy(&refused.stderr),
        "recodectl: flow 1: generation_size = 300 is out of range: a generation has 1 to 256 \
         symbols\n"
    );
}

/// `plan` and `size` meant nothing to operators.
#[test]
fn columns_of_flows_have_plain_names_and_a_legend() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let shown = String::from_utf8(recodectl(&socket, "show flows").stdout).expect("text");
    let head: Vec<&str> = shown.lines().next().expect("a head").split_whitespace().collect();
    assert!(!head.contains(&"plan") && !head.contains(&"size"), "{head:?}");
    for column in ["symbols", "bytes", "planned", "rank"] {
        assert!(head.contains(&column), "{head:?}");
        let legend = format!("\n  {column} ");
        assert!(shown.contains(&legend), "{column} is not explained: {shown}");
    }
}

/// Scripts that request JSON get it, even if the rest of the command line is invalid.
#[test]
fn wrong_command_lines_are_json_where_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let cases = [
        ("--json explode", "unrecognized subcommand 'explode'"),
        ("show everything --json", "invalid value 'everything'"),
        ("--json", "subcommand"),
    ];
    for (arguments, said) in cases {
        let output = recodectl(&socket, arguments);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let error = &json["error"];
        assert_eq!((code(&output), &error["exit_code"]), (2, &2.into()), "{arguments}: {json}");
        assert_eq!(error["kind"], "usage", "{arguments}");
        assert!(error["message"].as_str().expect("words").contains(said), "{arguments}: {json}");
        assert!(output.stderr.is_empty(), "{arguments}");
    }
    assert_eq!(code(&recodectl(&socket, "--json --help")), 0, "help is no error");
}

#[test]
fn without_a_daemon_the_exit_code_is_3_and_the_message_says_what_to_start() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("none.sock");
    for arguments in
        ["show", "show config", "set 1 field=4", "version", "events", "events -f", "show -w"]
    {
        let output = recodectl(&socket, arguments);
        assert_eq!(code(&output), 3);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let start = format!("recodectl: no daemon answers at {}: is `recoded` ", socket.display());
        assert!(said.starts_with(&start), "{said}");
    }
    let output = recodectl(&socket, "show --json");
    assert_eq!((code(&output), output.stderr.len()), (3, 0));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["error"]["kind"], "not_running");
    assert_eq!(said["error"]["exit_code"], 3);
}

#[test]
fn live_view_without_a_terminal_says_what_to_use() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let output = recodectl(&socket, "top");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("top needs a terminal") && said.contains("recodectl show"), "{said}");
    assert!(output.stdout.is_empty(), "no escape sequence goes into a pipe");
    let said = recodectl(&socket, "--json top").stdout;
    let said: serde_json::Value = serde_json::from_slice(&said).expect("JSON");
    assert_eq!(said["error"]["kind"], "terminal");
}

/// Followed events appear as they happen, one event per line as JSON.
#[test]
fn events_are_followed_one_a_line() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.args(["--json", "events", "--follow", "--socket"]).arg(&socket);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("recodectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let events = fixed::events().events;
    for event in &events {
        let line = lines.next().expect("a line").expect("text");
        let got: Event = serde_json::from_str(&line).expect("an event");
        assert_eq!(got, *event);
    }
    child.kill().expect("it waits for more");
    child.wait().expect("it ends");
}

/// Repeated output: as JSON one state per line, as text with a timestamp.
#[test]
fn state_is_watched_over_one_connection() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let watch = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
        command.arg("--socket").arg(&socket).args(arguments.split(' '));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("recodectl starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        (child, lines.map(|line| line.expect("text")))
    };
    let (mut child, mut lines) = watch("--json show --watch=0.5");
    for _ in 0..2 {
        let got: State = serde_json::from_str(&lines.next().expect("a line")).expect("a state");
        assert_eq!(got, state());
    }
    drop(lines);
    // The reader closed the output, which is not an error.
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let (mut child, lines) = watch("show links -w");
    let heads: Vec<String> = lines.filter(|line| line.starts_with("--- ")).take(2).collect();
    assert_eq!(heads.len(), 2);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn socket_comes_from_the_environment_unless_given() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    let output = command.env("RECODED_SOCKET", &socket).arg("version").output().expect("runs");
    assert_eq!(code(&output), 0, "{output:?}");
}

#[test]
fn completion_and_man_pages_need_no_daemon() {
    let socket = Path::new("/nonexistent");
    for shell in ["bash", "zsh", "fish"] {
        let output = recodectl(socket, &format!("completion {shell}"));
        assert_eq!(code(&output), 0);
        assert!(String::from_utf8_lossy(&output.stdout).contains("recodectl"));
    }
    for arguments in ["man", "man set", "man show"] {
        let output = recodectl(socket, arguments);
        assert_eq!(code(&output), 0);
        assert!(String::from_utf8_lossy(&output.stdout).contains(".TH recodectl"), "{arguments}");
    }
    let output = recodectl(socket, "man --json");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(said["man"].as_str().is_some_and(|page| page.contains(".TH")));
}

#[test]
fn reader_that_has_seen_enough_is_no_error() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_recodectl"));
    command.arg("--socket").arg(&socket).arg("show");
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    assert_eq!(code(&command.stdout(writer).output().expect("runs")), 0);
}

/// A user finds exactly the keys that can be changed, with their values.
#[test]
fn help_and_completion_offer_the_live_keys_of_the_table() {
    let said = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_recodectl")).args(arguments).output();
        String::from_utf8(output.expect("it runs").stdout).expect("text")
    };
    let (help, script) = (said(&["set", "--help"]), said(&["completion", "bash"]));
    let lines = help.lines().skip_while(|line| !line.starts_with("Keys, by")).skip(1);
    let lines: Vec<Vec<&str>> = lines
        .map_while(|line| line.strip_prefix("  "))
        .map(|line| line.split("  ").collect())
        .collect();
    let names: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(names, FLOW.live().map(|key| key.name).collect::<Vec<_>>());
    let values = lines.iter().map(|line| line.last().map_or("", |words| words.trim()));
    assert!(values.eq(FLOW.live().map(|key| key.values_in_words().replace('"', ""))), "{help}");
    let examples = [&help[..], &said(&["--help"])].concat();
    let set = examples.split_whitespace().filter_map(|word| word.split_once('='));
    for (key, _) in set.filter(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_')) {
        assert!(names.contains(&key), "an example sets {key}");
    }

    let words = script.lines().find(|line| line.contains(" code=bats ")).expect("offered");
    let offered = words.split([' ', '"']).filter_map(|word| word.split_once('='));
    let offered: BTreeSet<&str> =
        offered.map(|(key, _)| key).filter(|key| *key != "opts").collect();
    assert_eq!(offered, names.into_iter().collect());
    for word in ["interleave=auto ", "interleave= ", "field=16 ", "adaptive=false ", " cuda"] {
        assert!(words.contains(word), "{word} is not completed");
    }
}

/// Relays and sinks follow packets: nothing need be set there when a source's code changes.
#[test]
fn set_of_a_code_names_the_flow_it_changed_and_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let output = recodectl(&socket, "set 1 code=bats");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("flow 1: code=bats: applied on all workers"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn change_that_waits_for_its_confirmation_says_so() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let output = recodectl(&socket, "set 1 code=rlnc --confirm=5m");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.ends_with("\nrolling back in 300 s; run `recodectl confirm` to keep it\n"),
        "{text}"
    );
    for (arguments, said) in [
        ("set 1 code=rlnc --confirm=5m --save", "cannot be used with"),
        ("set 1 code=rlnc --confirm=5parsecs", "1s to 24h"),
        ("set 1 code=rlnc --confirm=0s", "1s to 24h"),
        ("set 1 code=rlnc --confirm=99999999999999999999h", "1s to 24h"),
        ("set engine cpu --confirm=5m", "--confirm is for flows"),
    ] {
        let output = recodectl(&socket, arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {words}");
        assert!(words.contains(said), "{arguments}: {words}");
    }
}

#[test]
fn another_file_is_compared_like_that_of_the_daemon() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = serve(folder.path());
    let path = folder.path().join("new.toml");
    let compare = || recodectl(&socket, &format!("reload --diff --with {}", path.display()));
    let assert_refused = |said: &str| {
        let output = compare();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && words.contains(said), "{words}");
    };
    assert_refused("name a configuration");
    std::fs::write(&path, "x".repeat(1 << 21)).expect("a file");
    assert_refused("has more than 261120 bytes");
    std::fs::write(&path, "other").expect("a file");
    assert_eq!(compare().stdout, recodectl(&socket, "reload --diff").stdout);
    std::fs::write(&path, "same").expect("a file");
    assert!(compare().stdout.starts_with(b"nothing to change: "));
    assert_eq!(recodectl(&socket, "reload --with new.toml").status.code(), Some(2));
}

/// The tests that documentation names must exist, with a minimum number of them.
#[test]
fn pages_of_tests_name_only_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (page, least) in [("tests/FRICTIONS.md", 25), ("tests/BAD_INPUT.md", 30)] {
        let text = std::fs::read_to_string(root.join(page)).expect("the page");
        let named: Vec<(&str, &str)> =
            text.split('`').skip(1).step_by(2).filter_map(|word| word.split_once("::")).collect();
        assert!(named.len() >= least, "{page} names {} tests", named.len());
        for (file, test) in named {
            let text = std::fs::read_to_string(root.join(file))
                .unwrap_or_else(|error| panic!("{page}: {file}: {error}"));
            assert!(text.contains(&format!("fn {test}(")), "{page}: {file} has no {test}");
        }
    }
}

#[test]
fn page_by_symptom_names_only_keys_counters_and_commands_that_exist() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../TROUBLESHOOTING.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let commands =
        String::from_utf8(recodectl(Path::new("/"), "help commands").stdout).expect("text");
    let is_command = |word: &str| commands.lines().any(|line| line.trim().starts_with(word));
    let is_name = |word: &&str| {
        word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let is_known = |name: &str| {
        recoded_counters::TABLES.iter().any(|table| table.find(name).is_some())
            || recoded_api::keys::TABLES.iter().any(|table| table.find(name).is_some())
    };
    let quoted: Vec<&str> =
        page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    let words = quoted.iter().flat_map(|text| text.split([' ', '=', '.'])).filter(is_name);
    // These belong to Linux.
    let words = words.filter(|word| !["tcp_congestion_control", "arp_ignore"].contains(word));
    let names: Vec<&str> = words.collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(is_known(name), "{name} is neither key nor counter");
    }
    for text in quoted.iter().filter_map(|text| text.strip_prefix("recodectl ")) {
        let mut words = text.split(' ').filter(|word| !word.starts_with('-'));
        let word = words.find(|word| !word.ends_with(".toml")).expect("a command");
        assert!(is_command(word), "recodectl {text}");
    }
}
