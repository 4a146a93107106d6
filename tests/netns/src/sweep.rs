//! Names and clean-up. Everything a bed leaves behind can be found by name, so the same function
//! serves the normal end, a panic, Ctrl-C, and the next run after a crash.
//!
//! ```text
//!  rcd-<pid>-<n>-h0      network namespace of host 0 of the n-th bed of process <pid>
//!  rcd-<pid>-<n>-x1      network namespace of link 1
//!  $TMPDIR/rcd-<pid>-<n> its files: configs, sockets, logs, downloads
//!     owner              "<pid> <start time of the process>", so that a reused pid is recognised
//!     kept               present when the bed was left up on purpose
//! ```
//! Veth pairs live inside the namespaces and are removed with them.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::BedError;
use crate::process;

/// Prefix of every namespace and folder of a bed.
const MARK: &str = "rcd-";

/// Where `ip netns` keeps the namespaces.
const NAMESPACES: &str = "/run/netns";

/// Killed processes are gone within this time, on a busy machine too.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Whether a signal has started the clean-up.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Beds of this process that are up, by prefix.
static LIVE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The folder of a bed.
pub(crate) fn directory(prefix: &str) -> PathBuf {
    std::env::temp_dir().join(prefix)
}

/// Makes a new prefix, its folder and the note of its owner.
pub(crate) fn register() -> Result<String, BedError> {
    let pid = std::process::id();
    let mut live = live();
    let prefix = (0..)
        .map(|number: u32| format!("{MARK}{pid}-{number}"))
        .find(|prefix| !directory(prefix).exists())
        .unwrap_or_default();
    let directory = directory(&prefix);
    fs::create_dir(&directory).map_err(BedError::file(&directory))?;
    let owner = directory.join("owner");
    let note = format!("{pid} {}", start_time(pid).unwrap_or(0));
    fs::write(&owner, note).map_err(BedError::file(&owner))?;
    live.push(prefix.clone());
    Ok(prefix)
}

/// Marks a bed as left up on purpose: neither its own end nor that of this process removes it.
pub(crate) fn keep(prefix: &str) -> Result<(), BedError> {
    live().retain(|other| other != prefix);
    let mark = directory(prefix).join("kept");
    fs::write(&mark, "").map_err(BedError::file(&mark))
}

