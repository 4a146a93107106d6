//! Nodes on veth pairs in namespaces: they start, carry packets, stop, and leave nothing behind.

mod common;

use common::*;
use recoded_counters::tunnel::QueueDrop;
use recoded_pipeline::params::{FlowParams, PeerId, Role, Snapshot, TunnelId};
use recoded_runtime::report::TunnelStatus;
use recoded_runtime::{Idle, Interface, Resources, Runtime, SnapshotError, StartError, Topology};
use recoded_xsk::{ModePreference, Socket, Umem, XdpMode};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn runtime_on_veth_starts_and_stops_leaving_nothing_behind() {
    let Some(bed) = Bed::new() else { return };
    inside(&bed.left, || {
        let runtime =
            start(&topology("10.7.0.1", "10.7.0.2", "10.99.0.1"), vec![source(1)]).unwrap();
        wait_until("the neighbour is resolved", || runtime.report().links[0].hops[0].is_resolved);
        wait_until("the snapshot is adopted", || runtime.editions() == [1]);
        assert!(Interface::query("eth0").unwrap().program.is_some());
        assert!(ip(&format!("-n {} addr show rec0", bed.left)).contains("10.99.0.1/24"));
        let link = runtime.report().links[0].clone();
        assert_eq!((&link.xdp_mode[..], &link.socket_mode[..]), ("native", "copy"), "{link:?}");
        assert!(link.reason.contains("zero copy"), "{link:?}");

        let report = runtime.stop();
        let frames = report.workers[0].frames;
        assert_eq!(frames.free + frames.fill + frames.held + frames.tx, frames.total);
        assert_eq!((frames.held, frames.tx), (0, 0), "nothing is held after a drain");
        assert_eq!(Interface::query("eth0").unwrap().program, None, "no program left");
        assert!(matches!(Interface::query("rec0"), Err(StartError::NoSuchInterface { .. })));
        // And once more, at once: the first run leaves nothing in the way.
        drop(start(&topology("10.7.0.1", "10.7.0.2", "10.99.0.1"), vec![source(1)]).unwrap());
    });
}

/// Sources that grew under traffic once took memory that relays and sinks had been given.
#[test]
fn sources_that_grow_beyond_the_memory_for_flows_are_refused() {
    let Some(bed) = Bed::new() else { return };
    inside(&bed.left, || {
        let least = source(1).memory_bytes();
        let topology = Topology {
            flow_memory_bytes: 2 * least,
            ..topology("10.7.0.1", "10.7.0.2", "10.99.0.1")
        };
        let runtime = start(&topology, vec![source(1)]).unwrap();
        let with = |edition, generations| {
            let flow = FlowParams { generations, ..source(1) };
            runtime.publish(Snapshot { edition, flows: vec![flow] })
        };
        let generations = source(1).generations;
        assert_eq!(with(2, 3 * generations / 2).map_err(|error| error.to_string()), Ok(()));
        let refused = with(3, 4 * generations).unwrap_err();
        assert!(matches!(refused, SnapshotError::Memory { stages: 0, .. }), "{refused}");
        runtime.stop();
    });
}

/// The replaced state of a source was in no budget, and stayed until memory was short.
#[test]
fn what_a_source_replaced_is_counted_until_it_goes() {
    let Some(bed) = Bed::new() else { return };
    inside(&bed.left, || {
        let bytes = source(1).memory_bytes();
        let topology = Topology {
            flow_memory_bytes: 4 * bytes,
            ..topology("10.7.0.1", "10.7.0.2", "10.99.0.1")
        };
        let runtime = start(&topology, vec![source(1)]).unwrap();
        let with = |edition, generations| {
            runtime.publish(snapshot(edition, vec![FlowParams { generations, ..source(1) }]))
        };
        // Too large a source is refused, and the error reports the memory in use.
        let in_use = || match with(9, 1 << 20) {
            Err(SnapshotError::Memory { stages, .. }) => stages,
            other => panic!("{other:?}"),
        };
        assert_eq!(in_use(), 0);
        with(2, source(1).generations / 2).unwrap();
        wait_until("the snapshot is adopted", || runtime.editions() == [2]);
        assert_eq!(in_use(), bytes);
        wait_until("it goes", || in_use() == 0);
        runtime.stop();
    });
}

