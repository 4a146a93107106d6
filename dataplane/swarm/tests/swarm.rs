//! Fifty receivers in virtual time: 10 % loss in both directions, peers that come and go, recoding
//! between receivers, and peers that send wrong blocks. Also what attackers can do to a server.

mod network;
mod random;

use network::{Behaviour, Network};
use random::seed;
use recoded_swarm::PeerState;

#[test]
fn fifty_receivers_share_a_content_in_spite_of_loss_churn_and_poison() {
    let mut network = Network::new(seed(), 400_000, 10);
    for number in 0..50_usize {
        // Most know the source only for checks and first blocks, and two to four other receivers.
        let mut addresses = vec![Network::SOURCE];
        addresses.extend((1..=3).filter_map(|step| number.checked_sub(step * 2 - 1)));
        addresses.push(Network::POISONER);
        let start_millis = (number as u64 % 10) * 300;
        network.join(start_millis, &addresses);
    }
    // A fifth leaves in the middle, and some of them return with nothing.
    for number in (5..50).step_by(5) {
        network.leave_at(number, 4_000 + 100 * number as u64, number % 2 == 0);
    }
    network.run_until(120_000, |network| network.are_all_finished());
    let report = network.report();
    eprintln!("{report:?}");
    assert_eq!(report.finished, report.present, "{report:?}");
    assert_eq!(report.wrong_contents, 0);
    // Only receivers whose hellos to the source were all lost decode before they verify.
    assert!(report.wrong_segments * 20 <= report.present as u64, "{report:?}");
    assert_eq!(report.innocent_bans, 0);
    assert!(report.poisoner_bans > report.present / 2, "{report:?}");
    assert!(report.recoded_blocks > 0, "receivers serve partial segments: {report:?}");
    let share = report.peer_blocks as f64 / report.blocks as f64;
    assert!(share > 0.3, "receivers carry a part of the load: {share}");
}

#[test]
fn without_a_source_the_hash_of_a_segment_accuses_the_poisoner() {
    let mut network = Network::new(seed(), 200_000, 10);
    let first = network.join(0, &[Network::SOURCE]);
    network.run_until(60_000, |network| network.is_finished(first));
    network.stop_source();
    let late = network.join(60_000, &[Network::SOURCE, first, Network::POISONER]);
    network.run_until(200_000, |network| network.is_finished(late));
    assert!(network.is_finished(late), "{:?}", network.report());
    let states = network.states(late);
    assert_ne!(states[1], PeerState::Banned, "the honest peer");
    let report = network.report();
    assert_eq!((report.wrong_contents, report.innocent_bans), (0, 0), "{report:?}");
    // It is accused as soon as it is chosen for a segment.
    assert_eq!(report.poisoner_bans, usize::from(states[2] == PeerState::Banned));
}

#[test]
fn peers_that_lie_about_the_manifest_or_checks_are_banned() {
    for behaviour in [Behaviour::WrongManifest, Behaviour::WrongChecks, Behaviour::Silent] {
        let mut network = Network::new(seed(), 100_000, 0);
        network.set_poisoner(behaviour);
        let receiver = network.join(0, &[Network::POISONER, Network::SOURCE]);
        network.run_until(60_000, |network| network.is_finished(receiver));
        assert!(network.is_finished(receiver), "{behaviour:?}: {:?}", network.report());
        assert_eq!(network.report().innocent_bans, 0);
    }
}

#[test]
fn keys_keep_others_out() {
    let mut network = Network::with_key(seed(), 50_000, Some([1; 32]));
    let outsider = network.join_with_key(0, &[Network::SOURCE], Some([2; 32]));
    let member = network.join_with_key(0, &[Network::SOURCE], Some([1; 32]));
    network.run_until(10_000, |_| false);
    assert!(network.is_finished(member));
    assert_eq!(network.states(outsider), [PeerState::Connecting]);
}

#[test]
fn heavy_loss_slows_down_and_does_not_stop() {
    let mut network = Network::new(seed(), 100_000, 50);
    let receiver = network.join(0, &[Network::SOURCE]);
    network.run_until(120_000, |network| network.is_finished(receiver));
    assert!(network.is_finished(receiver), "{:?}", network.report());
}

