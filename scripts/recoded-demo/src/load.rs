//! Load of this machine during a measurement: processor time of other programs, time taken by the
//! hypervisor, and time that the daemons' threads waited for a core.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use recoded_netns::Daemon;
use serde::Serialize;

/// Other programs' share of all cores above which speed is not judged. Programs of an idle desktop
/// stay below; one compiler on eight cores does not.
const OTHERS_MAX: f64 = 0.08;

/// Share of the processor time that the hypervisor may take.
const STOLEN_MAX: f64 = 0.03;

/// Share of the time that the busiest daemon's threads may wait for a core. Five daemons on two
/// idle cores stay below; next to two compilers they do not.
const WAITING_MAX: f64 = 0.35;

/// Share of all cores that must be idle for a measurement to show the link and not the machine.
const IDLE_MIN: f64 = 0.1;

/// Parent process of kernel threads, which work for this traffic.
const KERNEL_THREADS: u32 = 2;

/// Load of the machine over some time. Shares are of all cores, `waiting` is of the elapsed time.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize)]
pub struct Load {
    /// Processor time of programs that the demo did not start.
    pub others: f64,
    /// Processor time that the hypervisor gave to other machines.
    pub stolen: f64,
    /// Share of idle time.
    pub idle: f64,
    /// Longest time that the threads of one daemon were ready and had no core.
    pub waiting: f64,
}

impl Load {
    /// The reason why speed cannot be judged, if there is one.
    pub fn excuse(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let cause = if self.others > OTHERS_MAX {
            format!("other programs used {} of its cores", percent(self.others))
        } else if self.stolen > STOLEN_MAX {
            format!("the hypervisor took {} of its cores", percent(self.stolen))
        } else if self.waiting > WAITING_MAX {
            format!("a daemon waited {} of the time for a core", percent(self.waiting))
        } else {
            return None;
        };
        Some(format!("this machine was busy: {cause}"))
    }

    /// Whether there were cores to spare.
    pub fn is_idle_enough(&self) -> bool {
        self.idle >= IDLE_MIN
    }
}

/// Readings at the start of a measurement.
pub struct Meter {
    started: Instant,
    cores: Cores,
    own_ticks: u64,
    waits: BTreeMap<u32, u64>,
}

impl Meter {
    /// Starts the measurement; `daemons` are the ones whose threads' waits count.
    pub fn start(daemons: &[Daemon]) -> Meter {
        let pids = daemons.iter().filter_map(|daemon| daemon.dataplane_pid().ok());
        let waits = pids.map(|pid| (pid, waited_nanos(pid))).collect();
        let (cores, own_ticks) = (Cores::now(), own_ticks());
        Meter { started: Instant::now(), cores, own_ticks, waits }
    }

    /// The load since then.
    pub fn stop(&self) -> Load {
        let (cores, own) = (Cores::now(), own_ticks().saturating_sub(self.own_ticks));
        let elapsed = self.started.elapsed().as_nanos().max(1) as f64;
        let waits = self.waits.iter();
        let waits = waits.map(|(pid, before)| waited_nanos(*pid).saturating_sub(*before) as f64);
        let waiting = waits.fold(0.0, f64::max) / elapsed;
        Load { waiting, ..self.cores.until(&cores, own) }
    }
}

/// Ticks of all cores since boot.
#[derive(Copy, Clone, Default)]
struct Cores {
    programs: u64,
    idle: u64,
    stolen: u64,
    all: u64,
}

impl Cores {
    fn now() -> Cores {
        Cores::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// From the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(text: &str) -> Cores {
        let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let ticks: Vec<u64> = words.take(8).map(|word| word.parse().unwrap_or(0)).collect();
        let of = |columns: &[usize]| columns.iter().filter_map(|at| ticks.get(*at)).sum();
        let all = ticks.iter().sum();
        Cores { programs: of(&[0, 1, 2]), idle: of(&[3, 4]), stolen: of(&[7]), all }
    }

