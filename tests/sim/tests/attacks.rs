//! Forged packets, silences and stopped nodes, on handmade lines.

use recoded_pipeline::params::Nanos;
use recoded_sim::{
    Attack, Change, Code, Forgery, Knowledge, Link, Pauses, RunReport, Scenario, Traffic, run,
};
use recoded_wire::header::PacketType;

const SECOND: Nanos = 1_000_000_000;

/// Links of [`line`], and their directions.
const PLACES: [(usize, bool); 4] = [(0, false), (0, true), (1, false), (1, true)];

/// Two hops with 2 % loss and a packet every millisecond for four seconds. All packets must
/// arrive.
fn line(code: Code, seed: u64) -> Scenario {
    let mut scenario = Scenario::line(seed, 2, Link::lossy(0.02)).coded(code).deliver_all();
    scenario.traffic = Traffic {
        packets: 4000,
        alone: (0, 0),
        bytes: 100..=190,
        interval_nanos: SECOND / 1000,
        alone_nanos: SECOND / 1000,
        burst: 1,
        pauses: None,
        flows: 1,
    };
    scenario.promise.intact = false;
    scenario
}

/// `packets` on each link and in each direction, from half a second to three seconds.
fn attacks(code: Code, knowledge: Knowledge, forgery: Forgery, packets: u32) -> Vec<Attack> {
    let attack = |(hop, is_up)| Attack {
        hop,
        is_up,
        during: SECOND / 2..3 * SECOND,
        packets,
        forgeries: vec![forgery],
        packet_type: match code {
            Code::Rlnc => PacketType::Generation,
            Code::Stream => PacketType::Stream,
            #[cfg(feature = "bats")]
            Code::Bats => PacketType::Bats,
        },
        knowledge,
    };
    PLACES.into_iter().map(attack).collect()
}

fn attacked(code: Code, knowledge: Knowledge, forgery: Forgery, packets: u32) -> Scenario {
    Scenario { attacks: attacks(code, knowledge, forgery, packets), ..line(code, 5) }
}

/// Packets that the relay sent towards the sink.
fn relayed(outcome: &RunReport) -> u64 {
    outcome.links[1].0.offered
}

fn passes(code: Code, knowledge: Knowledge, forgery: Forgery, packets: u32) -> RunReport {
    let scenario = attacked(code, knowledge, forgery, packets);
    let outcome = run(&scenario);
    outcome.unwrap_or_else(|violation| panic!("{code:?}, {knowledge:?} {forgery:?}: {violation}"))
}

/// Guards against reports of 256 hops that overrun the planner of the source, and whose losses are
/// never revised.
#[test]
fn reports_of_every_hop_neither_stop_a_source_nor_move_its_plans() {
    for code in Code::ALL {
        let clean = run(&line(*code, 5)).expect("an invariant failed").overhead();
        let outcome = passes(*code, Knowledge::Blind, Forgery::Hops, 40);
        assert!(outcome.overhead() < 1.5 * clean, "{code:?}: {} after {clean}", outcome.overhead());
    }
}

#[test]
fn a_percent_of_blind_packets_costs_no_good_one() {
    for code in Code::ALL {
        for forgery in Forgery::ALL {
            passes(*code, Knowledge::Blind, forgery, 40);
        }
    }
}

#[test]
fn nodes_survive_informed_attackers() {
    for code in Code::ALL {
        for forgery in Forgery::ALL {
            let mut scenario = attacked(*code, Knowledge::Informed, forgery, 300);
            scenario.promise.delivered = None;
            run(&scenario).unwrap_or_else(|found| panic!("{code:?}, {forgery:?}: {found}"));
        }
    }
}

/// Guards against a sink that discards all state because of one packet far ahead.
#[test]
fn informed_packets_far_ahead_cost_few_good_ones() {
    for code in Code::ALL {
        for forgery in [Forgery::Data, Forgery::OutOfRange, Forgery::Walk] {
            let mut scenario = attacked(*code, Knowledge::Informed, forgery, 40);
            scenario.promise.missing_max = 400;
            run(&scenario).unwrap_or_else(|found| panic!("{code:?}, {forgery:?}: {found}"));
        }
    }
}

/// Guards against relays that forward a stale packet every time it arrives.
#[test]
fn a_packet_sent_again_and_again_is_not_passed_on_for_ever() {
    for code in Code::ALL {
        for knowledge in [Knowledge::Blind, Knowledge::Informed] {
            let clean = relayed(&run(&line(*code, 5)).expect("an invariant failed"));
            let sent = relayed(&passes(*code, knowledge, Forgery::Replay, 3000));
            assert!(sent < clean + 600, "{code:?}, {knowledge:?}: {sent} after {clean}");
        }
    }
}

/// Guards against answering all requests for units that lack nothing.
#[test]
fn forged_requests_cost_a_bounded_share() {
    for code in Code::ALL {
        let clean = relayed(&run(&line(*code, 5)).expect("an invariant failed"));
        let sent = relayed(&passes(*code, Knowledge::Informed, Forgery::Nacks, 3000));
        // Source and relay: planned packets, half as many again, and a reserve.
        assert!(sent < 2 * (clean + 1024), "{code:?}: {sent} after {clean}");
    }
}

/// Guards against six blind packets during an idle flow that lead a sink to a unit it does not
/// hold, so that it panics when traffic resumes.
#[test]
fn blind_packets_at_an_idle_flow_cost_no_good_one() {
    for code in Code::ALL {
        for seed in 0..10 {
            let mut scenario = line(*code, seed);
            scenario.traffic.packets = 600;
            scenario.traffic.pauses = Some(Pauses { every_bursts: 200, nanos: 6 * SECOND });
            scenario.attacks = attacks(*code, Knowledge::Blind, Forgery::OutOfRange, 40);
            for attack in &mut scenario.attacks {
                attack.during = SECOND / 2..12 * SECOND;
            }
            run(&scenario).unwrap_or_else(|found| panic!("{code:?}, seed {seed}: {found}"));
        }
    }
}

#[test]
fn a_flow_that_goes_idle_for_seconds_resumes() {
    for code in Code::ALL {
        let mut scenario = line(*code, 6);
        scenario.traffic.pauses = Some(Pauses { every_bursts: 900, nanos: 5 * SECOND });
        let outcome = run(&scenario).expect("an invariant failed");
        assert!(outcome.ended_nanos > 24 * SECOND, "{}", outcome.ended_nanos);
    }
}

#[test]
fn a_stopped_node_goes_on() {
    for code in Code::ALL {
        for node in 0..3 {
            let mut scenario = line(*code, 7);
            scenario.changes = vec![(SECOND, Change::Stop { node, nanos: SECOND })];
            let settled = 2 * SECOND + scenario.settle_nanos();
            scenario.promise.delivered = Some(settled..Nanos::MAX);
            let outcome = run(&scenario);
            let outcome = outcome.unwrap_or_else(|found| panic!("{code:?}, node {node}: {found}"));
            assert!(outcome.delays.longest() > SECOND / 2, "{code:?}, node {node} did not stop");
        }
    }
}
