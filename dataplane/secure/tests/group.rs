//! A source and three sinks: all can read, until one is removed; recorded messages are refused.

#![forbid(unsafe_code)]

mod chance;

use std::collections::BTreeMap;
use std::convert::Infallible;

use chance::Chance;
use recoded_secure::{
    ENVELOPE_BYTES, Entropy, GROUP_BYTES, GroupReceiver, GroupSender, HEADER_BYTES, KeyDirection,
    PresharedKey, PrivateKey, PublicKey, Refused, Remembered, Suite, group_way, is_grant, is_group,
    open_edge, write_group,
};

const FLOW: u32 = 9;
const MILLI: u64 = 1_000_000;
const SUITE: Suite = Suite::Aes128Gcm;

fn private(byte: u8) -> PrivateKey {
    PrivateKey::generate(&Entropy::new([byte; 64]))
}

fn public(byte: u8) -> PublicKey {
    private(byte).public()
}

/// Source 1, and sinks.
struct Net {
    source: GroupSender,
    sinks: Vec<GroupReceiver>,
    chance: Chance,
    recorded: Vec<[u8; GROUP_BYTES]>,
}

impl Net {
    fn new(seed: u64) -> Net {
        let mut chance = Chance(seed);
        let keys = [2, 3, 4].map(public).to_vec();
        let source = GroupSender::new(private(1), FLOW, keys, SUITE, None, &chance.entropy());
        let sink = |byte| GroupReceiver::new(private(byte), public(1), FLOW, None);
        Net { source, sinks: [2, 3, 4].map(sink).into(), chance, recorded: Vec::new() }
    }

    /// Runs one millisecond: each group message that is not lost reaches every sink. Returns which
    /// sinks open a packet.
    fn step(&mut self, milli: u64, loss: u64) -> Option<Vec<bool>> {
        let now = milli * MILLI;
        let seed = self.chance.next();
        let count = std::cell::Cell::new(0);
        let fresh = || {
            count.set(count.get() + 1);
            Ok::<_, Infallible>(Chance(seed ^ count.get() << 48).entropy())
        };
        let turn = self.source.poll(now, now + 1, fresh, &mut |_, _| true);
        let Ok(Ok(turn)) = turn else { panic!("{turn:?}") };
        if turn.send > 0 {
            for telling in self.source.tellings() {
                self.recorded.push(*telling);
                assert!(is_group(telling) && !is_grant(telling));
                for sink in self.sinks.iter_mut().filter(|sink| sink.is_for_this(telling)) {
                    if self.chance.below(100) >= loss {
                        sink.receive(now, telling, &mut |_, _| true).expect("of its source");
                    }
                }
            }
        }
        let envelope = self.packet(milli)?;
        let opens = |sink: &GroupReceiver| {
            let mut envelope = envelope.clone();
            open_edge(&mut sink.ring().clone(), &mut envelope, &FLOW.to_be_bytes()).is_ok()
        };
        Some(self.sinks.iter().map(opens).collect())
    }

    fn packet(&self, number: u64) -> Option<Vec<u8>> {
        let epoch = self.source.ring().sending()?;
        let mut envelope = vec![0; ENVELOPE_BYTES + 8];
        envelope[HEADER_BYTES..][..8].copy_from_slice(&number.to_be_bytes());
        epoch.keys.seal(&mut envelope, &FLOW.to_be_bytes()).expect("keys to send with");
        Some(envelope)
    }
}

#[test]
fn all_sinks_read_every_packet_over_changes_of_keys_and_losses() {
    let seed = 0x6707_50de;
    println!("seed {seed:#x}");
    let mut net = Net::new(seed);
    let mut packets = 0;
    for milli in 0..45_000 {
        let opened = net.step(milli, 33);
        // The first keys are announced three times before they are used.
        if let Some(opened) = opened.filter(|_| milli > 2000) {
            assert_eq!(opened, [true; 3], "{milli}");
            packets += 1;
        }
    }
    assert_eq!(packets, 42_999);
    assert_eq!(net.source.epochs(), 5, "one every ten seconds");
}

