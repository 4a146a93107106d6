//! What a process in the sandbox tries to do, and what becomes of it.
//!
//! Each attempt is a process: this program again, with the attempt's name. It enters the sandbox
//! that the daemon enters and tries. An attempt is first made outside, where it must succeed, or
//! the refusal inside would say nothing.

#![forbid(unsafe_code)]

use aya::programs::loaded_programs;
use recoded::sandbox::{Extent, enter};
use rustix::process::{Pid, Signal, getppid, test_kill_process};
use std::fs::File;
use std::io::{Error, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// Tried, and it went well.
const DONE: u8 = 0;
/// Tried, and Linux refused with EPERM or EACCES.
const REFUSED: u8 = 10;
/// Anything else.
const STRANGE: u8 = 11;

type Attempt = fn() -> Result<(), Error>;

/// What is tried, and whether it ends the process.
const ATTEMPTS: &[(&str, Attempt, bool)] = &[
    ("bpf", || loaded_programs().try_for_each(|it| it.map(drop).map_err(Error::other)), true),
    ("execve", || Err(Command::new("true").exec()), true),
    ("open", || File::open("/etc/shadow").map(drop), false),
    ("create", || File::create("/tmp/recoded-sandbox").map(drop), false),
    ("udp", || UdpSocket::bind("127.0.0.1:0").map(drop), false),
    ("tcp", || TcpListener::bind("127.0.0.1:0").map(drop), false),
    ("process", || Command::new("true").spawn().and_then(|mut it| it.wait()).map(drop), false),
    ("kill", || Ok(test_kill_process(getppid().unwrap_or(Pid::INIT))?), false),
];

/// What must still work: threads, memory, files that are open, waiting.
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

fn try_inside(name: &str, inside: bool) -> u8 {
    if inside {
        let held = enter(Extent::All).expect("Linux has all that the sandbox must have");
        eprintln!("{name}: {held}");
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
        return try_inside(name, place == "inside").into();
    }
    // Not every machine that builds this lets an ordinary user read what root may.
    let is_root = rustix::process::geteuid().is_root();
    for (name, _, is_fatal) in ATTEMPTS {
        let outside = run(name, "outside");
        if !outside.success() {
            assert!(!is_root, "{name} fails outside, too: {outside}");
            println!("skipped: {name}: needs root");
            continue;
        }
        let inside = run(name, "inside");
        if *is_fatal {
            assert_eq!(inside.signal(), Some(Signal::SYS.as_raw()), "{name}: {inside}");
        } else {
            assert_eq!(inside.code(), Some(REFUSED.into()), "{name}: {inside}");
        }
        println!("{name}: {inside}");
    }
    assert!(run("work", "inside").success(), "what the daemon does is refused");
    println!("all attempts ended as they should");
    std::process::ExitCode::SUCCESS
}
