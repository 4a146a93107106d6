//! What the process that handles connections keeps: a user that owns nothing, no files, the
//! capabilities that addresses of others need, and system calls for sockets.

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Signal, Uid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::system::uname;
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::io;

/// List of users.
const PASSWD: &str = "/etc/passwd";

/// First Linux version where marks need CAP_NET_RAW only.
const MARKS_BY_RAW: [u32; 2] = [5, 17];

/// System calls for connections, which the packet process does without.
const SOCKETS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_getpeername,
    libc::SYS_recvmmsg,
];

/// Gives up everything else, for good. Call it while there is one thread. `user` is a name or
/// number; without one, this stays root without its rights.
pub(crate) fn enter(user: Option<&str>) -> io::Result<()> {
    let user = user.map(find).transpose()?;
    let mut kept = CapabilitySet::NET_RAW | CapabilitySet::NET_BIND_SERVICE;
    if !is_at_least(&uname().release().to_string_lossy(), MARKS_BY_RAW) {
        kept |= CapabilitySet::NET_ADMIN;
    }
    if let Some((uid, gid)) = user {
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    set_keep_capabilities(false)?;
    // Service managers start programs with 1024, which are fewer than connections.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)?;
    // A change of user would undo it.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    forbid_files().map_err(io::Error::other)?;
    recoded_syscalls::limit(SOCKETS).map(drop).map_err(io::Error::other)
}

/// As far as this Linux supports it.
fn forbid_files() -> Result<(), landlock::RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V6))?
        .create()?
        .restrict_self()
        .map(drop)
}

fn find(name: &str) -> io::Result<(Uid, Gid)> {
    let users = std::fs::read_to_string(PASSWD)?;
    let found = find_in(name, &users);
    let (uid, gid) = found.ok_or_else(|| io::Error::other(format!("there is no user {name}")))?;
    Ok((Uid::from_raw(uid), Gid::from_raw(gid)))
}

/// Finds a user by name or number in lines of name, password, number, group and more.
fn find_in(name: &str, users: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [known, _, uid, gid, ..] = fields[..] else { return None };
        let is_it = known == name || uid == name;
        if is_it { Some((uid.parse().ok()?, gid.parse().ok()?)) } else { None }
    })
}

fn is_at_least(release: &str, least: [u32; 2]) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nrecoded:x:998:997::/:/bin/no\n";
        assert_eq!(find_in("recoded", users), Some((998, 997)));
        assert_eq!(find_in("998", users), Some((998, 997)));
        assert_eq!(find_in("none-here", users), None);
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(is_at_least("6.1.0-amd64", MARKS_BY_RAW) && is_at_least("5.17", MARKS_BY_RAW));
        assert!(!is_at_least("5.9.1", MARKS_BY_RAW) && !is_at_least("", MARKS_BY_RAW));
    }
}
