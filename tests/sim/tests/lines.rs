//! Handmade networks.

use recoded_gf::FieldOrder;
use recoded_pipeline::params::{Recoding, Redundancy};
use recoded_sim::{Change, Code, Hop, Link, Rate, Scenario, Traffic, Violation, run};

#[test]
fn fifty_hops_deliver_everything() {
    for code in Code::ALL {
        // A block a millisecond: tables must outlast their repairs.
        let scenario = Scenario::line(1, 50, Link::lossy(0.02)).with(|node| node.generations = 256);
        let scenario = scenario.coded(*code).deliver_all();
        let outcome = run(&scenario).expect("an invariant failed");
        assert_eq!(outcome.delivered, 1000, "{code:?}");
        assert!(outcome.links.iter().all(|(down, _)| down.lost > 0));
    }
}

#[test]
fn a_line_without_delay_or_loss_delivers_at_once() {
    let mut scenario = Scenario::line(2, 10, Link::CLEAN).deliver_all();
    scenario.traffic.bytes = 198..=198; // with its length, one symbol each
    let outcome = run(&scenario).expect("an invariant failed");
    assert!(outcome.delays.longest() <= 1_000_000, "{:?}", outcome.delays.longest());
    assert_eq!(outcome.links[9].0.delays.longest(), 0);
}

#[test]
fn delay_adds_up_over_links() {
    let link = Link { delay_nanos: 3_000_000, ..Link::CLEAN };
    let outcome = run(&Scenario::line(3, 5, link).deliver_all()).expect("an invariant failed");
    let (least, half) = (outcome.delays.quantile(0.0), outcome.delays.quantile(0.5));
    assert!((15_000_000..19_000_000).contains(&least), "{least}");
    assert!((15_000_000..19_000_000).contains(&half), "{half}");
}

#[test]
fn a_narrow_link_overflows_and_its_queue_delays() {
    let rate = Some(Rate { bits_per_second: 4_000_000, queue_packets: 20 });
    let mut scenario = Scenario::line(4, 2, Link::CLEAN);
    scenario.hops[1].down.rate = rate;
    let outcome = run(&scenario).expect("an invariant failed");
    let narrow = &outcome.links[1].0;
    assert!(narrow.overflowed > 0);
    // Twenty packets of some 300 bytes at 4 Mbit/s.
    assert!(narrow.delays.quantile(0.9) > 8_000_000, "{}", narrow.delays.quantile(0.9));
    assert!(outcome.delivered < 1000);
}

#[test]
fn a_promise_that_the_network_cannot_keep_is_told() {
    let scenario = Scenario::line(5, 2, Link::lossy(1.0)).deliver_all();
    assert_eq!(run(&scenario), Err(Violation::Undelivered { missing: 1000, first: 0 }));
}

#[test]
fn what_a_link_loses_in_a_short_silence_is_repaired() {
    let mut scenario = Scenario::line(6, 2, Link::CLEAN).deliver_all();
    let silent = Hop::both(Link::lossy(1.0));
    scenario.changes = vec![
        (30_000_000, Change::Link { hop: 0, link: silent }),
        (60_000_000, Change::Link { hop: 0, link: scenario.hops[0] }),
    ];
    let outcome = run(&scenario).expect("an invariant failed");
    assert!(outcome.links[0].0.lost > 200, "{:?}", outcome.links[0].0.lost);
}

#[test]
fn every_field_and_both_kinds_of_recoding_deliver_over_bursty_links() {
    for field in FieldOrder::ALL {
        for recoding in [Recoding::Systematic, Recoding::Random] {
            let mut scenario = Scenario::line(7, 3, Link::bursty(0.05, 3.0)).with(|node| {
                (node.field, node.recoding) = (field, recoding);
            });
            scenario.traffic.alone = (5, 5);
            scenario.promise.delivered = Some(scenario.traffic.bursts());
            run(&scenario).unwrap_or_else(|violation| panic!("{field}, {recoding:?}: {violation}"));
        }
    }
}

#[test]
fn redundancy_costs_what_it_was_fixed_to() {
    let mut scenario = Scenario::line(8, 1, Link::CLEAN).with(|node| {
        node.redundancy = Redundancy::Fixed(1.5);
        node.generation_size = 10;
        node.symbol_bytes = 100;
        node.repair = false;
    });
    scenario.traffic = Traffic { bytes: 98..=98, burst: 10, ..scenario.traffic };
    let outcome = run(&scenario).expect("an invariant failed");
    assert_eq!(outcome.overhead(), 1.5);
}

/// A relay that lacks free frames evicts generations before they end. Guards against sending the
/// plan of one again for every packet of it that still arrives, which the next relay would
/// multiply.
#[test]
fn relays_short_of_frames_do_not_multiply_traffic() {
    let mut scenario = Scenario::line(9, 6, Link::lossy(0.05)).with(|node| {
        node.redundancy = Redundancy::Fixed(2.5);
        node.repair = false;
    });
    scenario.frames = 104;
    scenario.poll_nanos = 1_000_000;
    scenario.traffic.packets = 300;
    scenario.traffic.bytes = 24..=1400;
    scenario.traffic.burst = 64;
    let outcome = run(&scenario).expect("an invariant failed");
    let offered = outcome.links.iter().map(|(down, _)| down.offered);
    let first = outcome.links[0].0.offered;
    assert!(offered.clone().all(|offered| offered <= first), "{:?}", offered.collect::<Vec<_>>());
}
