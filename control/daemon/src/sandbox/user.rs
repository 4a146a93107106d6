//! The user that the dataplane process becomes: one that owns nothing, so that what a fault in it
//! could still reach is not what root may do.

use super::SandboxError;
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The user that the package makes.
const NAME: &str = "recoded";

/// What says which users there are.
const PASSWD: &str = "/etc/passwd";

/// To become another user, and for the supervisor to end a process of one.
const NEEDED: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// A user, and its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// As the log calls it.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// That of its group.
    pub gid: u32,
}

impl User {
    /// The user that `user` of `[daemon]` names, by name or number; where it is not written
    /// `recoded`, if there is one and this process may become it. `None`: it stays who it is.
    ///
    /// # Errors
    ///
    /// [`SandboxError`] where there is no such user, or this process may not become it.
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

    /// By its name or number in `users`, of which each line is name, password, number, group and
    /// more, with colons between; a number that no line has is of a group of that number.
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

    /// Becomes this user, in no other group than its own, and sees to it that there is no way back.
    pub(super) fn become_it(&self) -> Result<(), SandboxError> {
        let failed = |error: Errno| SandboxError::User {
            name: self.name.clone(),
            source: std::io::Error::from(error),
        };
        // Linux takes all ones for "as it is".
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
