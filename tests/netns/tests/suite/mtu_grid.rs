//! Interfaces of any MTU, at either end, both, or in the middle: datagrams of all sizes and TCP
//! arrive with minimal configuration files, for every code, with keys and without.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common;
use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::stream::Stream;
use recoded_netns::{AuthPlan, Bed, CodePlan, Daemon, LinePlan, Loss};

/// MTU of every interface of the emulated links, so that only hosts decide; a veth accepts any
/// packet up to the MTU of the receiving interface.
const WIRE_MTU: u32 = 9600;

/// If the MTUs of two neighbours differ, packets are dropped silently, and the limit is found from
/// losses.
const RECOVERY: Duration = Duration::from_secs(2);

const BATS: CodePlan = CodePlan::Bats { block_symbols: 64, interleave: None, adaptive: true };

/// Minimum TCP rate, on a shared machine.
const LEAST_MBIT: f64 = 5.0;

/// A line of hosts.
struct Case {
    code: CodePlan,
    auth: Option<&'static str>,
    /// MTU of every interface of each host.
    mtus: &'static [u32],
}

fn set_mtus(bed: &Bed, mtus: &[u32]) {
    for number in 1..=bed.hops() {
        for side in ["west", "east"] {
            bed.link(number).ip(&format!("link set {side} mtu {WIRE_MTU}")).unwrap();
        }
        let [east, west] = bed.interfaces(number);
        bed.hosts()[number - 1].ip(&format!("link set {east} mtu {}", mtus[number - 1])).unwrap();
        bed.hosts()[number].ip(&format!("link set {west} mtu {}", mtus[number])).unwrap();
    }
}

/// Daemons with the defaults of all keys that a newcomer leaves out.
fn start(bed: &Bed, case: &Case) -> Vec<Daemon> {
    let mut plan = LinePlan::protected(bed.hops());
    plan.chooses = (0..=bed.hops()).collect();
    plan.auth = case.auth.map(|level| AuthPlan::new(level, bed.hops()));
    for flow in &mut plan.flows {
        (flow.code, flow.field) = (case.code, 256);
    }
    Daemon::start_line(bed, &plan).unwrap()
}

/// Sends datagrams of these sizes, twenty of each size at once.
fn datagrams(bed: &Bed, sizes: &[usize]) -> Vec<(usize, u64)> {
    let start = |(port, size): (u16, &usize)| {
        let plan = ProbePlan {
            to: SocketAddr::from(([10, 99, 0, 2], port)),
            payload_bytes: *size,
            packets_per_second: 50.0,
            length: Duration::from_millis(400),
            grace: Duration::from_millis(600),
            buffer_bytes: Some(1 << 20),
        };
        (*size, Probe::start(bed.source(), bed.sink(), &plan).unwrap())
    };
    let probes: Vec<_> = (7001..).zip(sizes).map(start).collect();
    probes.into_iter().map(|(size, probe)| (size, probe.finish().unwrap().lost())).collect()
}

/// Returns the problem, if there is one.
fn check(case: &Case) -> Result<(), String> {
    let bed = common::bed(case.mtus.len() - 1, Loss::independent(0.0), 200.0);
    set_mtus(&bed, case.mtus);
    let daemons = start(&bed, case);
    let Case { code, auth, mtus } = case;
    let name = format!("{code:?}, auth {auth:?}, MTUs {mtus:?}");
    let differ = mtus.windows(2).any(|pair| pair[0] != pair[1]);
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let stream = Stream::start(bed.source(), to, bed.sink(), to, "cubic").unwrap();
    let settled = if differ { RECOVERY } else { Duration::ZERO };
    let sizes = [16, 1200, 1400, 1472, 1650, 4000, 8900];
    if differ {
        // The first large ones show the limit.
        datagrams(&bed, &sizes);
    }
    stream.wait_until(settled);
    let lost = datagrams(&bed, &sizes);
    stream.wait_until(settled + Duration::from_secs(1));
    let tcp = stream.finish();
    let begin = settled.as_secs_f64();
    let (mbit, gap) =
        (tcp.mbit_between(begin, begin + 1.0), tcp.longest_gap_between(0.0, begin + 1.0));
    let tunnel = daemons[0].show().unwrap().tunnels.remove(0);
    println!(
        "{name}: tunnel MTU {} of {}, {mbit:.1} Mbit/s, longest gap {gap:.2} s, lost {lost:?}",
        tunnel.mtu, tunnel.mtu_configured
    );
    let logs = || daemons.iter().map(Daemon::log).collect::<Vec<_>>().join("\n---\n");
    if lost.iter().any(|(_, lost)| *lost > 0) || mbit < LEAST_MBIT {
        println!("{}", logs());
        return Err(format!("{name}: lost {lost:?}, {mbit:.1} Mbit/s"));
    }
    Ok(())
}

#[test]
fn any_mtu_works_between_two_hosts() {
    let Some(_turn) = common::daemons_beside() else { return };
    let full = Some("full");
    let cases = [
        (CodePlan::Auto, None, &[9001, 9001][..]),
        (CodePlan::Auto, full, &[9001, 9001]),
        (CodePlan::Auto, full, &[9001, 1500]),
        (CodePlan::Auto, None, &[1280, 9216]),
        (CodePlan::Rlnc, full, &[9216, 9216]),
        (BATS, None, &[4000, 4000]),
        (CodePlan::Auto, full, &[2000, 2000]),
        (CodePlan::Auto, full, &[1550, 1500]),
        (CodePlan::Rlnc, None, &[1500, 1550]),
    ];
    let check = |(code, auth, mtus)| check(&Case { code, auth, mtus }).err();
    let wrong: Vec<String> = cases.into_iter().filter_map(check).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn any_mtu_works_over_a_relay() {
    let Some(_turn) = common::daemons_beside() else { return };
    let full = Some("full");
    let cases = [
        (CodePlan::Auto, full, &[9001, 9001, 9001][..]),
        (CodePlan::Auto, full, &[1500, 9001, 1500]),
        (CodePlan::Auto, full, &[9001, 1500, 9001]),
        (CodePlan::Auto, None, &[9001, 1500, 9001]),
        (BATS, full, &[9001, 9001, 9001]),
        (CodePlan::Rlnc, full, &[1500, 1492, 1500]),
        (CodePlan::Auto, None, &[4000, 4000, 4000]),
        (CodePlan::Auto, full, &[1400, 1400, 1280]),
    ];
    let check = |(code, auth, mtus)| check(&Case { code, auth, mtus }).err();
    let wrong: Vec<String> = cases.into_iter().filter_map(check).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
