use super::*;
use crate::topology::HopConfig;
use crate::topology::tests::topology;
use proptest::prelude::*;
use recoded_pipeline::params::{FlowParams, TunnelId};

const RIGHT: PeerId = PeerId(0);
const LEFT: PeerId = PeerId(1);

/// The marks of all announcements here.
const MARKS: [u8; MARKS_BYTES] = [7; MARKS_BYTES];

fn talk(hops: u8, instance: u16) -> Talk {
    let hop = |last: u8| HopConfig {
        link: 0,
        address: [192, 0, 2, last].into(),
        key: None,
        roams: false,
        path: 0,
    };
    let topology = Topology { hops: (1..=hops).map(hop).collect(), ..topology() };
    Talk::new(&topology, 0, instance)
}

fn source(id: u32) -> FlowParams {
    FlowParams::new(id, Role::Source { tunnel: TunnelId(0) }, vec![RIGHT])
}

fn relay(id: u32) -> FlowParams {
    FlowParams::new(id, Role::Relay { upstream: LEFT }, vec![RIGHT])
}

/// A source (its neighbour is 0) and a relay (0 is the next hop, 1 the source), and the
/// announcements sent.
struct Pair {
    source: (Talk, Snapshot),
    relay: (Talk, Snapshot),
    room: u16,
    said: [usize; 2],
}

impl Pair {
    fn new(source: Vec<FlowParams>, relay: Vec<FlowParams>) -> Pair {
        Pair {
            source: (talk(1, 5), Snapshot { edition: 1, flows: source }),
            relay: (talk(2, 6), Snapshot { edition: 1, flows: relay }),
            room: 1472,
            said: [0, 0],
        }
    }

    /// Lets both exchange announcements from one time to another, in milliseconds.
    fn run(&mut self, millis: std::ops::Range<u64>) {
        for now in millis.step_by(50) {
            let now = now * SECOND / 1000;
            let room = |_| self.room;
            let around = |snapshot, clock| Surroundings {
                now,
                clock,
                snapshot,
                room: &room,
                memory_bytes: 16 << 20,
            };
            let (mut there, mut back) = (Vec::new(), Vec::new());
            let (source, relay) = (&mut self.source, &mut self.relay);
            // Packets of the relay's own next hop are dropped.
            source.0.poll(
                &around(&source.1, 1000),
                |_| true,
                |_| MARKS,
                |_, packet| {
                    there.push(packet.to_vec());
                },
            );
            relay.0.poll(
                &around(&relay.1, 4600),
                |_| true,
                |_| MARKS,
                |peer, packet| {
                    if peer == LEFT {
                        back.push(packet.to_vec());
                    }
                },
            );
            self.said[0] += there.len();
            self.said[1] += back.len();
            for packet in there {
                relay.0.receive(&around(&relay.1, 4600), LEFT, &packet);
            }
            for packet in back {
                source.0.receive(&around(&source.1, 1000), RIGHT, &packet);
            }
        }
    }

    /// The source's knowledge of the relay, and the relay's of the source.
    fn known(&mut self, millis: u64) -> [Talked; 2] {
        let now = millis * SECOND / 1000;
        [self.source.0.report(now).remove(0), self.relay.0.report(now).remove(1)]
    }

    /// Both have these disagreements, as (flow, reason), seen from both sides.
    fn assert_refused(&mut self, millis: u64, by_relay: &[(u32, &str)], by_source: &[(u32, &str)]) {
        let of = |talked: &Talked, is_ours| {
            let found = talked.disagreements.iter().filter(|it| it.is_ours == is_ours);
            let mut found = found.map(|it| (it.flow, it.reason)).collect::<Vec<_>>();
            found.sort_unstable();
            found
        };
        let [source, relay] = self.known(millis);
        assert_eq!((of(&relay, true), of(&source, false)), (by_relay.into(), by_relay.into()));
        assert_eq!((of(&source, true), of(&relay, false)), (by_source.into(), by_source.into()));
    }
}