    fn until(&self, later: &Cores, own_ticks: u64) -> Load {
        let all = later.all.saturating_sub(self.all).max(1) as f64;
        let share = |ticks: u64| (ticks as f64 / all).min(1.0);
        let programs = later.programs.saturating_sub(self.programs);
        Load {
            others: share(programs.saturating_sub(own_ticks)),
            stolen: share(later.stolen.saturating_sub(self.stolen)),
            idle: share(later.idle.saturating_sub(self.idle)),
            waiting: 0.0,
        }
    }
}

/// A process as `/proc/PID/stat` shows it.
struct Process {
    pid: u32,
    parent: u32,
    /// Its own and of its children that have ended.
    ticks: u64,
}

impl Process {
    fn parse(text: &str) -> Option<Process> {
        let pid = text.split(' ').next()?.parse().ok()?;
        // The name may contain anything, also parentheses.
        let rest: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = rest.get(11..15)?.iter().map(|word| word.parse::<u64>().unwrap_or(0)).sum();
        Some(Process { pid, parent: rest.get(1)?.parse().ok()?, ticks })
    }
}

/// Processor time of this program, of everything it started, and of Linux's own threads.
fn own_ticks() -> u64 {
    let folders = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let stats = folders.filter_map(|folder| fs::read_to_string(folder.path().join("stat")).ok());
    let processes: Vec<Process> = stats.filter_map(|text| Process::parse(&text)).collect();
    own(&processes, std::process::id())
}

fn own(processes: &[Process], root: u32) -> u64 {
    let mut own = BTreeSet::from([root, KERNEL_THREADS]);
    loop {
        let before = own.len();
        let children = processes.iter().filter(|process| own.contains(&process.parent));
        let children: Vec<u32> = children.map(|process| process.pid).collect();
        own.extend(children);
        if own.len() == before {
            break;
        }
    }
    processes.iter().filter(|process| own.contains(&process.pid)).map(|it| it.ticks).sum()
}

/// Time that the threads of a process were ready and had no core, in nanoseconds; 0 where Linux
/// does not count it.
fn waited_nanos(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let files = threads.filter_map(|thread| Some(thread.ok()?.path().join("schedstat")));
    let waits = files.filter_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    waits.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_shared_between_us_others_and_the_hypervisor() {
        let before = Cores::parse("cpu  100 0 100 1000 0 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = Cores::parse("cpu  400 100 200 1300 100 0 50 50 0 0\n");
        let load = before.until(&after, 300);
        assert_eq!(load.others, 0.2, "{load:?}");
        assert_eq!((load.stolen, load.idle), (0.05, 0.4));
        assert_eq!(before.until(&after, 900).others, 0.0);
    }

    #[test]
    fn children_and_threads_of_linux_are_ours_and_siblings_are_not() {
        let stat = |pid: u32, parent: u32, ticks: u32| {
            let text = format!("{pid} (a) b) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 1 2 3 20 0 1");
            Process::parse(&text).expect("a process")
        };
        // A child before its parent, as numbers that wrapped have it.
        let all = [stat(4, 12, 1), stat(12, 10, 10), stat(10, 1, 100), stat(11, 1, 7000)];
        assert_eq!(own(&all, 10), 111 + 3 * 6);
        assert_eq!(own(&[stat(33, 2, 5)], 10), 5 + 6);
        assert!(Process::parse("nonsense").is_none());
    }

    #[test]
    fn busy_machine_is_an_excuse_and_an_idle_one_is_none() {
        assert_eq!(Load { idle: 0.5, ..Load::default() }.excuse(), None);
        let busy = |load: Load| load.excuse().expect("an excuse");
        assert!(busy(Load { others: 0.6, ..Load::default() }).contains("used 60 %"));
        assert!(busy(Load { stolen: 0.2, ..Load::default() }).contains("hypervisor took 20 %"));
        assert!(busy(Load { waiting: 0.9, ..Load::default() }).contains("waited 90 %"));
    }

    #[test]
    fn program_that_spins_elsewhere_is_seen() {
        let mut other = std::process::Command::new("setsid")
            .args(["--fork", "timeout", "1", "sh", "-c", "while :; do :; done"])
            .spawn()
            .expect("setsid");
        other.wait().expect("it forks");
        let meter = Meter::start(&[]);
        std::thread::sleep(std::time::Duration::from_millis(700));
        let load = meter.stop();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        assert!(load.others > 0.2 / cores as f64, "{load:?}");
    }
}
