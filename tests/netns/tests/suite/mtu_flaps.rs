//! An MTU in the middle of a path that changes repeatedly: a flow recovers soon after the last
//! change. The recovery time is asserted in virtual time
//! (`dataplane/pipeline/tests/pipeline/mtu_flaps.rs`). This test runs on a shared machine, so it
//! uses a flow over a stable link on the same machine as its reference.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::stream::Stream;
use recoded_netns::{AuthPlan, Bed, CodePlan, Daemon, LinePlan, Loss};

const RATE_MBIT: f64 = 40.0;
const WIDE: u32 = 1500;

/// Changes of the MTU, each to the narrow one or back, and the interval between them.
const FLAPS: u32 = 8;
const FLAP: Duration = Duration::from_millis(500);

/// Datagrams arrive this long after the last change, or in one of the next seconds.
const RECOVERY: Duration = Duration::from_secs(2);
const SECONDS: u32 = 4;

/// Part of the datagrams of a flow without changes that arrives.
const LEAST: f64 = 0.5;

/// TCP may take as long again as the interruption: its timer has doubled several times by then.
const TCP_RECOVERY: Duration = Duration::from_secs(10);

/// Which interfaces have another MTU.
#[derive(Copy, Clone, Debug)]
enum Place {
    /// At the wire: packets that are too large are dropped silently.
    Wire,
    /// Those of the hosts at both ends of the link, which see the change.
    Hosts,
}

/// Changes of the middle link.
#[derive(Copy, Clone, Debug)]
struct Case {
    place: Place,
    narrow: u32,
    ends_narrow: bool,
}

/// Nothing happens to it.
const TWIN: Case = Case { place: Place::Wire, narrow: WIDE, ends_narrow: false };

fn set_mtu(bed: &Bed, place: Place, mtu: u32) {
    match place {
        Place::Wire => {
            for side in ["west", "east"] {
                bed.link(2).ip(&format!("link set {side} mtu {mtu}")).unwrap();
            }
        }
        Place::Hosts => {
            let [east, west] = bed.interfaces(2);
            bed.hosts()[1].ip(&format!("link set {east} mtu {mtu}")).unwrap();
            bed.hosts()[2].ip(&format!("link set {west} mtu {mtu}")).unwrap();
        }
    }
}

/// Shares of short and long datagrams that arrive of those sent in a second: returns the smaller
/// share.
fn arrive(bed: &Bed) -> f64 {
    let start = |payload_bytes: usize| {
        let plan = ProbePlan {
            to: SocketAddr::from(([10, 99, 0, 2], 7000 + payload_bytes as u16)),
            payload_bytes,
            packets_per_second: 200.0,
            length: Duration::from_secs(1),
            grace: Duration::from_millis(500),
            buffer_bytes: Some(1 << 20),
        };
        Probe::start(bed.source(), bed.sink(), &plan).unwrap()
    };
    let probes = [200, 1200].map(start);
    let outcomes = probes.map(|probe| probe.finish().unwrap());
    outcomes.map(|outcome| 1.0 - outcome.lost() as f64 / 200.0).into_iter().fold(1.0, f64::min)
}

