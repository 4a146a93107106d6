//! Errors of building or driving a bed. Every variant names the thing that failed.

use std::io;
use std::path::PathBuf;

/// Failure of a bed, of a program run in it, or of a daemon.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// A program could not be started.
    #[error("cannot start `{program}`: {source} (is it installed?)")]
    Spawn {
        /// The program's name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program ended with a failure.
    #[error("`{command}` failed ({status}): {output}")]
    Command {
        /// The whole command line.
        command: String,
        /// Exit status in words.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// A file or a namespace could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A socket, a thread or a signal handler could not be set up.
    #[error("{what}: {source}")]
    System {
        /// The attempted action.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The link emulator could not be loaded, attached or read.
    #[error("link emulator on {place}: {detail}")]
    Emulator {
        /// Namespace and interface.
        place: String,
        /// Error of the eBPF loader.
        detail: String,
    },
    /// The output of a program could not be parsed.
    #[error("cannot read the output of {program}: {detail}")]
    Output {
        /// The program's name.
        program: String,
        /// The problem.
        detail: String,
    },
    /// A daemon's control socket gave no answer, or a refusal.
    #[error(transparent)]
    Control(recoded_api::client::ClientError),
    /// A daemon did not start.
    #[error("daemon on {host} did not answer within {seconds} s; its log ends:\n{log}")]
    DaemonSilent {
        /// Host name.
        host: String,
        /// How long the test waited.
        seconds: u64,
        /// The end of its log.
        log: String,
    },
    /// A parameter of the bed is out of range.
    #[error("{what} is {value}; {rule}")]
    Parameter {
        /// Which parameter.
        what: &'static str,
        /// The rejected value.
        value: String,
        /// The allowed values.
        rule: &'static str,
    },
}

impl BedError {
    /// A [`BedError::File`].
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> BedError {
        let path = path.into();
        move |source| BedError::File { path, source }
    }

    /// A [`BedError::System`].
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> BedError {
        let what = what.into();
        move |source| BedError::System { what, source }
    }
}
