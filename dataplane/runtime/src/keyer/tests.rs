//! A key thread without a network: letters in, keys and letters out.

use super::*;
use crate::memory::Ways;
use crate::slot::Slot;
use crate::topology::tests::topology;
use crate::topology::{EdgeConfig, GroupConfig, GroupPart, PeerKey, RelayedConfig};
use crate::wake::Waker;
use recoded_pipeline::params::TunnelId;
use recoded_secure::{
    Association, GRANT_BYTES_MAX, Grant, GrantedSeeds, GroupSender, Identity, PresharedKey,
    PrivateKey, Profile, Suite, granted_seeds, timing, write_grant,
};

const UPSTREAM: PeerId = PeerId(0);
const ANOTHER_UPSTREAM: PeerId = PeerId(1);
const NEXT_HOP: PeerId = PeerId(2);
const THIRD_PARTY: PeerId = PeerId(3);

/// A flow that ends here, one that is relayed here, one that ends here and elsewhere.
const SINK: u32 = 7;
const RELAYED: u32 = 8;
const GROUP: u32 = 9;

fn entropy(byte: u8) -> Entropy {
    Entropy::new([byte; 64])
}

fn private(byte: u8) -> PrivateKey {
    PrivateKey::generate(&entropy(byte))
}

/// The node has key 1, the source of all flows key 2.
fn keyer() -> Keyer {
    let source = private(2).public();
    let plain = topology();
    let key = PeerKey { public: source, psk: PresharedKey::none(), one_way: false };
    let (strength, relays) = (Strength::Standard, Vec::new());
    let group = GroupConfig { flow: GROUP, part: GroupPart::Sink(source), strength, relays };
    let topology = Topology {
        private_key: Some(private(1)),
        hops: vec![plain.hops[0].clone(); 4],
        edges: vec![EdgeConfig { flow: SINK, key, strength, relays: Vec::new() }],
        groups: vec![group],
        relayed: vec![RelayedConfig { flow: RELAYED, source }],
        ..plain
    };
    let sink = |flow| {
        let role = Role::Sink { tunnel: TunnelId(0), upstream: UPSTREAM };
        let further_upstreams = vec![ANOTHER_UPSTREAM];
        FlowParams { further_upstreams, ..FlowParams::new(flow, role, Vec::new()) }
    };
    let relay = Role::Relay { upstream: UPSTREAM };
    let relay = FlowParams::new(RELAYED, relay, vec![NEXT_HOP]);
    let snapshot = Snapshot { edition: 1, flows: vec![sink(SINK), relay, sink(GROUP)] };
    let wakers = Arc::new([Waker::open().unwrap()]);
    let slots = (Arc::new(Slot::new(Vec::new())), Arc::new(Slot::new(Vec::new())));
    let shared = Shared::new(snapshot, slots.0, slots.1, Vec::new(), wakers);
    let keyring = Arc::new(Keyring::new(Rings::default()));
    let memory = Memory::Own(Ways::open(None));
    Keyer::new(&topology, Arc::new(shared), keyring, Clock::start(), memory).unwrap()
}

fn deliver(keyer: &mut Keyer, from: PeerId, flow: u32, message: &[u8]) {
    let mut packet = [0; LETTER_BYTES];
    let len = write_edge_handshake(flow, message, &mut packet);
    keyer.receive(Letter::new(from, &packet[..len]).unwrap()).unwrap();
}

/// An initiation of the node with this key to the sink.
fn initiation(byte: u8, stamp: u64) -> Vec<u8> {
    initiation_by(byte, stamp, stamp as u8)
}

fn initiation_by(byte: u8, stamp: u64, random: u8) -> Vec<u8> {
    let (private, peer) = (private(byte), private(1).public());
    let identity = Identity { scope: Scope::Edge(SINK), private, peer, psk: PresharedKey::none() };
    let profile = Profile { suite: Suite::preferred(), strength: Strength::Standard };
    let mut keys = Association::<EdgeKeys>::new(identity, profile, 0, &entropy(3));
    let mut out = [0; HANDSHAKE_BYTES_MAX];
    let random = entropy(random);
    let sent = keys.poll(timing::START_NANOS, stamp, &random, &mut out).unwrap().send;
    out[..sent].to_vec()
}

fn seeds() -> [GrantedSeeds; 1] {
    [granted_seeds(&recoded_secure::Secrets::extract(&[1], &[7; 32]), STANDARD, 0)]
}

