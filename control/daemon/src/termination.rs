//! Ends a dataplane process: kill, orderly drain, or handover of the packets in its tunnels to the
//! next process.

use crate::health::notify;
use recoded::lifecycle::LEAVE_PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Child;

/// Draining takes at most a second.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How a dataplane process ended.
pub enum End {
    /// Stopped on request.
    Stopped,
    /// Ended by itself.
    Ended(ExitStatus),
    /// Killed by the supervisor, since it hung or another one must start.
    Killed(ExitStatus),
    /// Killed by the supervisor, since the machine was restored from a snapshot, or copied.
    SetBack(ExitStatus),
}

/// Kills it.
pub async fn kill(child: &mut Child) -> io::Result<End> {
    child.kill().await?;
    Ok(End::Killed(child.wait().await?))
}

/// Kills a process whose keys and numbers another copy of it has: packets that it still sent would
/// repeat them.
pub async fn kill_set_back(child: &mut Child) -> io::Result<End> {
    child.kill().await?;
    Ok(End::SetBack(child.wait().await?))
}

/// Has the process end, and leave packets queued in tunnels to the next one.
pub async fn leave(child: &mut Child) -> io::Result<End> {
    signal(child, Signal::USR1);
    if let Ok(ended) = tokio::time::timeout(LEAVE_PATIENCE, child.wait()).await {
        return Ok(End::Ended(ended?));
    }
    kill(child).await
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The process was not waited for yet, so its id is still its own.
        let _ = kill_process(pid, signal);
    }
}

/// Has the process drain and end.
pub async fn end(child: &mut Child) -> io::Result<End> {
    notify(&NotifyState::Stopping);
    signal(child, Signal::TERM);
    match tokio::time::timeout(STOP_PATIENCE, child.wait()).await {
        Ok(ended) => {
            let status = ended?;
            if let Some(signal) = status.signal() {
                tracing::error!(signal, "the dataplane process was killed while it drained");
            }
        }
        Err(_) => {
            tracing::error!("the dataplane process does not stop: it is killed");
            child.kill().await?;
        }
    }
    Ok(End::Stopped)
}
