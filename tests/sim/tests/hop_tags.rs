//! Attackers on links whose hops have keys: none of their packets is accepted, and all good packets
//! arrive; without keys the same packets do harm.

use recoded_pipeline::params::Nanos;
use recoded_sim::{Attack, Code, Forgery, Knowledge, Link, Promise, Scenario, Traffic, run};
use recoded_wire::header::PacketType;

const SECOND: Nanos = 1_000_000_000;

/// Two hops with 2 % loss, a packet every millisecond for two seconds, and half as many forged ones
/// on each link and in each direction, by an attacker that reads the link. If hops have keys, links
/// also copy and damage packets.
fn attacked(code: Code, forgery: Forgery, hop_tags: bool) -> Scenario {
    let damage = if hop_tags { 0.02 } else { 0.0 };
    let link = Link { duplication: 5.0 * damage, corruption: damage, ..Link::lossy(0.02) };
    let mut scenario = Scenario::line(9, 2, link).coded(code);
    scenario.traffic = Traffic {
        packets: 2000,
        bytes: 100..=190,
        interval_nanos: SECOND / 1000,
        alone_nanos: SECOND / 1000,
        burst: 1,
        ..scenario.traffic
    };
    let attack = |(hop, is_up)| Attack {
        hop,
        is_up,
        during: SECOND / 4..2 * SECOND,
        packets: 1000,
        forgeries: vec![forgery],
        packet_type: match code {
            Code::Rlnc => PacketType::Generation,
            Code::Stream => PacketType::Stream,
            #[cfg(feature = "bats")]
            Code::Bats => PacketType::Bats,
        },
        knowledge: Knowledge::Informed,
    };
    let attacks = [(0, false), (0, true), (1, false), (1, true)].map(attack).into();
    let promise = Promise { intact: hop_tags, ..scenario.promise.clone() };
    let scenario = Scenario { hop_tags, attacks, promise, ..scenario };
    if hop_tags { scenario.deliver_all() } else { scenario }
}

#[test]
fn hops_with_keys_take_nothing_of_attackers_and_lose_nothing_to_them() {
    for code in Code::ALL {
        let mut harmed = 0;
        for forgery in Forgery::ALL {
            let outcome = run(&attacked(*code, forgery, true));
            let outcome = outcome.unwrap_or_else(|found| panic!("{code:?}, {forgery:?}: {found}"));
            assert!(outcome.refused > 3900, "{code:?}, {forgery:?}: {}", outcome.refused);
            assert_eq!(outcome.foreign, 0);
            let bare = run(&attacked(*code, forgery, false));
            harmed +=
                u64::from(bare.map_or(true, |bare| bare.delivered < 1990 || bare.foreign > 0));
        }
        println!("{code:?}: without keys {harmed} of {} do harm", Forgery::ALL.len());
        assert!(harmed > 0, "{code:?}: the attackers are harmless anyway");
    }
}
