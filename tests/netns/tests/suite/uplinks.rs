//! A box with two uplinks, each behind address translation, and a hub with one address: two paths
//! to one key, distinguished by the path number that both ends use in the key agreement.
//!
//! ```text
//!          l1 ── DSL ── nat a ── l3 ─┐
//!   client                           router ── l5 ── hub
//!          l2 ── LTE ── nat b ── l4 ─┘
//! ```

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::probe::{Probe, ProbeOutcome, ProbePlan};
use recoded_netns::stream::Stream;
use recoded_netns::{
    AuthPlan, Bed, BedConfig, Daemon, DirectionConfig, LinkConfig, Loss, Namespace,
};
use std::os::unix::fs::PermissionsExt;

const DSL_MBIT: f64 = 30.0;
const LTE_MBIT: f64 = 20.0;
const CLIENT: usize = 0;
const HUB: usize = 4;

/// A box that translates addresses.
#[derive(Copy, Clone)]
struct Nat {
    /// Number of the host.
    host: usize,
    /// Its interface to the outside.
    outside: &'static str,
    /// Its address there.
    address: &'static str,
    /// The router behind it.
    gateway: &'static str,
}

const NATS: [Nat; 2] = [
    Nat { host: 1, outside: "l3", address: "10.77.3.1", gateway: "10.77.3.2" },
    Nat { host: 2, outside: "l4", address: "10.77.4.1", gateway: "10.77.4.2" },
];

/// TCP payload share of a link's rate.
const SHARE: f64 = 0.95;

fn link(rate_mbit: f64, delay_millis: u64) -> LinkConfig {
    let direction = DirectionConfig::new(Loss::independent(0.0), rate_mbit);
    let delay = Duration::from_millis(delay_millis);
    LinkConfig { timed: true, ..LinkConfig::both(DirectionConfig { delay, ..direction }) }
}

fn dsl() -> LinkConfig {
    link(DSL_MBIT, 10)
}

/// A client whose two uplinks are behind translation, and the hub. `None`, with the reason printed,
/// if Linux does not translate addresses.
fn uplinks(mode: &str) -> Option<(Bed, Vec<Daemon>)> {
    let access = LinkConfig::new(Loss::independent(0.0), 1000.0);
    let ends = [
        (CLIENT, 1, dsl()),
        (CLIENT, 2, link(LTE_MBIT, 25)),
        (1, 3, access),
        (2, 3, access),
        (3, HUB, access),
    ];
    let bed = Bed::build(&BedConfig::graph(&ends)).unwrap();
    for nat in NATS {
        if !translate(&bed, nat, 40_000) {
            let reason = "`nft` is not installed, or Linux has no nf_tables";
            assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
            println!("skipped: {reason}");
            return None;
        }
    }
    // Each uplink reaches the hub by itself.
    let client = &bed.hosts()[CLIENT];
    client.ip("route replace 10.77.5.0/24 via 10.77.1.2 dev l1 metric 10").unwrap();
    client.ip("route replace 10.77.5.0/24 via 10.77.2.2 dev l2 metric 20").unwrap();
    let daemons = start(&bed, mode);
    Some((bed, daemons))
}

/// Makes a box translate the client's address to its own, with ports above `first`; unsolicited
/// packets are dropped. Returns whether that is supported.
fn translate(bed: &Bed, nat: Nat, first: u16) -> bool {
    translate_ports(&bed.hosts()[nat.host], nat.outside, first)
}

/// Makes a host translate addresses of UDP packets that leave by the interface `outside` to its
/// own, with 1000 ports from `first` on. Returns whether Linux and `nft` can.
pub fn translate_ports(host: &Namespace, outside: &str, first: u16) -> bool {
    let last = first + 999;
    let rules = format!(
        "add table ip nat; flush table ip nat; \
         add chain ip nat out {{ type nat hook postrouting priority 100; }}; \
         add rule ip nat out oif {outside} meta l4proto udp masquerade to :{first}-{last}; \
         add chain ip nat in {{ type filter hook forward priority 0; }}; \
         add rule ip nat in iif {outside} ct state new drop"
    );
    let translated = host.command("nft").arg(&rules).output();
    translated.is_ok_and(|output| output.status.success())
}

/// The box forgets its translations and uses other ports from now on: its address is removed for a
/// moment, which makes Linux drop the translations to it.
fn rebind(bed: &Bed, nat: Nat, first: u16) {
    assert!(translate(bed, nat, first));
    let Nat { host, outside, address, gateway } = nat;
    let host = &bed.hosts()[host];
    host.ip(&format!("addr del {address}/24 dev {outside}")).unwrap();
    host.ip(&format!("addr add {address}/24 dev {outside}")).unwrap();
    host.ip(&format!("route replace 10.77.5.0/24 via {gateway}")).unwrap();
}

