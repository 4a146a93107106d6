//! The user of the dataplane process: it owns nothing, so a compromised process has none of root's
//! rights.

use super::SandboxError;
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The user that the package creates.
const NAME: &str = "recoded";

/// The list of users.
const PASSWD: &str = "/etc/passwd";

/// Capabilities to change the user, and for the supervisor to kill a process of that user.
const NEEDED: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// A user, and its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Name in the log.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// That of its group.
    pub gid: u32,
}

impl User {
    /// The user that `user` of `[daemon]` names, by name or number. If it is not written:
    /// `recoded`, if it exists and this process may become it. `None`: the user stays.
    ///
    /// # Errors
    ///
    /// [`SandboxError`] if there is no such user, or this process may not become it.
    pub fn find(written: Option<&str>) -> Result<Option<User>, SandboxError> {
        let users = std::fs::read_to_string(PASSWD).unwrap_or_default();
        let held = capabilities(None).map(|sets| sets.effective);
        let may_change = held.is_ok_and(|held| held.contains(NEEDED));
        let Some(name) = written else {
            return Ok(User::of(NAME, &users).filter(|_| may_change));
        };
        let user = User::of(name, &users).ok_or_else(|| SandboxError::NoUser(name.to_owned()))?;
        if user.uid == 0 || user.uid == geteuid().as_raw() {
            return Ok(None);
        }
        if may_change { Ok(Some(user)) } else { Err(SandboxError::NotRoot(user.name)) }
    }

    /// Finds a user by name or number in `users`. Each line has name, password, number, group and
    /// more, separated by colons. A number without a line has the group of the same number.
    fn of(name: &str, users: &str) -> Option<User> {
        let number = name.parse().ok();
        let known = users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [known, _, uid, gid, ..] = fields[..] else { return None };
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            let is_it = known == name || Some(uid) == number;
            is_it.then(|| User { name: known.to_owned(), uid, gid })
        });
        known.or_else(|| Some(User { name: name.to_owned(), uid: number?, gid: number? }))
    }

    /// Becomes this user, with no group but its own, and verifies that this is irreversible.
    pub(super) fn become_it(&self) -> Result<(), SandboxError> {
        let failed = |error: Errno| SandboxError::User {
            name: self.name.clone(),
            source: std::io::Error::from(error),
        };
        // To Linux, all ones mean "unchanged".
        if self.uid == u32::MAX || self.gid == u32::MAX {
            return Err(failed(Errno::INVAL));
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&[]).map_err(failed)?;
        set_thread_res_gid(gid, gid, gid).map_err(failed)?;
        set_thread_res_uid(uid, uid, uid).map_err(failed)?;
        let has_groups = getgroups().map_err(failed)?.iter().any(|group| *group != gid);
        if (getuid(), geteuid(), getgid()) != (uid, uid, gid) || has_groups || returns() {
            return Err(failed(Errno::PERM));
        }
        Ok(())
    }
}

/// Whether this process can become root again.
fn returns() -> bool {
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    set_thread_res_uid(uid, uid, uid).is_ok() || set_thread_res_gid(gid, gid, gid).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\n:::\nrecoded:x:998:997::/:/bin/no\n\
                         other:x:12:notanumber::/:\n";

    #[test]
    fn users_are_found_by_name_and_number() {
        let of = |name| User::of(name, USERS).map(|user| (user.name, user.uid, user.gid));
        assert_eq!(of("recoded"), Some(("recoded".into(), 998, 997)));
        assert_eq!(of("998"), Some(("recoded".into(), 998, 997)));
        assert_eq!(of("0"), Some(("root".into(), 0, 0)));
        assert_eq!(of("64321"), Some(("64321".into(), 64321, 64321)));
        for name in ["no-such-user", "broken", "", "-1", "4294967296", "other"] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn user_that_does_not_exist_is_said_and_root_is_no_change() {
        let said = User::find(Some("no-such-user")).expect_err("there is none").to_string();
        assert!(said.contains("no-such-user") && said.contains("[daemon]"), "{said}");
        let own = geteuid().as_raw().to_string();
        assert_eq!(User::find(Some(&own)).expect("it is who it is"), None);
    }
}
