//! A tunnel that its administrator moves to a separate network namespace, so that one program has
//! no other route.

use std::process::Command;

use crate::common;
use recoded_netns::{CodePlan, Daemon, LinePlan, Loss, Namespace, process};

/// A network namespace that ends with the test.
struct Own(Namespace);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = process::run(Command::new("ip").args(["netns", "delete", self.0.name()]));
    }
}

#[test]
fn tunnel_that_was_moved_carries_there_and_goes_with_the_daemon() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let mut plan = LinePlan::protected(1);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let mut daemons = [0, 1].map(|index| Daemon::start(&bed, index, &plan).unwrap());
    common::wait_for("a ping", &daemons[0], || common::answers(bed.source(), "10.99.0.2"));
    let process = daemons[0].dataplane_pid().unwrap();

    let own = Own(Namespace::create(format!("{}-own", bed.source().name())).unwrap());
    let own = &own.0;
    bed.source().ip(&format!("link set rec0 netns {}", own.name())).unwrap();
    // Linux removes addresses from an interface that is moved.
    own.ip("address add 10.99.0.1/24 dev rec0").unwrap();
    own.ip("link set rec0 up").unwrap();
    common::wait_for("a ping", &daemons[0], || common::answers(own, "10.99.0.2"));
    assert_eq!(daemons[0].dataplane_pid().unwrap(), process, "{}", daemons[0].log());

    assert!(daemons[0].stop(), "{}", daemons[0].log());
    let left = own.ip("link show").unwrap();
    assert!(!left.contains("rec0"), "{left}");
}
