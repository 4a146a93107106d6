//! The XDP program, packet by packet, run by Linux's own verifier and interpreter.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use recoded_wire::packet::{AddressWords, NotUdp, address_words, locate, words_address};
use recoded_wire::steer::{ANY_ADDRESS, Action, Tables, Verdict, decide};
use recoded_xdp_tests::or_skip;
use recoded_xdp_tests::packets::{FLOW, Ip, PORT, Recipe, arp, frames, icmpv6};
use recoded_xdp_tests::reference::{Ends, Rules, verdict};
use recoded_xdp_tests::steering::{FRAME_BYTES_MIN, Steering};
use std::net::IpAddr;

/// The program with the test's port and flow and a socket, for packets of any address; `None` if
/// the test must be skipped.
fn ready() -> Option<Steering> {
    ready_for(None)
}

/// The same for packets between two addresses.
fn ready_for(ends: Option<Ends>) -> Option<Steering> {
    let (local, neighbour) = words(ends);
    or_skip(Steering::load_for(PORT, local, &[neighbour], &[FLOW]).and_then(|mut steering| {
        steering.place_socket()?;
        Ok(steering)
    }))
}

fn words(ends: Option<Ends>) -> (AddressWords, AddressWords) {
    ends.map_or((ANY_ADDRESS, ANY_ADDRESS), |ends| {
        (address_words(ends.local), address_words(ends.neighbour))
    })
}

/// The address of a host of [`Recipe::default`], or of its IPv6 counterpart.
fn address(is_v6: bool, host: u8) -> IpAddr {
    if is_v6 {
        [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host].into()
    } else {
        [10, 0, 0, host].into()
    }
}

fn ends(is_v6: bool) -> Ends {
    Ends { local: address(is_v6, 2), neighbour: address(is_v6, 1) }
}

/// Configuration of the program, for `decide`.
struct Told(Rules);

impl Tables for Told {
    fn port(&self) -> u16 {
        self.0.port
    }

    fn local(&self) -> AddressWords {
        words(self.0.ends).0
    }

    fn is_neighbour(&self, source: AddressWords) -> bool {
        source == words(self.0.ends).1
    }

    fn is_known(&self, flow: u32) -> bool {
        flow == self.0.flow
    }

    fn count_other_version(&self, _: AddressWords, _: u8) {}
}

const RULES: Rules = Rules { port: PORT, flow: FLOW, ends: None };

#[track_caller]
fn assert_verdict(recipe: Recipe, expected: Verdict) {
    if let Some(steering) = ready() {
        assert_eq!(steering.run(&recipe.build()), expected, "{recipe:?}");
    }
}

fn v4(option_words: u8, fragment: u16) -> Recipe {
    Recipe { ip: Ip::V4 { option_words, fragment }, ..Recipe::default() }
}

fn v6(extension: Option<u8>) -> Recipe {
    Recipe { ip: Ip::V6 { extension }, ..Recipe::default() }
}

#[test]
fn coded_ipv4_redirected() {
    assert_verdict(Recipe::default(), Verdict::Redirected);
}

#[test]
fn coded_ipv6_redirected() {
    assert_verdict(v6(None), Verdict::Redirected);
}

#[test]
fn coded_empty_socket_slot_dropped_and_counted() {
    let Some(mut steering) = or_skip(Steering::load(PORT, &[FLOW])) else {
        return;
    };
    let frame = Recipe::default().build();
    assert_eq!(steering.run(&frame), Verdict::DropNoSocket);
    steering.place_socket().expect("an AF_XDP socket");
    assert_eq!(steering.run(&frame), Verdict::Redirected);
    steering.remove_socket().expect("an emptied slot");
    assert_eq!(steering.run(&frame), Verdict::DropNoSocket);
}

#[test]
fn coded_port_of_the_loader_is_used() {
    let Some(steering) = or_skip(Steering::load(4242, &[FLOW])) else {
        return;
    };
    let ours = Recipe { port: 4242, ..Recipe::default() };
    assert_eq!(steering.run(&ours.build()), Verdict::DropNoSocket);
    assert_eq!(steering.run(&Recipe::default().build()), Verdict::PassOtherPort);
}

#[test]
fn coded_tag_of_priority_redirected_and_vlans_passed() {
    for (tags, expected) in [
        (vec![(0x8100, 0)], Verdict::Redirected),
        (vec![(0x8100, 0xe000)], Verdict::Redirected),
        (vec![(0x88a8, 0)], Verdict::Redirected),
        (vec![(0x8100, 1)], Verdict::PassTags),
        (vec![(0x8100, 0xefff)], Verdict::PassTags),
        (vec![(0x88a8, 42)], Verdict::PassTags),
        (vec![(0x88a8, 0), (0x8100, 0)], Verdict::PassTags),
        (vec![(0x8100, 0), (0x8100, 42)], Verdict::PassTags),
    ] {
        assert_verdict(Recipe { tags: tags.clone(), ..Recipe::default() }, expected);
        assert_verdict(Recipe { tags, ..v6(None) }, expected);
    }
}