#[test]
fn sink_that_left_reads_nothing_a_second_later_and_the_others_lose_nothing() {
    let mut net = Net::new(5);
    (0..5000).for_each(|milli| drop(net.step(milli, 0)));
    assert!(!net.source.set_sinks(5000 * MILLI, [2, 3, 4].map(public).to_vec()));
    assert!(net.source.set_sinks(5000 * MILLI, [2, 4].map(public).to_vec()));
    for milli in 5000..26_000 {
        let opened = net.step(milli, 0).expect("keys");
        assert!(opened[0] && opened[2], "{milli}: {opened:?}");
        assert!(!opened[1] || milli <= 6000, "{milli}: who left reads");
    }
    // It is added back, and can read again a second later, but nothing from in between.
    net.source.set_sinks(26_000 * MILLI, [2, 3, 4].map(public).to_vec());
    let mut between = net.packet(1).expect("keys");
    let last = (26_000..28_000).filter_map(|milli| net.step(milli, 0)).last();
    assert_eq!(last.expect("keys"), [true; 3]);
    let mut ring = net.sinks[1].ring().clone();
    let opened = open_edge(&mut ring, &mut between, &FLOW.to_be_bytes());
    assert_eq!(opened.expect_err("of an epoch without it"), Refused::UnknownKey);
}

/// A change while the next epoch is already announced, to the removed sink as well.
#[test]
fn epoch_that_was_told_to_who_left_is_never_used() {
    let mut net = Net::new(6);
    (0..10_500).for_each(|milli| drop(net.step(milli, 0)));
    assert_eq!(net.sinks[1].epochs(), 2, "the second one is announced, and not yet used");
    net.source.set_sinks(10_500 * MILLI, [2, 4].map(public).to_vec());
    for milli in 10_500..30_000 {
        let opened = net.step(milli, 0).expect("keys");
        assert!(opened[0] && opened[2], "{milli}: {opened:?}");
        assert!(!opened[1] || milli <= 11_500, "{milli}: who left reads");
    }
}

#[test]
fn sink_that_starts_again_believes_nothing_recorded_and_no_other_sink_reads_its_telling() {
    let mut net = Net::new(7);
    let mut kept: BTreeMap<[u8; 16], Remembered> = BTreeMap::new();
    (0..12_000).for_each(|milli| drop(net.step(milli, 0)));
    let mut first = GroupReceiver::new(private(2), public(1), FLOW, None);
    let own: Vec<_> = net.recorded.iter().filter(|it| first.is_for_this(*it)).copied().collect();
    for telling in &own {
        let mut keep = |way: &KeyDirection, it| kept.insert(way.id(), it).is_none_or(|_| true);
        first.receive(0, telling, &mut keep).expect("its own");
    }
    assert_eq!(first.epochs(), 2);
    let newest = kept.get(&group_way(public(1), FLOW).id()).copied();
    let mut again = GroupReceiver::new(private(2), public(1), FLOW, newest);
    assert!(own.iter().all(|it| !again.receive(0, it, &mut |_, _| true).unwrap_or(false)));
    assert!(again.ring().epochs().next().is_none());
    for other in [(private(3), public(1), FLOW), (private(2), public(3), FLOW)] {
        let mut other = GroupReceiver::new(other.0, other.1, other.2, None);
        assert!(other.receive(0, &own[0], &mut |_, _| true).is_err());
    }
    let mut elsewhere = GroupReceiver::new(private(2), public(1), FLOW + 1, None);
    let refused = elsewhere.receive(0, &own[0], &mut |_, _| true);
    assert_eq!(refused, Err(Refused::OtherPeer), "of another flow");
    let mut forgetful = GroupReceiver::new(private(2), public(1), FLOW, None);
    assert_eq!(forgetful.receive(0, &own[0], &mut |_, _| false), Err(Refused::NotKept));
    for place in 0..GROUP_BYTES {
        let mut changed = own[0];
        changed[place] ^= 0x10;
        let now = place as u64 * 1000 * MILLI;
        assert!(forgetful.receive(now, &changed, &mut |_, _| true).is_err(), "byte {place}");
    }
}

/// Anyone who knew the sink's public key could once form messages that spent the tries of the
/// neighbour that brought them, and the source's were not read then.
#[test]
fn forged_tellings_cost_a_hash_and_displace_none() {
    let mut net = Net::new(8);
    (0..12_000).for_each(|milli| drop(net.step(milli, 0)));
    let mut sink = GroupReceiver::new(private(2), public(1), FLOW, None);
    let mut own = net.recorded.iter().filter(|it| sink.is_for_this(*it));
    let genuine = own.next().expect("one for this sink");
    // From another node, which knows the keys that are public.
    let mut chance = Chance(8);
    let opening = *genuine.last_chunk().expect("as long as an opening");
    let psk = PresharedKey::generate(&chance.entropy());
    let forged = write_group(&private(9), &public(2), FLOW, &psk, &opening, &chance.entropy());
    let forged = forged.expect("a telling");
    assert!(!sink.is_for_this(&forged));
    let mut receive = |message: &[u8]| sink.receive(0, message, &mut |_, _| true);
    assert!((0..100).all(|_| receive(&forged) == Err(Refused::OtherPeer)));
    assert_eq!(receive(genuine), Ok(true));
}
