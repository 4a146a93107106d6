//! Two guards that have agreed on keys.

use super::*;
use crate::keyring::LETTER_BYTES;
use crate::mailbox::{Inbox, mailbox};
use proptest::prelude::*;
use recoded_pipeline::egress::{CONTEXT_BYTES, Space, UnitKind};
use recoded_secure::{
    Association, Entropy, Epoch, EpochKeys, HANDSHAKE_BYTES_MAX, Identity, PresharedKey,
    PrivateKey, Profile, Ring, Scope, Secrets, Suite, TagKey, timing,
};
use recoded_wire::announcement::{ANNOUNCEMENT_BYTES_MAX, Announcement, write_announcement};
use recoded_wire::handshake::{write_edge_handshake, write_hop_handshake};

const PEER: PeerId = PeerId(0);

/// Keys of two nodes that have agreed; the first one began.
fn agreed<Keys: EpochKeys>(scope: Scope, strength: Strength) -> [Ring<Arc<Keys>>; 2] {
    let profile = Profile { suite: Suite::Aes128Gcm, strength };
    let entropy = |byte| Entropy::new([byte; 64]);
    let private = [1, 2].map(|byte| PrivateKey::generate(&entropy(byte)));
    let mut ends = [(0, 1), (1, 0)].map(|(own, other): (usize, usize)| {
        let (private, peer) = (private[own].clone(), private[other].public());
        let identity = Identity { scope, private, peer, psk: PresharedKey::none() };
        Association::<Keys>::new(identity, profile, 0, &entropy(3))
    });
    let (mut there, mut back) = ([0; HANDSHAKE_BYTES_MAX], [0; HANDSHAKE_BYTES_MAX]);
    let now = timing::START_NANOS;
    let sent = ends[0].poll(now, 1, &entropy(4), &mut there).unwrap().send;
    let answer = ends[1].receive(now, &entropy(5), &there[..sent], &mut back).unwrap().send;
    ends[0].receive(now, &entropy(6), &back[..answer], &mut there).unwrap();
    ends.map(|end| end.ring().clone())
}

/// Two neighbours; only the first has a key.
fn guards() -> [(Guard, Inbox); 2] {
    guards_of(Strength::Standard)
}

/// The same; flow 7 has tags of this strength.
fn guards_of(strength: Strength) -> [(Guard, Inbox); 2] {
    let [here, there] = agreed(Scope::Hop, Strength::Standard);
    let [source, sink] = agreed(Scope::Edge(7), strength);
    [(here, source), (there, sink)].map(|(hop, edge)| {
        let rings =
            Rings { hops: vec![Some(hop), None], edges: vec![(7, edge)], ..Rings::default() };
        let (mail, letters) = mailbox(2);
        (Guard::new(Arc::new(Keyring::new(rings)), mail), letters)
    })
}

fn tagged(guard: &Guard, packet: &[u8]) -> Vec<u8> {
    let mut packet = [packet, &[0; TRAILER_BYTES]].concat();
    assert!(guard.tag(PEER, &mut packet));
    packet
}

proptest! {
    #[test]
    fn what_has_no_tag_is_a_handshake_or_ends(
        mut packet in prop::collection::vec(any::<u8>(), 0..300),
        is_handshake: bool,
    ) {
        prop_assume!(is_handshake || packet.first() != Some(&0x37));
        let [_, (mut guard, letters)] = guards();
        if is_handshake && packet.len() >= 16 {
            let flags = packet[1] & Flags::EDGE;
            packet[..4].copy_from_slice(&[0x37, flags, 0, 0]);
        }
        let mut counters = LinkCounters::default();
        let admitted = guard.admit(PEER, &packet, &mut counters);
        prop_assert_eq!(admitted, Admitted::ENDED);
        let refused = counters.rx_no_keys + counters.rx_wrong_tag + counters.rx_copies;
        prop_assert_eq!(refused + counters.rx_handshakes, 1);
        let is_message = is_handshake && packet.len() > 16 + TRAILER_BYTES && packet[1] == 0;
        prop_assert_eq!(counters.rx_handshakes, u64::from(is_message));
        let is_read = is_message && packet.len() <= LETTER_BYTES;
        prop_assert_eq!(letters.len(), usize::from(is_read));
    }

    #[test]
    fn packets_of_the_neighbour_come_once_and_unchanged(
        packet in prop::collection::vec(any::<u8>(), 1..1500), at: usize, bit in 0..8u8,
    ) {
        prop_assume!(!is_letter(&packet));
        let [(sender, _), (mut receiver, _)] = guards();
        let packet_with_tag = tagged(&sender, &packet);
        let mut changed = packet_with_tag.clone();
        changed[at % packet_with_tag.len()] ^= 1 << bit;
        let mut counters = LinkCounters::default();
        let mut admit = |packet: &[u8]| receiver.admit(PEER, packet, &mut counters);
        let whole = Admitted { packet: Some(packet.len()), is_newest: true };
        prop_assert_eq!(admit(&changed), Admitted::ENDED);
        prop_assert_eq!(admit(&packet_with_tag), whole);
        prop_assert_eq!(admit(&packet_with_tag), Admitted::ENDED);
        prop_assert_eq!(counters.rx_copies, 1);
    }
}