/// Kills every process in the bed's namespaces, removes them and the folder. Safe to repeat.
pub(crate) fn remove(prefix: &str) {
    let names: Vec<String> = namespaces()
        .into_iter()
        .filter(|name| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-')))
        .collect();
    kill_all(&names);
    for name in &names {
        // It is fine if the namespace is already gone.
        let _ = process::output(Command::new("ip").args(["netns", "del", name]));
    }
    // It is fine if the folder is already gone.
    let _ = fs::remove_dir_all(directory(prefix));
    live().retain(|other| other != prefix);
}

/// Removes every live bed of this process: for a signal handler's thread.
pub fn remove_live() {
    let prefixes = live().clone();
    for prefix in prefixes {
        remove(&prefix);
    }
}

/// Removes the leftovers of dead processes, and if `kept` is set also beds kept on purpose. Returns
/// the removed prefixes.
pub fn sweep(kept: bool) -> Vec<String> {
    let mut prefixes: Vec<String> =
        namespaces().iter().filter_map(|name| prefix_of(name)).collect();
    prefixes.extend(folders());
    prefixes.sort();
    prefixes.dedup();
    prefixes.retain(|prefix| {
        let directory = directory(prefix);
        !owner_lives(prefix, &directory) && (kept || !directory.join("kept").exists())
    });
    for prefix in &prefixes {
        remove(prefix);
    }
    prefixes
}

/// Removes all live beds on SIGINT, SIGTERM and SIGHUP and ends the process with code 130.
///
/// # Errors
/// When the handler cannot be installed, or one is installed already.
pub fn clean_up_on_signal() -> Result<(), BedError> {
    ctrlc::set_handler(|| {
        INTERRUPTED.store(true, Ordering::SeqCst);
        eprintln!("\ninterrupted: cleaning up");
        remove_live();
        std::process::exit(130);
    })
    .map_err(|error| BedError::System {
        what: "signal handler".into(),
        source: io::Error::other(error),
    })
}

/// Waits for the end of the process if a signal has started the clean-up. Errors after that are
/// consequences of the clean-up, and are not reported.
pub fn wait_if_interrupted() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn live() -> std::sync::MutexGuard<'static, Vec<String>> {
    // The list stays valid even if a holder panicked.
    LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// `rcd-<pid>-<n>` of a namespace `rcd-<pid>-<n>-<part>`.
fn prefix_of(namespace: &str) -> Option<String> {
    let rest = namespace.strip_prefix(MARK)?;
    let mut words = rest.split('-');
    let (pid, number) = (words.next()?, words.next()?);
    words.next()?;
    pid.parse::<u32>().ok()?;
    number.parse::<u32>().ok()?;
    Some(format!("{MARK}{pid}-{number}"))
}

fn folders() -> Vec<String> {
    names_in(std::env::temp_dir())
        .filter(|name| name.starts_with(MARK))
        .filter(|name| directory(name).join("owner").exists())
        .collect()
}

fn owner_lives(prefix: &str, directory: &Path) -> bool {
    let note = fs::read_to_string(directory.join("owner")).unwrap_or_default();
    let mut words = note.split(' ').filter_map(|word| word.parse::<u64>().ok());
    let noted = words.next().and_then(|pid| u32::try_from(pid).ok()).zip(words.next());
    match noted {
        Some((pid, started)) => start_time(pid) == Some(started),
        // The folder went first: fall back on the pid in the name.
        None => prefix[MARK.len()..]
            .split('-')
            .next()
            .and_then(|pid| pid.parse().ok())
            .is_some_and(|pid: u32| start_time(pid).is_some()),
    }
}

/// Start time of a process, in clock ticks since boot; `None` if there is none.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name, in parentheses, may hold spaces: fields are counted after it (proc(5)).
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

fn namespaces() -> Vec<String> {
    names_in(NAMESPACES).filter(|name| name.starts_with(MARK)).collect()
}

/// Kills the processes in these namespaces, and those that they start meanwhile, until none is
/// left.
fn kill_all(namespaces: &[String]) {
    let identity = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let ours: Vec<(u64, u64)> =
        namespaces.iter().filter_map(|name| identity(&Path::new(NAMESPACES).join(name))).collect();
    let deadline = Instant::now() + END_PATIENCE;
    while !ours.is_empty() && Instant::now() < deadline {
        // A process that has ended and was not waited for is in no namespace.
        let inside = |pid: &i32| {
            identity(&PathBuf::from(format!("/proc/{pid}/ns/net")))
                .is_some_and(|it| ours.contains(&it))
        };
        let found: Vec<Pid> = names_in("/proc")
            .filter_map(|name| name.parse().ok())
            .filter(inside)
            .filter_map(Pid::from_raw)
            .collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It is fine if the process is already gone.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The names of the files in a folder; none if it does not exist.
fn names_in(folder: impl AsRef<Path>) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_of_namespace_of_a_bed_is_found_and_others_are_not() {
        assert_eq!(prefix_of("rcd-12-0-h3").as_deref(), Some("rcd-12-0"));
        assert_eq!(prefix_of("rcd-12-0"), None);
        assert_eq!(prefix_of("rcd-x-0-h3"), None);
        assert_eq!(prefix_of("other-12-0-h3"), None);
    }

    #[test]
    fn start_time_of_this_process_is_stable_and_of_none_is_none() {
        let pid = std::process::id();
        assert!(start_time(pid).is_some());
        assert_eq!(start_time(pid), start_time(pid));
        assert_eq!(start_time(u32::MAX), None);
    }
}
