//! Valid and invalid topologies.

use super::*;

/// One link with one neighbour, and a tunnel.
pub(crate) fn topology() -> Topology {
    Topology {
        private_key: None,
        edges: Vec::new(),
        groups: Vec::new(),
        relayed: Vec::new(),
        workers: 1,
        tunnel_queues: 1,
        flow_memory_bytes: 1 << 30,
        cores: None,
        idle: Idle::Adaptive,
        frames_per_worker: 4096,
        frame_size: FrameSize::SMALL,
        port: 9426,
        xdp_mode: ModePreference::Auto,
        links: vec![LinkConfig {
            name: "east".into(),
            interface: "eth1".into(),
            local: "10.0.2.1".parse().unwrap(),
            backend: Backend::Xdp,
            rate_mbit: None,
        }],
        hops: vec![HopConfig {
            link: 0,
            address: "10.0.2.2".parse().unwrap(),
            key: None,
            roams: false,
            path: 0,
        }],
        tunnels: vec![TunnelConfig {
            name: "rec0".into(),
            addresses: vec![("10.99.0.1".parse().unwrap(), 24)],
            mtu: 1400,
        }],
    }
}

/// The error of the topology above after `change`.
fn error_after(change: impl FnOnce(&mut Topology)) -> TopologyError {
    let mut topology = topology();
    change(&mut topology);
    topology.check().unwrap_err()
}

#[test]
fn check_plain_topology_is_accepted() {
    assert_eq!(topology().check(), Ok(()));
}

#[test]
fn check_numbers_out_of_range_are_refused() {
    assert_eq!(error_after(|t| t.workers = 0), TopologyError::Workers(0));
    assert_eq!(error_after(|t| t.workers = 65), TopologyError::Workers(65));
    assert_eq!(error_after(|t| t.frames_per_worker = 8), TopologyError::Frames(8));
    assert_eq!(error_after(|t| t.port = 0), TopologyError::Port);
    assert_eq!(
        error_after(|t| t.cores = Some(vec![])),
        TopologyError::Cores { cores: 0, workers: 1 }
    );
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = error_after(|t| t.links[0].rate_mbit = Some(rate));
        assert!(matches!(error, TopologyError::Rate { .. }), "{rate}");
    }
}

#[test]
fn check_two_links_on_one_interface_are_refused() {
    let error = error_after(|t| {
        let mut twin = t.links[0].clone();
        twin.name = "west".into();
        t.links.push(twin);
    });
    assert!(matches!(error, TopologyError::Duplicate { kind: "link interface", .. }));
}

#[test]
fn check_tunnel_named_like_a_link_interface_is_refused() {
    let error = error_after(|t| t.tunnels[0].name = "eth1".into());
    assert!(matches!(error, TopologyError::Duplicate { kind: "interface", .. }));
}

#[test]
fn check_hop_of_other_family_missing_link_or_self_is_refused() {
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    assert!(matches!(error_after(|t| t.hops[0].address = v6), TopologyError::HopFamily { .. }));
    assert!(matches!(error_after(|t| t.hops[0].link = 1), TopologyError::HopLink { .. }));
    assert!(matches!(
        error_after(|t| t.hops[0].address = t.links[0].local),
        TopologyError::HopIsLocal(_)
    ));
    assert_eq!(
        error_after(|t| t.hops[0].roams = true),
        TopologyError::Roams("10.0.2.2".parse().unwrap())
    );
    let any = "0.0.0.0".parse().unwrap();
    let mut roaming = topology();
    roaming.links[0].backend = Backend::Udp;
    (roaming.links[0].local, roaming.hops[0].roams) = (any, true);
    assert_eq!(roaming.check(), Ok(()));
    assert!(matches!(
        error_after(|t| t.hops = vec![t.hops[0].clone(); NEIGHBOURS_MAX as usize + 1]),
        TopologyError::Neighbours { hops: 1025, .. }
    ));
}

#[test]
fn check_tunnel_prefix_and_mtu_follow_the_address_family() {
    assert!(matches!(
        error_after(|t| t.tunnels[0].addresses[0].1 = 33),
        TopologyError::Prefix { prefix: 33, .. }
    ));
    assert!(matches!(
        error_after(|t| t.tunnels[0].addresses.clear()),
        TopologyError::Addresses { count: 0, .. }
    ));
    let error = error_after(|t| {
        t.tunnels[0].addresses.push(("fd00::1".parse().unwrap(), 64));
        t.tunnels[0].mtu = 1279;
    });
    assert!(matches!(error, TopologyError::TunnelMtu { min: 1280, .. }));
}

#[test]
fn check_interface_name_follows_linux() {
    for name in ["", "sixteen-letters-", ".", "..", "a/b", "a b", "a:b", "a\0b"] {
        assert!(check_interface_name(name).is_err(), "{name:?}");
    }
    for name in ["eth0", "fifteen-letters", "wlp3s0.10"] {
        assert!(check_interface_name(name).is_ok(), "{name:?}");
    }
}
