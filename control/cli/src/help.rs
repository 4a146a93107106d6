//! The help: commands in groups, options at the commands that use them, topics and examples.
//!
//! clap has no groups of commands, so the summary is a text. Tests hold it complete and short.

use crate::Failure;
use crate::arguments::Arguments;
use crate::network::options::NETWORK_HELP;
use crate::topics;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

/// `recodectl --help`: at most 40 lines of 80 columns.
const SUMMARY: &str = "\
Shows the state of a recoded daemon, and changes its flows under traffic

Usage: recodectl [OPTIONS] <COMMAND>

Observe:
  show                   Summary, or one part in full
  top                    Flows, next hops and events, live
  events                 Changes of flows, sessions, links and processes
  trace                  Hops of a flow: loss, RTT, queue, rank
  ping                   RTT and loss to the far end of a tunnel
  doctor                 Diagnose packet loss and suggest fixes
  bugreport              Archive for a bug report, without keys
Change:
  set                    Parameters of a flow, under traffic
  reload                 Apply the changed file, or preview it with --diff
  confirm, undo          Keep the last reload, or roll back
  history                Configurations that were applied
All boxes of a network (-f FILE):
  init, render           First file; the configuration each box derives
  invite, join           Bring in a new box: one command on the hub, one there
  status, check          State and faults of all boxes; check their files
  apply                  Deploy to all boxes, or none
  web                    Live page for browsers on this machine
Keys:
  genkey, pubkey, genpsk Private, public and pre-shared keys
  keys                   Keys of all boxes of a network
Tools:
  plan                   Measure a path, forecast the gain of Recoded
  configure              Prepare this host for a configuration
  TOOLS
  version, completion, man, help

Options, at the commands that use them:
  -f, --network <FILE>   All boxes of this network, over SSH
      --socket <PATH>    Control socket of the daemon
      --json             JSON with stable keys, errors included
  -h, --help; -V, --version
Exit codes: 0 done, 1 failed, 2 usage, 3 no answer, 4 refused and unchanged,
  5 fault found. More: recodectl help COMMAND, help examples, help topics
";

#[cfg(feature = "bats")]
const TOOLS: &str = "kernels, engines, degrees  Arithmetic of this machine; degrees for BATS";
#[cfg(not(feature = "bats"))]
const TOOLS: &str = "kernels, engines       Arithmetic of this machine";

/// Exit codes in full, for the manual page.
const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong command line, or network; 3 no daemon, or with -f no box,
answers; 4 refused, nothing changed; 5 doctor, status or apply found a fault, or no ping was
answered.";

struct Example {
    command: &'static str,
    line: &'static str,
    meaning: &'static str,
}

const fn example(command: &'static str, line: &'static str, meaning: &'static str) -> Example {
    Example { command, line, meaning }
}

/// Examples, in the order of the summary.
const EXAMPLES: [Example; 32] = [
    example("show", "recodectl show", "a summary"),
    example("show", "recodectl show flows", "losses, next hops and parameters of flows"),
    example("show", "recodectl show flows --watch=5", "the same every five seconds"),
    example("show", "recodectl --json show | jq '.flows[].rank_ratio'", ""),
    example("top", "recodectl top", "flows, next hops and events, live"),
    example("events", "recodectl events -f --since 10m", "recent changes, and new ones"),
    example("trace", "recodectl trace 1", "the hops of flow 1"),
    example("ping", "recodectl ping 10.99.0.2", "the far end of a tunnel: RTT, loss, hops"),
    example("doctor", "recodectl doctor", "diagnoses packet loss, with fixes"),
    example("set", "recodectl set 1 code=rlnc generation_size=64", "both values or neither"),
    example("set", "recodectl set 1 redundancy=1.5 --save", "changes the file, too"),
    example("set", "recodectl set 1 code=rlnc --confirm 60s", "rolls back unless confirmed"),
    example("set", "recodectl set engine cpu", "use the CPU only"),
    example("reload", "recodectl reload --diff", "preview changes of the file, and their cost"),
    example("reload", "recodectl reload --confirm 60s", "apply them; roll back unless confirmed"),
    example("undo", "recodectl undo", "back to the previous configuration"),
    example("init", "recodectl init --name a --address 192.0.2.1", "key and file of a box"),
    example("invite", "recodectl invite laptop", "a token for a new box, at its hub"),
    example("join", "recodectl join TOKEN", "on the new box"),
    example("render", "recodectl render net.toml --out boxes", "a file for each box"),
    example("status", "recodectl status -f net.toml", "all boxes, over SSH"),
    example("check", "recodectl check -f net.toml --only a,b", "their files, on two boxes"),
    example("apply", "recodectl apply -f net.toml", "deploy to all boxes, or none"),
    example("apply", "recodectl apply -f net.toml --diff", "preview the changes of all boxes"),
    example("web", "recodectl web -f net.toml", "a live page at http://127.0.0.1:9429/"),
    example("keys", "recodectl keys -f net.toml --save", "keys of all boxes, into the file"),
    example("keys", "recodectl keys -f net.toml --rotate b", "another key for b, at all boxes"),
    example("genkey", "(umask 077; recodectl genkey > private.key)", ""),
    example("pubkey", "recodectl pubkey < private.key", ""),
    example("plan", "recodectl plan 192.0.2.2", "is Recoded worth it on this path?"),
    example("configure", "recodectl configure host --apply", "interfaces and queues"),
    example("completion", "recodectl completion bash > /etc/bash_completion.d/recodectl", ""),
];

