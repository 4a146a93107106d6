//! Replaces this process's program with a new version, or with the same one and another
//! configuration. It keeps the process id and the record ([`recoded::predecessor`]). Descriptors of
//! the queues of tunnels, and of XDP programs that stay on their interfaces, are passed on stdin;
//! an environment variable announces them.

use crate::Arguments;
use recoded_runtime::channel::Channel;
use recoded_runtime::{Inherited, LeftPrograms, TunnelQueues};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Set if stdin carries descriptors.
const INHERITED: &str = "RECODED_PROGRAMS";

/// Executes `program` with the same arguments; returns only the error.
pub fn become_anew(program: &Path, arguments: &Arguments, tunnels: &TunnelQueues) -> io::Error {
    let mut command = Command::new(program);
    command.args(["--log", &arguments.log, "--config"]).arg(arguments.config());
    if let Some(state) = &arguments.state {
        command.arg("--state").arg(state);
    }
    if let Some(name) = &arguments.name {
        command.arg("--name").arg(name);
    }
    command.env_remove(INHERITED);
    match leave(tunnels) {
        Ok(channel) => {
            command.env(INHERITED, "stdin").stdin(OwnedFd::from(channel));
        }
        Err(error) => {
            tracing::warn!(%error, "cannot pass on programs and tunnels: they will be reopened");
        }
    }
    command.exec()
}

/// The end of a channel that holds all descriptors for the next program. An older program reads as
/// much as it knows.
fn leave(tunnels: &TunnelQueues) -> io::Result<Channel> {
    let (sender, receiver) = Channel::pair()?;
    LeftPrograms::of_this_process()?.leave(&sender)?;
    if let Err(error) = tunnels.leave(&sender) {
        tracing::warn!(%error, "packets queued in tunnels are lost");
    }
    Ok(receiver)
}

/// Programs of interfaces and queues of tunnels that this process had before it executed this
/// program.
pub fn inherited() -> Inherited {
    if std::env::var_os(INHERITED).is_none() {
        return Inherited::default();
    }
    let stdin = rustix::stdio::stdin().try_clone_to_owned();
    let left = stdin.map(Channel::from).and_then(|channel| {
        let programs = LeftPrograms::receive(&channel)?;
        let tunnels = Arc::new(TunnelQueues::receive(&channel)?);
        Ok(Inherited { programs, tunnels })
    });
    left.unwrap_or_else(|error| {
        tracing::warn!(%error, "inherited programs and tunnels cannot be read: reopening them");
        Inherited::default()
    })
}
