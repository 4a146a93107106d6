//! A network in one file: renders the configurations of its boxes (`render`), and queries or
//! changes all of them at once over SSH (`-f net.toml`).
//!
//! ```text
//!  net.toml -> recoded_network -> file of each box -> render: text, folder, difference
//!                  `-> ssh, all boxes at once: status, show, trace, doctor, check, apply, keys
//! ```

mod applied;
mod apply;
mod check;
mod difference;
mod graph;
mod keys;
pub mod options;
mod ping;
mod render;
mod rotate;
mod script;
mod ssh;
mod start;
mod status;
mod trace;
#[cfg_attr(not(feature = "web"), path = "web_absent.rs")]
mod web;

pub use web::WebError;

use crate::arguments::{Arguments, Command};
use crate::part::Show;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use options::Fleet;
use recoded::usage::UsageError;
use recoded_api::exit;
use recoded_network::{FILE_BYTES_MAX, KeepError, Network, NetworkErrors, Node};
use recoded_secure::PublicKey;
use script::BoxPaths;
use ssh::{Answer, Job, NoAnswer, Ssh};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why a command for a network could not start.
#[derive(Debug, thiserror::Error)]
pub enum NetworkFailure {
    #[error("cannot read {path} ({source}): name the file of a network")]
    Read { path: PathBuf, source: io::Error },
    #[error("{0} is larger than {FILE_BYTES_MAX} bytes: this cannot be a network")]
    TooLarge(PathBuf),
    #[error("cannot write {path} ({source}): name another place, or make room")]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Network(#[from] NetworkErrors),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error("there is no box {name}: the boxes are {nodes}")]
    NoNode { name: String, nodes: String },
    #[error("--ssh {0}: write a program and its arguments as in a shell")]
    Program(String),
    #[error("cannot start ssh for all boxes ({0}): raise the process's limits (`ulimit -n -u`)")]
    Local(io::Error),
    #[error(
        "{0} asks or changes all boxes of a network: name its file, recodectl -f net.toml {0}; \
         for this host alone there are show, doctor and reload"
    )]
    NoNetwork(&'static str),
    #[error("name the network: recodectl render net.toml")]
    NoFile,
    #[error("{0} is for one host: leave -f out, and run it there")]
    OneHost(String),
    #[error(
        "these echoes take longer than the {0} s that boxes are waited for: send fewer (-c, not 0) or \
         faster (-i), or wait longer (--patience)"
    )]
    LongPing(u64),
    #[error("with -f every path is pinged: name no host, or leave -f out")]
    PingHost,
    #[error("show --watch is for one host: watch a network with recodectl -f net.toml web")]
    WatchAll,
    #[error("--only is for the boxes of a network: name its file with -f")]
    OnlyWithout,
    #[error("--rotate changes the key of a box at all others, too: leave --only out")]
    RotateOnly,
    #[error(
        "{0} has no key to rotate: a network with auth = \"none\" has no keys; for a first key run \
         recodectl -f FILE keys --save"
    )]
    RotateNothing(String),
    #[error(
        "recodectl on {0} answers in a way this one does not understand: install the same version on both"
    )]
    RotateVersion(String),
    #[error(
        "all boxes have the new key of {node}, but {} was changed meanwhile or cannot be written: \
         write key = \"{public}\" and private_key = \"{private}\" into the line of {node} there", file.display()
    )]
    RotateUnwritten { file: PathBuf, node: String, public: PublicKey, private: String },
    #[error("--diff compares with files that were written before: name their folder with --out")]
    DiffWithoutFolder,
}

impl NetworkFailure {
    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            NetworkFailure::Write { .. }
            | NetworkFailure::Local(_)
            | NetworkFailure::Keep(_)
            | NetworkFailure::RotateVersion(_)
            | NetworkFailure::RotateUnwritten { .. } => exit::FAILED,
            _ => exit::USAGE,
        }
    }

    /// Its kind in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            NetworkFailure::Network(_) => "network",
            NetworkFailure::Write { .. }
            | NetworkFailure::Local(_)
            | NetworkFailure::RotateVersion(_)
            | NetworkFailure::RotateUnwritten { .. } => "failed",
            _ => "usage",
        }
    }
}

/// The message for a command of networks that got its file without -f.
pub fn file_without_option(error: &clap::Error) -> Option<UsageError> {
    let ContextValue::String(file) = error.get(ContextKind::InvalidArg)? else { return None };
    let is_file = error.kind() == ErrorKind::UnknownArgument && !file.starts_with('-');
    let words: Vec<String> = std::env::args().collect();
    let command = ["check", "apply", "keys", "status"].into_iter();
    let mut command = command.filter(|command| words.iter().any(|word| word == command));
    let command = command.next().filter(|_| is_file)?;
    Some(UsageError {
        problem: format!("{command} takes the file of a network with -f"),
        fix: format!("write recodectl -f {file} {command}"),
        command: None,
    })
}

/// A command's output and the exit code of the program.
#[derive(Debug)]
pub struct Told {
    /// Exit code.
    pub code: u8,
    /// Output.
    pub text: String,
}

/// A network, and the boxes selected in it.
struct Boxes {
    network: Network,
    chosen: Vec<usize>,
    ssh: Ssh,
}

impl Boxes {
    /// Reads `file`; without keys if the command is about to fetch them.
    fn open(file: &Path, fleet: &Fleet, with_keys: bool) -> Result<Boxes, NetworkFailure> {
        let (name, text) = read(file)?;
        Boxes::of_text(&name, &text, fleet, with_keys)
    }