fn grant(stamp: u64) -> Vec<u8> {
    let seeds = seeds();
    let grant = Grant { flow: RELAYED, stamp, strength: STANDARD, epochs: &seeds };
    let mut out = [0; GRANT_BYTES_MAX];
    let bytes = write_grant(&grant, &private(2), &private(1).public(), &entropy(9), &mut out);
    out[..bytes.unwrap()].to_vec()
}

const STANDARD: Strength = Strength::Standard;

fn group_message() -> Vec<u8> {
    group_message_of(2)
}

/// From the node with this key.
fn group_message_of(byte: u8) -> Vec<u8> {
    let (own, sinks) = (private(byte), vec![private(1).public()]);
    let profile = Profile { suite: Suite::preferred(), strength: STANDARD };
    let mut sender = GroupSender::new(own, GROUP, sinks, profile, None, &entropy(4));
    let turn = sender.poll(1, 1, || Ok::<_, ()>(entropy(5)), &mut |_, _| true);
    assert!(turn.unwrap().unwrap().send > 0);
    sender.tellings()[0].to_vec()
}

/// Letters that the key thread sends.
fn sent(keyer: &Keyer) -> usize {
    std::iter::from_fn(|| keyer.keyring.outgoing.pop()).count()
}

/// Any neighbour, of whatever flow, could once spend the budgets of a flow, and its source's keys
/// were not read then.
//= docs/protocol §3.2(a)
#[test]
fn grants_keys_and_handshakes_of_a_flow_are_read_from_its_neighbours_only() {
    let mut keyer = keyer();
    let (grant, group, initiation) = (grant(1), group_message(), initiation(2, 1));
    for from in [THIRD_PARTY, NEXT_HOP] {
        for _ in 0..100 {
            deliver(&mut keyer, from, RELAYED, &grant);
            deliver(&mut keyer, from, GROUP, &group);
            deliver(&mut keyer, from, SINK, &initiation);
        }
        assert!(keyer.columns.held().is_empty(), "{from:?}");
        assert_eq!(keyer.groups.ring(GROUP).unwrap().epochs().count(), 0, "{from:?}");
        assert_eq!(sent(&keyer), 0, "{from:?}");
    }
    assert_eq!(keyer.columns.report(0)[0].1.refused, 200);
    assert_eq!(keyer.edges[0].1.report(0, true).refused, 200);
    assert_eq!(keyer.groups.report(0).map(|(_, report)| report.refused).sum::<u64>(), 200);

    deliver(&mut keyer, UPSTREAM, RELAYED, &grant);
    deliver(&mut keyer, UPSTREAM, GROUP, &group);
    deliver(&mut keyer, UPSTREAM, SINK, &initiation);
    assert_eq!(keyer.columns.held().len(), 1);
    assert_eq!(keyer.groups.ring(GROUP).unwrap().epochs().count(), 1);
    assert_eq!(sent(&keyer), 2 * EDGE_COPIES, "the answer, to both upstreams");
}

/// Each forged initiation once cost two multiplications on the curve, without any bound; then the
/// tries of the neighbour that brought them.
//= docs/protocol §3.2(a)
#[test]
fn handshakes_of_other_keys_cost_an_edge_nothing_and_recorded_ones_a_bounded_part() {
    let mut keyer = keyer();
    let reason = |keyer: &Keyer| keyer.edges[0].1.report(0, true).refusal;
    for _ in 0..100 {
        deliver(&mut keyer, UPSTREAM, SINK, &[0x27; 141]);
    }
    // These are for this node, and from another key.
    for stamp in 0..60 {
        deliver(&mut keyer, UPSTREAM, SINK, &initiation(66, stamp));
        assert_eq!(reason(&keyer), Refused::Tag.to_string(), "without multiplications");
    }
    assert_eq!(sent(&keyer), 0);
    deliver(&mut keyer, UPSTREAM, SINK, &initiation(2, 5));
    assert_eq!(sent(&keyer), 2 * EDGE_COPIES);
    // Those that were recorded before this node started are read once each, within a budget.
    let recorded: Vec<_> = (1..5).map(|stamp| initiation(2, stamp)).collect();
    for _ in 0..60 {
        keyer.clock = keyer.clock.after(Duration::from_millis(25));
        recorded.iter().for_each(|message| deliver(&mut keyer, UPSTREAM, SINK, message));
        assert_eq!(reason(&keyer), Refused::Stale.to_string());
    }
    assert_eq!(sent(&keyer), 0);
    deliver(&mut keyer, UPSTREAM, SINK, &initiation(2, 6));
    assert_eq!(sent(&keyer), 2 * EDGE_COPIES, "the honest edge behind the same neighbour");
    keyer.clock = keyer.clock.after(Duration::from_millis(25));
    // Made before, so that a busy machine reads them within a second or two.
    let many: Vec<_> = (0..120).map(|byte| initiation_by(2, 1, 100 + byte)).collect();
    let is_bounded = |message: &Vec<u8>| {
        deliver(&mut keyer, UPSTREAM, SINK, message);
        reason(&keyer) == Refused::TooMany.to_string()
    };
    assert!(many.iter().map(is_bounded).fold(false, |any, is| any | is));
    deliver(&mut keyer, ANOTHER_UPSTREAM, SINK, &initiation(2, 7));
    assert_eq!(sent(&keyer), 2 * EDGE_COPIES);
}

