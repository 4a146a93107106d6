//! Packets that move a neighbour, and packets that do not.

use super::*;
use crate::topology::PeerKey;
use crate::topology::tests::topology;
use proptest::prelude::*;
use recoded_secure::{Entropy, PresharedKey, PrivateKey};
use recoded_wire::handshake::write_hop_handshake;
use recoded_wire::header::{Header, PacketType};
use recoded_wire::shard::source_port;

const PORT: u16 = 9426;
const SECOND: Nanos = 1_000_000_000;

/// Three neighbours on a link with UDP sockets: two that roam, one that does not.
fn around() -> Topology {
    let mut topology = topology();
    topology.links[0].backend = Backend::Udp;
    let public = PrivateKey::generate(&Entropy::new([1; 64])).public();
    let hop = |last: u8, roams| HopConfig {
        link: 0,
        address: [10, 0, 2, last].into(),
        key: Some(PeerKey { public, psk: PresharedKey::none(), one_way: false }),
        roams,
        path: 0,
    };
    topology.hops = vec![hop(2, true), hop(3, true), hop(4, false)];
    topology
}

fn at(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 2, last], port))
}

fn place(address: SocketAddr) -> LinkAddress {
    LinkAddress { link: 0, address }
}

/// A packet of a stream.
fn packet(flow: u32, shard: u8) -> Vec<u8> {
    let header = Header {
        packet_type: PacketType::Stream,
        flags: Flags::default(),
        epoch: 0,
        shard,
        flow,
        link_sequence: 0,
        hop_index: 0,
    };
    let mut packet = vec![0; 60];
    header.write(&mut packet);
    packet
}

#[test]
fn neighbours_that_roam_are_told_by_address_and_port_and_others_by_address() {
    let near = Near::new(&around());
    let around = &near.links[0];
    let packet = packet(7, 3);
    let find = |source| around.find(source, &packet).map(|found| found.peer);
    assert_eq!(find(at(2, PORT)), Some(PeerId(0)));
    let roams = |source| around.find(source, &packet).is_some_and(|found| found.roams);
    assert!(roams(at(3, PORT)) && !roams(at(4, PORT)));
    assert_eq!(find(at(2, source_port(7, 3))), Some(PeerId(0)), "with AF_XDP there");
    assert_eq!(find(at(2, 4000)), None, "translated, or another sender");
    assert_eq!(find(at(4, 4000)), Some(PeerId(2)));
    assert_eq!(find(at(9, PORT)), None);
    assert!(around.roaming().eq([PeerId(0), PeerId(1)]));
    let moved = |peer, source| near.moved(PeerId(peer), source, &packet);
    assert_eq!(moved(0, at(2, PORT)), None);
    assert_eq!(moved(0, at(2, source_port(7, 3))), None);
    assert_eq!(moved(0, at(9, 4000)), Some(at(9, 4000)));
    assert_eq!(moved(0, at(9, source_port(7, 3))), Some(at(9, PORT)), "it hears there only");
    assert_eq!(moved(2, at(9, PORT)), None, "it does not roam");
}

#[test]
fn neighbour_moves_and_is_found_and_sent_to_there() {
    let mut movers = Movers::new(&around());
    let to = at(9, 4000);
    assert_eq!(movers.relocate(0, place(to), 0), Ok(true));
    assert_eq!(movers.relocate(0, place(to), 0), Ok(false), "it is there");
    let near = movers.near();
    assert_eq!(near.endpoints[0], Endpoint { at: to, moves: 1 });
    let find = |near: &Near, source| near.links[0].find(source, &packet(7, 0)).map(|it| it.peer);
    assert_eq!(find(&near, to), Some(PeerId(0)));
    assert_eq!(find(&near, at(2, PORT)), None);
    // Two behind one address.
    assert_eq!(movers.relocate(1, place(at(9, 4001)), 0), Ok(true));
    let near = movers.near();
    assert_eq!(find(&near, to), Some(PeerId(0)));
    assert_eq!(find(&near, at(9, 4001)), Some(PeerId(1)));
    // The NAT assigns the port of one to the other; the first has left silently.
    assert_eq!(movers.relocate(1, place(to), 0), Ok(true));
    assert_eq!(movers.near().endpoints[1].at, to);
    assert_eq!(movers.relocate(0, place(at(9, 4001)), 0), Ok(true));
    let near = movers.near();
    assert_eq!(find(&near, to), Some(PeerId(1)));
    assert_eq!(find(&near, at(9, 4001)), Some(PeerId(0)), "they have changed places");
}

#[test]
fn neighbour_stays_where_the_new_place_cannot_be() {
    let mut movers = Movers::new(&around());
    let mut relocate = |hop, address: SocketAddr| movers.relocate(hop, place(address), 0);
    assert_eq!(relocate(2, at(9, PORT)), Err(Stays::Fixed));
    assert_eq!(relocate(9, at(9, PORT)), Err(Stays::Fixed), "no such neighbour");
    assert_eq!(relocate(0, at(9, 0)), Err(Stays::Unreachable));
    for address in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "2001:db8::1"] {
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        assert_eq!(relocate(0, address), Err(Stays::Unreachable), "{address}");
    }
    assert_eq!(relocate(0, at(4, 4000)), Err(Stays::Taken), "its address is the other one's");
    let elsewhere = LinkAddress { link: 1, address: at(9, PORT) };
    assert_eq!(movers.relocate(0, elsewhere, 0), Err(Stays::Fixed), "the link is another one");
    assert_eq!(movers.near().endpoints, Near::new(&around()).endpoints);
}