/// Starts both daemons from the file of the network, without addresses of the client or path
/// numbers.
fn start(bed: &Bed, mode: &str) -> Vec<Daemon> {
    let keys = AuthPlan::new("full", HUB);
    let key_file = |host: usize| bed.directory().join(format!("key{host}"));
    for host in [CLIENT, HUB] {
        std::fs::write(key_file(host), keys.private(host)).unwrap();
        std::fs::set_permissions(key_file(host), PermissionsExt::from_mode(0o600)).unwrap();
    }
    let this = |host: usize, more: &str| {
        let (key, file) = (keys.public(host), key_file(host).display().to_string());
        format!("{{ key = \"{key}\", private_key = \"{file}\", {more} }}\n")
    };
    let text = format!(
        "[daemon]\nframes = 8192\n[boxes]\nclient = {}hub = {}\
         [[path]]\nvia = [\"client\", \"hub\"]\nmode = \"{mode}\"\n",
        this(CLIENT, "uplinks = [\"l1\", \"l2\"], tunnel = \"10.99.0.1/24\""),
        this(HUB, "at = \"10.77.5.2 dev l5\", tunnel = \"10.99.0.2/24\"")
    );
    let network = recoded::network::parse("net.toml", &text);
    let network = network.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let files = [0, 1].map(|node| network.meaning(node));
    let start = |(host, file): (usize, &String)| {
        let own = |socket: &str| format!("daemon.socket = \"{socket}\"\n{file}");
        Daemon::start_with(bed, host, own).unwrap()
    };
    let daemons: Vec<Daemon> = [CLIENT, HUB].into_iter().zip(&files).map(start).collect();
    for daemon in &daemons {
        daemon.wait_until_it_has_sessions().unwrap();
    }
    // Both paths at the hub are where the translating boxes are.
    common::wait_for("both paths", &daemons[1], || moved(&daemons[1]).len() == 2);
    daemons
}

/// Addresses where the hub has found the client.
fn moved(hub: &Daemon) -> Vec<String> {
    let links = hub.show().unwrap().links;
    let neighbours = links.into_iter().flat_map(|link| link.neighbours);
    neighbours.map(|it| it.endpoint).filter(|endpoint| !endpoint.is_empty()).collect()
}

fn to() -> SocketAddr {
    SocketAddr::from(([10, 99, 0, 2], 7000))
}

fn probe_plan(seconds: u64) -> ProbePlan {
    ProbePlan {
        to: to(),
        payload_bytes: 400,
        packets_per_second: 500.0,
        length: Duration::from_secs(seconds),
        grace: Duration::from_secs(3),
        buffer_bytes: Some(1 << 20),
    }
}

/// Datagrams from the client to the hub while `happens` runs.
fn probed(bed: &mut Bed, seconds: u64, happens: impl FnOnce(&mut Bed)) -> ProbeOutcome {
    let plan = probe_plan(seconds);
    let probe = Probe::start(&bed.hosts()[CLIENT], &bed.hosts()[HUB], &plan).unwrap();
    sleep(Duration::from_secs(2));
    happens(bed);
    probe.finish().unwrap()
}

fn cut(bed: &mut Bed) {
    bed.set_link(1, dsl().with_loss(Loss::ALL)).unwrap();
    sleep(Duration::from_secs(3));
    bed.set_link(1, dsl()).unwrap();
}

/// Gap and loss of datagrams are bounded, whichever way they go.
fn assert_small_gap(what: &str, outcome: &ProbeOutcome) {
    let (gap, lost, sent) = (outcome.longest_gap_millis(), outcome.lost(), outcome.sent);
    println!("{what}: longest gap {gap:.0} ms, {lost} of {sent} lost");
    assert!(gap <= 300.0, "{what}: {gap} ms");
    assert!(lost * 20 < sent, "{what}: {lost} of {sent}");
}