/// Commands that connect to the daemon of this host.
const LOCAL: [&str; 15] = [
    "show",
    "top",
    "events",
    "trace",
    "ping",
    "doctor",
    "bugreport",
    "set",
    "reload",
    "confirm",
    "undo",
    "history",
    "invite",
    "kernels",
    "version",
];

/// Commands that reach all boxes of a network.
const NETWORK: [&str; 9] =
    ["show", "trace", "ping", "doctor", "status", "check", "apply", "web", "keys"];

/// Whether a command uses a global option.
fn uses(command: &str, option: &str) -> bool {
    match option {
        "socket" => LOCAL.contains(&command),
        "network" | "only" => NETWORK.contains(&command) || command == "render",
        "ssh" | "patience" => NETWORK.contains(&command),
        _ => true,
    }
}

/// The command line. Every option is accepted everywhere; help lists it only where it has an
/// effect.
pub fn command() -> Command {
    let root = Arguments::command();
    let globals: Vec<Arg> = root.get_arguments().filter(|it| it.is_global_set()).cloned().collect();
    let names: Vec<String> = root.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    let summary = SUMMARY.replace("TOOLS", TOOLS);
    let after = format!("Examples:\n{}\n{EXIT_CODES}", listed(EXAMPLES.iter()));
    let root = root.override_help(summary).after_help(after);
    names.into_iter().fold(root, |root, name| {
        root.mut_subcommand(&name, |command| with_examples(scoped(command, &name, &globals)))
    })
}

/// Hides options without an effect.
fn scoped(mut command: Command, name: &str, globals: &[Arg]) -> Command {
    for option in globals {
        let id = option.get_id().as_str();
        let mut option = option.clone().hide(!uses(name, id));
        if id == "network" && name == "events" {
            // `events -f` follows.
            option = option.short(None);
        }
        command = command.arg(option);
    }
    command
}

/// Adds the examples of a command, unless its help has some.
fn with_examples(command: Command) -> Command {
    let present = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = listed(EXAMPLES.iter().filter(|it| it.command == command.get_name()));
    if examples.is_empty() || present.contains("Examples:") {
        return command;
    }
    command.after_help(format!("Examples:\n{examples}\n{present}").trim_end().to_owned())
}

fn listed<'a>(examples: impl Iterator<Item = &'a Example>) -> String {
    let mut text = String::new();
    for it in examples {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", format!("  {:<48} {}", it.line, it.meaning).trim_end());
    }
    text
}

/// `recodectl help`, with the words behind it: nothing, a topic, or a command.
///
/// # Errors
/// There is no such topic or command.
pub fn text(words: &[String]) -> Result<String, Failure> {
    let mut root = command();
    match words {
        [] => return Ok(root.render_help().to_string()),
        [topic] if topic == "examples" => return Ok(listed(EXAMPLES.iter())),
        [topic] if topic == "network" => return Ok(format!("{NETWORK_HELP}\n")),
        [topic] if topic == "commands" => return Ok(commands(&root)),
        [topic] if topic == "topics" => return Ok(topics::list()),
        _ => root.build(),
    }
    // A command comes before a page.
    if let [topic] = words
        && root.find_subcommand(topic).is_none()
        && let Some(page) = topics::page(topic)
    {
        return Ok(page);
    }
    let unknown = || Failure::UnknownTopic(words.join(" "));
    let mut found = &mut root;
    for word in words {
        found = found.find_subcommand_mut(word).ok_or_else(unknown)?;
    }
    Ok(found.render_long_help().to_string())
}

/// Every command with its meaning.
fn commands(root: &Command) -> String {
    let mut text = String::new();
    for it in root.get_subcommands() {
        let about = it.get_about().map(ToString::to_string).unwrap_or_default();
        // As above.
        let _ = writeln!(text, "{:<10}  {about}", it.get_name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_every_command_once_in_40_lines_of_80_columns() {
        let help = command().render_help().to_string();
        assert!(help.lines().count() <= 40, "{} lines:\n{help}", help.lines().count());
        help.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
        let rows = help.lines().skip(4).take_while(|line| !line.is_empty());
        let rows = rows.filter_map(|line| line.strip_prefix("  "));
        // Names stand before the first word that has no comma behind it, inclusive.
        let mut named: Vec<String> = Vec::new();
        for row in rows {
            for word in row.split_whitespace() {
                named.push(word.trim_end_matches(',').to_owned());
                if !word.ends_with(',') {
                    break;
                }
            }
        }
        named.sort();
        let mut all: Vec<String> =
            command().get_subcommands().map(|it| it.get_name().to_owned()).collect();
        all.sort();
        assert_eq!(named, all);
    }

    #[test]
    fn examples_are_of_commands_that_exist_and_parse() {
        for it in &EXAMPLES {
            assert!(command().find_subcommand(it.command).is_some(), "{}", it.command);
            let line = it.line.trim_start_matches("(umask 077; ").trim_end_matches(')');
            let line = line.split(['|', '<', '>']).next().expect("a command");
            let parsed = command().try_get_matches_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn topics_and_commands_have_help_and_others_do_not() {
        for words in [
            &[][..],
            &["examples"],
            &["network"],
            &["commands"],
            &["topics"],
            &["concepts"],
            &["configure", "host"],
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(text(&words).expect("help").lines().count() > 5, "{words:?}");
        }
        let unknown = text(&["shwo".to_owned()]);
        assert!(matches!(unknown, Err(Failure::UnknownTopic(_))), "{unknown:?}");
    }
}
