//! Drops the dataplane process's privileges before it reads its first packet.
//!
//! The network is hostile, and a bug in packet handling must not compromise the host. The process
//! therefore keeps its open descriptors and can acquire nothing more: no capability, no privilege
//! through another program, no file, no socket, no core dump with keys in it, and only the system
//! calls of `recoded-syscalls`. It also runs as a user that owns nothing (`user.rs`).
//!
//! All of this applies to a thread and the threads that it starts afterwards. It is therefore done
//! while there is one thread, and refused otherwise.

mod user;

pub use user::User;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::fmt::{self, Display, Formatter};
use std::io;

/// Why the process cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Linux refuses a step that all of its versions support.
    #[error("cannot {step} ({source}): set sandbox = \"off\" in [daemon], and report this")]
    Step {
        /// The attempted step.
        step: &'static str,
        /// The error from Linux.
        source: io::Error,
    },
    /// The filter of system calls could not be built or was refused.
    #[error("cannot limit system calls ({0}): set sandbox = \"off\" in [daemon], and report this")]
    Filter(String),
    /// There is no user with this name or number.
    #[error(
        "there is no user {0}: write one of /etc/passwd, or a number, as user in [daemon], or \
         \"root\" to stay root"
    )]
    NoUser(String),
    /// Only root can become another user.
    #[error(
        "this process may not become user {0}: it needs CAP_SETUID, CAP_SETGID and CAP_KILL \
         (recoded.service has them), or no user in [daemon]"
    )]
    NotRoot(String),
    /// Linux refuses to make it that user, or would let it become root again.
    #[error("cannot become user {name} for good ({source}): set user = \"root\" in [daemon]")]
    User {
        /// The user.
        name: String,
        /// The error from Linux.
        source: io::Error,
    },
    /// Other threads would remain unconfined.
    #[error("{0} threads run already, which the sandbox would not hold: report this")]
    Threads(usize),
}

/// Extent of the confinement.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Everything.
    All,
    /// Capabilities and core dumps only: a driver in this process may open any file and make any
    /// system call.
    Privileges,
}

/// The restrictions that apply, for the log.
#[derive(Debug)]
pub struct Held {
    user: Option<String>,
    files: String,
    system_calls: Option<usize>,
}

impl Display for Held {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "user {user}, ")?;
        }
        f.write_str("no capabilities, no new privileges, no core dumps; ")?;
        match self.system_calls {
            Some(count) => write!(f, "{count} system calls; landlock: {}", self.files),
            None => f.write_str("all system calls and files, for the driver of an accelerator"),
        }
    }
}

/// Permanently drops the privileges in `extent`, and becomes `user`.
///
/// # Errors
///
/// [`SandboxError`]: the process is then only partly confined, and must end.
pub fn enter(extent: Extent, user: Option<&User>) -> Result<Held, SandboxError> {
    let threads = threads()?;
    if threads != 1 {
        return Err(SandboxError::Threads(threads));
    }
    drop_capabilities(user)?;
    // A change of user makes the process dumpable again.
    forbid_core_dumps()?;
    let user = user.map(|user| user.name.clone());
    set_no_new_privs(true).map_err(failed("refuse new privileges"))?;
    if extent == Extent::Privileges {
        return Ok(Held { user, files: String::new(), system_calls: None });
    }
    let files = forbid_files().unwrap_or_else(|error| format!("not available ({error})"));
    let system_calls =
        recoded_syscalls::limit(&[]).map_err(|error| SandboxError::Filter(error.to_string()))?;
    Ok(Held { user, files, system_calls: Some(system_calls) })
}

fn failed<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> SandboxError {
    move |source| SandboxError::Step { step, source: source.into() }
}

fn threads() -> Result<usize, SandboxError> {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(failed("count threads"))?;
    Ok(tasks.count())
}

/// Keeps keys out of core dumps, and this process's memory from other processes of its user. Call
/// it before keys are read.
///
/// # Errors
///
/// [`SandboxError`] when Linux refuses.
pub fn forbid_core_dumps() -> Result<(), SandboxError> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("forbid core dumps"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("forbid core dumps"))
}

/// Drops all capabilities irrevocably, including those of another user.
fn drop_capabilities(user: Option<&User>) -> Result<(), SandboxError> {
    let now = capabilities(None).map_err(failed("read capabilities"))?;
    // Needs CAP_SETPCAP; without it, no_new_privs keeps the others out of reach.
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            // Linux refuses unknown numbers.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    if let Some(user) = user {
        user.become_it()?;
    }
    // Since Linux 4.3; a capability that is not permitted is not ambient either.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(failed("give up capabilities"))
}

/// Forbids opening files and TCP connections, as far as this version of Linux supports it.
fn forbid_files() -> Result<String, RulesetError> {
    let abi = ABI::V6;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "all of it".into(),
        RulesetStatus::PartiallyEnforced => "what this Linux has of it".into(),
        RulesetStatus::NotEnforced => "not in this Linux".into(),
    })
}
