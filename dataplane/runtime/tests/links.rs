//! Interfaces that disappear, return or change under a running node, on veth pairs in namespaces.

mod common;

use common::*;
use recoded_pipeline::params::FlowParams;
use recoded_runtime::report::LinkStatus;
use recoded_runtime::{Backend, LinkConfig, Runtime, SnapshotError};
use std::time::{Duration, Instant};

/// The program and the sockets went with the interface, unnoticed; workers then retried to
/// send ten thousand times a second.
#[test]
fn interface_that_is_made_again_is_used_again_and_no_worker_spins_meanwhile() {
    let Some(bed) = Bed::new() else { return };
    let left = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
    let right = topology("10.7.0.2", "10.7.0.1", "10.99.0.2");
    let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
    let receiver = inside(&bed.right, || start(&right, vec![sink(7)]).unwrap());
    let nodes = [&sender, &receiver];
    let status = |node: &Runtime| node.report().links[0].status;
    let resolved = |node: &Runtime| node.report().links[0].hops[0].is_resolved;
    wait_until("the hop is resolved", || nodes.iter().all(|node| resolved(node)));
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 20), 20);
    let tunnel = ip(&format!("-n {} -o link show rec0", bed.left));

    for round in 1..=2 {
        ip(&format!("-n {} link delete eth0", bed.left));
        wait_until("both are gone", || nodes.iter().all(|node| status(node) == LinkStatus::Gone));
        let (before, begin) = (worker_cpu(), Instant::now());
        let dropped = sender.report().links[0].counters.tx_link_gone;
        exchange(&bed, "10.99.0.1", "10.99.0.2", 1);
        std::thread::sleep(Duration::from_secs(1));
        let share = (worker_cpu() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
        println!("while gone: {:.3} % of a core", share * 100.0);
        assert!(share < 0.04, "{share}");
        assert!(sender.report().links[0].counters.tx_link_gone > dropped);

        let sent = sender.report().links[0].counters.tx_packets;
        bed.connect();
        wait_until("both are up", || nodes.iter().all(|node| status(node) == LinkStatus::Up));
        wait_until("the hop is resolved", || nodes.iter().all(|node| resolved(node)));
        assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 50), 50, "round {round}");
        let link = sender.report().links[0].clone();
        assert!(link.counters.tx_packets >= sent, "counters keep their values");
        assert_eq!((&link.xdp_mode[..], &link.socket_mode[..]), ("native", "copy"), "{link:?}");
    }
    assert_eq!(ip(&format!("-n {} -o link show rec0", bed.left)), tunnel, "the tunnel stayed");
    for node in [sender, receiver] {
        assert!(node.is_healthy());
        let frames = node.stop().workers[0].frames;
        assert_eq!(frames.free + frames.fill + frames.held + frames.tx, frames.total);
        assert_eq!(frames.tx, 0, "nothing is left to be sent after a drain");
    }
}

/// One of several interfaces is gone for longer than another: the present ones work.
#[test]
fn links_whose_interfaces_are_there_work_while_another_is_gone() {
    let Some(bed) = Bed::new() else { return };
    let spare = |verb: &str| ip(&format!("-n {} link {verb} eth1", bed.left));
    let add = "add eth1 type veth peer name eth2";
    let make = || ip(&format!("-n {} link {add}", bed.left));
    make();
    let mut left = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
    // First, since it is the one that registers the frames.
    left.links.insert(
        0,
        LinkConfig {
            name: "spare".into(),
            interface: "eth1".into(),
            local: "10.8.0.1".parse().unwrap(),
            backend: Backend::Xdp,
            rate_mbit: None,
        },
    );
    left.hops[0].link = 1;
    let right = topology("10.7.0.2", "10.7.0.1", "10.99.0.2");
    let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
    let receiver = inside(&bed.right, || start(&right, vec![sink(7)]).unwrap());
    let is = |link: usize, status: LinkStatus| sender.report().links[link].status == status;
    let works = |when: &str| {
        let hop = |node: &Runtime, link: usize| {
            let link = node.report().links[link].clone();
            link.status != LinkStatus::Gone && link.hops[0].is_resolved
        };
        // Packets in flight while sockets are reopened are lost, so twice in a row.
        let all = || exchange(&bed, "10.99.0.1", "10.99.0.2", 10) == 10;
        wait_until(when, || hop(&sender, 1) && hop(&receiver, 0) && all() && all());
    };
    works("all are there");
    spare("delete");
    wait_until("it is gone", || is(0, LinkStatus::Gone));
    works("the spare is gone");

    ip(&format!("-n {} link delete eth0", bed.left));
    wait_until("both are gone", || is(1, LinkStatus::Gone));
    bed.connect();
    works("the spare is gone for longer");
    make();
    wait_until("the spare is back", || is(0, LinkStatus::Down));
    works("the spare is back");

    // Both at once, in either order.
    for spare_first in [true, false] {
        spare("delete");
        ip(&format!("-n {} link delete eth0", bed.left));
        if spare_first {
            make();
            bed.connect();
        } else {
            bed.connect();
            make();
        }
        wait_until("the spare is back", || is(0, LinkStatus::Down));
        works("both are back");
    }
    assert!(sender.is_healthy() && receiver.is_healthy());
}

/// MTUs were read once: packets above a lowered one vanished without a count.
#[test]
fn mtu_that_changes_is_followed_and_what_exceeds_it_is_counted() {
    let Some(bed) = Bed::new() else { return };
    let left = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
    let right = topology("10.7.0.2", "10.7.0.1", "10.99.0.2");
    let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
    let receiver = inside(&bed.right, || start(&right, vec![sink(7)]).unwrap());
    wait_until("the hop is resolved", || sender.report().links[0].hops[0].is_resolved);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 20), 20);
    let set = |mtu: usize| {
        ip(&format!("-n {} link set eth0 mtu {mtu}", bed.left));
        wait_until("the change is noticed", || sender.report().links[0].mtu == mtu);
    };

    set(900);
    let (oversize, sent) = {
        let counters = sender.report().links[0].counters;
        (counters.tx_oversize, counters.tx_packets)
    };
    assert_eq!(oversize, 0);
    exchange(&bed, "10.99.0.1", "10.99.0.2", 1);
    wait_until("it is counted", || sender.report().links[0].counters.tx_oversize > 0);
    let large = FlowParams { symbol_bytes: 1000, ..source(7) };
    let error = sender.publish(snapshot(2, vec![large])).unwrap_err();
    assert!(matches!(error, SnapshotError::MtuTooSmall { mtu: 900, .. }), "{error}");

    let small = FlowParams { symbol_bytes: 800, ..source(7) };
    sender.publish(snapshot(3, vec![small])).unwrap();
    wait_until("the snapshot is adopted", || sender.editions() == [3]);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 20), 20, "smaller symbols fit");
    set(1500);
    sender.publish(snapshot(4, vec![source(7)])).unwrap();
    wait_until("the snapshot is adopted", || sender.editions() == [4]);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 20), 20, "and large ones again");
    assert!(sender.report().links[0].counters.tx_packets > sent);
    drop(receiver);
}

#[test]
fn interface_set_down_and_up_is_reported() {
    let Some(bed) = Bed::new() else { return };
    inside(&bed.left, || {
        let topology = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
        let runtime = start(&topology, vec![source(1)]).unwrap();
        for (word, status) in [("down", LinkStatus::Down), ("up", LinkStatus::Up)] {
            ip(&format!("-n {} link set eth0 {word}", bed.left));
            wait_until(word, || runtime.report().links[0].status == status);
        }
    });
}