#[test]
fn hellos_confirm_and_messages_of_edges_need_a_tag() {
    let [(sender, _), (mut receiver, letters)] = guards();
    let mut counters = LinkCounters::default();
    let mut message = [0; ANNOUNCEMENT_BYTES_MAX];
    let len = write_hop_handshake(&[], &mut message);
    assert_eq!(receiver.rings.hops[0].as_ref().unwrap().sending().map(|it| it.key_id), None);
    let hello = tagged(&sender, &message[..len]);
    assert_eq!(receiver.admit(PEER, &hello, &mut counters).packet, None);
    assert!(receiver.rings.hops[0].as_ref().unwrap().sending().is_some());
    assert_eq!((counters.rx_handshakes, letters.len()), (1, 0));
    let len = write_edge_handshake(7, &[9; 60], &mut message);
    let with_tag = tagged(&sender, &message[..len]);
    receiver.admit(PEER, &message[..len], &mut counters);
    assert_eq!(letters.len(), 0, "without a tag");
    receiver.admit(PEER, &with_tag, &mut counters);
    assert_eq!(letters.try_iter().next().unwrap().packet(), &message[..len]);
}

#[test]
fn neighbours_without_a_key_need_no_tag_and_their_handshakes_are_counted_by_the_pipeline() {
    let [_, (mut guard, letters)] = guards();
    let mut counters = LinkCounters::default();
    let other = PeerId(1);
    assert_eq!(guard.admit(other, &[0x32; 40], &mut counters).packet, Some(40));
    let mut message = [0; ANNOUNCEMENT_BYTES_MAX];
    let len = write_hop_handshake(&[9; 60], &mut message);
    let admitted = guard.admit(other, &message[..len], &mut counters);
    assert_eq!(admitted.packet, Some(len));
    assert_eq!((counters.rx_handshakes, letters.len()), (0, 0));
    assert_eq!(guard.trailer_bytes(PeerId(1)), 0);
}

//= docs/protocol §2.10(b)
#[test]
fn announcements_need_the_tag_that_the_hop_has_and_come_before_the_pipeline() {
    let [(sender, _), (mut receiver, letters)] = guards();
    let mut counters = LinkCounters::default();
    let mut out = [0; ANNOUNCEMENT_BYTES_MAX];
    let len = write_announcement(&Announcement::default(), &[], &mut out);
    let announcement = &out[..len];
    let with_tag = tagged(&sender, announcement);
    let mut admit = |peer, packet| receiver.admit(peer, packet, &mut counters).packet;
    assert_eq!(admit(PEER, announcement), None);
    assert_eq!(letters.len(), 0, "without a tag");
    assert_eq!(admit(PEER, &with_tag), None);
    assert_eq!(letters.try_iter().next().unwrap().packet(), announcement);
    for _ in 0..1000 {
        assert_eq!(admit(PeerId(1), announcement), None, "no keys, no tag");
    }
    assert_eq!(letters.len(), half_of(MailKind::Talk), "the rest is for others");
    assert_eq!(counters.rx_announcements, 1001);
}

