//! Links whose own address is left to their interface: looked up at the start and at a reload, and
//! the one in force kept for the next process whatever the interface has by then.

use crate::common;
use recoded_netns::process::output;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss};
use rustix::process::Signal;

fn plan() -> LinePlan {
    let mut plan = LinePlan::protected(1);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan
}

/// The file of an end without our own address.
fn start(bed: &Bed, index: usize) -> Daemon {
    let bare = |socket: &str| {
        let text = plan().config(index, socket);
        let kept: String = text
            .lines()
            .filter(|line| !line.starts_with("local ="))
            .map(|it| format!("{it}\n"))
            .collect();
        assert_ne!(kept.lines().count(), text.lines().count(), "{text}");
        kept
    };
    Daemon::start_as(bed, index, &plan(), bare).unwrap()
}

fn reload(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String) {
    let said = output(&mut daemon.control(&[&["reload"], arguments].concat())).unwrap();
    (said.code, format!("{}{}", said.stdout, said.stderr))
}

#[test]
fn address_of_an_interface_is_found_and_kept_while_that_gets_others() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let _far = start(&bed, 1);
    let mut near = start(&bed, 0);
    let own = Bed::west_address(1).to_string();
    let answers = || common::answers(bed.source(), "10.99.0.2");
    let shown = |near: &Daemon| near.show().map(|state| state.links[0].local.clone());
    assert_eq!(shown(&near).unwrap(), own);
    let config = near.show().unwrap().config;
    assert!(config.contains(&format!("# the interface's: local = \"{own}\"")), "{config}");
    common::wait_for("a packet", &near, answers);

    // An address where no neighbour is, and one beside the first that Linux does not send from.
    bed.source().ip("addr add 192.0.2.1/24 dev east").unwrap();
    bed.source().ip("addr add 10.77.1.99/24 dev east").unwrap();
    let (code, said) = reload(&near, &[]);
    assert!(code == Some(0) && said.contains("nothing"), "{code:?}: {said}");

    // One that could be meant as well: that is said, and nothing changes, for the next process too.
    bed.source().ip("addr add 10.77.1.77/25 dev east").unwrap();
    let (code, said) = reload(&near, &[]);
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains("link east: local is missing: east has several that it could be"),
        "{said}"
    );
    let process = near.dataplane_pid().unwrap();
    near.signal_dataplane(Signal::KILL).unwrap();
    let is_another = |near: &Daemon| near.dataplane_pid().is_ok_and(|pid| pid != process);
    let has_own = |near: &Daemon| shown(near).is_ok_and(|shown| shown == own);
    common::wait_for("another process", &near, || is_another(&near) && has_own(&near));
    common::wait_for("a packet after it", &near, answers);
    bed.source().ip("addr del 10.77.1.77/25 dev east").unwrap();

    // Another address in its place costs what another `local` would.
    bed.source().ip("addr flush dev east").unwrap();
    bed.source().ip("addr add 10.77.1.55/24 dev east").unwrap();
    let (_, said) = reload(&near, &["--diff"]);
    let change = format!("link east: local = \"{own}\" becomes \"10.77.1.55\"");
    assert!(said.contains(&change) && said.contains("restart"), "{said}");
    let (code, said) = reload(&near, &[]);
    assert_eq!(code, Some(4), "{said}");

    // The next supervisor looks, too; while the interface has none, what was known holds.
    bed.source().ip("addr flush dev east").unwrap();
    let process = near.dataplane_pid().unwrap();
    near.kill_supervisor();
    near.start_supervisor().unwrap();
    common::wait_for("another process", &near, || {
        near.dataplane_pid().is_ok_and(|pid| pid != process) && has_own(&near)
    });
    bed.source().ip(&format!("addr add {own}/24 dev east")).unwrap();
    common::wait_for("a packet after the takeover", &near, answers);
    assert!(near.stop(), "{}", near.log());
}