#[test]
fn packets_cross_from_tunnel_to_tunnel() {
    let Some(bed) = Bed::new() else { return };
    for (left, right, mode) in [
        ("10.7.0.1", "10.7.0.2", ModePreference::Auto),
        ("fd07::1", "fd07::2", ModePreference::Auto),
        ("10.7.0.1", "10.7.0.2", ModePreference::Generic),
    ] {
        let node = |name: &str, local, neighbour, tunnel, flow| {
            let mut topology = topology(local, neighbour, tunnel);
            topology.xdp_mode = mode;
            inside(name, || start(&topology, vec![flow]).unwrap())
        };
        let sender = node(&bed.left, left, right, "10.99.0.1", source(7));
        let receiver = node(&bed.right, right, left, "10.99.0.2", sink(7));
        for node in [&sender, &receiver] {
            wait_until("the hop is resolved", || node.report().links[0].hops[0].is_resolved);
        }
        let arrived = exchange(&bed, "10.99.0.1", "10.99.0.2", 200);
        let (sent, received) = (sender.stop(), receiver.stop());
        assert_eq!(arrived, 200, "{left} {mode}: {sent:#?} {received:#?}");
        let verdict = |name| received.verdicts.iter().find(|(n, _)| *n == name).unwrap().1;
        assert!(verdict("redirected") >= 200);
        assert_eq!(received.links[0].counters.rx_unparsed, [0; 8]);
        assert_eq!(received.links[0].counters.rx_not_ours, 0);
        assert_eq!(sent.links[0].counters.tx_full, 0);
        assert_eq!(received.tunnels[0].counters.written_packets, 200);
    }
}

#[test]
fn packets_cross_in_every_idle_mode_and_with_two_workers() {
    let Some(bed) = Bed::new() else { return };
    for (idle, workers) in [(Idle::Busy, 1), (Idle::Interrupt, 1), (Idle::Adaptive, 2)] {
        let node = |name: &str, local, neighbour, tunnel, flow| {
            let mut topology = topology(local, neighbour, tunnel);
            (topology.idle, topology.workers) = (idle, workers);
            inside(name, || start(&topology, vec![flow]).unwrap())
        };
        let sender = node(&bed.left, "10.7.0.1", "10.7.0.2", "10.99.0.1", source(7));
        let receiver = node(&bed.right, "10.7.0.2", "10.7.0.1", "10.99.0.2", sink(7));
        wait_until("the hop is resolved", || sender.report().links[0].hops[0].is_resolved);
        wait_until("all report", || receiver.report().workers.len() == workers);
        // Each from another port: Linux spreads them over the tunnel's queues.
        for _ in 0..8 {
            assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 10), 10, "{idle:?}, {workers}");
        }
    }
}

/// A core that was removed, or that the process may not use.
#[test]
fn worker_whose_core_is_not_there_runs_on_another() {
    let Some(bed) = Bed::new() else { return };
    let node = |name: &str, local, neighbour, tunnel, flow| {
        let mut topology = topology(local, neighbour, tunnel);
        topology.cores = Some(vec![1000]);
        inside(name, || start(&topology, vec![flow]).unwrap())
    };
    let sender = node(&bed.left, "10.7.0.1", "10.7.0.2", "10.99.0.1", source(7));
    let _receiver = node(&bed.right, "10.7.0.2", "10.7.0.1", "10.99.0.2", sink(7));
    wait_until("the hop is resolved", || sender.report().links[0].hops[0].is_resolved);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 50), 50);
}

/// Two nodes with a flow each way.
fn pair(bed: &Bed) -> (Runtime, Runtime) {
    let left = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
    let right = topology("10.7.0.2", "10.7.0.1", "10.99.0.2");
    let left = inside(&bed.left, || start(&left, vec![source(7), sink(8)]).unwrap());
    let right = inside(&bed.right, || start(&right, vec![sink(7), source(8)]).unwrap());
    for node in [&left, &right] {
        wait_until("the hop is resolved", || node.report().links[0].hops[0].is_resolved);
    }
    (left, right)
}