#[test]
fn moves_are_bounded_and_go_on_after_a_while() {
    let mut movers = Movers::new(&around());
    let start = 100 * SECOND;
    let mut move_at = |now: Nanos, count: u16| {
        let moved = (0..count).filter(|_| {
            let port = movers.near().endpoints[0].at.port() + 1;
            movers.relocate(0, place(at(2, port)), now) == Ok(true)
        });
        moved.count()
    };
    assert_eq!(move_at(start, 100), 8);
    assert_eq!(move_at(start + SECOND / 2, 100), 0);
    assert_eq!(move_at(start + SECOND, 100), 1);
    assert_eq!(move_at(start + 100 * SECOND, 100), 8);
    assert_eq!(movers.near().endpoints[0].moves, 17);
    assert_eq!(movers.relocate(1, place(at(9, 1)), start), Ok(true), "each has its own");
}

#[test]
fn without_a_key_or_with_af_xdp_none_roams() {
    let mut topology = around();
    topology.hops[0].key = None;
    assert!(Near::new(&topology).links[0].roaming().eq([PeerId(1)]));
    topology.links[0].backend = Backend::Xdp;
    assert!(Near::new(&topology).links[0].roaming().next().is_none());
}

#[test]
fn addresses_of_ipv6_move_without_the_label_of_their_flow() {
    let source = SocketAddrV6::new("fe80::7".parse().unwrap(), 4000, 77, 3);
    let endpoint = endpoint_of(source.into(), &packet(7, 0), PORT);
    assert_eq!(endpoint, SocketAddrV6::new(*source.ip(), 4000, 0, 3).into());
}

#[test]
fn a_look_takes_packets_of_known_keys_and_handshakes_of_each_a_bounded_number() {
    let mut lookout = Lookout::default();
    let with_key = |key: u8| {
        let mut packet = packet(7, 0);
        packet.extend([key, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        packet
    };
    let mut message = [0; 200];
    let len = write_hop_handshake(&[9; 100], &mut message);
    let message = &message[..len];
    lookout.watch(1, [3, 200].into_iter());
    assert!(!lookout.takes(&with_key(3)) && !lookout.takes(message), "nothing is left yet");
    lookout.refill();
    assert!(!lookout.takes(&with_key(4)) && !lookout.takes(&with_key(3)[..12]));
    let taken =
        |lookout: &mut Lookout, packet: &[u8]| (0..1000).filter(|_| lookout.takes(packet)).count();
    assert_eq!(taken(&mut lookout, &with_key(200)), PACKETS as usize);
    assert_eq!(taken(&mut lookout, message), HANDSHAKES as usize, "they have a part of their own");
    // A hub receives more of them at once.
    lookout.watch(200, [3, 200].into_iter());
    lookout.refill();
    assert_eq!(taken(&mut lookout, message), HANDSHAKES as usize + 50);
    lookout.refill();
    lookout.watch(0, [].into_iter());
    assert!(!lookout.takes(&with_key(200)) && !lookout.takes(message));
}

#[test]
fn neighbours_that_roam_are_found_by_the_ids_of_their_keys_alone() {
    let mut senders = Senders::default();
    senders.fill([(7, PeerId(3)), (9, PeerId(1)), (7, PeerId(0))].into_iter());
    let of = |key: u8| {
        let packet = [&packet(7, 0)[..], &[key, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        senders.of(&packet).collect::<Vec<_>>()
    };
    assert_eq!(of(7), [PeerId(0), PeerId(3)]);
    assert_eq!((of(9), of(8)), (vec![PeerId(1)], vec![]));
    assert_eq!(senders.of(&[7; TRAILER_BYTES - 1]).count(), 0, "no trailer");
}

/// Cost of a packet that names a key: of 200 hosts with two paths each, some share an id by chance,
/// and it is verified only under their keys.
#[test]
fn packet_at_a_hub_of_two_hundred_hosts_is_verified_under_few_keys() {
    let mut senders = Senders::default();
    let mut state = 0x9E37_79B9_u32;
    let mut id = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    // Two epochs of each are valid at a time.
    senders.fill((0..800).map(|epoch| (id(), PeerId(epoch / 2))));
    let of = |key: u8| {
        let packet = [&packet(7, 0)[..], &[key, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        senders.of(&packet).count()
    };
    let counts: Vec<usize> = (0..=u8::MAX).map(of).collect();
    assert_eq!(counts.iter().sum::<usize>(), 800);
    assert!(*counts.iter().max().unwrap() <= 12, "{counts:?}");
}

proptest! {
    #[test]
    fn a_look_at_any_bytes_takes_those_with_a_known_key_or_a_message(
        packet in prop::collection::vec(any::<u8>(), 0..300), keys: Vec<u8>,
    ) {
        let mut lookout = Lookout::default();
        lookout.watch(1, keys.iter().copied());
        lookout.refill();
        let key = packet.last_chunk::<TRAILER_BYTES>().map(|trailer| trailer[0]);
        let is_known = key.is_some_and(|key| keys.contains(&key));
        prop_assert_eq!(lookout.takes(&packet), is_message(&packet) || is_known);
    }
}

#[test]
fn neighbour_is_looked_for_where_it_was_before_a_restart_unless_another_is_there() {
    let mut movers = Movers::new(&around());
    movers.recall(0, at(77, 5000));
    movers.recall(1, at(4, 5000));
    movers.recall(2, at(78, 5000));
    movers.recall(9, at(79, 5000));
    let [first, second, third] = [0, 1, 2].map(|hop| movers.near().endpoints[hop]);
    assert_eq!(first, Endpoint { at: at(77, 5000), moves: 0 });
    assert_eq!(second.at, at(3, PORT), "the address of a neighbour that does not roam");
    assert_eq!(third.at, at(4, PORT), "it does not roam");
    // It may still move as often as any.
    for last in 0..MOVES as u8 {
        assert_eq!(movers.relocate(0, place(at(100 + last, 1)), SECOND), Ok(true));
    }
}
