//! The program that this process becomes: a new version, or the same one with another
//! configuration. It has the same process id and what is on record
//! ([`recoded::predecessor`]); descriptors of programs that stay on their interfaces meanwhile, and
//! of the queues of tunnels, come by stdin, and whether they do by a variable of its environment.

use crate::Arguments;
use recoded_runtime::channel::Channel;
use recoded_runtime::{Inherited, LeftPrograms, TunnelQueues};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Set where stdin has descriptors.
const INHERITED: &str = "RECODED_PROGRAMS";

/// Becomes `program`, with the same arguments; the error if that fails.
pub fn become_anew(program: &Path, arguments: &Arguments, tunnels: &TunnelQueues) -> io::Error {
    let mut command = Command::new(program);
    command.args(["--log", &arguments.log, "--config"]).arg(arguments.config());
    if let Some(state) = &arguments.state {
        command.arg("--state").arg(state);
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

/// The end of a channel with all that the next program gets. A program that knows of less reads as
/// much as it knows.
fn leave(tunnels: &TunnelQueues) -> io::Result<Channel> {
    let (sender, receiver) = Channel::pair()?;
    LeftPrograms::of_this_process()?.leave(&sender)?;
    if let Err(error) = tunnels.leave(&sender) {
        tracing::warn!(%error, "packets queued in tunnels are lost");
    }
    Ok(receiver)
}

/// Programs of interfaces and queues of tunnels that this process had before it became this
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
