//! Linux's memory accounting: free memory, and processes killed because it ran out.
//!
//! Limits and counters are those of this process's control group if it has a memory controller
//! (cgroup v2: a unit of systemd, a container), otherwise those of the machine.

use crate::lifecycle::EXIT_SET_BACK;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

const SIGKILL: i32 = 9;

/// The reason of [`EXIT_SET_BACK`], and of a process that is killed because Linux reports it.
pub const SET_BACK: &str = "this box was set back to a snapshot, or runs twice (a copy needs a key of \
                        its own); the next process has new keys and numbers";

/// The fix, appended to the reason.
const CURE: &str = "or set fewer `frames` or `workers` in [daemon]";

/// How eligible the calling process is to be killed when memory runs out
/// (proc_pid_oom_score_adj(5)), from -1000 (never) to 1000 (first).
pub const SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// Score of the supervisor, which starts another dataplane process: half of the memory that it may
/// use counts less. systemd sets the same (`recoded.service`).
const SUPERVISOR_SCORE: i32 = -500;

/// Makes Linux prefer other processes, the dataplane process among them, when memory runs out.
/// Leaves a score that is already set. Has no effect without CAP_SYS_RESOURCE.
pub fn protect_supervisor() {
    if score() == Some(0)
        && let Err(error) = fs::write(SCORE_FILE, SUPERVISOR_SCORE.to_string())
    {
        tracing::debug!(%error, "Linux may kill the supervisor first if memory runs out");
    }
}

/// Score of a dataplane process whose supervisor has the score of the calling process.
pub fn dataplane_score() -> Option<i32> {
    score().map(|score| if score < 0 { (score - SUPERVISOR_SCORE).min(0) } else { score })
}

fn score() -> Option<i32> {
    fs::read_to_string(SCORE_FILE).ok()?.trim().parse().ok()
}

/// Memory of this process's group and machine.
pub struct Memory {
    /// Directory of the group's files, if there is one.
    group: Option<PathBuf>,
}

impl Memory {
    /// Memory of this process.
    pub fn here() -> Memory {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let group = path.map(|path| Path::new("/sys/fs/cgroup").join(path));
        Memory { group: group.filter(|group| group.join("memory.events").exists()) }
    }

    /// Number of processes that Linux killed because memory ran out. `None` if unknown.
    pub fn ended(&self) -> Option<u64> {
        match &self.group {
            Some(group) => field(&group.join("memory.events"), "oom_kill"),
            None => field(Path::new("/proc/vmstat"), "oom_kill"),
        }
    }

    /// Why a process ended, if it was set back, or Linux killed it because memory ran out: the
    /// count has increased since `before`.
    pub fn cause(&self, status: ExitStatus, before: Option<u64>) -> Option<String> {
        if status.code() == Some(EXIT_SET_BACK.into()) {
            return Some(SET_BACK.to_owned());
        }
        let is_more = self.ended()? > before?;
        let limit = match self.limit() {
            Some(bytes) => format!("give its unit or container more than {} MiB", bytes >> 20),
            None => "give the machine, or its container, more".to_owned(),
        };
        (is_more && status.signal() == Some(SIGKILL))
            .then(|| format!("Linux ended it because memory ran out: {limit}; {CURE}"))
    }

    /// Bytes available. `None` if unknown.
    pub fn free(&self) -> Option<u64> {
        let machine = field(Path::new("/proc/meminfo"), "MemAvailable:").map(|kib| kib << 10);
        let groups = self.groups().filter_map(|group| {
            let limit = number(&group.join("memory.max")).ok()?;
            let used = number(&group.join("memory.current")).ok()?;
            // Linux can reclaim pages of files.
            let pages = ["active_file", "inactive_file"];
            let pages = pages.map(|name| field(&group.join("memory.stat"), name).unwrap_or(0));
            Some(limit.saturating_sub(used.saturating_sub(pages.iter().sum())))
        });
        groups.chain(machine).min()
    }

    /// The smallest limit of the group and its ancestors, in bytes.
    fn limit(&self) -> Option<u64> {
        self.groups().filter_map(|group| number(&group.join("memory.max")).ok()).min()
    }

    /// Bytes of the machine, or the smallest limit of the group and its ancestors. `None` if
    /// unknown.
    pub fn total(&self) -> Option<u64> {
        let machine = field(Path::new("/proc/meminfo"), "MemTotal:").map(|kib| kib << 10);
        self.limit().into_iter().chain(machine).min()
    }

    fn groups(&self) -> impl Iterator<Item = &Path> {
        self.group.iter().flat_map(|group| group.ancestors())
    }
}

/// The number after a name, with one pair per line.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut parts| (parts.next()? == name).then(|| parts.next()?.parse().ok())?)
}

/// A file that holds a number rather than `max`.
fn number(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: i32 = SIGKILL;

    fn group(events: &str, max: &str) -> (tempfile::TempDir, Memory) {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("unit");
        fs::create_dir(&group).unwrap();
        for (name, text) in
            [("memory.events", events), ("memory.max", max), ("memory.current", "3000000\n")]
        {
            fs::write(group.join(name), text).unwrap();
        }
        fs::write(folder.path().join("memory.max"), "8388608\n").unwrap();
        fs::write(folder.path().join("memory.current"), "8000000\n").unwrap();
        (folder, Memory { group: Some(group) })
    }

    #[test]
    fn only_a_process_that_was_killed_while_the_counter_rose_wanted_memory() {
        let (_folder, memory) = group("low 0\nmax 7\noom 1\noom_kill 2\n", "max\n");
        assert_eq!(memory.ended(), Some(2));
        let killed = ExitStatus::from_raw(KILLED);
        let cause = memory.cause(killed, Some(1)).unwrap();
        assert!(cause.contains("because memory ran out") && cause.contains("8 MiB"), "{cause}");
        assert_eq!(memory.cause(killed, Some(2)), None);
        assert_eq!(memory.cause(ExitStatus::from_raw(11), Some(1)), None);
        assert_eq!(memory.cause(killed, None), None, "it is not known");
    }

    #[test]
    fn least_of_all_limits_counts() {
        let (folder, memory) = group("oom_kill 0\n", "4194304\n");
        assert_eq!(memory.limit(), Some(4 << 20));
        assert_eq!(memory.free(), Some((8 << 20) - 8_000_000));
        let stat = "anon 5\nactive_file 900000\ninactive_file 6000000\n";
        fs::write(folder.path().join("memory.stat"), stat).unwrap();
        let own = (4 << 20) - 3_000_000;
        assert_eq!(memory.free(), Some(own), "pages of files can be had");
    }

    #[test]
    fn machine_says_how_much_it_has() {
        let memory = Memory { group: None };
        assert!(memory.free().unwrap() > 0 && memory.limit().is_none());
        // Linux has this counter since 4.13.
        assert!(memory.ended().is_some());
    }
}