#[test]
fn tcp_crosses_many_packets_at_a_time() {
    let Some(bed) = Bed::new() else { return };
    let (left, right) = pair(&bed);
    let listener = inside(&bed.right, || TcpListener::bind("10.99.0.2:5000").unwrap());
    let sent: Vec<u8> = (0..8_000_000u32).flat_map(u32::to_be_bytes).collect();
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, mut received) = (listener.accept().unwrap().0, Vec::new());
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let mut stream = inside(&bed.left, || TcpStream::connect("10.99.0.2:5000").unwrap());
        stream.write_all(&sent).unwrap();
        drop(stream);
        receiver.join().unwrap()
    });
    assert!(received == sent, "{} of {} bytes, or others", received.len(), sent.len());
    let (left, right) = (left.stop(), right.stop());
    let [source, sink] = [&left.tunnels[0], &right.tunnels[0]];
    let packets = (sent.len() / 1400) as u64;
    assert!(source.counters.read_packets > packets, "split to the MTU: {source:?}");
    assert!(sink.counters.written_packets > packets, "{sink:?}");
    assert_eq!((source.counters.read_failed, sink.counters.write_failed), (0, 0));
    if sink.offload == "none" {
        return eprintln!("not asked how many writes there were: {}", sink.reason);
    }
    assert!(sink.counters.writes * 2 < sink.counters.written_packets, "merged: {sink:?}");
}

#[test]
fn tunnel_deleted_under_a_node_is_made_again_and_nothing_spins() {
    let Some(bed) = Bed::new() else { return };
    let (left, right) = pair(&bed);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 20), 20);
    for (node, name) in [(&left, &bed.left), (&right, &bed.right)] {
        // Another process takes the name, in a second attempt if necessary: recreation fails for
        // now.
        while !try_ip(&format!("-n {name} tuntap add mode tun name rec0")) {
            ip(&format!("-n {name} link delete rec0"));
        }
        wait_until("it is missed", || node.report().tunnels[0].status == TunnelStatus::Gone);
    }
    let (before, begin) = (worker_cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let share = (worker_cpu() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    assert!(share < 0.1, "two nodes without their tunnels use {share} of a core");
    for (node, name) in [(&left, &bed.left), (&right, &bed.right)] {
        ip(&format!("-n {name} link delete rec0"));
        wait_until("it is made again", || node.report().tunnels[0].counters.recreated == 1);
        assert!(node.report().tunnels[0].status == TunnelStatus::Present && node.is_healthy());
        let shown = ip(&format!("-n {name} addr show rec0"));
        assert!(shown.contains("10.99.0.") && shown.contains("mtu 1400"), "{shown}");
    }
    // The first packets may meet a worker that has not polled yet.
    wait_until("packets cross again", || exchange(&bed, "10.99.0.1", "10.99.0.2", 20) == 20);
}

/// Not a test by itself: the process that the next one kills.
#[test]
fn victim_runs_until_killed() {
    if std::env::var_os("RECODED_TEST_VICTIM").is_none() {
        return;
    }
    let _runtime = start(&topology("10.7.0.1", "10.7.0.2", "10.99.0.1"), vec![source(1)]).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn node_starts_at_once_after_its_predecessor_was_killed() {
    let Some(bed) = Bed::new() else { return };
    inside(&bed.left, || {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim_runs_until_killed"])
            .env("RECODED_TEST_VICTIM", "1")
            .spawn()
            .unwrap();
        wait_until("the victim runs", || Interface::query("rec0").is_ok());
        victim.kill().unwrap();
        victim.wait().unwrap();
        let begin = Instant::now();
        let next = start(&topology("10.7.0.1", "10.7.0.2", "10.99.0.1"), vec![source(1)]);
        assert!(next.is_ok(), "{:?}", next.err());
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    });
}

/// A start soon after a process was killed: on a busy machine Linux frees its program, its queues
/// and its tunnel one by one, after more than half a second.
#[test]
fn start_waits_for_what_a_killed_process_still_holds() {
    let Some(bed) = Bed::new() else { return };
    let topology = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
    let hold_all = || -> Box<dyn Send> { Box::new(Resources::open(&topology).unwrap()) };
    let hold_queue = || -> Box<dyn Send> {
        let mut umem = Umem::new(topology.frames_per_worker).unwrap();
        let copies = ModePreference::Generic;
        let socket = Socket::open(&mut umem, "eth0", 0, copies, XdpMode::Generic).unwrap();
        Box::new((socket, umem))
    };
    let hold_tunnel = || -> Box<dyn Send> {
        ip("tuntap add mode tun name rec0");
        Box::new(Deleted("rec0"))
    };
    let holders: [(&str, Hold<'_>); 3] =
        [("program", &hold_all), ("queue", &hold_queue), ("tunnel", &hold_tunnel)];
    for (what, hold) in holders {
        inside(&bed.left, || {
            let held = hold();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(1500));
                    drop(held);
                });
                let next = Resources::open(&topology);
                assert!(next.is_ok(), "{what}: {:?}", next.err());
            });
        });
    }
}

