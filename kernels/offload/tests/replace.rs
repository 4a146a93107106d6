//! A device that is replaced by another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Error, Faults, Job, Operation};
use recoded_offload::{Config, Fault, Mode, Offload, OpenEngine, Port, SpotCheck};

mod common;

use common::{after_self_test, cpu};

/// An operator chooses another card: the old one is abandoned with its bundles, and the permanent
/// failure of the one in between does not affect the last one.
#[test]
fn another_device_replaces_one_that_hangs_or_is_gone_for_good() {
    let opened = AtomicUsize::new(0);
    let open: OpenEngine = Arc::new(move || match opened.fetch_add(1, Ordering::Relaxed) {
        0 => after_self_test(Faults { hang: 1.0, ..Faults::default() }, 1)(),
        1 => Err(Error::RestartNeeded { call: "open", code: 1, reason: "spent".into() }),
        _ => Ok(Box::new(cpu()?)),
    });
    let (offload, mut ports) = Offload::start(config(), 1, open).expect("threads");
    let port = &mut ports[0];
    until("the first one is there", || offload.is_up());
    assert_eq!(offload.device().as_deref(), Some("later"));
    offer(port);
    thread::sleep(Duration::from_millis(5));
    assert_eq!(take(port), 0, "it hangs");
    offload.replace();
    until("its job comes back", || take(port) == 1);
    let is_refused = || offload.why_down().is_some_and(|error| error.needs_restart());
    until("the second one is refused", is_refused);
    assert_eq!((offload.device(), offload.is_up()), (None, false));
    offload.replace();
    until("the third one is there", || offload.is_up());
    assert_eq!((offload.device().as_deref(), offload.why_down()), (Some("cpu"), None));
    offer(port);
    until("it works", || take(port) == 1);
    let metrics = offload.metrics();
    assert_eq!((metrics.redone[Fault::Down as usize], metrics.device_jobs), (1, 1), "{metrics:?}");
    assert_eq!((metrics.device_ups, metrics.device_downs), (2, 1), "{metrics:?}");
}

/// Nothing is late, hung or retried by itself while the test runs.
fn config() -> Config {
    let hour = Duration::from_secs(3600);
    Config {
        mode: Mode::Device,
        watchdog_min: hour,
        hang_min: hour,
        retry_min: hour,
        retry_max: hour,
        spot_check: SpotCheck::All,
        measure: false,
        ..Config::default()
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A product by 3 of a row of twos.
fn offer(port: &mut Port) {
    let job = Job::new(Operation::Multiply, 1, 1, 100);
    let offered = port.offer(job, 7, Instant::now(), |mut to| {
        to.coefficients(0)[0] = 3;
        to.source(0).fill(2);
    });
    offered.expect("taken");
    port.flush();
}

fn take(port: &mut Port) -> usize {
    port.poll(|delivered| {
        assert_eq!(delivered.tag(), 7);
        assert_eq!(delivered.destination(0), Ok(&[6; 100][..]));
    })
}
