//! Many boxes at one hub: their configuration fits the hub's default memory, and the hub reaches
//! all of them, at its start and after its restart.
//!
//! ```text
//!   c0 ─ l1 ─┐                         c0 ─ l1 ─ NAT a ─┐
//!   c1 ─ l2 ─┼─ router ── hub             └ l2 ─ NAT b ─┴─ router ── hub
//!      ...  ─┘                         ...
//! ```

use crate::common;
use crate::uplinks::translate_ports;
use recoded_netns::{AuthPlan, Bed, BedConfig, Daemon, LinkConfig, Loss};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Names the number of boxes. With 200, each test takes minutes of two processors, and
/// 8 GB of memory.
const CLIENTS_ENV: &str = "RECODED_CLIENTS";

/// Counters of packets that arrived damaged.
const SPOILT: [&str; 3] = ["drop_version", "drop_type", "drop_truncated"];

/// Number of boxes, where the caller of the test wants another one than `usual`.
fn clients_or(usual: usize) -> usize {
    std::env::var(CLIENTS_ENV).map_or(usual, |text| text.parse().unwrap())
}

fn access() -> LinkConfig {
    LinkConfig::new(Loss::independent(0.0), 1000.0)
}

/// Number of the hub's host. The router has the number below it.
fn hub_of(clients: usize) -> usize {
    clients + 1
}

/// Writes the private key of a host; returns the path.
fn key_file(bed: &Bed, keys: &AuthPlan, host: usize) -> PathBuf {
    let file = bed.directory().join(format!("key{host}"));
    std::fs::write(&file, keys.private(host)).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
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
        let roams = if host == hub { "" } else { ", roams = true" };
        let (key, file) = (keys.public(host), key_file(bed, &keys, host));
        let file = file.display();
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

/// Checks that all have keys, no packet was damaged, and packets pass. Each box has this many
/// sessions.
fn assert_all_are_served(bed: &Bed, clients: &[Daemon], hub: &Daemon, sessions: usize) {
    let up = |daemon: &Daemon| {
        let shown = daemon.show().map(|state| state.sessions).unwrap_or_default();
        shown.iter().filter(|session| session.age_seconds.is_some()).count()
    };
    common::wait_for("keys of all", hub, || up(hub) == sessions * clients.len());
    for (number, daemon) in clients.iter().enumerate() {
        common::wait_for("its keys", daemon, || up(daemon) == sessions);
        let state = daemon.show().unwrap();
        assert_eq!(state.sessions.len(), sessions, "box {number}");
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

/// Starts the hub and all clients from these files, the hub's last; checks that all are served, and
/// again after the hub restarted.
fn start_and_restart(bed: &Bed, files: &[String], hub: usize, sessions: usize) {
    let start = |host: usize, file: &str| {
        let text = |socket: &str| format!("daemon.socket = \"{socket}\"\n{file}");
        Daemon::start_with(bed, host, text).unwrap()
    };
    let (hub_file, files) = files.split_last().unwrap();
    let mut hub = start(hub, hub_file);
    let clients: Vec<Daemon> =
        files.iter().enumerate().map(|(host, file)| start(host, file)).collect();
    assert_all_are_served(bed, &clients, &hub, sessions);
    hub.kill();
    hub.start_supervisor().unwrap();
    hub.wait_until_it_answers().unwrap();
    assert_all_are_served(bed, &clients, &hub, sessions);
    let memory = hub.resident_kib().unwrap() >> 10;
    println!("{} boxes: the hub takes {memory} MiB", clients.len());
}

#[test]
fn many_boxes_that_begin_at_once_are_all_heard_by_a_hub_with_defaults() {
    let Some(_turn) = common::daemons() else { return };
    let count = clients_or(24);
    let (router, hub) = (count, hub_of(count));
    let mut links: Vec<_> = (0..count).map(|client| (client, router, access())).collect();
    links.push((router, hub, access()));
    let bed = Bed::build(&BedConfig::graph(&links)).unwrap();
    start_and_restart(&bed, &network(&bed, count), hub, 3);
}

/// Boxes with two uplinks, each behind translation that many share, as of a provider.
#[test]
fn many_boxes_with_two_translated_uplinks_are_all_heard_by_a_hub_with_defaults() {
    let Some(_turn) = common::daemons() else { return };
    let count = clients_or(8);
    let (nats, router, hub) = ([count, count + 1], count + 2, count + 3);
    let mut links = Vec::new();
    for client in 0..count {
        links.extend(nats.map(|nat| (client, nat, access())));
    }
    links.extend(nats.map(|nat| (nat, router, access())));
    links.push((router, hub, access()));
    let bed = Bed::build(&BedConfig::graph(&links)).unwrap();
    let at_hub = Bed::east_address(links.len());
    for (nat, number) in nats.into_iter().zip(2 * count + 1..) {
        if !translate_ports(&bed.hosts()[nat], &format!("l{number}"), 40_000) {
            let reason = "`nft` is not installed, or Linux has no nf_tables";
            assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
            println!("skipped: {reason}");
            return;
        }
    }
    let keys = AuthPlan::new("full", hub);
    let mut text = "[daemon]\nframes = 1024\nstandby = false\n[boxes]\n".to_owned();
    let mut paths = String::new();
    for client in 0..count {
        // Each uplink reaches the hub by itself.
        let uplinks = [2 * client + 1, 2 * client + 2];
        for (number, metric) in uplinks.into_iter().zip([10, 20]) {
            let gateway = Bed::east_address(number);
            let route = format!("{at_hub}/32 via {gateway} dev l{number} metric {metric}");
            bed.hosts()[client].ip(&format!("route add {route}")).unwrap();
        }
        let (key, file) = (keys.public(client), key_file(&bed, &keys, client));
        let [one, other] = uplinks;
        text += &format!(
            "n{client} = {{ key = \"{key}\", private_key = \"{}\", \
             uplinks = [\"l{one}\", \"l{other}\"] }}\n",
            file.display()
        );
        paths += &format!(
            "[[path]]\nvia = [\"n{client}\", \"hub\"]\nmode = \"bond\"\n\
             tunnel = [\"10.99.{client}.1/24\", \"10.99.{client}.2/24\"]\n"
        );
    }
    let (key, file) = (keys.public(hub), key_file(&bed, &keys, hub));
    text += &format!(
        "hub = {{ key = \"{key}\", private_key = \"{}\", at = \"{at_hub} dev l{}\" }}\n",
        file.display(),
        links.len()
    );
    let network = recoded::network::parse("net.toml", &(text + &paths));
    let network = network.unwrap_or_else(|errors| panic!("{errors}"));
    let files: Vec<String> = (0..=count).map(|node| network.meaning(node)).collect();
    start_and_restart(&bed, &files, hub, 4);
}