/// Takes something, until its value is dropped.
type Hold<'a> = &'a (dyn Fn() -> Box<dyn Send> + Sync);

/// An interface that is deleted with this.
struct Deleted(&'static str);

impl Drop for Deleted {
    fn drop(&mut self) {
        ip(&format!("link delete {}", self.0));
    }
}

#[test]
fn snapshot_published_live_changes_the_flows_accepted() {
    let Some(bed) = Bed::new() else { return };
    let left = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
    let right = topology("10.7.0.2", "10.7.0.1", "10.99.0.2");
    let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
    let receiver = inside(&bed.right, || start(&right, vec![sink(8)]).unwrap());
    wait_until("the hop is resolved", || sender.report().links[0].hops[0].is_resolved);
    wait_until("the hop is resolved", || receiver.report().links[0].hops[0].is_resolved);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 1), 0, "flow 7 is unknown");
    let unknown = |name: &str| {
        receiver.report().verdicts.iter().find(|(n, _)| *n == name).map(|(_, count)| *count)
    };
    assert!(unknown("drop_unknown_flow").unwrap() > 0);

    receiver.publish(snapshot(2, vec![sink(7)])).unwrap();
    wait_until("the snapshot is adopted", || receiver.editions() == [2]);
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 20), 20);
    let mut wrong = sink(7);
    wrong.role = Role::Sink { tunnel: TunnelId(9), upstream: PeerId(0) };
    assert!(receiver.publish(snapshot(3, vec![wrong])).is_err());
    assert_eq!(exchange(&bed, "10.99.0.1", "10.99.0.2", 20), 20, "the good one stays active");
    assert!(sender.is_healthy() && receiver.is_healthy());
}

#[test]
fn errors_of_opening_name_what_is_in_the_way() {
    let Some(bed) = Bed::new() else { return };
    inside(&bed.left, || {
        let good = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
        let _first = Resources::open(&good).unwrap();

        let mut second = good.clone();
        second.tunnels[0].name = "rec1".into();
        let error = Resources::open(&second).err().unwrap();
        let program = Interface::query("eth0").unwrap().program.unwrap();
        assert!(matches!(error, StartError::ForeignProgram { .. }), "{error}");
        assert!(error.to_string().contains(&format!("id {program}, name `recoded`")), "{error}");

        let mut absent = good.clone();
        absent.links[0].interface = "eth9".into();
        let error = Resources::open(&absent).err().unwrap();
        assert!(matches!(error, StartError::NoSuchInterface { .. }), "{error}");
    });
    inside(&bed.right, || {
        let mut taken = topology("10.7.0.2", "10.7.0.1", "10.99.0.2");
        ip(&format!("-n {} tuntap add mode tun name rec0", bed.right));
        let error = Resources::open(&taken).err().unwrap();
        assert!(matches!(error, StartError::TunnelExists { .. }), "{error}");
        assert_eq!(Interface::query("eth0").unwrap().program, None, "failed opens clean up");
        // Workers need no queue of their own.
        taken.tunnels.clear();
        taken.workers = 3;
        drop(Resources::open(&taken).unwrap());
        assert_eq!(Interface::query("eth0").unwrap().program, None, "so does closing");
    });
}

