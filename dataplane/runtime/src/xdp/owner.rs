//! The process that holds an XDP program of another owner on an interface, and the command that
//! removes the program.
//!
//! A program attached by a `bpf_link` stays until the last descriptor of that link is closed:
//! `ip link set ... xdp off` is refused ("Can't replace active BPF XDP link"). A program attached
//! by netlink stays until it is detached by netlink.

use std::collections::BTreeSet;
use std::fs;

/// How to remove a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A process has its link.
    Process {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// No visible process has a link of it.
    Unknown,
}

impl Owner {
    /// Finds the owner of a program.
    pub fn of(program: u32) -> Owner {
        let holders: Vec<u32> = pids().filter(|pid| holds(*pid, program)).collect();
        let all: BTreeSet<u32> = holders.iter().copied().collect();
        // The parent of a daemon's processes.
        let is_first = |pid: &&u32| parent(**pid).is_none_or(|parent| !all.contains(&parent));
        match holders.iter().find(is_first) {
            Some(pid) => Owner::Process { pid: *pid, name: name(*pid) },
            None => Owner::Unknown,
        }
    }

    /// The command that removes the program from an interface, with an explanation.
    pub fn cure(&self, interface: &str) -> String {
        match self {
            Owner::Process { pid, name } => format!("stop {name}, which has it (`kill {pid}`)"),
            Owner::Unknown => format!(
                "stop its owner (`bpftool net show dev {interface}`); if it was attached by ip, \
                 `ip link set {interface} xdp off`"
            ),
        }
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok())
}

/// Whether a process has a descriptor of a link of the program.
fn holds(pid: u32, program: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let mut texts = descriptors.filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.any(|text| is_link_of(&text, program))
}

/// Whether this is Linux's description of a link of the program.
fn is_link_of(text: &str, program: u32) -> bool {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let id = value("prog_id:").and_then(|id| id.trim().parse::<u32>().ok());
    value("link_id:").is_some() && id == Some(program)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|letter| !letter.is_control()).collect();
    if name.is_empty() { "the process".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_of_a_link_is_told_from_that_of_a_program() {
        let link = "pos:\t0\nflags:\t02000002\nlink_type:\txdp\nlink_id:\t7\nprog_tag:\tab\n\
                    prog_id:\t42\nifindex:\t3\n";
        assert!(is_link_of(link, 42) && !is_link_of(link, 4) && !is_link_of(link, 7));
        assert!(!is_link_of("prog_type:\t6\nprog_id:\t42\n", 42));
        assert!(!is_link_of("", 0));
    }

    #[test]
    fn program_that_nobody_has_is_detached_by_ip() {
        let cure = Owner::of(u32::MAX).cure("eth0");
        assert!(cure.contains("bpftool net show dev eth0") && cure.contains("ip link set eth0"));
    }
}
