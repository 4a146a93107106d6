//! Neighbours exchange their configuration, so that a mistake at one is reported at both.

use std::time::{Duration, Instant};

use crate::common;
use crate::reload::{DONE, recodectl};
use recoded_api::v1::{Disagreement, Neighbour};
use recoded_netns::{AuthPlan, Bed, Daemon, FlowPlan, LinePlan, Loss, Towards, TunnelPlan};

/// A node's view of its neighbours.
fn neighbours(daemon: &Daemon) -> Vec<Neighbour> {
    let links = daemon.show().unwrap().links;
    links.into_iter().flat_map(|link| link.neighbours).collect()
}

/// Disagreements as (flow, reason, side).
fn disagreements(daemon: &Daemon) -> Vec<(i64, String, bool)> {
    let all = neighbours(daemon).into_iter().flat_map(|neighbour| neighbour.disagreements);
    let mut all: Vec<_> =
        all.map(|Disagreement { flow, reason, ours, .. }| (flow, reason, ours)).collect();
    all.sort();
    all
}

fn wait(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn line(auth: Option<AuthPlan>) -> (Bed, LinePlan) {
    let bed = common::bed(2, Loss::independent(0.1), 50.0);
    (bed, LinePlan { auth, ..LinePlan::protected(2) })
}

/// No packet of a flow is sent: the neighbours' announcements suffice.
#[test]
fn mistyped_flow_of_a_relay_is_named_at_both_its_neighbours() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line(None);
    let mut mistyped = plan.clone();
    mistyped.flows.iter_mut().filter(|flow| flow.id == 1).for_each(|flow| flow.id = 17);
    let source = Daemon::start(&bed, 0, &plan).unwrap();
    let mut relay = Daemon::start(&bed, 1, &mistyped).unwrap();
    let sink = Daemon::start(&bed, 2, &plan).unwrap();
    let said = |flow, reason: &str, ours| (flow, reason.to_owned(), ours);
    let at_source = [said(1, "unknown_flow", false), said(17, "not_there", true)];
    let at_sink = [said(1, "not_there", false), said(17, "unknown_flow", true)];
    wait("both ends know", 20, || {
        disagreements(&source) == at_source && disagreements(&sink) == at_sink
    });
    let mirrored = [at_source, at_sink].concat();
    let mut mirrored: Vec<_> =
        mirrored.into_iter().map(|(flow, reason, ours)| (flow, reason, !ours)).collect();
    mirrored.sort();
    wait("the relay knows", 20, || disagreements(&relay) == mirrored);
    let words = neighbours(&source).remove(0).disagreements.remove(0);
    println!("{words:?}");

    assert!(relay.stop());
    let relay = Daemon::start(&bed, 1, &plan).unwrap();
    // An announcement stays valid for 35 s; a correction by the new relay applies at once.
    wait("all agree", 60, || {
        let is_heard = |it: Neighbour| it.said_ago_seconds.is_some();
        neighbours(&relay).into_iter().all(is_heard)
            && [&source, &relay, &sink].iter().all(|daemon| disagreements(daemon).is_empty())
    });
    for neighbour in neighbours(&relay) {
        assert_eq!(neighbour.version, env!("CARGO_PKG_VERSION"));
        assert!(neighbour.said_ago_seconds.is_some_and(|ago| ago < 40.0), "{neighbour:?}");
        assert!(neighbour.clock_ahead_seconds.abs() <= 1, "{neighbour:?}");
    }
}

/// A relay that supports only shorter symbols than the source sends: both report it without any
/// data packet.
#[test]
fn symbols_longer_than_a_relay_takes_are_named_at_both() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line(None);
    let mut short = plan.clone();
    short.flows.iter_mut().for_each(|flow| flow.symbol_bytes = Some(1000));
    let source = Daemon::start(&bed, 0, &plan).unwrap();
    let mut relay = Daemon::start(&bed, 1, &short).unwrap();
    let said = |flow, ours| (flow, "symbol_bytes".to_owned(), ours);
    wait("the source knows", 20, || disagreements(&source) == [said(1, false)]);
    wait("the relay knows", 20, || disagreements(&relay) == [said(1, true)]);
    let words = neighbours(&source).remove(0).disagreements.remove(0);
    assert!(words.cause.contains("accepts symbols of flow 1 of up to 1000 bytes"), "{words:?}");
    assert!(words.cure.contains("a smaller one at its source"), "{words:?}");
    let ends = neighbours(&source).remove(0);
    assert!(ends.packet_bytes.is_some(), "{ends:?}");
    assert_eq!(ends.packet_bytes, ends.packet_bytes_there);
    assert!(relay.stop());
}

