//! A neighbour that is configured by host name: one that does not resolve, one whose address
//! changes, and a resolver that is gone when the next supervisor starts.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::common;
use recoded_netns::process::output;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss, Namespace, binary};

/// The name of the far end.
const NAME: &str = "far.example";
/// On the link, an address without a host.
const NOWHERE: &str = "10.77.1.77";
/// Interval at which host names of silent neighbours are resolved here.
const LOOK_MILLIS: u64 = 300;
/// Entries of a namespace's resolver: `ip netns exec` uses these files instead of the host's.
struct Hosts(PathBuf);

impl Hosts {
    fn of(host: &Namespace) -> Hosts {
        let folder = PathBuf::from("/etc/netns").join(host.name());
        fs::create_dir_all(&folder).unwrap();
        // Without DNS, because its servers cannot be reached from here.
        fs::write(folder.join("nsswitch.conf"), "hosts: files\n").unwrap();
        let hosts = Hosts(folder);
        hosts.know(None);
        hosts
    }

    /// Written in place, so that running processes see it, too.
    fn know(&self, address: Option<&str>) {
        let line = address.map_or_else(String::new, |address| format!("{address} {NAME}\n"));
        fs::write(self.0.join("hosts"), format!("127.0.0.1 localhost\n{line}")).unwrap();
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn plan() -> LinePlan {
    let environment = vec![("RECODED_TEST_NAMES_MILLIS", LOOK_MILLIS.to_string())];
    let mut plan = LinePlan { environment, ..LinePlan::protected(1) };
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    plan
}

fn text(socket: &str) -> String {
    let written = Bed::east_address(1).to_string();
    let text = plan().config(0, socket);
    assert!(text.contains(&written), "{text}");
    text.replace(&written, NAME)
}

fn neighbour(daemon: &Daemon) -> String {
    let state = daemon.show();
    state.map(|state| state.links[0].neighbours[0].address.clone()).unwrap_or_default()
}

fn answers(bed: &Bed) -> bool {
    common::answers(bed.source(), "10.99.0.2")
}

#[test]
fn neighbour_is_found_by_its_name_and_followed_when_that_stands_for_another_address() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let hosts = Hosts::of(bed.source());

    // A name that is not known: the check warns of it with a cure.
    let file = bed.directory().join("unknown.toml");
    fs::write(&file, text(&bed.directory().join("unknown.sock").to_string_lossy())).unwrap();
    let mut command = bed.source().command(binary("recoded"));
    let said = output(command.arg("--config").arg(&file).arg("--check")).unwrap();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("waits for far.example: it does not resolve"), "{said:?}");
    assert!(said.stdout.contains("have the name known in /etc/hosts or by DNS"), "{said:?}");
    let mut command = bed.source().command(binary("recoded"));
    let offline = command.arg("--config").arg(&file).args(["--check", "--offline"]);
    assert_eq!(output(offline).unwrap().code, Some(0), "names are the business of the box");

    hosts.know(Some(NOWHERE));
    let _far = Daemon::start(&bed, 1, &plan()).unwrap();
    let mut near = Daemon::start_as(&bed, 0, &plan(), text).unwrap();
    assert_eq!(neighbour(&near), NOWHERE);
    assert!(!answers(&bed));

    // The name now resolves to an address that is in use.
    let right = Bed::east_address(1).to_string();
    hosts.know(Some(&right));
    common::wait_for("the address", &near, || neighbour(&near) == right);
    common::wait_for("a packet", &near, || answers(&bed));
    let said = output(&mut near.control(&["events"])).unwrap().stdout;
    let moved = format!("{NAME} is at {right} now, before at {NOWHERE}");
    assert!(said.contains(&moved), "{said}");
    assert!(near.show().unwrap().config.contains(NAME), "the configuration keeps the name");

    // A neighbour that responds keeps its address, whatever the resolver returns.
    common::wait_for("the neighbour", &near, || {
        near.show().is_ok_and(|state| state.links[0].neighbours[0].said_ago_seconds.is_some())
    });
    let process = near.dataplane_pid().unwrap();
    hosts.know(Some(NOWHERE));
    std::thread::sleep(Duration::from_millis(5 * LOOK_MILLIS));
    assert_eq!((neighbour(&near), near.dataplane_pid().unwrap()), (right.clone(), process));

    // The resolver is gone with the supervisor; its last results stay valid.
    hosts.know(None);
    near.kill_supervisor();
    near.start_supervisor().unwrap();
    common::wait_for("another process", &near, || {
        near.dataplane_pid().is_ok_and(|pid| pid != process)
    });
    near.wait_until_it_answers().unwrap();
    common::wait_for("a packet after the takeover", &near, || answers(&bed));
    // The next process's resolver takes a moment to answer.
    common::wait_for("the neighbour after it", &near, || neighbour(&near) == right);
    assert!(near.stop(), "{}", near.log());
}

/// Guards against a daemon that exits, so that systemd restarts it ten times a second.
#[test]
fn name_that_does_not_resolve_at_the_start_is_waited_for_and_named() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 100.0);
    let hosts = Hosts::of(bed.source());
    let _far = Daemon::start(&bed, 1, &plan()).unwrap();
    let near = Daemon::start_as(&bed, 0, &plan(), text).unwrap();
    let state = near.show().unwrap();
    assert_eq!(state.links[0].state, "up", "{:?}", state.links[0]);
    assert!(state.links[0].neighbours[0].waits.contains("it does not resolve"), "{state:?}");
    assert_eq!(state.flows[0].state.as_deref(), Some("waiting"));
    let shown = output(&mut near.control(&["show"])).unwrap().stdout;
    assert!(shown.contains("waiting for far.example: it does not resolve"), "{shown}");
    let said = output(&mut near.control(&["doctor"])).unwrap().stdout;
    assert!(said.contains("waiting for far.example"), "{said}");

    // A change that names another unknown host is refused; the running configuration is kept.
    let written = fs::read_to_string(near.config()).unwrap();
    fs::write(near.config(), written.replace(NAME, "other.example")).unwrap();
    let said = output(&mut near.control(&["reload"])).unwrap();
    assert_eq!(said.code, Some(4), "{said:?}");
    fs::write(near.config(), written).unwrap();

    hosts.know(Some(&Bed::east_address(1).to_string()));
    common::wait_for("a packet", &near, || answers(&bed));
    let said = output(&mut near.control(&["events"])).unwrap().stdout;
    assert!(said.contains("before it did not resolve"), "{said}");
    let state = near.show().unwrap();
    assert_eq!((&*state.links[0].neighbours[0].waits, &*state.flows[0].waits), ("", ""));
}
