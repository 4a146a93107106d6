//! A network namespace with a veth pair, made for one test and removed with it.

use std::{
    fs::File,
    os::fd::AsRawFd,
    panic,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

/// A namespace with two interfaces, `a` and `b`, that are the ends of one cable.
pub struct Bed {
    name: String,
}

impl Bed {
    /// Makes the namespace.
    pub fn new() -> Bed {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("recoded-xsk-{}-{number}", std::process::id());
        let bed = Bed { name };
        ip(&["netns", "add", &bed.name]);
        let inside = |arguments: &[&str]| ip(&[&["-n", &bed.name], arguments].concat());
        inside(&["link", "add", "name", "a", "type", "veth", "peer", "name", "b"]);
        for end in ["a", "b"] {
            // No neighbour discovery and no addresses: nothing but the test's packets on the cable.
            inside(&["link", "set", "dev", end, "addrgenmode", "none", "up"]);
        }
        bed
    }

    /// Runs `ip` with `arguments` inside the namespace.
    pub fn ip(&self, arguments: &[&str]) {
        ip(&[&["-n", &self.name], arguments].concat());
    }

    /// Runs `work` on a thread that has entered the namespace; its panic is propagated.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let outcome = thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter();
                    work()
                })
                .join()
        });
        outcome.unwrap_or_else(|cause| panic::resume_unwind(cause))
    }

    fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("namespace exists");
        // SAFETY: the descriptor is open; only the calling thread changes its namespace.
        let status = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(status, 0, "setns: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().expect("`ip` (iproute2) is installed");
    assert!(status.success(), "ip {}", arguments.join(" "));
}
