//! Shared code of the namespace tests: permission to run, and turns.

use std::time::{Duration, Instant};

use recoded_netns::process::output;
use recoded_netns::{Bed, BedConfig, Daemon, LinkConfig, Loss, Namespace, binary};

use crate::turns::{self, Alone, Beside};

/// The turn to build a bed, or `None`, with the reason printed, if this machine cannot.
pub fn namespaces() -> Option<Alone> {
    may_run(missing()).then(turns::alone)
}

/// Like [`namespaces`], for tests that also run daemons.
pub fn daemons() -> Option<Alone> {
    may_run(missing().or_else(unbuilt)).then(turns::alone)
}

/// Like [`daemons`], for tests whose bounds also hold on a busy machine.
pub fn daemons_beside() -> Option<Beside> {
    may_run(missing().or_else(unbuilt)).then(turns::beside)
}

/// Whether all requirements are met; a missing one is printed.
fn may_run(missing: Option<String>) -> bool {
    if let Some(reason) = &missing {
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
        println!("skipped: {reason}");
    }
    missing.is_none()
}

/// Which program the tests would start in vain.
fn unbuilt() -> Option<String> {
    let name = ["recoded", "recodectl"].into_iter().find(|name| !binary(name).is_file())?;
    Some(format!("`{name}` is not built (cargo build --workspace --bins builds it)"))
}

/// Why namespace tests cannot run here.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".into());
    }
    for tool in ["ip", "tc", "ethtool", "iperf3", "nginx", "curl"] {
        let found = std::env::var("PATH")
            .unwrap_or_default()
            .split(':')
            .any(|folder| std::path::Path::new(folder).join(tool).exists());
        if !found {
            return Some(format!("`{tool}` is not installed (scripts/test installs it)"));
        }
    }
    None
}

/// A bed with known neighbours, and one queue of each interface.
pub fn bed(hops: usize, loss: Loss, rate_mbit: f64) -> Bed {
    bed_of_queues(1, hops, loss, rate_mbit)
}

/// A bed with known neighbours.
pub fn bed_of_queues(queues: usize, hops: usize, loss: Loss, rate_mbit: f64) -> Bed {
    let uniform = BedConfig::uniform(hops, LinkConfig::new(loss, rate_mbit));
    let config = BedConfig { queues, ..uniform };
    Bed::build(&config).expect("the bed builds")
}

/// Timeout for expected events on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds, and shows the log of a daemon if it times out.
pub fn wait_for(what: &str, daemon: &Daemon, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what} does not come:\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether an ICMP echo from `host` is answered within a second.
pub fn answers(host: &Namespace, address: &str) -> bool {
    let mut command = host.command(binary("recodectl"));
    let ended = output(command.args(["ping", address, "-c", "1", "-W", "1"]));
    ended.is_ok_and(|ended| ended.success)
}
