//! Sealed flows on a line where one relay alters payload, beside flows in the clear.

use recoded_sim::{Code, Link, Promise, RunReport, Scenario, Traffic, run};

/// A run over three hops, where what the first relay sends is altered now and then.
fn polluted(code: Code, sealed: bool) -> RunReport {
    let mut scenario = Scenario::line(11, 3, Link::lossy(0.02)).with(|node| node.sealed = sealed);
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
