//! Many boxes at one hub: their configuration from `recodectl render` fits the hub's default
//! memory, and the hub reaches all of them, at its start and after its restart.
//!
//! ```text
//!   c0 ─ l1 ─┐
//!   c1 ─ l2 ─┼─ router ── hub
//!      ...  ─┘
//! ```

use crate::common;
use recoded_netns::{AuthPlan, Bed, BedConfig, Daemon, LinkConfig, Loss};
use std::os::unix::fs::PermissionsExt;

/// Boxes, where the environment variable [`CLIENTS_ENV`] does not say how many.
const CLIENTS: usize = 24;

/// With 200 the test takes minutes of two processors, and 8 GB of memory.
const CLIENTS_ENV: &str = "RECODED_CLIENTS";

/// Counters of packets that arrived damaged.
const SPOILT: [&str; 3] = ["drop_version", "drop_type", "drop_truncated"];

/// Number of the hub's host. The router is the one before.
fn hub_of(clients: usize) -> usize {
    clients + 1
}

/// All boxes, roaming, each with a path to the hub. Nearly all keys keep their defaults. The
/// exceptions are fewer frames and no standby process, because the boxes share the memory of one
/// machine.
fn network(bed: &Bed, clients: usize) -> Vec<String> {
    let hub = hub_of(clients);
    let keys = AuthPlan::new("full", hub);
    let mut text = "[daemon]\nframes = 1024\nstandby = false\n[nodes]\n".to_owned();
    let mut paths = String::new();
    for host in (0..clients).chain([hub]) {
        let file = bed.directory().join(format!("key{host}"));
        std::fs::write(&file, keys.private(host)).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let roams = if host == hub { "" } else { ", roams = true" };
        let (key, file) = (keys.public(host), file.display());
        text += &format!("n{host} = {{ key = \"{key}\", private_key = \"{file}\"{roams} }}\n");
        if host != hub {
            let (own, far) = (format!("l{}", host + 1), format!("l{}", clients + 1));
            paths += &format!(
                "[[link]]\nn{host} = \"{} dev {own}\"\nn{hub} = \"{} dev {far}\"\n\
                 [[path]]\nfrom = \"n{host}\"\nto = \"n{hub}\"\n\
                 tunnel = [\"10.99.{host}.1/24\", \"10.99.{host}.2/24\"]\n",
                Bed::west_address(host + 1),
                Bed::east_address(clients + 1),
            );
        }
    }
    let network = recoded::network::parse("net.toml", &(text + &paths));
    network.unwrap_or_else(|errors| panic!("{errors}")).files()
}

/// Checks that all have keys, no packet was damaged, and packets pass.
fn assert_all_are_served(bed: &Bed, clients: &[Daemon], hub: &Daemon) {
    common::wait_for("keys of all", hub, || {
        let sessions = hub.show().map(|state| state.sessions).unwrap_or_default();
        let up = sessions.iter().filter(|session| session.age_seconds.is_some()).count();
        up == 3 * clients.len()
    });
    for (number, daemon) in clients.iter().enumerate() {
        common::wait_for("its keys", daemon, || {
            let sessions = daemon.show().map(|state| state.sessions).unwrap_or_default();
            sessions.len() == 3 && sessions.iter().all(|session| session.age_seconds.is_some())
        });
        let state = daemon.show().unwrap();
        for reason in SPOILT {
            let count = state.verdicts.get(reason).copied();
            assert_eq!(count, Some(0), "{reason} at box {number}:\n{}", daemon.log());
        }
        let refused: Vec<&str> = state.sessions.iter().map(|it| it.refusal.as_str()).collect();
        assert!(!refused.contains(&"malformed"), "box {number}: {refused:?}");
        let far = format!("10.99.{number}.2");
        common::wait_for("an answer", daemon, || common::answers(&bed.hosts()[number], &far));
    }
}

#[test]
fn many_boxes_that_begin_at_once_are_all_heard_by_a_hub_with_defaults() {
    let Some(_turn) = common::daemons() else { return };
    let wanted = std::env::var(CLIENTS_ENV).map(|text| text.parse().unwrap());
    let count: usize = wanted.unwrap_or(CLIENTS);
    let (router, hub) = (count, hub_of(count));
    let access = LinkConfig::new(Loss::independent(0.0), 1000.0);
    let mut links: Vec<_> = (0..count).map(|client| (client, router, access)).collect();
    links.push((router, hub, access));
    let bed = Bed::build(&BedConfig::graph(&links)).unwrap();
    let files = network(&bed, count);
    let start = |host: usize, file: &str| {
        let text = |socket: &str| format!("daemon.socket = \"{socket}\"\n{file}");
        Daemon::start_with(&bed, host, text).unwrap()
    };
    let mut hub = start(hub, &files[count]);
    let clients: Vec<Daemon> = (0..count).map(|host| start(host, &files[host])).collect();
    assert_all_are_served(&bed, &clients, &hub);
    hub.kill();
    hub.start_supervisor().unwrap();
    hub.wait_until_it_answers().unwrap();
    assert_all_are_served(&bed, &clients, &hub);
    let memory = hub.resident_kib().unwrap() >> 10;
    println!("{count} boxes: the hub takes {memory} MiB");
}
