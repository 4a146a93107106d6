//! `recoded-agent`: on a box, keeps the daemon's configuration at what an operator signed; on the
//! operator's machine, makes keys and signs.

#![forbid(unsafe_code)]

use clap::{Args, CommandFactory, Parser, Subcommand};
use recoded_agent::agent::{Agent, OpenError};
use recoded_agent::key::{self, Signer};
use recoded_agent::settings::{FILE_DEFAULT, STATUS_DEFAULT, Settings, SettingsError};
use recoded_agent::sign::{self, SignError, Target};
use recoded_agent::source::{Etcd, Http, HttpError};
use recoded_agent::status::Status;
use recoded_api::exit;
use recoded_secure::{KeyError, key_file};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Follows a signed configuration for this box, from a folder, by HTTPS or from etcd: checks it,
/// applies it to the running daemon, and goes back by itself when the box is not well with it.
#[derive(Parser)]
#[command(name = "recoded-agent", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Follow the source, until SIGTERM
    Run {
        /// Settings (TOML)
        #[arg(long, value_name = "FILE", default_value = FILE_DEFAULT)]
        config: PathBuf,
        /// Where the state is written after every look
        #[arg(long, value_name = "FILE", default_value = STATUS_DEFAULT)]
        status: PathBuf,
        /// Look once, and end
        #[arg(long)]
        once: bool,
    },
    /// Print the state of the running agent: active version, and refused ones with reasons
    Status {
        /// Where the agent writes it
        #[arg(long, value_name = "FILE", default_value = STATUS_DEFAULT)]
        status: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a new private key, for signing: `recoded-agent genkey > key`, with umask 077
    Genkey,
    /// Print the public key of a private one: what boxes have as public_key
    Pubkey {
        /// File of the private key, mode 0600
        key: PathBuf,
    },
    /// Sign the NODE.toml files of a folder, as `recodectl render net.toml --out DIR` writes them
    Sign(SignArguments),
    /// Print a completion script for a shell, or, with man, the manual page; for packages
    #[command(hide = true)]
    Print {
        /// bash, zsh, fish or man
        what: String,
    },
}

#[derive(Args)]
struct SignArguments {
    /// The folder
    folder: PathBuf,
    /// File of the private key, mode 0600, as genkey makes it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Write NODE.bundle into this folder
    #[arg(long, value_name = "DIR", required_unless_present = "etcd", conflicts_with = "etcd")]
    to: Option<PathBuf>,
    /// Write to this etcd: endpoints, separated by commas
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    etcd: Vec<String>,
    /// With --etcd: what precedes the name of a node in keys
    #[arg(long, value_name = "TEXT", default_value = "/recoded/")]
    prefix: String,
    /// With --etcd: PEM files, as in agent.toml
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
    /// With --etcd: certificate to show
    #[arg(long, value_name = "FILE", requires = "certificate_key")]
    certificate: Option<PathBuf>,
    /// With --etcd: its private key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    certificate_key: Option<PathBuf>,
    /// Version of every bundle, instead of the time in seconds or one more than there is
    #[arg(long)]
    version_number: Option<u64>,
}

const AFTER_HELP: &str = "\
Examples:
  recoded-agent genkey > fleet.key                       once, by the operator
  recodectl render net.toml --out boxes                  a configuration for each box
  recoded-agent sign boxes --key fleet.key --to www      for a web server or a shared folder
  recoded-agent sign boxes --key fleet.key --etcd https://10.0.0.1:2379,https://10.0.0.2:2379
  recoded-agent status                                   on a box