#[test]
fn coded_ipv4_options_redirected() {
    for option_words in 1..=10 {
        assert_verdict(v4(option_words, 0), Verdict::Redirected);
    }
}

#[test]
fn coded_every_first_byte_has_its_verdict() {
    let Some(steering) = ready() else { return };
    for first in 0..=255 {
        let expected = match (first >> 4, first & 15) {
            (3, 1 | 2 | 4..=8) => Verdict::Redirected,
            (3, _) => Verdict::DropType,
            _ => Verdict::DropVersion,
        };
        let recipe = Recipe { first, ..Recipe::default() };
        assert_eq!(steering.run(&recipe.build()), expected, "{first:#04x}");
    }
}

/// A neighbour of another version is counted with it, whatever the type of its packets; another
/// sender is not.
#[test]
fn packets_of_another_version_are_counted_for_their_neighbour() {
    let ends = ends(false);
    let Some(steering) = ready_for(Some(ends)) else { return };
    let neighbour = address_words(ends.neighbour);
    assert_eq!(steering.other_version(neighbour).version(), None);
    for (number, kind) in (1..).zip(1..=8) {
        let recipe = Recipe { first: 0x10 | kind, ..Recipe::default() };
        assert_eq!(steering.run(&recipe.build()), Verdict::DropVersion);
        let hosts = [3, 2];
        assert_eq!(steering.run(&Recipe { hosts, ..recipe }.build()), Verdict::DropVersion);
        let counted = steering.other_version(neighbour);
        assert_eq!((counted.packets(), counted.version()), (number, Some(1)));
    }
    steering.run(&Recipe::default().build());
    assert_eq!(steering.other_version(neighbour).packets(), 8);
}

#[test]
fn coded_unknown_flow_dropped() {
    for flow in [0, FLOW + 1, FLOW.swap_bytes(), u32::MAX] {
        assert_verdict(Recipe { flow, ..Recipe::default() }, Verdict::DropUnknownFlow);
    }
}

/// Handshakes between neighbours need no flow, so that one mistyped flow does not stop them all;
/// handshakes between edges do.
#[test]
fn handshakes_of_neighbours_need_no_flow_and_those_of_edges_do() {
    for flow in [0, FLOW + 1, u32::MAX] {
        let handshake = Recipe { first: 0x37, flow, ..Recipe::default() };
        assert_verdict(handshake.clone(), Verdict::Redirected);
        assert_verdict(Recipe { flags: 0x7f, ..handshake.clone() }, Verdict::Redirected);
        assert_verdict(Recipe { flags: 0x80, ..handshake }, Verdict::DropUnknownFlow);
    }
    assert_verdict(Recipe { first: 0x37, flags: 0x80, ..Recipe::default() }, Verdict::Redirected);
}

#[test]
fn coded_padding_redirected() {
    assert_verdict(Recipe { padding_bytes: 18, ..Recipe::default() }, Verdict::Redirected);
}

#[test]
fn payload_shorter_than_the_header_dropped() {
    for payload_bytes in 0..16 {
        assert_verdict(Recipe { payload_bytes, ..Recipe::default() }, Verdict::DropTruncated);
    }
    assert_verdict(Recipe { payload_bytes: 16, ..Recipe::default() }, Verdict::Redirected);
}

#[test]
fn payload_other_port_passed_whatever_it_is() {
    for first in [0x32, 0x00, 0xff] {
        for payload_bytes in [0, 7, 60] {
            let recipe = Recipe { port: PORT + 1, first, payload_bytes, ..Recipe::default() };
            assert_verdict(recipe, Verdict::PassOtherPort);
        }
    }
}

#[test]
fn truncated_every_length_passed_then_dropped_once_the_port_is_known() {
    let Some(steering) = ready() else { return };
    let tagged = Recipe { tags: vec![(0x88a8, 0x2000)], ..v4(10, 0) };
    for recipe in [Recipe::default(), v6(None), tagged] {
        let frame = recipe.build();
        let udp_end = frame.len() - recipe.payload_bytes;
        for len in 0..=frame.len() {
            let expected = if len < udp_end {
                Verdict::PassTruncated
            } else if len < frame.len() {
                Verdict::DropTruncated
            } else {
                Verdict::Redirected
            };
            let cut = &frame[..len];
            let decided = decide(cut, &Told(RULES));
            assert_eq!(decided, expected, "{len} bytes of {recipe:?}");
            if len >= FRAME_BYTES_MIN {
                assert_eq!(steering.run(cut), expected, "{len} bytes of {recipe:?}");
            }
        }
    }
}

#[test]
fn fragment_first_middle_last_passed() {
    for fragment in [0x2000, 0x2010, 0x0010] {
        assert_verdict(v4(0, fragment), Verdict::PassFragment);
    }
    assert_verdict(v4(0, 0x4000), Verdict::Redirected); // "do not fragment" alone
    assert_verdict(v6(Some(44)), Verdict::PassFragment);
}

