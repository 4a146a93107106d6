//! The standby process, which waits to take over from the process that sees packets.
//!
//! Its frames are already mapped, which is the slowest part of a start; it receives its orders when
//! it is needed. It is created only while another process runs, so it never delays the first
//! packet.

use crate::memory::Memory;
use recoded::config::Config;
use recoded::lifecycle::Frames;
use recoded_runtime::channel::Channel;
use recoded_runtime::ip_packet_bytes_max;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// Run time of the active process before a standby is created, so that the active one can first
/// connect to its neighbours.
const SETTLED: Duration = Duration::from_secs(1);

/// Pause before a retry after a standby process could not start, or ended.
const AGAIN: Duration = Duration::from_secs(60);

/// Time limit for mapping frames while an active process waits to be replaced.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Starts dataplane processes, and keeps a standby ready.
pub struct Standby {
    /// Log level and configuration name, as shown in process lists.
    arguments: [String; 4],
    waiting: Option<Waiting>,
    /// When a standby was last started for the running process.
    tried: Option<Instant>,
    /// Whether the lack of memory has been logged.
    is_short_said: bool,
}

/// A process that waits for its start, and its channel.
pub type Waiting = (Child, Channel);

impl Standby {
    /// No standby yet.
    pub fn new(log: &str, file: &str) -> Standby {
        let arguments = ["--log", log, "--config", file].map(str::to_owned);
        Standby { arguments, waiting: None, tried: None, is_short_said: false }
    }

    /// Whether to start a standby for a process that has run for `running`.
    pub fn is_due(&mut self, running: Option<Duration>) -> bool {
        let waits = self.waiting.as_mut().is_some_and(|(child, _)| runs(child));
        let is_time = self.tried.is_none_or(|tried| tried.elapsed() > AGAIN);
        !waits && is_time && running.is_some_and(|running| running > SETTLED)
    }

    /// Starts a standby for `config`, if it has one. Requires a tokio runtime.
    pub fn prepare(&mut self, config: &Config) {
        (self.waiting, self.tried) = (None, Some(Instant::now()));
        if !config.daemon.standby {
            return;
        }
        let mtu = ip_packet_bytes_max(config.frame_size);
        let (workers, per_worker) = (config.daemon.workers, config.daemon.frames);
        let frames = Frames { workers, per_worker, mtu };
        if self.is_short(workers as u64 * u64::from(per_worker) * config.frame_size.bytes() as u64)
        {
            return;
        }
        match self.spawn(frames) {
            Ok(waiting) => self.waiting = Some(waiting),
            Err(error) => tracing::warn!(%error, "no standby process"),
        }
    }

    /// Whether less than `bytes` would remain free after the standby takes as much: other programs
    /// need memory more than the next start needs to be short.
    fn is_short(&mut self, bytes: u64) -> bool {
        let free = Memory::here().free().filter(|free| *free < 2 * bytes);
        if let Some(free) = free.filter(|_| !self.is_short_said) {
            tracing::info!(
                "no standby process, since it would take {} of {} MiB that are free: what needs \
                 another process takes longer",
                bytes >> 20,
                free >> 20
            );
        }
        self.is_short_said = free.is_some();
        free.is_some()
    }

    /// Starts a standby for `config`, and waits until it is ready: for an upgrade, while the
    /// previous process still sees packets.
    pub fn prepare_now(&mut self, config: &Config) {
        self.prepare(config);
        if let Some((_, channel)) = &self.waiting {
            let _ = poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&PATIENCE));
        }
    }

    /// Returns the standby process, or starts one.
    ///
    /// # Errors
    ///
    /// Linux lacks a process, memory or descriptors for it.
    pub fn take(&mut self) -> io::Result<Waiting> {
        self.tried = None;
        let waiting = self.waiting.take();
        let ready =
            waiting.and_then(|(mut child, channel)| runs(&mut child).then_some((child, channel)));
        ready.map_or_else(|| self.spawn(Frames::default()), Ok)
    }

    /// Ends the standby process.
    pub async fn end(&mut self) {
        if let Some((mut child, _)) = self.waiting.take() {
            let _ = child.kill().await;
        }
        self.tried = None;
    }

    fn spawn(&self, frames: Frames) -> io::Result<Waiting> {
        let (ours, theirs) = Channel::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg("--dataplane")
            .args(&self.arguments)
            .env_remove("NOTIFY_SOCKET")
            .stdin(OwnedFd::from(theirs))
            .kill_on_drop(true)
            .spawn()?;
        ours.send(&frames, &[])?;
        Ok((child, ours))
    }
}

/// Whether it is still running.
fn runs(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}
