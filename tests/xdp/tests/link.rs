//! The link emulator: packets it drops, packets it never drops, and its counters.
//!
//! Linux's generator cannot be seeded, so bounds are six standard deviations: a false alarm once in
//! about 500 million runs.

use recoded_xdp_tests::link::{Link, LinkCounters, LinkParameters, run_xdp};
use recoded_xdp_tests::or_skip;
use recoded_xdp_tests::packets::{Ip, Recipe, arp, icmpv6};

const PACKETS: u32 = 400_000;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const MACS: [u8; 12] = [2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2];
/// Interface index of `lo` in every network namespace; no packet is sent to it.
const LOOPBACK: u32 = 1;
const TC_ACT_OK: u32 = 0;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_REDIRECT: u32 = 7;

fn independent(loss: f64) -> LinkParameters {
    LinkParameters { loss_good: loss, ..LinkParameters::default() }
}

/// Counters after many coded packets; `None` when the test must be skipped.
fn counters_after_run(parameters: LinkParameters) -> Option<LinkCounters> {
    let link = or_skip(Link::load(parameters))?;
    link.run(&Recipe::default().build(), PACKETS).expect("BPF_PROG_TEST_RUN");
    let counters = link.counters().expect("counters");
    assert_eq!(counters.seen, u64::from(PACKETS));
    assert_eq!(counters.merged, 0);
    Some(counters)
}

#[test]
fn link_no_loss_drops_nothing() {
    let Some(counters) = counters_after_run(independent(0.0)) else {
        return;
    };
    assert_eq!(counters.dropped, 0);
}

#[test]
fn link_certain_loss_drops_everything() {
    let Some(counters) = counters_after_run(independent(1.0)) else {
        return;
    };
    assert_eq!(counters.dropped, counters.seen);
    assert_eq!(counters.dropped_after_drop, counters.seen - 1);
}

#[test]
fn link_independent_loss_matches_probability() {
    for loss in [0.001, 0.1, 0.5] {
        let Some(counters) = counters_after_run(independent(loss)) else {
            return;
        };
        assert_ratio(counters.dropped, counters.seen, loss, 1.0);
        assert_ratio(counters.dropped_after_drop, counters.dropped, loss, 1.0);
    }
}

/// A bad state of mean length 8, entered so often that one packet in ten is lost.
#[test]
fn link_gilbert_elliott_matches_loss_and_burst_length() {
    let p_bad_to_good = 1.0 / 8.0;
    let p_good_to_bad = p_bad_to_good * 0.1 / 0.9;
    let parameters =
        LinkParameters { p_good_to_bad, p_bad_to_good, loss_bad: 1.0, ..LinkParameters::default() };
    let Some(counters) = counters_after_run(parameters) else {
        return;
    };
    // Successive losses correlate by 1 - p - r per step, which inflates the variance by this
    // factor.
    let correlation = 1.0 - p_good_to_bad - p_bad_to_good;
    let inflation = (1.0 + correlation) / (1.0 - correlation);
    assert_ratio(counters.dropped, counters.seen, 0.1, inflation);
    // Lost after a lost one: the bad state was not left.
    assert_ratio(counters.dropped_after_drop, counters.dropped, 1.0 - p_bad_to_good, 1.0);
}

#[test]
fn link_gilbert_elliott_loss_in_both_states_matches_mixture() {
    let parameters = LinkParameters {
        p_good_to_bad: 0.05,
        p_bad_to_good: 0.2,
        loss_bad: 0.5,
        loss_good: 0.02,
        out_ifindex: 0,
    };
    let Some(counters) = counters_after_run(parameters) else {
        return;
    };
    let bad = 0.05 / (0.05 + 0.2);
    assert_ratio(counters.dropped, counters.seen, bad * 0.5 + (1.0 - bad) * 0.02, 7.0);
}

#[test]
fn link_arp_and_discovery_spared_and_not_counted() {
    let Some(link) = or_skip(Link::load(independent(1.0))) else {
        return;
    };
    let multicast_listener =
        Recipe { ip: Ip::V6 { extension: Some(0) }, protocol: 58, ..Recipe::default() };
    let mut spared = vec![arp(), multicast_listener.build()];
    spared.extend((133..=137).map(icmpv6));
    for frame in &spared {
        assert_eq!(link.run(frame, 1).expect("a run"), TC_ACT_OK);
    }
    assert_eq!(link.counters().expect("counters").seen, 0);
    let echo_request = icmpv6(128);
    let coded_v6 = Recipe { ip: Ip::V6 { extension: None }, ..Recipe::default() }.build();
    let tcp = Recipe { protocol: 6, ..Recipe::default() }.build();
    for frame in [&echo_request, &coded_v6, &tcp] {
        assert_eq!(link.run(frame, 1).expect("a run"), TC_ACT_SHOT);
    }
    assert_eq!(link.counters().expect("counters").dropped, 3);
}

#[test]
fn link_survivors_redirected_when_a_target_is_set() {
    let parameters = LinkParameters { out_ifindex: 1, ..independent(0.0) };
    let Some(link) = or_skip(Link::load(parameters)) else {
        return;
    };
    assert_eq!(link.run(&Recipe::default().build(), 1).expect("a run"), TC_ACT_REDIRECT);
    assert_eq!(link.run(&arp(), 1).expect("a run"), TC_ACT_REDIRECT);
}

#[test]
fn pass_every_frame_passed_unchanged() {
    for frame in [arp(), Recipe::default().build()] {
        let Some(outcome) = or_skip(run_xdp("pass", MACS, LOOPBACK, &frame)) else {
            return;
        };
        assert_eq!(outcome, (XDP_PASS, frame));
    }
}

#[test]
fn forward_ipv4_redirected_with_new_addresses_and_the_rest_passed() {
    let frame = Recipe::default().build();
    let Some(outcome) = or_skip(run_xdp("forward", MACS, LOOPBACK, &frame)) else {
        return;
    };
    let mut expected = frame;
    expected[..12].copy_from_slice(&MACS);
    assert_eq!(outcome, (XDP_REDIRECT, expected));
    for frame in [arp(), icmpv6(135)] {
        let Some(outcome) = or_skip(run_xdp("forward", MACS, LOOPBACK, &frame)) else {
            return;
        };
        assert_eq!(outcome, (XDP_PASS, frame));
    }
}

#[track_caller]
fn assert_ratio(count: u64, of: u64, expected: f64, inflation: f64) {
    let of = of as f64;
    let sigma = (expected * (1.0 - expected) * inflation / of).sqrt();
    let measured = count as f64 / of;
    assert!(
        (measured - expected).abs() <= 6.0 * sigma,
        "measured {measured:.5}, expected {expected:.5} ± {sigma:.5}"
    );
}
