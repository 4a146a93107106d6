//! Nodes with UDP sockets on veth pairs in namespaces: by themselves and together with AF_XDP.

mod common;

use common::*;
use recoded_pipeline::params::FlowParams;
use recoded_runtime::report::LinkStatus;
use recoded_runtime::{Backend, Interface, Resources, Runtime, StartError, Topology};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

fn with(backend: Backend, mut topology: Topology) -> Topology {
    topology.links[0].backend = backend;
    topology
}

fn verdict(node: &Runtime, name: &str) -> u64 {
    node.report().verdicts.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn packets_cross_by_udp_sockets_and_between_both_kinds() {
    let Some(bed) = Bed::of_queues(1) else { return };
    use Backend::{Udp, Xdp};
    for (left, right, kinds) in [
        ("10.7.0.1", "10.7.0.2", [Udp, Udp]),
        ("fd07::1", "fd07::2", [Udp, Udp]),
        ("10.7.0.1", "10.7.0.2", [Xdp, Udp]),
        ("fd07::1", "fd07::2", [Xdp, Udp]),
        ("10.7.0.1", "10.7.0.2", [Udp, Xdp]),
        ("fd07::1", "fd07::2", [Udp, Xdp]),
    ] {
        let node = |name: &str, (local, neighbour), tunnel, flow, backend| {
            let topology = with(backend, topology(local, neighbour, tunnel));
            inside(name, || start(&topology, vec![flow]).unwrap())
        };
        let sender = node(&bed.left, (left, right), "10.99.0.1", source(7), kinds[0]);
        let receiver = node(&bed.right, (right, left), "10.99.0.2", sink(7), kinds[1]);
        for node in [&sender, &receiver] {
            wait_until("the hop is resolved", || node.report().links[0].hops[0].is_resolved);
        }
        for (node, backend) in [(&sender, kinds[0]), (&receiver, kinds[1])] {
            let link = node.report().links[0].clone();
            let modes = (&link.xdp_mode[..], &link.socket_mode[..]);
            assert_eq!(modes == ("none", "udp"), backend == Udp, "{link:?}");
        }
        if kinds == [Udp, Udp] {
            for name in [&bed.left, &bed.right] {
                let program = inside(name, || Interface::query("eth0").unwrap().program);
                assert_eq!(program, None, "nothing is attached");
            }
        }
        let arrived = exchange(&bed, "10.99.0.1", "10.99.0.2", 200);
        let (sent, received) = (sender.stop(), receiver.stop());
        assert_eq!(arrived, 200, "{left} {kinds:?}: {sent:#?} {received:#?}");
        let redirected = received.verdicts.iter().find(|(name, _)| *name == "redirected");
        assert!(redirected.unwrap().1 >= 200, "{left} {kinds:?}: {:?}", received.verdicts);
        assert_eq!(sent.links[0].counters.tx_full, 0);
        for report in [sent, received] {
            let frames = report.workers[0].frames;
            assert_eq!(frames.free + frames.fill + frames.held + frames.tx, frames.total);
            assert_eq!(frames.tx, 0, "nothing is left to be sent after a drain");
        }
    }
}

/// Linux spreads senders over the sockets of workers; packets for another worker are handed over.
#[test]
fn two_workers_share_a_port() {
    let Some(bed) = Bed::new() else { return };
    let node = |name: &str, local, neighbour, tunnel, flow: FlowParams| {
        let topology = Topology {
            workers: 2,
            tunnel_queues: 2,
            ..with(Backend::Udp, topology(local, neighbour, tunnel))
        };
        inside(name, || start(&topology, vec![FlowParams { shards: 2, ..flow }]).unwrap())
    };
    let sender = node(&bed.left, "10.7.0.1", "10.7.0.2", "10.99.0.1", source(7));
    let receiver = node(&bed.right, "10.7.0.2", "10.7.0.1", "10.99.0.2", sink(7));
    for _ in 0..8 {
        // Each connection belongs to one of the shards.
        assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 40), 40);
    }
    for node in [sender, receiver] {
        assert!(node.is_healthy());
        node.stop();
    }
}

#[test]
fn interface_that_is_made_again_is_used_again_and_flows_are_known() {
    let Some(bed) = Bed::new() else { return };
    let node = |name: &str, local, neighbour, tunnel, flow| {
        let topology = with(Backend::Udp, topology(local, neighbour, tunnel));
        inside(name, || start(&topology, vec![flow]).unwrap())
    };
    let sender = node(&bed.left, "10.7.0.1", "10.7.0.2", "10.99.0.1", source(7));
    let receiver = node(&bed.right, "10.7.0.2", "10.7.0.1", "10.99.0.2", sink(7));
    let nodes = [&sender, &receiver];
    let is = |status| nodes.iter().all(|node| node.report().links[0].status == status);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 20), 20);
    let before = verdict(&receiver, "redirected");
    for round in 1..=2 {
        ip(&format!("-n {} link delete eth0", bed.left));
        wait_until("both are gone", || is(LinkStatus::Gone));
        bed.connect();
        wait_until("both are up", || is(LinkStatus::Up));
        assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 50), 50, "round {round}");
    }
    wait_until("verdicts count on", || verdict(&receiver, "redirected") >= before + 100);
    for node in [sender, receiver] {
        assert!(node.is_healthy());
        node.stop();
    }
}

#[test]
fn relay_without_tunnels_needs_no_capability_and_says_what_others_need() {
    let Some(bed) = Bed::new() else { return };
    inside(&bed.left, || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).unwrap();
        let with_tunnel = with(Backend::Udp, topology("10.7.0.1", "10.7.0.2", "10.99.0.1"));
        let refused = Resources::open(&with_tunnel).map(drop).unwrap_err();
        assert!(matches!(refused, StartError::NoTunnels), "{refused}");
        let relay = Topology { tunnels: Vec::new(), ..with_tunnel };
        let by_xdp = with(Backend::Xdp, relay.clone());
        let refused = Resources::open(&by_xdp).map(drop).unwrap_err().to_string();
        assert!(refused.contains("CAP_BPF") && refused.contains("backend = \"udp\""), "{refused}");
        let node = start(&relay, Vec::new()).unwrap();
        wait_until("the snapshot is adopted", || node.editions() == [1]);
        node.stop();
    });
}
