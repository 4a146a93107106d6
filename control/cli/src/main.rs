//! `recodectl`: shows a daemon's state and changes its flows while traffic runs.
//!
//! ```text
//!  arguments -> Client (Varlink) -> table or JSON -> stdout
//!                    `-> error: a sentence on stderr (with --json: an object on stdout), exit code
//! ```

#![forbid(unsafe_code)]

mod activity;
mod arguments;
mod atomic_file;
mod durations;
mod part;

mod box_names;
mod branches;
mod bugreport;

mod crypto_keys;

#[cfg(feature = "bats")]
mod degrees;

mod doctor;

mod engines;

mod events;

mod feed;

mod help;

mod kernels;

mod init;
mod invitation;

mod keys;

mod json;

mod flows;

mod manual;

mod configure;

mod ping;
mod plan;

mod neighbours;
mod network;
mod reload;
mod remark;
mod sessions;

mod show;
mod show_json;
mod split;
mod summary;

mod table;
mod topics;

#[cfg_attr(not(feature = "top"), path = "top_absent.rs")]
mod top;

mod trace;

mod watch;

/// The state shown in tests.
#[cfg(test)]
#[allow(dead_code, missing_docs, reason = "each test uses its own part")]
#[path = "../tests/fixed/mod.rs"]
mod fixed;