#[test]
fn neighbours_that_roam_are_recognised_by_their_tags_and_copies_and_forgeries_are_not() {
    let [(sender, _), (mut receiver, letters)] = guards();
    let mut counters = LinkCounters::default();
    let roaming = || [PeerId(1), PEER].into_iter();
    let packets: Vec<Vec<u8>> =
        (0..3).map(|number| tagged(&sender, &[0x35, 0, 0, 0, 0, 0, 0, number])).collect();
    let mut look = |packet: &[u8]| receiver.recognise(roaming(), packet, &mut counters);
    let mut forged = packets[0].clone();
    forged[3] ^= 1;
    assert_eq!(look(&forged), Err(Refused::Tag));
    let found = |is_newest| Ok((PEER, Admitted { packet: Some(8), is_newest }));
    assert_eq!(look(&packets[1]), found(true));
    assert_eq!(look(&packets[0]), found(false), "it was overtaken, and moves nothing");
    assert_eq!(look(&packets[1]), Err(Refused::Replayed), "a copy");
    assert_eq!(look(&packets[2]), found(true));
    assert_eq!(look(&packets[2][..5]), Err(Refused::Malformed));
    // Messages for the key thread are accepted from any address.
    let mut message = [0; ANNOUNCEMENT_BYTES_MAX];
    let len = write_announcement(&Announcement::default(), &[], &mut message);
    let announcement = tagged(&sender, &message[..len]);
    let found = receiver.recognise(roaming(), &announcement, &mut counters);
    assert_eq!(found, Ok((PEER, Admitted { packet: None, is_newest: true })));
    assert_eq!(letters.try_iter().next().unwrap().packet(), &message[..len]);
    let others = receiver.recognise([PeerId(1)].into_iter(), &announcement, &mut counters);
    assert_eq!(others, Err(Refused::UnknownKey));
}

#[test]
fn where_a_neighbour_is_is_told_once_and_again_when_nothing_comes_of_it() {
    let [_, (mut guard, letters)] = guards();
    let place = |port| LinkAddress { link: 0, address: ([10, 0, 0, 9], port).into() };
    for now in [0, 1, TELL_AGAIN_NANOS - 1, TELL_AGAIN_NANOS] {
        guard.relocate(PEER, place(1), now);
    }
    guard.relocate(PEER, place(2), TELL_AGAIN_NANOS);
    let told: Vec<LinkAddress> = letters.try_iter().filter_map(|letter| letter.place).collect();
    assert_eq!(told, [place(1), place(1), place(2)]);
    for port in 0..1000 {
        guard.relocate(PEER, place(port), 0);
    }
    assert_eq!(letters.len(), half_of(MailKind::Talk), "the rest is for others");
}

#[test]
fn a_flood_of_messages_leaves_room_for_those_between_edges() {
    let [(sender, _), (mut receiver, letters)] = guards();
    let mut counters = LinkCounters::default();
    let mut message = [0; ANNOUNCEMENT_BYTES_MAX];
    let len = write_hop_handshake(&[9; 60], &mut message);
    for _ in 0..1000 {
        receiver.admit(PEER, &message[..len], &mut counters);
    }
    let share = half_of(MailKind::Hop);
    assert_eq!(letters.len(), share);
    assert_eq!(counters.rx_handshakes_refused, 1000 - share as u64);
    let len = write_edge_handshake(7, &[9; 60], &mut message);
    let with_tag = tagged(&sender, &message[..len]);
    receiver.admit(PEER, &with_tag, &mut counters);
    assert_eq!(letters.len(), share + 1);
    // And those between edges leave room for those of hops, which once found none.
    for _ in 0..1000 {
        receiver.admit(PEER, &tagged(&sender, &message[..len]), &mut counters);
    }
    let of_flow = usize::from(MailKind::Edge.room().div_ceil(3));
    assert_eq!(letters.len(), share + of_flow, "the rest is for other flows, and neighbours");
    letters.try_iter().take(1).for_each(drop);
    let len = write_hop_handshake(&[9; 60], &mut message);
    receiver.admit(PEER, &message[..len], &mut counters);
    assert_eq!(letters.len(), share + of_flow);
}

/// The share of the only neighbour that sends letters of a kind.
fn half_of(kind: MailKind) -> usize {
    usize::from(kind.room() / 2)
}

