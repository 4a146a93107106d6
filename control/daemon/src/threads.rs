//! What the threads of a dataplane process do, as Linux tells it: for the log, before that process
//! is replaced because one of them does not answer.
//!
//! The process cannot say it itself: its sandbox has no files, and the thread that is stuck does
//! not run our code. The supervisor reads `/proc`. Name, state and processor time are open to all;
//! the stack inside of Linux takes the right to trace the process, which the supervisor does not
//! have under `recoded.service`, so it is left out there.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between the two looks by which a thread that is busy is told from one that waits.
const LOOK: Duration = Duration::from_millis(100);

/// Threads that are told: a process has fewer, unless something is wrong.
const THREADS_MAX: usize = 64;

/// Functions of Linux that are named, the innermost first.
const FRAMES_MAX: usize = 6;

/// Ticks in a second (`USER_HZ`), in which Linux reports processor time on every host.
const TICKS_PER_SECOND: u64 = 100;

/// One thread at one moment.
struct Thread {
    id: u32,
    name: String,
    state: char,
    /// Processor time, in ticks.
    ticks: u64,
    core: String,
}

impl Thread {
    fn of(folder: &Path) -> Option<Thread> {
        let id = folder.file_name()?.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        // The name, in parentheses, may hold anything (proc_pid_stat(5)).
        let (name, fields) = stat.rsplit_once(") ")?;
        let name = name.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Thread {
            id,
            name,
            state: fields.first()?.chars().next()?,
            ticks: number(11)? + number(12)?,
            core: (*fields.get(36)?).to_owned(),
        })
    }

    fn all(pid: u32) -> Vec<Thread> {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
        let folders = entries.take(THREADS_MAX).filter_map(|entry| Some(entry.ok()?.path()));
        folders.filter_map(|folder| Thread::of(&folder)).collect()
    }

    fn does(&self) -> &'static str {
        match self.state {
            'R' => "runs or waits for a core",
            'S' => "sleeps",
            'D' => "waits inside of Linux and cannot be interrupted",
            'T' => "was stopped by a signal",
            't' => "was stopped by a debugger",
            _ => "has ended",
        }
    }
}

/// A line for each thread of a process; takes [`LOOK`]. Empty when the process is gone.
pub fn describe(pid: u32) -> Vec<String> {
    let (begun, before) = (Instant::now(), Thread::all(pid));
    std::thread::sleep(LOOK);
    let threads = Thread::all(pid);
    let millis = begun.elapsed().as_millis();
    let told = threads.iter().map(|thread| {
        let Thread { id, name, core, .. } = thread;
        let was = before.iter().find(|was| was.id == *id).map_or(thread.ticks, |was| was.ticks);
        let busy = thread.ticks.saturating_sub(was) * 1000 / TICKS_PER_SECOND;
        let stack = stack(pid, *id).map(|stack| format!(", in Linux at {stack}"));
        format!(
            "thread {name} ({id}) {}, {busy} of {millis} ms on core {core}{}",
            thread.does(),
            stack.unwrap_or_default()
        )
    });
    told.collect()
}

/// Where a thread is inside of Linux; `None` where it is not, or where we may not trace it.
fn stack(pid: u32, thread: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stack")).ok()?;
    let frame = |line: &str| Some(line.split_once("] ")?.1.split('+').next()?.to_owned());
    let frames: Vec<String> = text.lines().filter_map(frame).take(FRAMES_MAX).collect();
    (!frames.is_empty()).then(|| frames.join(" < "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn threads_are_told_by_name_and_a_busy_one_from_one_that_sleeps() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let spin = || {
            while !IS_OVER.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let wait = || {
            while !IS_OVER.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_secs(1));
            }
        };
        let threads = [named("is) busy").spawn(spin).unwrap(), named("waits").spawn(wait).unwrap()];
        // On a host with others a look may find it without a core.
        let is_busy = |line: &String| {
            line.contains("thread is) busy (")
                && line.contains(") runs or waits for a core, ")
                && !line.contains(", 0 of ")
        };
        let begun = Instant::now();
        let told = loop {
            let told = describe(std::process::id());
            if told.iter().any(is_busy) || begun.elapsed() > Duration::from_secs(20) {
                break told;
            }
        };
        IS_OVER.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        println!("{told:#?}");
        assert!(told.iter().any(is_busy), "{told:#?}");
        let is_idle =
            |line: &String| line.starts_with("thread waits (") && line.contains(" sleeps, 0 of ");
        assert!(told.iter().any(is_idle), "{told:#?}");
        assert_eq!(describe(u32::MAX), [""; 0], "there is no such process");
    }
}