Exit codes: 0 done, or all is well; 1 something on this host is in the way; 2 the command line or
the settings are wrong; 3 no agent runs here; 5 the version at the source is not active, or the
source does not answer. Messages say what to do about it.";

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("no key: {0}: with umask 077, recoded-agent genkey > FILE makes one")]
    Key(#[from] KeyError),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("Linux gives no random bytes: {0}")]
    Random(String),
    #[error("{path}: {source}: name a file that this user may write with --status")]
    Status { path: PathBuf, source: io::Error },
    #[error(
        "no agent has written {path} ({source}): is recoded-agent running? systemctl status \
         recoded-agent"
    )]
    NotRunning { path: PathBuf, source: io::Error },
    #[error("there is no output {0}: it is bash, zsh, fish or man")]
    Output(String),
    #[error("cannot write the output: {0}")]
    Write(#[from] io::Error),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Settings(_) | Failure::Key(_) | Failure::Output(_) => exit::USAGE,
            Failure::NotRunning { .. } => exit::NOT_RUNNING,
            _ => exit::FAILED,
        }
    }

    /// As recodectl calls it.
    fn kind(&self) -> &'static str {
        match self {
            Failure::NotRunning { .. } => "not_running",
            Failure::Write(_) | Failure::Status { .. } => "output",
            _ if self.exit_code() == exit::USAGE => "usage",
            _ => "failed",
        }
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).init();
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) => return wrong_command_line(&error),
    };
    let is_json = matches!(command, Command::Status { json: true, .. });
    match run(command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) if is_json => {
            print_error(failure.exit_code(), failure.kind(), &failure.to_string())
        }
        Err(failure) => {
            eprintln!("recoded-agent: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints help, versions and errors, which are all errors to clap: as JSON if `--json` is given,
/// even if the rest of the line is wrong.
fn wrong_command_line(error: &clap::Error) -> ExitCode {
    let is_json = std::env::args_os().any(|word| word == "--json");
    if !error.use_stderr() || !is_json {
        error.exit()
    }
    let words = error.to_string();
    // Without what only people at a terminal need.
    let words = words.split("\n\nUsage").next().unwrap_or_default();
    let words = words.split("\n\nFor more information").next().unwrap_or_default();
    print_error(exit::USAGE, "usage", words.trim_start_matches("error: ").trim())
}

/// An error as recodectl prints it with --json.
fn print_error(exit_code: u8, kind: &str, message: &str) -> ExitCode {
    let error = serde_json::json!({ "exit_code": exit_code, "kind": kind, "message": message });
    // Nothing better can be done when this fails as well.
    let _ = writeln!(io::stdout().lock(), "{:#}", serde_json::json!({ "error": error }));
    ExitCode::from(exit_code)
}

fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run { config, status, once } => follow(Settings::read(&config)?, status, once),
        Command::Status { status: path, json } => {
            let status = Status::read(&path);
            let status = status.map_err(|source| Failure::NotRunning { path, source })?;
            let text = match json {
                true => serde_json::to_string_pretty(&status).map_err(io::Error::from)? + "\n",
                false => status.text(),
            };
            io::stdout().lock().write_all(text.as_bytes())?;
            Ok(status.exit_code())
        }
        Command::Genkey => {
            let key = key::generate().map_err(Failure::Random)?;
            writeln!(io::stdout().lock(), "{}", *key)?;
            Ok(exit::OK)
        }
        Command::Pubkey { key } => {
            let signer: Signer = key_file::read(&key)?;
            writeln!(io::stdout().lock(), "{}", signer.verifier())?;
            Ok(exit::OK)
        }
        Command::Sign(arguments) => sign(&arguments),
        Command::Print { what } => print(&what),
    }
}

/// Looks again and again. The state is written after every look, a first one before it.
fn follow(settings: Settings, path: PathBuf, once: bool) -> Result<u8, Failure> {
    let mut agent = Agent::open(settings)?;
    let write = |status: &Status| {
        let written = status.write(&path);
        written.map_err(|source| Failure::Status { path: path.clone(), source })
    };
    write(agent.status())?;
    // Outside systemd there is no one to tell.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    loop {
        agent.step();
        if let Err(failure) = write(agent.status()) {
            tracing::warn!("{failure}");
        }
        if once {
            return Ok(agent.status().exit_code());
        }
        agent.wait();
    }
}

fn sign(arguments: &SignArguments) -> Result<u8, Failure> {
    let signer: Signer = key_file::read(&arguments.key)?;
    let mut target = match &arguments.to {
        Some(folder) => Target::Directory(folder.clone()),
        None => {
            let SignArguments { authorities, certificate, certificate_key, .. } = arguments;
            let shown = certificate.as_deref().zip(certificate_key.as_deref());
            let http = Http::with(&arguments.etcd, authorities.as_deref(), shown)?;
            let etcd = Etcd::new(http, arguments.etcd.clone());
            Target::Etcd { etcd, prefix: arguments.prefix.clone() }
        }
    };
    let mut out = io::stdout().lock();
    let signed = sign::sign(&arguments.folder, &signer, arguments.version_number, &mut target)?;
    for sign::Signed { node, version, is_new } in signed {
        let words = if is_new { "signed" } else { "unchanged" };
        writeln!(out, "{node}: version {version}, {words}")?;
    }
    Ok(exit::OK)
}

fn print(what: &str) -> Result<u8, Failure> {
    let mut command = Arguments::command();
    let mut out = Vec::new();
    match (what, what.parse::<clap_complete::Shell>()) {
        ("man", _) => clap_mangen::Man::new(command).section("8").render(&mut out)?,
        (_, Ok(shell)) => {
            clap_complete::generate(shell, &mut command, "recoded-agent", &mut out);
        }
        _ => return Err(Failure::Output(what.into())),
    }
    io::stdout().lock().write_all(&out)?;
    Ok(exit::OK)
}
