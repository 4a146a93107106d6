//! State of a dataplane process's threads, as Linux reports it: logged before that process is
//! replaced because one of them does not respond.
//!
//! The process cannot log it itself: its sandbox has no files, and the stuck thread does not run
//! this code. The supervisor reads `/proc`. Name, state and processor time are readable by all. The
//! kernel stack requires the right to trace the process, which the supervisor lacks under
//! `recoded.service`, so it is omitted there.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval between two looks, which distinguishes a busy thread from a waiting one.
const LOOK: Duration = Duration::from_millis(100);

/// Threads reported: a process has fewer, unless something is wrong.
const THREADS_MAX: usize = 64;

/// A process starves if one of its threads, or the thread that looks, waits for a core for more
/// than this fraction of a look.
const STARVED_SHARE: u32 = 2;

/// Kernel functions named, the innermost first.
const FRAMES_MAX: usize = 6;

/// Ticks a second (`USER_HZ`): Linux's unit for processor time on every host.
const TICKS_PER_SECOND: u64 = 100;

/// One thread at one moment.
struct Thread {
    id: u32,
    name: String,
    state: char,
    /// Processor time, in ticks.
    ticks: u64,
    core: String,
    schedule: Schedule,
}

/// Scheduler statistics of a thread, if Linux keeps them (`/proc/PID/task/TID/schedstat`).
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
struct Schedule {
    /// Time that it ran.
    ran: Duration,
    /// Time that it was runnable but not running, up to when it last began to run.
    waited: Duration,
}

impl Schedule {
    fn of(folder: &Path) -> Option<Schedule> {
        let text = fs::read_to_string(folder.join("schedstat")).ok()?;
        let mut nanos =
            text.split_whitespace().map(|field| field.parse().map(Duration::from_nanos));
        Some(Schedule { ran: nanos.next()?.ok()?, waited: nanos.next()?.ok()? })
    }
}

impl Thread {
    fn of(folder: &Path) -> Option<Thread> {
        let id = folder.file_name()?.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        // The name, in parentheses, may contain any characters (proc_pid_stat(5)).
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
            schedule: Schedule::of(folder).unwrap_or_default(),
        })
    }

    /// Time that it was runnable but not running since `before`, which was `elapsed` ago.
    fn waited(&self, before: &Thread, elapsed: Duration) -> Duration {
        let (was, is) = (before.schedule, self.schedule);
        // The current wait is counted only once it runs.
        if self.state == 'R' && before.state == 'R' && was == is && is.ran > Duration::ZERO {
            return elapsed;
        }
        is.waited.saturating_sub(was.waited)
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

/// State of the threads of a process.
pub struct Threads {
    /// One line per thread.
    pub lines: Vec<String>,
    /// Whether the machine is too busy for them: a late response then is not a sign of a hang.
    pub is_starved: bool,
}

/// Looks at the threads of a process; takes [`LOOK`]. Empty if the process is gone.
pub fn look(pid: u32) -> Threads {
    let (begun, before) = (Instant::now(), Thread::all(pid));
    std::thread::sleep(LOOK);
    let threads = Thread::all(pid);
    let elapsed = begun.elapsed();
    let was = |thread: &Thread| before.iter().find(|was| was.id == thread.id);
    let lines = threads.iter().map(|thread| {
        let Thread { id, name, core, .. } = thread;
        let ticks = was(thread).map_or(thread.ticks, |was| was.ticks);
        let busy = thread.ticks.saturating_sub(ticks) * 1000 / TICKS_PER_SECOND;
        let stack = stack(pid, *id).map(|stack| format!(", in Linux at {stack}"));
        format!(
            "thread {name} ({id}) {}, {busy} of {} ms on core {core}{}",
            thread.does(),
            elapsed.as_millis(),
            stack.unwrap_or_default()
        )
    });
    let waits = threads.iter().filter_map(|thread| Some(thread.waited(was(thread)?, elapsed)));
    let longest = waits.chain([elapsed.saturating_sub(LOOK)]).max().unwrap_or_default();
    let is_starved = longest > elapsed / STARVED_SHARE;
    Threads { lines: lines.collect(), is_starved }
}

/// The kernel function that a thread executes; `None` if it is not in the kernel, or cannot be
/// traced.
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
        // On a shared host a look may find it without a core.
        let is_busy = |line: &String| {
            line.contains("thread is) busy (")
                && line.contains(") runs or waits for a core, ")
                && !line.contains(", 0 of ")
        };
        let begun = Instant::now();
        let told = loop {
            let told = look(std::process::id()).lines;
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
        assert_eq!(look(u32::MAX).lines, [""; 0], "there is no such process");
    }

    /// On an overloaded machine a late process is not a hung one.
    #[test]
    fn process_whose_threads_wait_for_a_core_is_starved() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let spin = || {
            while !IS_OVER.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..4 * cores).map(|_| std::thread::spawn(spin)).collect();
        let begun = Instant::now();
        let mut is_starved = false;
        while !is_starved && begun.elapsed() < Duration::from_secs(20) {
            is_starved = look(std::process::id()).is_starved;
        }
        IS_OVER.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(is_starved || !Path::new("/proc/self/schedstat").exists());
    }
}
