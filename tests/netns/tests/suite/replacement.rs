//! Processes that are replaced under traffic, by a reload or an upgrade: no packet is lost.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common;
use crate::numbered::{Received, missing, receive_twice, send};
use crate::processes::{is_running, wait_for_another};
use crate::reload::{DONE, recodectl, rewrite};
use recoded_netns::{
    AuthPlan, Bed, BedConfig, CodePlan, Daemon, DirectionConfig, LinePlan, LinkConfig, Loss,
};
use rustix::process::Signal;

const RATE_MBIT: f64 = 100.0;

/// One packet a millisecond: two seconds for each process that is replaced, and some to spare.
const PACKETS: u32 = 16_000;
const BETWEEN: Duration = Duration::from_secs(2);

/// What replaces a process.
#[derive(Copy, Clone, Debug)]
enum Cause {
    /// A change of the file that only another process can bring into force.
    Reload,
    /// Another program takes over, as after an upgrade of the package.
    Upgrade,
}

/// A source, a relay and a sink over links of 5 ms that lose one packet in fifty.
fn line(auth: Option<AuthPlan>) -> (Bed, Vec<Daemon>) {
    let direction = DirectionConfig::new(Loss::independent(0.02), RATE_MBIT);
    let delay = Duration::from_millis(5);
    let link = LinkConfig::both(DirectionConfig { delay, ..direction });
    let bed = Bed::build(&BedConfig::uniform(2, link)).expect("the bed builds");
    let mut plan = LinePlan { pace_mbit: Some(0.97 * RATE_MBIT), auth, ..LinePlan::protected(2) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    (bed, daemons)
}

/// Replaces the process of a daemon that handles packets. How long that took.
fn replace(daemon: &mut Daemon, cause: Cause) -> Duration {
    let before = daemon.dataplane_pid().unwrap();
    let begun = Instant::now();
    match cause {
        Cause::Reload => {
            rewrite(daemon, |text| {
                let idle = "idle = \"";
                let at = text.find(idle).unwrap() + idle.len();
                let next =
                    if text[at..].starts_with("adaptive") { "interrupt" } else { "adaptive" };
                let end = at + text[at..].find('"').unwrap();
                format!("{}{next}{}", &text[..at], &text[end..])
            });
            let (code, said) = recodectl(daemon, "reload");
            assert_eq!(code, DONE, "{said}\n{}", daemon.log());
        }
        Cause::Upgrade => {
            daemon.signal(Signal::USR2).unwrap();
            wait_for_another(daemon, before);
        }
    }
    let took = begun.elapsed();
    assert!(!is_running(before), "it was not replaced:\n{}", daemon.log());
    took
}

fn replace_each(auth: Option<AuthPlan>) {
    let has_keys = auth.is_some();
    let (bed, mut daemons) = line(auth);
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let receiver = bed.sink().udp_socket(to).unwrap();
    let sender = bed.source().udp_socket(SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
    let sending = send(sender, to, PACKETS);
    let receiving = receive_twice(receiver, PACKETS);
    sleep(BETWEEN / 2);
    for cause in [Cause::Reload, Cause::Upgrade] {
        for (index, name) in [(0, "source"), (1, "relay"), (2, "sink")] {
            let begun = Instant::now();
            let took = replace(&mut daemons[index], cause);
            println!("{cause:?} of the {name}: {took:.0?}");
            assert!(!sending.is_finished(), "all was sent before");
            sleep(BETWEEN.saturating_sub(begun.elapsed()));
        }
    }
    sending.join().unwrap();
    let Received { came, twice, longest } = receiving.join().unwrap();
    let lost = came.iter().filter(|came| !**came).count();
    println!(
        "keys {has_keys}: {lost} of {PACKETS} lost, {twice} twice, longest gap {longest:.0?}: {:?}",
        missing(&came)
    );
    assert_eq!(lost, 0);
}

#[test]
fn processes_that_are_replaced_lose_no_packet() {
    let Some(_turn) = common::daemons() else { return };
    replace_each(None);
}

#[test]
fn processes_with_keys_that_are_replaced_lose_no_packet() {
    let Some(_turn) = common::daemons() else { return };
    replace_each(Some(AuthPlan::new("full", 2)));
}
