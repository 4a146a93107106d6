//! Network namespaces of this process.
//!
//! They have no names: each is held by a `cat` that ends with this process, even after a crash. So
//! nothing is left behind and two runs do not collide.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::BenchError;

/// A network namespace that lives as long as this value.
pub struct Namespace {
    file: File,
    pid: u32,
    holder: Child,
}

impl Namespace {
    /// Makes one.
    ///
    /// # Errors
    /// [`BenchError::Os`].
    pub fn new() -> Result<Namespace, BenchError> {
        let mut holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::os("starting `unshare` (util-linux)"))?;
        // The echo of `cat` shows that the process has entered its namespace.
        let mut echo = [0];
        if let (Some(stdin), Some(stdout)) = (&mut holder.stdin, &mut holder.stdout) {
            stdin
                .write_all(b"\n")
                .and_then(|()| stdout.read_exact(&mut echo))
                .map_err(BenchError::os("making a network namespace"))?;
        }
        let pid = holder.id();
        let file = File::open(format!("/proc/{pid}/ns/net"))
            .map_err(BenchError::os("opening a network namespace"))?;
        Ok(Namespace { file, pid, holder })
    }

    /// Moves the calling thread, and threads it starts later, into the namespace.
    ///
    /// # Errors
    /// [`BenchError::Os`].
    pub fn enter(&self) -> Result<(), BenchError> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(BenchError::os("entering a network namespace"))
    }

    /// Runs `work` in the namespace, in a new thread.
    ///
    /// # Errors
    /// [`BenchError::Thread`] if it panics, otherwise the error of `work`.
    pub fn inside<R: Send>(
        &self,
        work: impl FnOnce() -> Result<R, BenchError> + Send,
    ) -> Result<R, BenchError> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().and_then(|()| work()));
            thread.join().unwrap_or(Err(BenchError::Thread("set-up")))
        })
    }

    /// Sets a parameter of Linux, named by its path under `/proc/sys`.
    ///
    /// # Errors
    /// [`BenchError::Os`].
    pub fn sysctl(&self, path: &str, value: &str) -> Result<(), BenchError> {
        self.inside(|| {
            std::fs::write(format!("/proc/sys/{path}"), value)
                .map_err(BenchError::os(format!("writing /proc/sys/{path}")))
        })
    }

    /// A command that will run in the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid)).arg(program);
        command
    }

    /// Runs `ip` in the namespace with arguments split at spaces.
    ///
    /// # Errors
    /// [`BenchError::Command`], [`BenchError::Os`].
    pub fn ip(&self, arguments: &str) -> Result<(), BenchError> {
        run(self.command("ip").args(arguments.split(' ')))
    }

    /// Process id in the namespace, used by other commands to refer to it.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // It ends by itself; waiting only avoids a zombie.
        let _ = self.holder.wait();
    }
}

/// Runs a command to completion.
///
/// # Errors
/// [`BenchError::Command`] when it fails, [`BenchError::Os`] when it does not start.
pub fn run(command: &mut Command) -> Result<(), BenchError> {
    let text = || {
        let arguments = command.get_args().map(|argument| argument.to_string_lossy());
        let program = command.get_program().to_string_lossy();
        std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
    };
    let line = text();
    let output =
        command.output().map_err(BenchError::os(format!("starting `{line}` (iproute2)")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(BenchError::Command {
        command: line,
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