#[test]
fn neighbours_that_agree_know_version_and_clock_and_say_little() {
    let mut pair = Pair::new(vec![source(1)], vec![relay(1)]);
    pair.run(0..60_000);
    pair.assert_refused(60_000, &[], &[]);
    let [source, relay] = pair.known(60_000);
    assert_eq!(source.software, env!("CARGO_PKG_VERSION"));
    assert_eq!((source.clock_ahead_seconds, relay.clock_ahead_seconds), (3600, -3600));
    assert!(source.at.is_some_and(|at| at > 45 * SECOND));
    assert_eq!((source.packet_bytes, relay.packet_bytes), (Some((1472, 1472)), Some((1472, 1472))));
    assert!(pair.said.iter().all(|said| (8..=11).contains(said)), "{:?} in 60 s", pair.said);
}

#[test]
fn mistyped_flow_is_named_at_both_and_settled_by_a_change() {
    let mut pair = Pair::new(vec![source(7)], vec![relay(1)]);
    pair.run(0..3_000);
    pair.assert_refused(3_000, &[(7, "unknown_flow")], &[(1, "not_there")]);
    pair.source.1 = Snapshot { edition: 2, flows: vec![source(1)] };
    pair.run(3_000..20_000);
    // Flow 7 is no longer announced, so it takes time to expire; flow 1 is settled at once.
    let [source, relay] = pair.known(20_000);
    assert_eq!(source.disagreements, []);
    assert!(relay.disagreements.iter().all(|it| (it.flow, it.is_ours) == (7, true)), "{relay:?}");
    pair.run(20_000..40_000);
    pair.assert_refused(40_000, &[], &[]);
}

#[test]
fn relay_that_expects_a_flow_from_elsewhere_and_too_large_packets_are_named() {
    let elsewhere = FlowParams { role: Role::Relay { upstream: RIGHT }, ..relay(1) };
    let large = FlowParams { symbol_bytes: 1450, ..source(2) };
    let mut pair = Pair::new(vec![source(1), large], vec![elsewhere, relay(2)]);
    pair.room = 1300;
    pair.run(0..3_000);
    pair.assert_refused(3_000, &[(1, "not_expected"), (2, "too_large")], &[]);
}

/// A relay that takes shorter symbols than the source sends, and one whose memory does not hold the
/// windows of a stream: both ends name the flow, and it is settled once the source is changed.
#[test]
fn limits_of_a_receiver_are_named_at_both() {
    use recoded_pipeline::params::{FlowCode, StreamParams};
    let stream =
        |symbols| FlowParams { code: FlowCode::Stream(StreamParams::new(symbols)), ..source(2) };
    let long = |symbol_bytes| FlowParams { symbol_bytes, ..source(1) };
    let short = FlowParams { symbol_bytes: 1200, ..relay(1) };
    let mut pair = Pair::new(vec![long(1300), stream(65_536)], vec![short, relay(2)]);
    pair.run(0..5_000);
    pair.assert_refused(5_000, &[(1, "symbol_bytes"), (2, "memory")], &[]);
    // Repeating it leads to no more announcements.
    let said = pair.said;
    pair.run(5_000..65_000);
    assert!(pair.said[1] - said[1] <= 8, "{:?} before, {:?}", said, pair.said);
    pair.source.1 = Snapshot { edition: 2, flows: vec![long(1200), stream(1024)] };
    pair.run(65_000..105_000);
    pair.assert_refused(105_000, &[], &[]);
}

/// A sink that accepts shorter symbols than a source sends over a relay: all three name the flow,
/// whatever its code, and only while the mismatch lasts.
#[test]
fn limit_of_a_sink_travels_over_a_relay_to_the_source() {
    use recoded_pipeline::params::{FlowCode, StreamParams};
    for code in [FlowCode::Rlnc, FlowCode::Stream(StreamParams::new(1024))] {
        let long = FlowParams { symbol_bytes: 1300, code, ..source(1) };
        let relayed = FlowParams { symbol_bytes: 1400, ..relay(1) };
        let mut pair = Pair::new(vec![long], vec![relayed]);
        pair.run(0..2_000);
        pair.assert_refused(2_000, &[], &[]);
        let mut out = [0; ANNOUNCEMENT_BYTES_MAX];
        for millis in (2_000..12_000).step_by(1_000) {
            let entry = Entry::Refuses { flow: 1, refusal: Refusal::SymbolBytes(1000) };
            let len = write_announcement(&Announcement::default(), &[entry], &mut out);
            let (snapshot, now) = (pair.relay.1.clone(), millis * SECOND / 1000);
            let room = |_| 1472;
            let around =
                Surroundings { now, clock: 0, snapshot: &snapshot, room: &room, memory_bytes: 0 };
            pair.relay.0.receive(&around, RIGHT, &out[..len]);
            pair.run(millis..millis + 1_000);
        }
        let [source, _] = pair.known(3_500);
        let named = source.disagreements.iter().find(|it| it.reason == "symbol_bytes");
        let named = named.unwrap_or_else(|| panic!("{source:?}"));
        assert!(named.cause.contains("up to 1000 bytes") && !named.is_ours, "{named:?}");
        pair.run(12_000..90_000);
        pair.assert_refused(90_000, &[], &[]);
    }
}