#[test]
fn random_datagrams_change_nothing() {
    let mut network = Network::new(seed(), 100_000, 0);
    let receiver = network.join(0, &[Network::SOURCE]);
    network.inject_noise(20);
    network.run_until(60_000, |network| network.is_finished(receiver));
    assert!(network.is_finished(receiver), "{:?}", network.report());
    let report = network.report();
    assert_eq!((report.wrong_contents, report.innocent_bans), (0, 0), "{report:?}");
}

/// Repeated welcomes must not pass for progress, nor the liar keep all requests for checks.
#[test]
fn peer_that_repeats_its_welcome_does_not_stall() {
    let mut network = Network::new(seed(), 100_000, 0);
    network.set_poisoner(Behaviour::Welcomes);
    let receiver = network.join(0, &[Network::POISONER, Network::SOURCE]);
    network.run_until(60_000, |network| network.is_finished(receiver));
    assert!(network.is_finished(receiver), "{:?}", network.report());
    assert!(network.millis() < 15_000, "{} ms", network.millis());
    assert_eq!(network.progress(receiver).wrong_segments, 0, "checks came from the source");
}

/// A block every 400 ms must not keep the blocks of all segments from others.
#[test]
fn peer_that_drips_blocks_does_not_hold_segments() {
    let mut network = Network::new(seed(), 2_000_000, 0);
    network.set_poisoner(Behaviour::Drip);
    let receiver = network.join(0, &[Network::POISONER, Network::SOURCE]);
    network.run_until(120_000, |network| network.is_finished(receiver));
    eprintln!("{} ms", network.millis());
    assert!(network.is_finished(receiver), "{:?}", network.report());
    assert!(network.millis() < 4_000, "{} ms", network.millis());
}

/// An honest peer with a fortieth of the rate must not get half of the blocks.
#[test]
fn slow_peer_does_not_slow_down_the_others() {
    let mut network = Network::new(seed(), 4_000_000, 0);
    network.set_poisoner(Behaviour::Slow);
    let alone = network.join(0, &[Network::SOURCE]);
    network.run_until(300_000, |network| network.is_finished(alone));
    let alone_millis = network.millis();
    let both = network.join(alone_millis, &[Network::SOURCE, Network::POISONER]);
    network.run_until(300_000, |network| network.is_finished(both));
    let both_millis = network.millis() - alone_millis;
    eprintln!("alone {alone_millis} ms, with the slow peer {both_millis} ms");
    assert!(network.is_finished(both), "{:?}", network.report());
    assert!(both_millis < 2 * alone_millis, "{alone_millis} ms, {both_millis} ms");
}

/// A source that restarts while the manifest is fetched has forgotten the session.
#[test]
fn lost_session_during_the_manifest_is_replaced() {
    let mut network = Network::new(seed(), 100_000, 0);
    let receiver = network.join(0, &[Network::SOURCE]);
    network.run_until(10_000, |network| network.states(receiver) == [PeerState::Open]);
    network.restart_source();
    network.run_until(60_000, |network| network.is_finished(receiver));
    assert!(network.is_finished(receiver), "{:?}", network.report());
}

/// Two peers with a part of a segment each: blocks keep arriving, and no progress is reported.
#[test]
fn partial_peers_without_a_source_are_no_progress() {
    let mut network = Network::new(seed(), 400_000, 0);
    let peers = [network.join(0, &[Network::SOURCE]), network.join(0, &[Network::SOURCE])];
    network.run_until(10_000, |network| network.progress(peers[0]).innovative > 50);
    network.stop_source();
    assert!(!network.is_finished(peers[0]) && !network.is_finished(peers[1]));
    let late = network.join(1_000, &peers);
    network.run_until(40_000, |_| false);
    let before = network.progress(late);
    assert!(before.advance > 0);
    network.run_until(90_000, |_| false);
    let after = network.progress(late);
    assert!(!network.is_finished(late));
    assert_eq!(after.advance, before.advance, "{before:?} {after:?}");
}