    /// The same from a text.
    fn of_text(
        name: &str,
        text: &str,
        fleet: &Fleet,
        with_keys: bool,
    ) -> Result<Boxes, NetworkFailure> {
        let network = match with_keys {
            true => recoded::network::parse(name, text)?,
            false => recoded::network::parse_without_keys(name, text)?,
        };
        let chosen = chosen(&network, fleet)?;
        let ssh = Ssh::new(&fleet.ssh, fleet.patience)?;
        Ok(Boxes { network, chosen, ssh })
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.chosen.iter().map(|index| &self.network.nodes[*index])
    }

    fn place(&self, node: &Node) -> BoxPaths {
        // Concurrent users of a network must not share files.
        BoxPaths::new(&self.network, node, std::process::id())
    }

    /// Runs a script on every selected box.
    fn ask(
        &self,
        script: impl Fn(&BoxPaths) -> String,
    ) -> Result<Vec<Result<Answer, NoAnswer>>, NetworkFailure> {
        let jobs = self.nodes().map(|node| Job::new(node, script(&self.place(node)), ""));
        self.ssh.on_each(jobs.collect())
    }

    /// The same with each box's file as input.
    fn send(
        &self,
        script: impl Fn(&BoxPaths) -> String,
    ) -> Result<Vec<Result<Answer, NoAnswer>>, NetworkFailure> {
        let files = self.network.files();
        let jobs = self.chosen.iter().map(|index| {
            let node = &self.network.nodes[*index];
            Job::new(node, script(&self.place(node)), &files[*index])
        });
        self.ssh.on_each(jobs.collect())
    }
}

/// The nodes that `--only` names, or all.
fn chosen(network: &Network, fleet: &Fleet) -> Result<Vec<usize>, NetworkFailure> {
    let names = || network.nodes.iter().map(|node| node.name.as_str());
    for name in &fleet.only {
        if !names().any(|known| known == name) {
            let nodes = names().collect::<Vec<_>>().join(", ");
            return Err(NetworkFailure::NoNode { name: name.clone(), nodes });
        }
    }
    let is_chosen = |name: &str| fleet.only.is_empty() || fleet.only.iter().any(|it| it == name);
    let pairs = names().enumerate().filter(|(_, name)| is_chosen(name));
    Ok(pairs.map(|(index, _)| index).collect())
}

/// Runs a command for a network, if it is one.
pub fn run(arguments: &Arguments) -> Option<Result<Told, crate::Failure>> {
    let fleet = &arguments.fleet;
    let Some(file) = &fleet.network else {
        return match &arguments.command {
            Command::Render(rendering) => Some(render::run(rendering, fleet, arguments.json)),
            Command::Status => Some(Err(NetworkFailure::NoNetwork("status").into())),
            Command::Check => Some(Err(NetworkFailure::NoNetwork("check").into())),
            Command::Apply(_) => Some(Err(NetworkFailure::NoNetwork("apply").into())),
            Command::Keys { .. } => Some(Err(NetworkFailure::NoNetwork("keys").into())),
            Command::Web { .. } => Some(Err(NetworkFailure::NoNetwork("web").into())),
            _ if !fleet.only.is_empty() => Some(Err(NetworkFailure::OnlyWithout.into())),
            _ => None,
        };
    };
    let json = arguments.json;
    let open = |with_keys| Boxes::open(file, fleet, with_keys);
    Some(match &arguments.command {
        Command::Render(rendering) => render::run(rendering, fleet, json),
        Command::Status => open(true).map_err(Into::into).and_then(|it| status::run(&it, json)),
        Command::Doctor { seconds } => {
            open(true).map_err(Into::into).and_then(|it| status::doctor(&it, *seconds, json))
        }
        Command::Show { watch: Some(_), .. } => Err(NetworkFailure::WatchAll.into()),
        Command::Ping(options) => {
            open(true).map_err(Into::into).and_then(|it| ping::run(&it, options, json))
        }
        Command::Trace { flow } => {
            open(true).map_err(Into::into).and_then(|it| trace::run(&it, *flow, json))
        }
        Command::Show { what, verbose, watch: None } => {
            let what = what.or(verbose.then_some(Show::All));
            open(true).map_err(Into::into).and_then(|it| status::show(&it, what, json))
        }
        Command::Check => open(true).map_err(Into::into).and_then(|it| check::run(&it, json)),
        Command::Apply(options) if options.diff => {
            open(true).map_err(Into::into).and_then(|it| difference::run(&it, json))
        }
        Command::Apply(options) => {
            open(true).map_err(Into::into).and_then(|it| apply::run(&it, options, json))
        }
        // Runs until interrupted.
        Command::Web { listen } => open(true).map_err(Into::into).and_then(|it| {
            web::run(it, *listen, json).map(|()| Told { code: exit::OK, text: String::new() })
        }),
        Command::Keys { rotate: Some(node), .. } => rotate::run(file, fleet, node, json),
        Command::Keys { save, rotate: None } => {
            open(false).map_err(Into::into).and_then(|it| keys::run(&it, file, *save, json))
        }
        other => Err(NetworkFailure::OneHost(other.name().to_owned()).into()),
    })
}

/// Name and text of a file.
fn read(path: &Path) -> Result<(String, String), NetworkFailure> {
    let failed = |source| NetworkFailure::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(NetworkFailure::TooLarge(path.to_owned()));
    }
    Ok((path.to_string_lossy().into_owned(), text))
}

/// The worse of two exit codes: an unreachable box first, then a refusal, then the rest.
fn worse(one: u8, other: u8) -> u8 {
    let rank = |code: u8| match code {
        exit::NOT_RUNNING => 4,
        exit::REFUSED => 3,
        exit::FAILED => 2,
        exit::OK => 0,
        _ => 1,
    };
    if rank(one) >= rank(other) { one } else { other }
}