/// G4: messages that a relay, or a node behind it, forges once spent what the honest edge behind
/// the same neighbour needed.
#[test]
fn forged_messages_of_a_neighbour_displace_no_honest_ones_that_it_brings() {
    let mut keyer = keyer();
    let (seeds, sink) = (seeds(), private(1).public());
    for stamp in 2..60 {
        // By a node that knows all public keys.
        let forged = Grant { flow: RELAYED, stamp, strength: STANDARD, epochs: &seeds };
        let mut out = [0; GRANT_BYTES_MAX];
        let random = entropy(stamp as u8);
        let bytes = write_grant(&forged, &private(66), &sink, &random, &mut out).unwrap();
        deliver(&mut keyer, UPSTREAM, RELAYED, &out[..bytes]);
        deliver(&mut keyer, UPSTREAM, GROUP, &group_message_of(66));
        deliver(&mut keyer, UPSTREAM, SINK, &initiation(66, stamp));
        let cookie = [&[0x27, 3, 0, 0][..], &[stamp as u8; 56]].concat();
        deliver(&mut keyer, UPSTREAM, SINK, &cookie);
    }
    sent(&keyer);
    deliver(&mut keyer, UPSTREAM, RELAYED, &grant(1));
    deliver(&mut keyer, UPSTREAM, GROUP, &group_message());
    deliver(&mut keyer, UPSTREAM, SINK, &initiation(2, 1));
    assert_eq!(keyer.columns.held().len(), 1);
    assert_eq!(keyer.groups.ring(GROUP).unwrap().epochs().count(), 1);
    assert_eq!(sent(&keyer), 2 * EDGE_COPIES);
}

/// Messages to be forwarded had one budget for all neighbours of all flows.
#[test]
fn neighbour_that_floods_a_relay_with_handshakes_leaves_room_for_the_other_direction() {
    let mut keyer = keyer();
    let since = keyer.clock.now() / SECOND;
    let mut passed = 0;
    for _ in 0..5000 {
        deliver(&mut keyer, UPSTREAM, RELAYED, &[9; 60]);
        deliver(&mut keyer, THIRD_PARTY, RELAYED, &[9; 60]);
        passed += sent(&keyer);
    }
    let seconds = keyer.clock.now() / SECOND - since + 1;
    assert!(passed as u64 <= 1000 * seconds, "{passed} in {seconds} s");
    deliver(&mut keyer, NEXT_HOP, RELAYED, &[9; 60]);
    assert_eq!(sent(&keyer), 1);
    // Forwarded letters in the queue leave room for messages of this node.
    let others = || deliver(&mut keyer, NEXT_HOP, RELAYED, &[9; 60]);
    std::iter::repeat_with(others).take(999).for_each(drop);
    assert!(keyer.keyring.outgoing.len() <= keyer.keyring.outgoing.capacity() / 2);
}

/// Keys aged by a clock that stops while the box sleeps.
#[test]
fn keys_end_while_the_box_sleeps() {
    let mut keyer = keyer();
    deliver(&mut keyer, UPSTREAM, SINK, &initiation(2, 1));
    deliver(&mut keyer, UPSTREAM, GROUP, &group_message());
    deliver(&mut keyer, UPSTREAM, RELAYED, &grant(1));
    let keys = |keyer: &Keyer| {
        let edges = keyer.rings().edges.iter().map(|(_, ring)| ring.epochs().count()).sum();
        [edges, keyer.columns.held().len()]
    };
    keyer.poll().unwrap();
    assert_eq!(keys(&keyer), [2, 1]);
    keyer.clock = keyer.clock.after(Duration::from_secs(100));
    keyer.poll().unwrap();
    assert_eq!(keys(&keyer)[0], 2, "not for long");
    keyer.clock = keyer.clock.after(Duration::from_secs(3600));
    keyer.poll().unwrap();
    assert_eq!(keys(&keyer), [0, 0]);
}
