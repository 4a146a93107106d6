//! Forbidden actions of a process in the sandbox, and their outcome.
//!
//! Each attempt is a process: this program, run with the attempt's name. It enters the daemon's
//! sandbox and makes the attempt. Each attempt is first made outside, where it must succeed;
//! otherwise a refusal inside would prove nothing. Actions reserved for root are also attempted by
//! a process that only runs as another user, as the daemon does with an accelerator.

#![forbid(unsafe_code)]

use aya::programs::loaded_programs;
use recoded::sandbox::{Extent, User, enter};
use rustix::process::{Pid, Signal, Uid, geteuid, getgid, getgroups, getppid, test_kill_process};
use rustix::thread::set_thread_res_uid;
use std::fs::File;
use std::io::{Error, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// The attempt succeeded.
const DONE: u8 = 0;
/// Linux refused with EPERM or EACCES.
const REFUSED: u8 = 10;
/// Any other result.
const STRANGE: u8 = 11;

type Attempt = fn() -> Result<(), Error>;

/// The user that it becomes, which need not exist.
const UID: u32 = 64_321;

/// Outcome of an attempt.
#[derive(Copy, Clone, PartialEq)]
enum End {
    /// It ends the process.
    Fatal,
    /// Refused.
    Refused,
    /// Refused, also to a process that only runs as another user.
    OfRoot,
}

/// The attempts and their outcomes.
const ATTEMPTS: &[(&str, Attempt, End)] = &[
    ("bpf", || loaded_programs().try_for_each(|it| it.map(drop).map_err(Error::other)), End::Fatal),
    ("execve", || Err(Command::new("true").exec()), End::Fatal),
    ("open", || File::open("/etc/shadow").map(drop), End::OfRoot),
    ("create", || File::create("/tmp/recoded-sandbox").map(drop), End::Refused),
    ("udp", || UdpSocket::bind("127.0.0.1:0").map(drop), End::Refused),
    ("tcp", || TcpListener::bind("127.0.0.1:0").map(drop), End::Refused),
    (
        "process",
        || Command::new("true").spawn().and_then(|mut it| it.wait()).map(drop),
        End::Refused,
    ),
    ("kill", || Ok(test_kill_process(getppid().unwrap_or(Pid::INIT))?), End::OfRoot),
    ("root", || Ok(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?), End::OfRoot),
];

/// Enters the sandbox as the daemon does: as root it becomes another user.
fn confine(extent: Extent, name: &str) {
    let user = User { name: "of the test".into(), uid: UID, gid: UID };
    let user = geteuid().is_root().then_some(&user);
    let held = enter(extent, user).expect("Linux has all that the sandbox must have");
    eprintln!("{name}: {held}");
    if user.is_some() {
        assert_eq!((geteuid().as_raw(), getgid().as_raw()), (UID, UID));
        if extent == Extent::Privileges {
            assert!(getgroups().expect("a list").iter().all(|group| group.as_raw() == UID));
        }
    }
}

/// Actions that must still work: threads, memory, open files, waiting.
fn work() -> Result<(), Error> {
    let thread = std::thread::Builder::new().name("inside".into());
    let sum = thread.spawn(|| (0..1_000_000_u64).map(|it| vec![it; 3][1]).sum::<u64>())?;
    assert_eq!(sum.join().expect("no panic"), 499_999_500_000);
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert!(std::panic::catch_unwind(|| panic!("inside")).is_err());
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    assert!(receiver.recv_timeout(std::time::Duration::from_millis(1)).is_err());
    std::io::stdout().write_all(b"")
}

fn try_inside(name: &str, place: &str) -> u8 {
    match place {
        "inside" => confine(Extent::All, name),
        "another" => confine(Extent::Privileges, name),
        _ => {}
    }
    let attempts = ATTEMPTS.iter().map(|(name, attempt, _)| (*name, *attempt));
    let known = attempts.chain([("work", work as Attempt)]).find(|(known, _)| *known == name);
    match known.map(|(_, attempt)| attempt()) {
        Some(Ok(())) => DONE,
        Some(Err(error)) if matches!(error.raw_os_error(), Some(1 | 13)) => REFUSED,
        other => {
            eprintln!("{name}: {other:?}");
            STRANGE
        }
    }
}

fn run(name: &str, place: &str) -> ExitStatus {
    let own = std::env::current_exe().expect("it has a path");
    Command::new(own).args(["--attempt", name, place]).status().expect("it starts")
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, name, place] = &arguments[..]
        && flag == "--attempt"
    {
        return try_inside(name, place).into();
    }
    // Some build machines let an ordinary user read root's files.
    let is_root = rustix::process::geteuid().is_root();
    for (name, _, end) in ATTEMPTS {
        let outside = run(name, "outside");
        if !outside.success() {
            assert!(!is_root, "{name} fails outside, too: {outside}");
            println!("skipped: {name}: needs root");
            continue;
        }
        let inside = run(name, "inside");
        if *end == End::Fatal {
            assert_eq!(inside.signal(), Some(Signal::SYS.as_raw()), "{name}: {inside}");
        } else {
            assert_eq!(inside.code(), Some(REFUSED.into()), "{name}: {inside}");
        }
        println!("{name}: {inside}");
        if is_root && *end == End::OfRoot {
            let another = run(name, "another");
            assert_eq!(another.code(), Some(REFUSED.into()), "{name}, another user: {another}");
        }
    }
    assert!(run("work", "inside").success(), "what the daemon does is refused");
    println!("all attempts ended as they should");
    std::process::ExitCode::SUCCESS
}
