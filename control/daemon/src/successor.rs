//! The program that this process becomes: a new version, or the same one with another
//! configuration. It has the same process id and what is on record
//! ([`recoded::predecessor`]); descriptors of programs that stay on their interfaces meanwhile
//! come by stdin, and whether they do by a variable of its environment.

use crate::Arguments;
use recoded_runtime::LeftPrograms;
use recoded_runtime::channel::Channel;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Set where stdin has descriptors of programs.
const PROGRAMS: &str = "RECODED_PROGRAMS";

/// Becomes `program`, with the same arguments; the error if that fails.
pub fn become_anew(program: &Path, arguments: &Arguments) -> io::Error {
    let mut command = Command::new(program);
    command.args(["--log", &arguments.log, "--config"]).arg(arguments.config());
    if let Some(state) = &arguments.state {
        command.arg("--state").arg(state);
    }
    command.env_remove(PROGRAMS);
    match LeftPrograms::of_this_process().and_then(|programs| programs.leave()) {
        Ok(Some(channel)) => {
            command.env(PROGRAMS, "stdin").stdin(OwnedFd::from(channel));
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "the next program attaches its XDP programs anew"),
    }
    command.exec()
}

/// Programs of interfaces that this process had before it became this program.
pub fn left_programs() -> LeftPrograms {
    if std::env::var_os(PROGRAMS).is_none() {
        return LeftPrograms::default();
    }
    let stdin = rustix::stdio::stdin().try_clone_to_owned();
    let left = stdin.and_then(|stdin| LeftPrograms::receive(&Channel::from(stdin)));
    left.unwrap_or_else(|error| {
        tracing::warn!(%error, "XDP programs of before are not known: they are attached anew");
        LeftPrograms::default()
    })
}
