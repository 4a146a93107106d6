//! Runs programs: to completion with their output, or in the background with their output in a
//! file.
//!
//! Children get a process group of their own, so that Ctrl-C in the terminal reaches only this
//! process, which does the clean-up ([`crate::sweep`]).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::BedError;

/// Maximum part of a failed program's output quoted in an error, in bytes.
const OUTPUT_TAIL_BYTES: usize = 2000;

/// Runs a command to completion and returns its standard output.
///
/// # Errors
/// If it cannot be started, or fails; then with the end of both its outputs.
pub fn run(command: &mut Command) -> Result<String, BedError> {
    let finished = output(command)?;
    if !finished.success {
        return Err(BedError::Command {
            command: describe(command),
            status: finished.status,
            output: tail(&format!("{}{}", finished.stderr, finished.stdout)),
        });
    }
    Ok(finished.stdout)
}

/// Copies a program to where it is then run, also where it runs already. Another process writes
/// it: a file that this one has open for writing may at that moment be inherited by a child of
/// another thread, and Linux then refuses to run it ("Text file busy").
///
/// # Errors
/// If the copy cannot be made.
pub fn install_program(from: &Path, to: &Path) -> Result<(), BedError> {
    let draft = to.with_extension("draft");
    run(Command::new("install").args(["-m", "755"]).args([from, &draft]))?;
    run(Command::new("mv").args([&draft, to])).map(drop)
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Whether it ended with exit code 0.
    pub success: bool,
    /// The exit code, if it ended by itself.
    pub code: Option<i32>,
    /// Exit status in words.
    pub status: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs a command to completion, whether it fails or not.
///
/// # Errors
/// When it cannot be started.
pub fn output(command: &mut Command) -> Result<Finished, BedError> {
    let result = command
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .map_err(|source| BedError::Spawn { program: program(command), source })?;
    Ok(Finished {
        success: result.status.success(),
        code: result.status.code(),
        status: result.status.to_string(),
        stdout: String::from_utf8_lossy(&result.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&result.stderr).into_owned(),
    })
}

/// A program in the background. Killed when dropped, unless [`Background::leave`] released it.
#[derive(Debug, Default)]
pub struct Background {
    child: Option<Child>,
}

impl Background {
    /// Starts a command with both outputs appended to the file `log`.
    ///
    /// # Errors
    /// When the log cannot be opened or the program cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Result<Background, BedError> {
        let out =
            File::options().create(true).append(true).open(log).map_err(BedError::file(log))?;
        let err = out.try_clone().map_err(BedError::file(log))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(|source| BedError::Spawn { program: program(command), source })?;
        Ok(Background { child: Some(child) })
    }

    /// Process id (`ip netns exec` becomes the program it starts, so this is the program's).
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// SIGKILL, then waits for the end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only if it has exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, then waits up to `patience`; returns whether it ended with exit code 0 in time.
    pub fn terminate(&mut self, patience: Duration) -> bool {
        let Some(child) = self.child.as_mut() else {
            return true;
        };
        // Fails only if it has exited already.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        self.wait(patience).unwrap_or(false)
    }

    /// Waits up to `patience` for the end: `Some(exit code was 0)`, or `None` if it still runs.
    pub fn wait(&mut self, patience: Duration) -> Option<bool> {
        let child = self.child.as_mut()?;
        let deadline = Instant::now() + patience;
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                self.child = None;
                return Some(status.success());
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets the program outlive this process.
    pub fn leave(mut self) {
        self.child = None;
    }
}

/// Supervisors stop their children only in an orderly exit.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Killed processes are gone within this time, on a busy machine too.
const KILL_PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

impl Drop for Background {
    fn drop(&mut self) {
        if self.terminate(END_PATIENCE) {
            return;
        }
        // Its children do not end with it.
        let children = children(self.pid());
        self.kill();
        children.into_iter().for_each(end);
    }
}

/// Child processes of the main thread, oldest first; none if it has ended.
pub fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Kills a process that is not a child of this one and waits until it is gone.
pub fn end(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if pidfd_send_signal(&handle, Signal::KILL).is_ok() {
        let _ = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&KILL_PATIENCE));
    }
}

/// Whether there is a process with this id that has not ended.
pub fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

/// Processor time that a process has used so far.
///
/// # Errors
/// If the process has exited.
pub fn processor_time(pid: u32) -> Result<Duration, BedError> {
    time_of(&format!("/proc/{pid}/stat"))
}

/// Processor time that a thread of this process has used.
///
/// # Errors
/// If the thread has exited.
pub fn processor_time_of_thread(tid: rustix::thread::Pid) -> Result<Duration, BedError> {
    time_of(&format!("/proc/self/task/{tid}/stat"))
}

fn time_of(path: &str) -> Result<Duration, BedError> {
    let path = PathBuf::from(path);
    let stat = fs::read_to_string(&path).map_err(BedError::file(&path))?;
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    // utime and stime, fields 14 and 15 of proc(5); the third is the first here.
    let ticks: u64 =
        fields.split(' ').skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// The command line, for messages.
pub fn describe(command: &Command) -> String {
    let mut words = vec![program(command)];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// The end of a text, cut at a character boundary.
pub fn tail(text: &str) -> String {
    let text = text.trim_end();
    let mut start = text.len().saturating_sub(OUTPUT_TAIL_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supervisor that does not stop in time was killed, and the process that it had started ran
    /// on.
    #[test]
    fn program_that_does_not_end_takes_its_children_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; sleep 600 & wait"]);
        let program = Background::start(&mut command, &folder.path().join("log")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let child = loop {
            if let Some(child) = children(program.pid()).first() {
                break *child;
            }
            assert!(Instant::now() < deadline, "it starts none");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(runs(child));
        drop(program);
        assert!(!runs(child));
    }
}