/// Share of the datagrams that arrive after the last change, in the best second; or the problem.
fn flap(auth: Option<&'static str>, case: Case, least: f64) -> (f64, Option<String>) {
    let Case { place, narrow, ends_narrow } = case;
    let bed = common::bed(3, Loss::independent(0.0), RATE_MBIT);
    let mut plan = LinePlan::protected(3);
    plan.auth = auth.map(|level| AuthPlan::new(level, 3));
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let stream = Stream::start(bed.source(), to, bed.sink(), to, "cubic").unwrap();
    let began = Instant::now();
    for turn in 0..if ends_narrow { FLAPS - 1 } else { FLAPS } {
        std::thread::sleep((FLAP * (turn + 1)).saturating_sub(began.elapsed()));
        set_mtu(&bed, place, if turn % 2 == 0 { narrow } else { WIDE });
    }
    // A change may take seconds if others change interfaces, too.
    let changed = began.elapsed();
    std::thread::sleep(RECOVERY);
    let mut shares = Vec::new();
    while shares.len() < SECONDS as usize && shares.iter().all(|share| *share < least) {
        shares.push(arrive(&bed));
    }
    stream.wait_until(changed + TCP_RECOVERY);
    let tcp = stream.finish();
    let end = (changed + TCP_RECOVERY).as_secs_f64();
    let mbit = tcp.mbit_between(end - 3.0, end);
    let name = format!("auth {auth:?}, {case:?}");
    println!("{name}: of datagrams {shares:.2?} arrive, {mbit:.1} Mbit/s of TCP");
    let tenths = tcp.bytes.iter().map(|bytes| format!("{:.0}", *bytes as f64 * 8e-5));
    println!("  {}", tenths.collect::<Vec<_>>().join(" "));
    let best = shares.iter().copied().fold(0.0, f64::max);
    let is_wrong = best < least || mbit == 0.0;
    if is_wrong {
        daemons.iter().for_each(|daemon| println!("{}", daemon.log()));
    }
    (best, is_wrong.then(|| format!("{name}: {shares:?}, {mbit}")))
}

fn flap_all(auth: Option<&'static str>, cases: &[Case]) {
    let (expected, wrong) = flap(auth, TWIN, LEAST);
    let mut wrong = Vec::from_iter(wrong);
    for case in cases {
        wrong.extend(flap(auth, *case, LEAST * expected).1);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// No case ends at 576: no tunnel has an MTU small enough for its packets to pass there.
#[test]
fn mtu_that_changes_again_and_again_stops_no_flow_with_keys() {
    let Some(_turn) = common::daemons_beside() else { return };
    let case = |place, narrow, ends_narrow| Case { place, narrow, ends_narrow };
    let cases = [
        case(Place::Wire, 1280, false),
        case(Place::Wire, 1000, true),
        case(Place::Wire, 576, false),
        case(Place::Hosts, 1280, true),
        case(Place::Hosts, 1000, false),
        case(Place::Hosts, 576, false),
    ];
    flap_all(Some("full"), &cases);
}

#[test]
fn mtu_that_changes_again_and_again_stops_no_flow_without_keys() {
    let Some(_turn) = common::daemons_beside() else { return };
    let case = |place, narrow| Case { place, narrow, ends_narrow: false };
    flap_all(None, &[case(Place::Wire, 1000), case(Place::Hosts, 576)]);
}

/// A path that is too narrow for any tunnel: short packets arrive, and the daemon reports that long
/// ones do not, and which size the path must carry.
#[test]
fn path_that_is_too_narrow_for_any_tunnel_is_named() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.0), RATE_MBIT);
    let mut plan = LinePlan::protected(2);
    plan.auth = Some(AuthPlan::new("full", 2));
    plan.flows.iter_mut().for_each(|flow| flow.code = CodePlan::Stream);
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    set_mtu(&bed, Place::Wire, 576);
    let said = |daemon: &Daemon| {
        let flows = daemon.show().unwrap().flows;
        let hops = flows.iter().flat_map(|flow| flow.neighbours.clone());
        hops.filter_map(|hop| hop.needed_packet_bytes).next()
    };
    let began = Instant::now();
    let needed = loop {
        let share = arrive(&bed);
        assert!(began.elapsed() < Duration::from_secs(30), "no MTU is reported; {share} arrive");
        if let Some(needed) = said(&daemons[1]) {
            break needed;
        }
    };
    assert!((650..700).contains(&needed), "{needed}");
    assert!(daemons[1].log().contains("no tunnel has so small an MTU"), "{}", daemons[1].log());
    set_mtu(&bed, Place::Wire, WIDE);
    while said(&daemons[1]).is_some() {
        let share = arrive(&bed);
        assert!(began.elapsed() < Duration::from_secs(60), "it is still said; {share} arrive");
    }
}