#[test]
fn envelopes_open_at_the_other_end_of_their_flow_only() {
    let [(source, _), (mut sink, _)] = guards();
    let mut sealed = [0; 100 + ENVELOPE_BYTES];
    source.seal(7, &[5; 100], &mut sealed).unwrap();
    assert_eq!(source.seal(8, &[5; 100], &mut sealed.clone()), Err(Refused::UnknownKey));
    assert_eq!(sink.unseal(8, &mut sealed.clone()), Err(Refused::UnknownKey));
    assert_eq!(sink.unseal(7, &mut sealed.clone()).unwrap(), [5; 100]);
    assert_eq!(sink.unseal(7, &mut sealed), Err(Refused::Replayed));
}

#[test]
fn reports_of_the_sink_verify_at_the_source_and_forged_ones_do_not() {
    let [(mut source, _), (mut sink, _)] = guards();
    let report = [5; 40];
    let mut sealed = [0; 100 + ENVELOPE_BYTES];
    source.seal(7, &[5; 100], &mut sealed).unwrap();
    sink.unseal(7, &mut sealed).expect("it confirms the keys");
    let seal = sink.seal_report(7, &report).unwrap();
    assert_eq!(source.verify_report(7, &report, None), Err(Refused::UnknownKey));
    assert_eq!(source.verify_report(7, &[6; 40], Some(&seal)), Err(Refused::Tag));
    assert_eq!(source.verify_report(7, &report, Some(&seal)), Ok(()));
    assert_eq!(source.verify_report(7, &report, Some(&seal)), Err(Refused::Replayed));
    assert_eq!(source.verify_report(8, &report, None), Ok(()), "a flow without keys");
    // Several sinks, or a path without a return path: there are no keys to the source.
    let (secrets, profile) = (Secrets::extract(&[1], &[2; 32]), Profile::from(Suite::Aes128Gcm));
    let keys = Arc::new(EdgeKeys::to_send(&secrets, 1, profile));
    let mut ring = Ring::default();
    ring.install(Epoch { key_id: 1, since: 0, keys });
    source.rings.edges = vec![(7, ring), (9, Ring::default())];
    assert_eq!(source.verify_report(7, &report, None), Ok(()));
    assert_eq!(source.verify_report(9, &report, None), Err(Refused::UnknownKey), "no keys yet");
}

/// A relay of flow 7 with the columns that the source has for the relay at this place.
fn relay(source: &Guard, place: usize) -> Guard {
    let (_, ring) = &source.rings.edges[0];
    let keys = &ring.sending().expect("keys").keys;
    let seeds = keys.granted_seeds(place).expect("those of a source");
    let strength = keys.tag_key().expect("those of a source").strength();
    let key = TagKey::new(strength, &seeds, 2048).expect("some of the columns");
    let rings = Rings { columns: vec![(7, vec![Arc::new(key)])], ..Rings::default() };
    Guard::new(Arc::new(Keyring::new(rings)), mailbox(2).0)
}

#[test]
fn symbols_verify_at_relays_by_the_columns_that_each_was_granted() {
    for strength in [Strength::Standard, Strength::Strict] {
        symbols_verify_at_relays(strength);
    }
}

fn symbols_verify_at_relays(strength: Strength) {
    let [(mut source, _), _] = guards_of(strength);
    let parts = strength.columns() / 4;
    let mut relays: Vec<_> = (0..parts).map(|place| relay(&source, place)).collect();
    let space = Space { flow: 7, shard: 2, kind: UnitKind::Batch };
    let unit = TaggedUnit { space, number: 9, context: [3; CONTEXT_BYTES] };
    let mut symbol = [5; 300];
    let key = source.tag_key(7).expect("a key");
    source.tag_symbol(key, &unit, 4, &mut symbol).unwrap();
    for (place, relay) in relays.iter_mut().enumerate() {
        let mut verify = |symbol: &[u8]| relay.verify_symbol(&unit, Formed::Source(4), symbol);
        assert!(verify(&symbol).is_ok());
        for byte in 0..symbol.len() {
            let mut changed = symbol;
            changed[byte] ^= 1;
            // It covers its own columns of the tag, and the whole payload.
            let is_covered = byte >= strength.columns() || byte / 4 == place;
            assert_eq!(verify(&changed).is_err(), is_covered, "byte {byte}, relay {place}");
        }
        let other = TaggedUnit { space: Space { flow: 8, ..space }, ..unit };
        let verdict = relay.verify_symbol(&other, Formed::Source(4), &symbol);
        assert_eq!(verdict, Err(Refused::UnknownKey), "it relays no such flow");
        let mut forged = symbol;
        assert_eq!(relay.tag_symbol(key, &unit, 4, &mut forged), Err(Refused::UnknownKey));
    }
}

