//! Sealed flows on a line where one relay alters payload, and flows in the clear.

use recoded_pipeline::params::Role;
use recoded_pipeline::report::DropReason;
use recoded_sim::{Code, Link, Promise, RunReport, Scenario, Traffic, run};

/// A run over three hops; some packets of the first relay are altered.
fn polluted(code: Code, sealed: bool) -> RunReport {
    altered(code, sealed, |_| false)
}

/// The same, with tags at some nodes.
fn altered(code: Code, sealed: bool, tagged: impl Fn(&Role) -> bool) -> RunReport {
    let mut scenario = Scenario::line(11, 3, Link::lossy(0.02)).with(|node| {
        (node.sealed, node.tagged) = (sealed, tagged(&node.role));
    });
    scenario = scenario.coded(code);
    scenario.traffic.bytes = Traffic::BYTES_MIN..=160;
    scenario.hops[1].down.pollution = 0.02;
    scenario.promise = Promise { intact: false, genuine: sealed, ..scenario.promise };
    let outcome = run(&scenario).unwrap_or_else(|violation| panic!("{code:?}: {violation}"));
    assert!(outcome.links[1].0.polluted > 5, "{code:?}: {}", outcome.links[1].0.polluted);
    outcome
}

#[test]
fn relay_that_alters_payload_gets_nothing_delivered_that_was_not_sent() {
    for code in Code::ALL {
        let outcome = polluted(*code, true);
        let counters = &outcome.reports[3].flows[0].counters;
        let refused = counters.unseal_refused + counters.clear_refused + counters.framing_errors;
        println!("{code:?}: {} delivered, {refused} refused", outcome.delivered);
        assert_eq!((outcome.foreign, outcome.repeated), (0, 0), "{code:?}");
        assert!(refused > 0 && outcome.delivered > 700, "{code:?}: {}", outcome.delivered);
        assert!(polluted(*code, false).foreign > 0, "{code:?}: the relay alters nothing");
    }
}

/// With symbol tags, altered packets are dropped by the next node that has keys, and never reach an
/// envelope.
#[test]
fn tags_tell_what_the_relay_altered_before_it_is_decoded() {
    let wrong = |outcome: &RunReport, node: usize| {
        outcome.reports[node].packets.dropped[DropReason::WrongSymbolTag as usize]
    };
    for code in Code::ALL {
        for relays_verify in [false, true] {
            let is_relay = |role: &Role| matches!(role, Role::Relay { .. });
            let outcome = altered(*code, true, |role| relays_verify || !is_relay(role));
            let (relay, sink) = (wrong(&outcome, 2), wrong(&outcome, 3));
            let counters = &outcome.reports[3].flows[0].counters;
            println!("{code:?}: {}, relay {relay}, sink {sink}", outcome.delivered);
            assert_eq!((outcome.foreign, outcome.repeated), (0, 0), "{code:?}");
            assert_eq!((counters.unseal_refused, counters.framing_errors), (0, 0), "{code:?}");
            let judge = if relays_verify { relay } else { sink };
            assert!(judge > 0 && (relay == 0 || sink == 0), "{code:?}: {relay}, {sink}");
            let least = if relays_verify { 980 } else { 500 };
            assert!(outcome.delivered > least, "{code:?}: {}", outcome.delivered);
        }
    }
}