#[test]
fn extension_header_passed() {
    for extension in [0, 43, 50, 51, 60, 135, 139, 140] {
        assert_verdict(v6(Some(extension)), Verdict::PassExtension);
    }
}

#[test]
fn other_protocol_passed() {
    for protocol in [1, 6, 47, 58, 132] {
        for recipe in [v4(0, 0), v6(None)] {
            assert_verdict(Recipe { protocol, ..recipe }, Verdict::PassNotUdp);
        }
    }
}

#[test]
fn arp_passed() {
    if let Some(steering) = ready() {
        assert_eq!(steering.run(&arp()), Verdict::PassNotIp);
    }
}

#[test]
fn neighbour_discovery_passed() {
    let Some(steering) = ready() else { return };
    for message in 133..=137 {
        assert_eq!(steering.run(&icmpv6(message)), Verdict::PassNotUdp);
    }
}

#[test]
fn malformed_ip_passed() {
    let Some(steering) = ready() else { return };
    for version_and_length in [0x44, 0x40, 0x65, 0x05] {
        let mut frame = Recipe::default().build();
        frame[14] = version_and_length;
        assert_eq!(steering.run(&frame), Verdict::PassMalformed);
    }
}

/// Program, shared decision, reference and user-space walk agree on this frame.
fn check_agreement(steering: &Steering, rules: Rules, frame: &[u8]) -> Result<(), TestCaseError> {
    let expected = verdict(frame, &rules);
    prop_assert_eq!(decide(frame, &Told(rules)), expected);
    if frame.len() >= FRAME_BYTES_MIN {
        prop_assert_eq!(steering.run(frame), expected);
    }
    match locate(frame) {
        Ok(found) => {
            let payload =
                frame.get(found.payload_offset..).and_then(|rest| rest.get(..found.payload_len));
            prop_assert!(payload.is_some(), "a payload beyond the frame: {:?}", found);
            let ours = expected.action() != Action::Pass;
            let is_local = rules.ends.is_none_or(|ends| ends.local == found.destination.ip());
            prop_assert_eq!(ours, is_local && found.destination.port() == PORT);
        }
        Err(NotUdp::UdpLength) => {
            let is_not_ours =
                matches!(expected, Verdict::PassOtherPort | Verdict::PassOtherAddress);
            prop_assert!(is_not_ours || expected == Verdict::DropTruncated)
        }
        Err(_) => prop_assert_eq!(expected.action(), Action::Pass),
    }
    Ok(())
}

#[test]
fn packets_of_neighbours_to_us_are_taken_and_no_others() {
    for is_v6 in [false, true] {
        let Some(steering) = ready_for(Some(ends(is_v6))) else { return };
        let (one, other) = if is_v6 { (v6(None), v4(0, 0)) } else { (v4(0, 0), v6(None)) };
        for (recipe, hosts, expected) in [
            (&one, [1, 2], Verdict::Redirected),
            (&one, [3, 2], Verdict::DropNotNeighbour),
            (&one, [2, 2], Verdict::DropNotNeighbour),
            (&one, [1, 3], Verdict::PassOtherAddress),
            (&other, [1, 2], Verdict::PassOtherAddress),
        ] {
            let frame = Recipe { hosts, ..recipe.clone() }.build();
            assert_eq!(steering.run(&frame), expected, "{hosts:?} of {recipe:?}");
        }
        let third_party = Recipe { hosts: [3, 2], first: 0x37, flow: 0, ..one.clone() };
        assert_eq!(steering.run(&third_party.build()), Verdict::DropNotNeighbour);
        // A sender that is not a neighbour does not learn which flows exist.
        let unknown = Recipe { hosts: [3, 2], flow: FLOW + 1, ..one.clone() };
        assert_eq!(steering.run(&unknown.build()), Verdict::DropNotNeighbour);
        let refused: Vec<IpAddr> =
            steering.not_neighbours().into_iter().map(words_address).collect();
        assert!(refused.contains(&address(is_v6, 3)), "{refused:?}");
    }
}

#[test]
fn agreement_mutated_frames_program_matches_parser_and_reference() {
    let mut reached = [0; Verdict::COUNT as usize];
    for ends in [None, Some(ends(false)), Some(ends(true))] {
        let Some(steering) = ready_for(ends) else { return };
        proptest!(ProptestConfig::with_cases(CASES), |(frame in frames())| {
            check_agreement(&steering, Rules { ends, ..RULES }, &frame)?;
        });
        reached.iter_mut().zip(steering.counts()).for_each(|(sum, count)| *sum += count);
    }
    // The generator is useful only if it reaches every verdict but the socket's.
    for verdict in Verdict::ALL {
        let reached = reached[verdict as usize];
        assert_eq!(reached == 0, verdict == Verdict::DropNoSocket, "{}: {reached}", verdict.name());
    }
}

#[test]
fn agreement_random_bytes_program_matches_parser_and_reference() {
    let Some(steering) = ready() else { return };
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    proptest!(ProptestConfig::with_cases(CASES / 8), |(frame in bytes)| {
        check_agreement(&steering, RULES, &frame)?;
    });
}

const CASES: u32 = 10_000;