#[test]
fn neighbours_with_keys_talk_too() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = line(Some(AuthPlan::new("hop", 2)));
    let daemons = Daemon::start_line(&bed, &plan).unwrap();
    wait("all have said something", 20, || {
        let mut all = daemons.iter().flat_map(neighbours);
        all.all(|neighbour| neighbour.said_ago_seconds.is_some())
    });
    for daemon in &daemons {
        assert_eq!(disagreements(daemon), [], "{}", daemon.name());
        let faults = daemon.show().unwrap().links.into_iter().map(|link| link.faults);
        let wrong: u64 = faults.map(|faults| faults["rx_wrong_tag"]).sum();
        assert_eq!(wrong, 0, "{}", daemon.name());
    }
}

/// A line with keys and two tunnels: flows 1 and 2 serve the first one, 3 and 4 the second.
fn two_tunnels() -> (Bed, LinePlan) {
    let (bed, mut plan) = line(Some(AuthPlan::new("full", 2)));
    plan.tunnels.push(TunnelPlan { name: "rec1", network: 98, mtu: None });
    plan.flows.push(FlowPlan::new(3, Towards::East, "rec1"));
    plan.flows.push(FlowPlan::new(4, Towards::West, "rec1"));
    (bed, plan)
}

/// Guards against handshakes under the id of the first flow over a neighbour: with another id for
/// that flow at the relay, no box had keys with any other, and `doctor` blamed keys.
#[test]
fn mistyped_first_flow_costs_that_flow_alone_and_is_named_at_both_with_keys() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = two_tunnels();
    let mut mistyped = plan.clone();
    mistyped.flows.iter_mut().filter(|flow| flow.id == 1).for_each(|flow| flow.id = 11);
    let plans = [&plan, &mistyped, &plan];
    let daemons: Vec<Daemon> =
        (0..3).map(|host| Daemon::start(&bed, host, plans[host]).unwrap()).collect();
    let has_keys = |daemon: &Daemon| {
        let sessions = daemon.show().unwrap().sessions;
        let mut hops = sessions.iter().filter(|session| session.with.contains(':'));
        hops.all(|session| session.age_seconds.is_some())
    };
    for daemon in &daemons {
        common::wait_for("a session with each neighbour", daemon, || has_keys(daemon));
    }
    common::wait_for("the other tunnel", &daemons[0], || {
        common::answers(bed.source(), "10.98.0.2")
    });
    assert!(!common::answers(bed.source(), "10.99.0.2"), "its flow is mistyped");
    let said = |flow, reason: &str, ours| (flow, reason.to_owned(), ours);
    wait("the source names it", 20, || {
        disagreements(&daemons[0]).contains(&said(1, "unknown_flow", false))
    });
    wait("the relay names it", 20, || {
        disagreements(&daemons[1]).contains(&said(1, "unknown_flow", true))
    });
    let (_, doctor) = recodectl(&daemons[1], "doctor");
    assert!(doctor.contains("sends flow 1, which this node does not have"), "{doctor}");
}

/// Guards against the same at a later start: two flows that are removed from a relay cost nothing
/// until the source restarts, and then the others had no keys, and lost those they had.
#[test]
fn flows_taken_off_a_relay_leave_the_others_whole_when_the_source_starts_again() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = two_tunnels();
    let mut daemons = Daemon::start_line(&bed, &plan).unwrap();
    let mut fewer = plan.clone();
    fewer.flows.retain(|flow| flow.id > 2);
    let relay = &daemons[1];
    let text = fewer.config(1, &relay.socket().to_string_lossy());
    std::fs::write(relay.config(), text).unwrap();
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, DONE, "{said}");
    daemons[0].kill();
    daemons[0].spawn_again().unwrap();
    daemons[0].wait_until_it_answers().unwrap();
    common::wait_for("the flows that are left", &daemons[0], || {
        common::answers(bed.source(), "10.98.0.2")
    });
}

/// Neighbours without a common flow still have a session, through which both report the missing
/// flow.
#[test]
fn relay_without_any_flow_keeps_sessions_and_all_flows_are_named() {
    let Some(_turn) = common::daemons_beside() else { return };
    let (bed, plan) = two_tunnels();
    let mut none = plan.clone();
    none.flows.clear();
    let source = Daemon::start(&bed, 0, &plan).unwrap();
    let relay = Daemon::start(&bed, 1, &none).unwrap();
    common::wait_for("a session without a flow", &relay, || {
        relay.show().unwrap().sessions.iter().any(|session| session.age_seconds.is_some())
    });
    let unknown = |flow| (flow, "unknown_flow".to_owned(), false);
    wait("the source names both", 20, || {
        let all = disagreements(&source);
        all.contains(&unknown(1)) && all.contains(&unknown(3))
    });
}