use arguments::{Arguments, Command, Target};
use clap::FromArgMatches;
use invitation::invite::{self, InviteError};
use invitation::join::{self, JoinError};
use part::Show;
use recoded::usage::UsageError;
use recoded_api::client::{Client, ClientError};
use recoded_api::exit;
use recoded_api::v1::Adopted;
use recoded_gf::ForceError;
use recoded_network::EntryError;
use recoded_plan::error::MeasureError;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    #[error("cannot write this as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Kernel(#[from] ForceError),
    #[cfg(feature = "bats")]
    #[error(transparent)]
    Degrees(#[from] degrees::DegreesError),
    #[error(transparent)]
    Keys(#[from] crypto_keys::KeysError),
    #[error(transparent)]
    Reload(#[from] reload::ReloadError),
    #[error(transparent)]
    Doctor(#[from] doctor::DoctorError),
    #[error(transparent)]
    Network(#[from] network::NetworkFailure),
    #[error(transparent)]
    Web(#[from] network::WebError),
    /// A printed diagnosis with its exit code.
    #[error("{}", .0.text)]
    Found(network::Told),
    #[error(transparent)]
    Configure(#[from] configure::ConfigureError),
    #[error(transparent)]
    Init(#[from] init::InitError),
    #[error(transparent)]
    Invite(#[from] invitation::invite::InviteError),
    #[error(transparent)]
    Join(#[from] invitation::join::JoinError),
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    #[error(transparent)]
    Ping(#[from] ping::PingError),
    #[error(transparent)]
    Trace(#[from] trace::UnknownFlow),
    #[error(transparent)]
    Bugreport(#[from] bugreport::BugreportError),
    #[error(transparent)]
    Top(#[from] top::TopError),
    #[error("{0}")]
    Usage(String),
    #[error("there is no command {0}: see recodectl --help")]
    UnknownCommand(String),
    #[error(
        "there is no help on {0}: recodectl help topics lists pages, recodectl --help \
         lists the commands"
    )]
    UnknownTopic(String),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Client(error) | Failure::Doctor(doctor::DoctorError::Client(error)) => {
                error.exit_code()
            }
            Failure::Network(error) => error.exit_code(),
            Failure::Invite(InviteError::Client(error)) => error.exit_code(),
            Failure::Invite(error) if error.is_usage() => exit::USAGE,
            Failure::Join(JoinError::Refused(_) | JoinError::Unknown) => exit::REFUSED,
            Failure::Join(JoinError::Unreachable(_)) => exit::NOT_RUNNING,
            Failure::Web(network::WebError::NotLoopback(_)) => exit::USAGE,
            Failure::Found(told) => told.code,
            Failure::Trace(_) => exit::REFUSED,
            #[cfg(feature = "bats")]
            Failure::Degrees(error) => error.exit_code(),
            Failure::Kernel(_)
            | Failure::Usage(_)
            | Failure::UnknownCommand(_)
            | Failure::UnknownTopic(_)
            | Failure::Init(init::InitError::Entry(EntryError::Line))
            | Failure::Join(JoinError::Token(_))
            | Failure::Plan(
                plan::PlanError::Measure(MeasureError::Port(_))
                | plan::PlanError::Hops(_)
                | plan::PlanError::Way(_),
            )
            | Failure::Top(top::TopError::NoTerminal | top::TopError::Json) => exit::USAGE,
            Failure::Output(_)
            | Failure::Web(_)
            | Failure::Json(_)
            | Failure::Keys(_)
            | Failure::Reload(_)
            | Failure::Plan(_)
            | Failure::Ping(_)
            | Failure::Configure(_)
            | Failure::Init(_)
            | Failure::Invite(_)
            | Failure::Join(_)
            | Failure::Top(_)
            | Failure::Bugreport(_)
            | Failure::Doctor(_) => exit::FAILED,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Failure::Client(error) | Failure::Doctor(doctor::DoctorError::Client(error)) => {
                error.kind()
            }
            Failure::Doctor(_) => "host",
            Failure::Network(error) => error.kind(),
            Failure::Web(network::WebError::NotLoopback(_)) => "usage",
            Failure::Web(_) => "listen",
            Failure::Found(_) => "unhealthy",
            Failure::Plan(_) => "plan",
            Failure::Ping(_) => "ping",
            Failure::Configure(_) => "configure",
            Failure::Init(_) => "init",
            Failure::Invite(InviteError::Client(error)) => error.kind(),
            Failure::Invite(_) => "invite",
            Failure::Join(_) => "join",
            Failure::Kernel(_) => "kernel",
            #[cfg(feature = "bats")]
            Failure::Degrees(_) => "degrees",
            Failure::Keys(_) => "keys",
            Failure::Reload(_) => "failed",
            Failure::Trace(_) => "unknown_flow",
            Failure::Top(_) => "terminal",
            Failure::Bugreport(_) => "output",
            Failure::Usage(_) | Failure::UnknownCommand(_) | Failure::UnknownTopic(_) => "usage",
            Failure::Output(_) => "output",
            Failure::Json(_) => "json",
        }
    }
}

fn main() -> ExitCode {
    let matches = help::command().try_get_matches();
    let arguments = match matches.and_then(|it| Arguments::from_arg_matches(&it)) {
        Ok(arguments) => arguments,
        Err(error) => return wrong_command_line(&error),
    };
    let failure = match run(&arguments).and_then(|text| print(&text)) {
        Ok(()) => return ExitCode::from(exit::OK),
        // The findings are the output.
        Err(Failure::Found(told)) => {
            let printed = print(&told.text);
            return ExitCode::from(printed.map_or(exit::FAILED, |()| told.code));
        }
        Err(failure) => failure,
    };
    let code = failure.exit_code();
    if arguments.json {
        // A failure here cannot be reported.
        let _ = print(&json::error(code, failure.kind(), &failure.to_string()));
    } else {
        eprintln!("recodectl: {failure}");
    }
    ExitCode::from(code)
}

/// Prints help, versions and errors, which are all errors to clap: as JSON if requested, even if
/// the rest is invalid.
fn wrong_command_line(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|word| word == "--json");
    let unnamed = network::file_without_option(error);
    let Some(wrong) = unnamed.or_else(|| UsageError::of(error)) else { error.exit() };
    if json {
        let UsageError { problem, fix, .. } = wrong;
        let words = if fix.is_empty() { problem } else { format!("{problem}: {fix}") };
        // A failure here cannot be reported.
        let _ = print(&json::error(exit::USAGE, "usage", &words));
    } else {
        eprintln!("{}", wrong.lines("recodectl"));
    }
    ExitCode::from(exit::USAGE)
}

/// Runs the command and returns what it prints.
fn run(arguments: &Arguments) -> Result<String, Failure> {
    let connect = || Client::connect(&arguments.socket);
    let json = arguments.json;
    if let Some(told) = network::run(arguments) {
        let told = told?;
        return if told.code == exit::OK { Ok(told.text) } else { Err(Failure::Found(told)) };
    }
    match &arguments.command {
        Command::Show { what, verbose, watch } => {
            show_state(arguments, what.or(verbose.then_some(Show::All)), *watch)
        }
        Command::Set { .. }
        | Command::Reload { .. }
        | Command::Undo { .. }
        | Command::Confirm
        | Command::History => change(arguments),
        Command::Doctor { seconds } => {
            let found = doctor::examine(&arguments.socket, *seconds)?;
            let text = if json { json::pretty(&found)? } else { doctor::text(&found) };
            if found.errors > 0 {
                return Err(Failure::Found(network::Told { code: exit::UNHEALTHY, text }));
            }
            Ok(text)
        }
        Command::Trace { .. }
        | Command::Ping(_)
        | Command::Bugreport { .. }
        | Command::Top
        | Command::Events { .. } => look(arguments),
        #[cfg(feature = "bats")]
        Command::Degrees(_) => measure(arguments),
        Command::Plan(_)
        | Command::Configure { .. }
        | Command::Kernels { .. }
        | Command::Engines { .. } => measure(arguments),
        Command::Init(_) | Command::Invite(_) | Command::Join(_) => begin(arguments),
        Command::Genkey => text(json, "private_key", crypto_keys::private()?.into_bytes()),
        Command::Pubkey => {
            let key = crypto_keys::public(io::stdin().lock())?;
            text(json, "public_key", key.into_bytes())
        }
        Command::Genpsk => text(json, "preshared_key", crypto_keys::preshared()?.into_bytes()),
        Command::Version => {
            let client = env!("CARGO_PKG_VERSION");
            let daemon = connect()?.version()?;
            if json {
                return Ok(json::version(client, &daemon)?);
            }
            Ok(format!(
                "recodectl {client}\nrecoded   {} ({}, field arithmetic by {}, edition {})\n",
                daemon.version, daemon.interface, daemon.kernel, daemon.edition
            ))
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut help::command(), "recodectl", &mut script);
            text(json, "completion", script)
        }
        Command::Help { words } => text(json, "help", help::text(words)?.into_bytes()),
        Command::Man { page } => text(json, "man", manual::page(page.as_deref())?),
        Command::Render(_)
        | Command::Status
        | Command::Check
        | Command::Apply(_)
        | Command::Web { .. }
        | Command::Keys { .. } => Err(Failure::Usage("this command is for a network".into())),
    }
}

/// Shows the state or a part of it, once or repeatedly.
fn show_state(
    arguments: &Arguments,
    what: Option<Show>,
    watch: Option<Duration>,
) -> Result<String, Failure> {
    let Arguments { socket, json, .. } = arguments;
    match (what, watch) {
        (_, Some(every)) => watch::watch(socket, what, every, *json).map(|()| String::new()),
        (Some(Show::Config), None) => {
            let config = Client::connect(socket)?.config()?;
            if *json { Ok(json::object("config", &config)?) } else { Ok(config) }
        }
        (_, None) => {
            let state = Client::connect(socket)?.state()?;
            if *json {
                Ok(show_json::show(&state, what, false)?)
            } else {
                Ok(show::show(&state, what))
            }
        }
    }
}

/// Runs a command that makes this box, or another one, part of a network.
fn begin(arguments: &Arguments) -> Result<String, Failure> {
    let json = arguments.json;
    match &arguments.command {
        Command::Init(options) => {
            let done = init::run(options)?;
            if json { Ok(json::pretty(&done)?) } else { Ok(init::text(&done)) }
        }
        Command::Invite(options) => {
            let invited = invite::run(options, &arguments.socket, json)?;
            // One line, as that of the token.
            if json {
                Ok(serde_json::to_string(&invited)? + "\n")
            } else {
                Ok(invite::text(&invited))
            }
        }
        Command::Join(options) => {
            let joined = join::run(options)?;
            if json { Ok(json::pretty(&joined)?) } else { Ok(join::text(&joined)) }
        }
        _ => Err(Failure::Usage("this command begins nothing".into())),
    }
}

/// Runs a command that examines this machine or a path, and needs no daemon.
fn measure(arguments: &Arguments) -> Result<String, Failure> {
    let json = arguments.json;
    match &arguments.command {
        Command::Plan(options) => {
            let report = plan::report(options)?;
            if json { Ok(json::pretty(&report)?) } else { Ok(plan::text(&report)) }
        }
        Command::Configure { what: configure::What::Host(options) } => {
            let report = configure::run(options)?;
            let text = if json { json::pretty(&report)? } else { configure::text(&report) };
            if report.errors > 0 {
                return Err(Failure::Found(network::Told { code: exit::UNHEALTHY, text }));
            }
            Ok(text)
        }
        Command::Kernels { seconds, kernel } => {
            let report = kernels::report(kernel.as_deref(), *seconds, &arguments.socket)?;
            if json { Ok(json::pretty(&report)?) } else { Ok(kernels::text(&report)) }
        }
        Command::Engines { seconds, fpga } => {
            let report = engines::report(*seconds, fpga.as_ref());
            if json { Ok(json::pretty(&report)?) } else { Ok(engines::text(&report)) }
        }
        #[cfg(feature = "bats")]
        Command::Degrees(options) => {
            let report = degrees::report(options)?;
            if json { Ok(json::pretty(&report)?) } else { Ok(degrees::text(&report)) }
        }
        _ => Err(Failure::Usage("this command measures nothing".into())),
    }
}

/// Runs a command that shows more of a daemon than its present state.
fn look(arguments: &Arguments) -> Result<String, Failure> {
    let json = arguments.json;
    match &arguments.command {
        Command::Trace { flow } => {
            let traces = trace::traces(&Client::connect(&arguments.socket)?.state()?, *flow)?;
            if json { Ok(json::pretty(&traces)?) } else { Ok(trace::text(&traces)) }
        }
        Command::Ping(options) => {
            let report = ping::report(options, &arguments.socket, json)?;
            let text = if json { json::pretty(&report)? } else { ping::text(&report) };
            if report.is_dead() {
                return Err(Failure::Found(network::Told { code: exit::UNHEALTHY, text }));
            }
            Ok(text)
        }
        Command::Bugreport { out } => {
            let report = bugreport::write(&arguments.socket, out.as_deref())?;
            if json { Ok(json::pretty(&report)?) } else { Ok(bugreport::text(&report)) }
        }
        Command::Top => Ok(top::run(&arguments.socket, json).map(|()| String::new())?),
        Command::Events { follow: true, since } => {
            let wanted = events::Wanted { since: *since };
            Ok(events::follow(&arguments.socket, &wanted, json).map(|()| String::new())?)
        }
        Command::Events { follow: false, since } => {
            events::kept(&arguments.socket, &events::Wanted { since: *since }, json)
        }
        _ => Err(Failure::Usage("this command shows nothing".into())),
    }
}

/// Runs a command that changes the active configuration, or shows its history.
fn change(arguments: &Arguments) -> Result<String, Failure> {
    let connect = || Client::connect(&arguments.socket);
    let json = arguments.json;
    match &arguments.command {
        Command::Set { target: Target::Flow(flow), changes, save, confirm } => {
            let changes = keys::changes(changes).map_err(Failure::Usage)?;
            let (mut client, flow) = (connect()?, i64::from(*flow));
            let adopted = match confirm {
                Some(seconds) => client.set_for(flow, &changes, *seconds)?,
                None if *save => client.save(flow, &changes)?,
                None => client.set(flow, &changes)?,
            };
            if json {
                return Ok(json::pretty(&adopted)?);
            }
            Ok(show_adopted(&adopted, &changes, *save) + &reload::rolling_back(*confirm))
        }
        Command::Set { target: Target::Engine, confirm: Some(_), .. } => Err(Failure::Usage(
            "--confirm is for flows: recodectl set engine auto goes back".into(),
        )),
        Command::Set { target: Target::Engine, save: true, .. } => Err(Failure::Usage(
            "--save is for flows: write engine under [daemon] in the file, then recodectl reload"
                .into(),
        )),
        Command::Reload { with: Some(file), .. } => {
            let text = reload::file(file)?;
            let outcome = connect()?.compare(&text)?;
            if json { Ok(json::pretty(&outcome)?) } else { Ok(reload::text(&outcome)) }
        }
        Command::Reload { diff, confirm, with: None } => {
            let mut client = connect()?;
            let outcome = client.reload(*diff, *confirm)?;
            let outcome = reload::settled(client, outcome, &arguments.socket)?;
            if json { Ok(json::pretty(&outcome)?) } else { Ok(reload::text(&outcome)) }
        }
        Command::Undo { number } => {
            let mut client = connect()?;
            let outcome = client.undo(*number)?;
            let outcome = reload::settled(client, outcome, &arguments.socket)?;
            if json { Ok(json::pretty(&outcome)?) } else { Ok(reload::text(&outcome)) }
        }
        Command::Confirm => {
            let confirmed = connect()?.confirm()?;
            if json {
                return Ok(json::pretty(&confirmed)?);
            }
            Ok(format!("configuration {} confirmed\n", confirmed.number))
        }
        Command::History => {
            let history = connect()?.history()?;
            if json { Ok(json::pretty(&history)?) } else { Ok(reload::history(&history)) }
        }
        Command::Set { target: Target::Engine, changes, save: false, confirm: None } => {
            let [mode] = &changes[..] else {
                return Err(Failure::Usage("write one of auto, cpu, cuda and fpga".into()));
            };
            let engine = connect()?.set_engine(mode)?;
            if json { Ok(json::pretty(&engine)?) } else { Ok(show::engine_line(&engine)) }
        }
        _ => Err(Failure::Usage("this command changes nothing".into())),
    }
}

fn show_adopted(adopted: &Adopted, changes: &BTreeMap<String, String>, save: bool) -> String {
    let made: Vec<String> = changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (flow, edition) = (adopted.flow, adopted.edition);
    let saved = if save { ", and in the configuration file" } else { "" };
    let made = made.join(" ");
    let mut text =
        format!("flow {flow}: {made}: applied on all workers (edition {edition}){saved}\n");
    for notice in &adopted.notices {
        text += &format!("note: {notice}\n");
    }
    text
}

fn text(json: bool, key: &str, bytes: Vec<u8>) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if json { Ok(json::object(key, &text)?) } else { Ok(text) }
}

/// Writes to stdout. A reader that closes the pipe (`| head`) is not an error.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