#[test]
fn two_translated_uplinks_to_one_hub_address_add_up_and_outlive_rebinding() {
    let Some(_turn) = common::daemons() else { return };
    let Some((mut bed, daemons)) = uplinks("bond") else { return };
    let (client, hub) = (bed.hosts()[CLIENT].clone(), bed.hosts()[HUB].clone());
    let stream = Stream::start(&client, to(), &hub, to(), "bbr").unwrap();
    sleep(Duration::from_secs(9));
    // Under load: both boxes forget their translations at once.
    NATS.into_iter().for_each(|nat| rebind(&bed, nat, 50_000));
    sleep(Duration::from_secs(4));
    let outcome = stream.finish();
    let both = outcome.mbit_between(4.0, 9.0);
    let (after, gap) = (outcome.mbit_between(10.0, 13.0), outcome.longest_gap_between(9.0, 13.0));
    println!(
        "both {both:.1} of {:.1}, after {after:.1} Mbit/s, TCP stood for {gap:.2} s",
        SHARE * (DSL_MBIT + LTE_MBIT)
    );
    assert!(after > 0.5 * both, "the same connection continues: {after}");
    // More than the better of the two paths carries. On a busy machine TCP does not reach that.
    let plan = ProbePlan { payload_bytes: 1200, packets_per_second: 3800.0, ..probe_plan(4) };
    let outcome = Probe::start(&client, &hub, &plan).unwrap().finish().unwrap();
    let carried = 8e-6 * (outcome.sent - outcome.lost()) as f64 * 1200.0 / 4.0;
    println!(
        "{carried:.1} Mbit/s of datagrams carried, {} of {} lost",
        outcome.lost(),
        outcome.sent
    );
    assert!(carried > 1.1 * SHARE * DSL_MBIT, "{carried}");
    let outcome = probed(&mut bed, 8, cut);
    assert_small_gap("one uplink of two cut", &outcome);
    assert_eq!(moved(&daemons[1]).len(), 2, "each is where it was or has moved to");
}

#[test]
fn failover_between_translated_uplinks_survives_a_cut_and_both_rebinding() {
    let Some(_turn) = common::daemons() else { return };
    let Some((mut bed, _daemons)) = uplinks("failover") else { return };
    assert_small_gap("first uplink cut", &probed(&mut bed, 8, cut));
    let rebound = probed(&mut bed, 6, |bed| {
        NATS.into_iter().for_each(|nat| rebind(bed, nat, 50_000));
    });
    assert_small_gap("both translations forgotten", &rebound);
}

#[test]
fn copies_over_both_translated_uplinks_survive_a_cut_and_both_rebinding() {
    let Some(_turn) = common::daemons() else { return };
    let Some((mut bed, _daemons)) = uplinks("duplicate") else { return };
    let outcome = probed(&mut bed, 8, cut);
    assert_small_gap("one uplink cut", &outcome);
    assert!(outcome.lost() * 200 < outcome.sent, "{} lost", outcome.lost());
    let rebound = probed(&mut bed, 6, |bed| {
        NATS.into_iter().for_each(|nat| rebind(bed, nat, 50_000));
    });
    assert_small_gap("both translations forgotten", &rebound);
}

/// DHCP gives an uplink another address; then either end restarts.
#[test]
fn translated_uplinks_are_found_again_after_another_address_and_restarts() {
    let Some(_turn) = common::daemons() else { return };
    let Some((mut bed, mut daemons)) = uplinks("bond") else { return };
    let changed = probed(&mut bed, 6, |bed| {
        let client = &bed.hosts()[CLIENT];
        client.ip("addr add 10.77.1.77/24 dev l1").unwrap();
        client.ip("addr del 10.77.1.1/24 dev l1").unwrap();
        // Linux removes the routes of a first address with it, and may remove the second, too.
        let _ = client.ip("addr add 10.77.1.77/24 dev l1");
        client.ip("route replace 10.77.5.0/24 via 10.77.1.2 dev l1 metric 10").unwrap();
    });
    assert_small_gap("another address of an uplink", &changed);
    for which in [0, 1] {
        let began = Instant::now();
        daemons[which].kill();
        daemons[which].spawn_again().unwrap();
        daemons[which].wait_until_it_answers().unwrap();
        daemons[which].wait_until_it_has_sessions().unwrap_or_else(|_| {
            common::wait_for("sessions over both paths", &daemons[which], || {
                let sessions = daemons[which].show().unwrap().sessions;
                sessions.iter().all(|session| session.age_seconds.is_some())
            });
        });
        common::wait_for("traffic", &daemons[0], || {
            common::answers(&bed.hosts()[CLIENT], "10.99.0.2")
        });
        println!("restart of {which}: {:.1} s", began.elapsed().as_secs_f64());
    }
}

/// The ends use different numbers for a path: neither has keys for it, and both report why; the
/// path with the same number at both ends carries packets.
#[test]
fn other_numbers_of_a_path_at_both_ends_are_named_and_cost_that_path_alone() {
    let Some(_turn) = common::daemons_beside() else { return };
    let Some((bed, mut daemons)) = uplinks("bond") else { return };
    let hub = &mut daemons[1];
    let text = std::fs::read_to_string(hub.config()).unwrap();
    std::fs::write(hub.config(), text.replace("path = 1", "path = 9")).unwrap();
    hub.kill();
    hub.spawn_again().unwrap();
    hub.wait_until_it_answers().unwrap();
    let hub = &daemons[1];
    let says = |session: &recoded_api::v1::Session| session.refusal.contains("another path");
    common::wait_for("the reason", hub, || hub.show().unwrap().sessions.iter().any(says));
    common::wait_for("the other path", hub, || common::answers(&bed.hosts()[CLIENT], "10.99.0.2"));
}
