//! A link in the middle with a smaller MTU than its ends that reports nothing: the tunnel adopts
//! the MTU of the path, and TCP and UDP continue, including established connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::stream::Stream;
use recoded_netns::{Bed, CodePlan, Daemon, LinePlan, Loss};

const RATE_MBIT: f64 = 40.0;

/// Minimum TCP rate, on a shared machine.
const LEAST_MBIT: f64 = 15.0;

/// Size of a datagram that fits the tunnel's configured MTU, 1421, and needs two packets at 1340.
const PAYLOAD_BYTES: usize = 1390;

/// A link of MTU 1400 leaves 1372 bytes of UDP payload, and IP packets 32 bytes shorter. A veth
/// accepts four bytes more, for a VLAN tag.
const NARROW_MTU: u64 = 1340 + 4;

/// A limit lasts for three seconds, and the daemon tries to raise it every five.
const PATIENCE: Duration = Duration::from_secs(15);

fn set_mtu(bed: &Bed, mtu: u32) {
    for side in ["west", "east"] {
        bed.link(2).ip(&format!("link set {side} mtu {mtu}")).unwrap();
    }
}

/// MTU of the tunnel at the source, as reported by Linux and by the daemon.
fn tunnel_mtu(bed: &Bed, source: &Daemon) -> u64 {
    let tunnel = source.show().unwrap().tunnels.remove(0);
    let shown = bed.source().ip("link show rec0").unwrap();
    assert!(tunnel.mtu <= tunnel.mtu_configured);
    let mtu = shown.split("mtu ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    // It may change between the two.
    if mtu == tunnel.mtu.to_string() { tunnel.mtu } else { 0 }
}

fn wait_for_mtu(bed: &Bed, source: &Daemon, is_so: impl Fn(u64) -> bool) {
    let begin = Instant::now();
    while !is_so(tunnel_mtu(bed, source)) {
        assert!(begin.elapsed() < PATIENCE, "{}", source.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("MTU {} after {:?}", tunnel_mtu(bed, source), begin.elapsed());
}

fn datagrams(bed: &Bed, port: u16, seconds: u64) -> Probe {
    let plan = ProbePlan {
        to: SocketAddr::from(([10, 99, 0, 2], port)),
        payload_bytes: PAYLOAD_BYTES,
        packets_per_second: 100.0,
        length: Duration::from_secs(seconds),
        grace: Duration::from_secs(1),
        buffer_bytes: Some(1 << 20),
    };
    Probe::start(bed.source(), bed.sink(), &plan).unwrap()
}

/// Generations and batches pack IP packets into symbols, so symbols become shorter and the tunnel
/// keeps its MTU. The first packets are small, as in a TCP handshake.
#[test]
fn symbols_of_generations_and_batches_become_shorter_behind_a_narrow_link() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bats = CodePlan::Bats { block_symbols: 64, interleave: None, adaptive: true };
    for code in [CodePlan::Rlnc, bats] {
        let bed = common::bed(2, Loss::independent(0.02), RATE_MBIT);
        set_mtu(&bed, 1400);
        let mut plan = LinePlan::protected(2);
        plan.flows.iter_mut().for_each(|flow| flow.code = code);
        let daemons = Daemon::start_line(&bed, &plan).unwrap();
        assert!(common::answers(bed.source(), "10.99.0.2"), "{}", daemons[0].log());
        let configured = daemons[0].show().unwrap().tunnels[0].mtu_configured;

        let to = SocketAddr::from(([10, 99, 0, 2], 7000));
        let stream = Stream::start(bed.source(), to, bed.sink(), to, "cubic").unwrap();
        let probe = datagrams(&bed, 7001, 6);
        stream.wait_until(Duration::from_secs(6));
        let came = probe.finish().unwrap().rate_between(2000.0, 6000.0);
        let mbit = stream.finish().mbit_between(2.0, 6.0);
        let source = daemons[0].show().unwrap();
        println!("{code:?}: {came} datagrams a second while TCP carries {mbit:.1} Mbit/s");
        assert!(came > 90.0 && mbit > LEAST_MBIT, "{came}, {mbit}\n{}", daemons[0].log());
        assert_eq!(source.tunnels[0].mtu, configured, "{}", daemons[0].log());
    }
}

/// Only the relay notices changes of the second link.
#[test]
fn mtu_of_the_path_is_followed_from_the_start_and_while_traffic_runs() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.02), RATE_MBIT);
    set_mtu(&bed, 1400);
    let mut plan = LinePlan::protected(2);
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let configured = daemons[0].show().unwrap().tunnels[0].mtu_configured;
    let is_narrow = |mtu| (NARROW_MTU - 24..=NARROW_MTU).contains(&mtu);

    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let stream = Stream::start(bed.source(), to, bed.sink(), to, "cubic").unwrap();
    let began = Instant::now();
    let probe = datagrams(&bed, 7001, 6);
    stream.wait_until(Duration::from_secs(6));
    assert!(is_narrow(tunnel_mtu(&bed, &daemons[0])), "{}", daemons[0].log());
    let outcome = probe.finish().unwrap();
    let came = outcome.rate_between(2000.0, 6000.0);
    println!("from the start: {came} datagrams a second");
    assert!(came > 90.0, "{outcome:?}");

    set_mtu(&bed, 1500);
    wait_for_mtu(&bed, &daemons[0], |mtu| mtu == configured);
    let raised = began.elapsed().as_secs_f64();
    stream.wait_until(Duration::from_secs_f64(raised + 2.0));

    set_mtu(&bed, 1400);
    let lowered = began.elapsed().as_secs_f64();
    let probe = datagrams(&bed, 7002, 5);
    stream.wait_until(Duration::from_secs_f64(lowered + 5.0));
    assert!(is_narrow(tunnel_mtu(&bed, &daemons[0])), "{}", daemons[0].log());
    let outcome = probe.finish().unwrap();
    let came = outcome.rate_between(2000.0, 5000.0);
    println!("after it fell: {came} datagrams a second");
    assert!(came > 90.0, "{outcome:?}");

    let tcp = stream.finish();
    let steps = tcp.bytes.iter().map(|bytes| format!("{:.0}", *bytes as f64 * 8e-5));
    println!("Mbit/s by tenths of a second: {}", steps.collect::<Vec<_>>().join(" "));
    println!("raised at {raised:.1} s, lowered at {lowered:.1} s");
    for (from, to) in [(2.0, 6.0), (raised, raised + 2.0), (lowered + 2.0, lowered + 5.0)] {
        let mbit = tcp.mbit_between(from, to);
        println!("{mbit:.1} Mbit/s from {from:.1} to {to:.1} s");
        assert!(mbit > LEAST_MBIT, "{mbit}");
    }
    let relay = daemons[1].show().unwrap();
    assert!(relay.flows[0].count("too_large") > 0 && relay.flows[0].count("sent_probe") > 0);
    assert!(daemons[1].log().contains("do not arrive"), "{}", daemons[1].log());
    let log = daemons[0].log();
    let follows = log.matches("the MTU of the tunnel follows").count();
    let back = log.matches("has its configured MTU again").count();
    assert!((2..=4).contains(&follows) && back == 1, "{log}");
}