#[test]
fn thousand_flows_are_said_in_turns_and_all_refused_ones_within_bounds() {
    let flows = |ids: std::ops::Range<u32>| ids.map(source).collect::<Vec<_>>();
    let mut pair = Pair::new(flows(0..1000), (0..1000).map(relay).collect());
    pair.run(0..30_000);
    pair.assert_refused(30_000, &[], &[]);
    // Exactly 63 parts in each of six rounds: two entries for each flow.
    assert!(pair.said[0] <= 6 * 64, "{:?}", pair.said);
    let mut pair = Pair::new(flows(0..1000), Vec::new());
    pair.run(0..30_000);
    let [source, relay] = pair.known(30_000);
    assert_eq!(relay.disagreements.len(), 64);
    assert!(!source.disagreements.is_empty() && source.disagreements.len() <= 64);
}

#[test]
fn neighbour_that_starts_anew_is_told_at_once() {
    let mut pair = Pair::new(vec![source(7)], vec![relay(1)]);
    pair.run(0..50_000);
    let said = pair.said[1];
    pair.source.0 = talk(1, 7);
    pair.run(50_000..52_000);
    assert!(pair.said[1] >= said, "{:?}", pair.said);
    pair.assert_refused(52_000, &[(7, "unknown_flow")], &[(1, "not_there")]);
}

#[test]
fn flood_of_announcements_is_read_in_part_and_leads_to_one_answer_a_second() {
    let snapshot = Snapshot { edition: 1, flows: vec![relay(1)] };
    let mut relay = talk(2, 6);
    let (mut sent, mut out) = (0, [0; ANNOUNCEMENT_BYTES_MAX]);
    for millis in 0..60_000u64 {
        let now = millis * SECOND / 1000;
        let around =
            Surroundings { now, clock: 0, snapshot: &snapshot, room: &|_| 1472, memory_bytes: 0 };
        // Each names new flows.
        let flows = 0..ENTRIES_MAX as u32;
        let entries: Vec<_> =
            flows.map(|flow| Entry::Expects { flow: millis as u32 * 100 + flow }).collect();
        let len = write_announcement(&Announcement::default(), &entries, &mut out);
        relay.receive(&around, LEFT, &out[..len]);
        relay.poll(&around, |_| true, |_| MARKS, |peer, _| sent += usize::from(peer == LEFT));
    }
    // 64 refusals are two parts of a round, and rounds are at least a second apart.
    assert!(sent <= 180, "{sent} answers to 60,000");
    assert_eq!(relay.report(60 * SECOND)[1].disagreements.len(), 64);
}

proptest! {
    #[test]
    fn random_announcements_never_panic_and_stay_bounded(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..40),
        peer in 0u16..4,
    ) {
        let snapshot = Snapshot { edition: 1, flows: vec![relay(1)] };
        let mut relay = talk(2, 6);
        for (mut packet, now) in packets.into_iter().zip(0..) {
            let whole = packet.len() - packet.len() % 8;
            packet.truncate(whole);
            if whole > 3 {
                packet[..4].copy_from_slice(&[0x38, 0, 0, 0]);
            }
            let (snapshot, room) = (&snapshot, &|_| 1472);
            let around = Surroundings { now, clock: 0, snapshot, room, memory_bytes: 0 };
            relay.receive(&around, PeerId(peer), &packet);
            relay.poll(&around, |_| true, |_| MARKS, |_, _| {});
        }
        for talked in relay.report(100) {
            prop_assert!(talked.disagreements.len() <= 128);
        }
    }
}
