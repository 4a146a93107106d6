//! `recodectl configure host`: prepares this host for a configuration, as far as a program can.
//!
//! The findings and the commands that fix them come from `recoded_host`, which `recoded --check`
//! and `doctor` use, too. Without `--apply` nothing changes. A fixed finding disappears, so a
//! second run changes nothing.

use crate::table::sentence;
use clap::{Args, Subcommand};
use recoded::check;
use recoded::config::Config;
use recoded::config::document::FILE_BYTES_MAX;
use recoded::config::error::ConfigErrors;
use recoded::network::{self, OwnError};
use recoded_host::{FactsError, Finding, Level};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What can be configured.
#[derive(Subcommand, Debug)]
pub enum What {
    /// Prepare this host for a configuration: interfaces, receive queues, modules
    ///
    /// Lists settings that do not fit the configuration, each with the command that corrects it;
    /// --apply runs these commands, as root. Settings that need a decision, such as addresses and
    /// programs of other owners, are only reported. Exit code 5 while packets cannot arrive.
    Host(ConfigureOptions),
}

/// For which configuration, and whether to change anything.
#[derive(Args, Debug)]
pub struct ConfigureOptions {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/recoded/recoded.toml")]
    config: PathBuf,
    /// The box that this host is, in a file with [boxes]; by default the one with its private key
    #[arg(long, value_name = "BOX", env = "RECODED_NAME")]
    name: Option<String>,
    /// Only print the commands; the default
    #[arg(long, conflicts_with = "apply")]
    dry_run: bool,
    /// Run the commands
    #[arg(long)]
    apply: bool,
}

/// Why the check could not run.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    /// There is no such file.
    #[error("cannot read {path} ({source}): name the file of recoded with --config")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is not valid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// It is a network file that does not contain this host.
    #[error(transparent)]
    Own(#[from] OwnError),
    /// Linux does not answer.
    #[error(transparent)]
    Facts(#[from] FactsError),
}

/// Changes made, and findings that remain.
#[derive(Debug, Serialize)]
pub struct ConfigureReport {
    applied: bool,
    steps: Vec<Step>,
    left: Vec<Left>,
    /// Number of remaining findings that prevent packets from arriving.
    pub errors: usize,
}

#[derive(Debug, Serialize)]
struct Step {
    subject: String,
    cause: String,
    command: String,
    /// `planned`, `done`, `done by` another command, or the reason of the failure.
    outcome: String,
}

#[derive(Debug, Serialize)]
struct Left {
    level: &'static str,
    subject: String,
    cause: String,
    cure: String,
}

/// Checks this host, and changes it if requested.
///
/// # Errors
/// The configuration cannot be read, or Linux does not answer.
pub fn run(options: &ConfigureOptions) -> Result<ConfigureReport, ConfigureError> {
    let ConfigureOptions { config, apply, .. } = options;
    let text = read(config)?;
    let mtu = recoded::node::mtu;
    let file = config.to_string_lossy();
    let text = network::own(&file, &text, options.name.as_deref())?;
    let (_, _, parsed) = Config::parse(&file, &text, &mtu)?;
    let plan = check::plan(&parsed);
    let mut findings = recoded_host::check(&plan)?;
    let mendable = findings.iter().filter(|finding| !finding.mend.is_empty());
    let steps = mendable.map(|finding| step(finding, *apply)).collect();
    if *apply {
        findings = recoded_host::check(&plan)?;
    } else {
        findings.retain(|finding| finding.mend.is_empty());
    }
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    let left = findings.into_iter().map(|Finding { level, subject, cause, cure, .. }| Left {
        level: level.name(),
        subject,
        cause,
        cure,
    });
    Ok(ConfigureReport { applied: *apply, steps, left: left.collect(), errors })
}

fn read(path: &Path) -> Result<String, ConfigureError> {
    let failed = |source| ConfigureError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    // Longer text is truncated, and then invalid TOML.
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn step(finding: &Finding, apply: bool) -> Step {
    let outcome = if apply { mend_somehow(&finding.mend) } else { "planned".into() };
    Step {
        subject: finding.subject.clone(),
        cause: finding.cause.clone(),
        command: shell(&finding.mend),
        outcome,
    }
}

/// Formats a command for a shell.
fn shell(words: &[String]) -> String {
    let is_plain = |word: &&String| !word.contains([' ', '\'']);
    let quoted = words.iter().map(|word| match is_plain(&word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Runs a command, or its variant for drivers that do not support it. Returns `done`, or why the
/// first failed.
fn mend_somehow(words: &[String]) -> String {
    let outcome = mend(words);
    let Some(other) = uncombined(words).filter(|_| outcome != "done") else { return outcome };
    match mend(&other).as_str() {
        "done" => format!("done by {}", other.join(" ")),
        _ => outcome,
    }
}

/// The same number of queues for drivers that count receive queues separately, such as veth.
fn uncombined(words: &[String]) -> Option<Vec<String>> {
    let place = words.iter().position(|word| word == "combined")?;
    let mut words = words.to_vec();
    words[place] = "rx".into();
    Some(words)
}

/// Runs a command. Returns `done`, or why it failed.
fn mend(words: &[String]) -> String {
    let Some((program, arguments)) = words.split_first() else { return "done".into() };
    match Command::new(program).args(arguments).output() {
        Ok(Output { status, .. }) if status.success() => "done".into(),
        Ok(Output { status, stderr, .. }) => {
            let said = String::from_utf8_lossy(&stderr);
            let said = said.lines().next().unwrap_or_default().chars().take(200);
            let said: String = said.filter(|c| !c.is_control()).collect();
            format!("failed ({status}): {said}")
        }
        Err(error) => format!("failed: cannot run {program}: {error}: install it"),
    }
}

/// Formats the report as text.
pub fn text(report: &ConfigureReport) -> String {
    let mut text = String::new();
    for Step { subject, cause, command, outcome } in &report.steps {
        let how = if report.applied { outcome.as_str() } else { "would be run" };
        text.push_str(&sentence(subject, &format!("{cause}: {command}: {how}")));
    }
    for Left { level, subject, cause, cure } in &report.left {
        let label = if *level == Level::Error.name() { "FAIL" } else { "warn" };
        text.push_str(&sentence(&format!("{label} {subject}"), &format!("{cause}: {cure}")));
    }
    let (steps, left) = (report.steps.len(), report.left.len());
    text.push_str(&match (steps, report.applied) {
        (0, _) => format!("nothing to change; left to you: {left}\n"),
        (steps, false) => {
            format!("to change: {steps}, by --apply; left to you: {left}\n")
        }
        (steps, true) => format!("changed: {steps}; left to you: {left}\n"),
    });
    text
}