#[test]
fn symbols_are_tagged_by_the_keys_that_relays_have_and_not_by_newer_ones() {
    let [(mut source, _), _] = guards();
    let key = source.tag_key(7).expect("a key");
    source.rings.tagging = vec![(7, key)];
    assert_eq!(source.tag_key(7), Some(key));
    // Expired keys tag nothing.
    source.rings.tagging = vec![(7, key.wrapping_add(1))];
    assert_eq!(source.tag_key(7), None);
    source.rings.tagging = vec![(8, key.wrapping_add(1))];
    assert_eq!(source.tag_key(7), Some(key), "that is of another flow");
}

/// A renewed worker draws other numbers: under one key they would not only grow.
#[test]
fn keys_of_before_a_renewal_tag_nothing_more_and_newer_ones_do() {
    let [(source, _), _] = guards();
    let before = source.tag_key(7).expect("a key");
    let mut renewed = source.renewed();
    assert_eq!((renewed.tag_key(7), renewed.tag_key(8)), (None, None));
    assert_eq!(renewed.renewed().tag_key(7), None, "renewed twice");
    let mut sealed = [0; 100 + ENVELOPE_BYTES];
    renewed.seal(7, &[5; 100], &mut sealed).expect("envelopes have counters of their own");
    // Another agreement.
    let [newer, _] = agreed(Scope::Edge(7), Strength::Standard);
    renewed.rings.edges = vec![(7, newer)];
    assert!(renewed.tag_key(7).is_some(), "{before}");
    assert_eq!(source.tag_key(7), Some(before), "other workers keep their key");
}

#[test]
fn symbols_tagged_by_the_source_verify_at_the_sink_also_before_it_uses_the_keys() {
    for strength in [Strength::Standard, Strength::Strict] {
        symbols_tagged_by_the_source_verify_at_the_sink(strength);
    }
}

fn symbols_tagged_by_the_source_verify_at_the_sink(strength: Strength) {
    let [(mut source, _), (mut sink, _)] = guards_of(strength);
    let space = Space { flow: 7, shard: 2, kind: UnitKind::Generation };
    let unit = TaggedUnit { space, number: 9, context: [3; CONTEXT_BYTES] };
    let mut symbol = [5; 300];
    let key = source.tag_key(7).expect("a key");
    assert_eq!(source.tag_key(8), None);
    source.tag_symbol(key, &unit, 4, &mut symbol).unwrap();
    let unknown = source.tag_symbol(key.wrapping_add(1), &unit, 4, &mut symbol.clone());
    assert_eq!(unknown, Err(Refused::UnknownKey));
    let mut verify = |unit, formed, symbol: &[u8]| sink.verify_symbol(unit, formed, symbol);
    let verified = verify(&unit, Formed::Source(4), &symbol);
    assert!(verified.is_ok());
    let combination = Formed::Combination(&[0, 0, 0, 0, 1]);
    assert_eq!(verify(&unit, combination, &symbol), verified, "by the same key");
    assert_eq!(verify(&unit, Formed::Source(5), &symbol), Err(Refused::Tag));
    let others = [
        TaggedUnit { space: Space { shard: 3, ..space }, ..unit },
        TaggedUnit { space: Space { kind: UnitKind::Batch, ..space }, ..unit },
        TaggedUnit { number: 10, ..unit },
        TaggedUnit { context: [4; CONTEXT_BYTES], ..unit },
    ];
    for other in &others {
        assert_eq!(verify(other, Formed::Source(4), &symbol), Err(Refused::Tag));
    }
    let other = TaggedUnit { space: Space { flow: 8, ..space }, ..unit };
    let verdict = verify(&other, Formed::Source(4), &symbol);
    assert_eq!(verdict, Err(Refused::UnknownKey));
    symbol[200] ^= 1;
    assert_eq!(verify(&unit, Formed::Source(4), &symbol), Err(Refused::Tag));
    assert_eq!(verify(&unit, Formed::Source(4), &[]), Err(Refused::Malformed));
}