#[test]
fn rate_paces_what_a_source_sends() {
    let Some(bed) = Bed::new() else { return };
    let mut left = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
    left.links[0].rate_mbit = Some(20.0);
    let right = topology("10.7.0.2", "10.7.0.1", "10.99.0.2");
    let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
    let receiver = inside(&bed.right, || start(&right, vec![sink(7)]).unwrap());
    wait_until("the hop is resolved", || sender.report().links[0].hops[0].is_resolved);

    let address: IpAddr = "10.99.0.2".parse().unwrap();
    let socket = inside(&bed.left, || UdpSocket::bind("10.99.0.1:0").unwrap());
    let (begin, mut at_begin) = (Instant::now(), None);
    while begin.elapsed() < Duration::from_secs(2) {
        // Far more than the link takes: packets wait all the time.
        let _ = socket.send_to(&[0; 1300], (address, 5000));
        std::thread::sleep(Duration::from_micros(50));
        if at_begin.is_none() && begin.elapsed() > Duration::from_millis(500) {
            at_begin = Some((Instant::now(), sender.report().links[0].counters.tx_bytes));
        }
    }
    let (since, bytes) = at_begin.unwrap();
    let sent = sender.report().links[0].counters.tx_bytes - bytes;
    let rate_mbit = sent as f64 * 8e-6 / since.elapsed().as_secs_f64();
    // Reports are up to 50 ms old, 1.5 s are measured.
    assert!((18.5..21.5).contains(&rate_mbit), "{rate_mbit} Mbit/s");
    assert_eq!(sender.report().links[0].counters.tx_full, 0);
    drop(receiver);

    // Every packet was sent, or dropped and counted; at last none waits.
    let tunnel = || sender.report().tunnels[0].counters;
    let sent = || sender.report().workers[0].pipeline.flows[0].counters.ingress_packets;
    let dropped = || tunnel().queue_dropped.iter().sum::<u64>();
    wait_until("the queue is empty", || tunnel().read_packets == sent() + dropped());
    assert!(tunnel().queue_dropped[QueueDrop::Delay as usize] > 0);
    // Packets that wait when the flow ends are counted, too: this is a second of the link's rate.
    let before = tunnel().queued_packets;
    (0..2000).for_each(|_| drop(socket.send_to(&[0; 1300], (address, 5000))));
    wait_until("packets wait", || tunnel().queued_packets > before);
    sender.publish(snapshot(2, vec![])).unwrap();
    wait_until("the rest is dropped", || tunnel().queue_dropped[QueueDrop::Closed as usize] > 0);
}

/// The backlog of a relay that received packets faster than its pace grew without bound.
#[test]
fn relay_drops_and_counts_what_its_pace_has_no_room_for() {
    let Some(bed) = Bed::new() else { return };
    let left = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
    let mut right = topology("10.7.0.2", "10.7.0.1", "10.99.0.2");
    right.links[0].rate_mbit = Some(4.0);
    right.tunnels.clear();
    // It returns packets to their sender: enough to observe its sending.
    let relay = FlowParams::new(7, Role::Relay { upstream: PeerId(0) }, vec![PeerId(0)]);
    let sender = inside(&bed.left, || start(&left, vec![source(7)]).unwrap());
    let relay = inside(&bed.right, || start(&right, vec![relay]).unwrap());
    for node in [&sender, &relay] {
        wait_until("the hop is resolved", || node.report().links[0].hops[0].is_resolved);
    }
    let socket = inside(&bed.left, || UdpSocket::bind("10.99.0.1:0").unwrap());
    let begin = Instant::now();
    // Ten times the pace, for a second.
    while begin.elapsed() < Duration::from_secs(1) {
        for _ in 0..4 {
            let _ = socket.send_to(&[0; 1300], "10.99.0.2:5000");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    let counters = relay.report().links[0].counters;
    let seconds = begin.elapsed().as_secs_f64();
    // The backlog at the end may be one allowance of 32 packets, which at this pace are more than
    // 50 ms. Link reports, at most two thousand a second, are not held back.
    let most = (4e6 / 8.0 * seconds) + 40.0 * 1514.0 + 2000.0 * 100.0 * seconds;
    assert!(counters.tx_over_rate > 500, "{counters:?}");
    assert!((counters.tx_bytes as f64) < most, "{counters:?} in {seconds} s");
    assert!(counters.tx_bytes > 400_000, "the pace is used: {counters:?}");
}

#[test]
fn idle_node_leaves_the_core_to_others() {
    let Some(bed) = Bed::new() else { return };
    inside(&bed.left, || {
        let topology = topology("10.7.0.1", "10.7.0.2", "10.99.0.1");
        let runtime = start(&topology, vec![source(1)]).unwrap();
        wait_until("the hop is resolved", || runtime.report().links[0].hops[0].is_resolved);
        let (before, begin) = (worker_cpu(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let share = (worker_cpu() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
        println!("idle: {:.3} % of a core", share * 100.0);
        assert!(share < 0.02, "{share}");
    });
}
