//! Cost of keys for a stream: a packet goes from the tunnel of a source over a relay to that of a
//! sink. It passes the real pipelines, with reports on the return path and all key operations of
//! neighbours and ends. The cost of a relay or a hop is the difference of two rows.

use std::hint::black_box;
use std::sync::Arc;

use recoded_pipeline::egress::{self, Formed, KeySerial, TaggedUnit, Unsealed, Untagged};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{
    FlowCode, FlowParams, Nanos, PeerId, Role, ShardId, Snapshot, StreamParams, TunnelId,
};
use recoded_pipeline::recorder::{Recorder, Sent};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_secure::{
    HEADER_BYTES, HopDigest, HopReceiver, HopSender, Opener, PACKETS_MAX, SUBSET_MIN, Sealer,
    Secrets, Strength, Suite, TRAILER_BYTES, TagKey, UnitMasks,
};
use recoded_wire::frames::{Frames, Span};

use super::work::{PacketWork, ends, named, packets, secrets};

const SHARD: ShardId = ShardId { flow: 7, shard: 0 };
const DOWN: PeerId = PeerId(0);
const UP: PeerId = PeerId(1);
const FRAMES: usize = 1024;
const FRAME_BYTES: usize = 2048;
/// Bytes of a frame in addition to the packet: headers, headroom, envelope and tags.
const AROUND_BYTES: usize = 512;
/// Packet interval: 120 Mbit/s of 1500 bytes, the initial rate of streams.
const PACKET_NANOS: Nanos = 100_000;
/// Packets that may be late on a hop.
const WINDOW: usize = 1 << 14;

/// Protection of the flow.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Keys {
    None,
    Hops,
    Full,
    /// With half of the columns at the relay.
    FullAndRelay,
    /// With sixteen columns, and a quarter of them at the relay.
    Strict,
}

/// Each of them; none where packets are longer than a frame.
pub fn all(bytes: usize) -> Vec<Box<dyn PacketWork>> {
    if bytes > FRAME_BYTES - AROUND_BYTES {
        return Vec::new();
    }
    [
        (Keys::None, "in the clear"),
        (Keys::Hops, "hop tags"),
        (Keys::Full, "auth = full"),
        (Keys::FullAndRelay, "full, 4 columns verified at the relay"),
        (Keys::Strict, "full and strict, 4 of 16 columns verified at the relay"),
    ]
    .map(|(keys, name)| line(bytes, keys, name))
    .into()
}

fn line(bytes: usize, keys: Keys, name: &str) -> Box<dyn PacketWork> {
    let mut line = Line::new(bytes, keys);
    let mut packets = packets(bytes);
    for packet in &mut packets {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
        packet[9] = 17;
    }
    // The rate is learned first.
    for _ in 0..8 {
        packets.iter().for_each(|packet| line.carry(packet));
    }
    let before = line.ends[2].delivered_count;
    packets.iter().for_each(|packet| line.carry(packet));
    assert_eq!(line.ends[2].delivered_count - before, packets.len() as u64, "packets were lost");
    named(format!("stream, source, relay and sink, {name}"), move |number| {
        line.renew();
        line.carry(&packets[number]);
        black_box(line.ends[2].delivered_count);
    })
}

/// A node's keys of the flow.
struct End {
    sealer: Sealer,
    opener: Opener,
    tags: TagKey,
    masks: UnitMasks,
}

impl End {
    fn new(strength: Strength, columns: usize) -> Self {
        let seeds = secrets().column_seeds(strength);
        let tags = TagKey::new(strength, &seeds[..columns], FRAME_BYTES).expect("a key");
        let (sealer, opener) = ends(Suite::preferred());
        let masks = UnitMasks::new(&tags, 256);
        Self { sealer, opener, tags, masks }
    }
}

impl egress::Keys for End {
    fn seal(&mut self, _shard: ShardId, packet: &[u8], out: &mut [u8]) -> Result<(), Unsealed> {
        out[HEADER_BYTES..][..packet.len()].copy_from_slice(packet);
        self.sealer.seal(out, &[1; 4]).map_err(|_| Unsealed::NoKeys)
    }

    fn unseal<'a>(&mut self, _shard: ShardId, sealed: &'a mut [u8]) -> Result<&'a [u8], Unsealed> {
        let packet = self.opener.open(sealed, &[1; 4]).map_err(|_| Unsealed::Refused)?;
        Ok(packet)
    }

    fn tag_key(&mut self, _shard: ShardId) -> Option<u8> {
        Some(0)
    }

    fn tag(
        &mut self,
        _key: u8,
        unit: &TaggedUnit,
        index: usize,
        symbol: &mut [u8],
    ) -> Result<(), Untagged> {
        let Self { tags, masks, .. } = self;
        masks.tag(tags, unit, index, symbol).map_err(|_| Untagged::NoKeys)
    }

    fn verify(
        &mut self,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<KeySerial, Untagged> {
        let Self { tags, masks, .. } = self;
        let verified = masks.verify(tags, unit, formed, symbol);
        verified.map(|()| KeySerial(0)).map_err(|_| Untagged::Refused)
    }
}

/// One direction of a hop.
struct Hop {
    sender: HopSender,
    receiver: HopReceiver,
}

impl Hop {
    fn new(number: u8) -> Self {
        let secrets = Secrets::extract(&[number], &[7; 32]);
        let digest = Arc::new(HopDigest::new(&secrets, FRAME_BYTES));
        Self {
            sender: HopSender::new(&secrets, 1, 0, &digest),
            receiver: HopReceiver::new(&secrets, 1, 0, &digest, WINDOW),
        }
    }

    /// One hop: the sender seals a packet, whose frame has tailroom, and the receiver checks it.
    fn cross(&self, bytes: &mut [u8], port: u16) {
        self.sender.seal(bytes, port).expect("sealed");
        let checked = self.receiver.check(bytes, port).expect("verifies");
        black_box(self.receiver.accept(&checked).expect("comes once"));
    }
}

/// A source, a relay and a sink, which share frames, without links between them.
struct Line {
    nodes: [Pipeline; 3],
    ends: [Recorder<End>; 3],
    frames: HeapFrames,
    /// Indexed by the sending node, then by whether the packet goes towards the sink.
    hops: Option<[[Hop; 2]; 3]>,
    on_the_way: Vec<(usize, Sent)>,
    now: Nanos,
}

impl Line {
    fn new(bytes: usize, keys: Keys) -> Self {
        let is_full = matches!(keys, Keys::Full | Keys::FullAndRelay | Keys::Strict);
        let relay_verifies = matches!(keys, Keys::FullAndRelay | Keys::Strict);
        let strength = match keys {
            Keys::Strict => Strength::Strict,
            _ => Strength::Standard,
        };
        let node = |role: Role| {
            let is_relay = matches!(role, Role::Relay { .. });
            let flow = FlowParams::new(SHARD.flow, role, vec![DOWN]);
            let mut flow = FlowParams {
                code: FlowCode::Stream(StreamParams::new(1024)),
                sealed: is_full,
                tagged: is_full && (!is_relay || relay_verifies),
                strict: strength == Strength::Strict,
                ..flow
            };
            flow.symbol_bytes = bytes + 64;
            Pipeline::new(&Snapshot { edition: 1, flows: vec![flow] }, 1)
        };
        let hops = |node: u8| [0, 1].map(|way| Hop::new(2 * node + way));
        Self {
            nodes: [
                Role::Source { tunnel: TunnelId(0) },
                Role::Relay { upstream: UP },
                Role::Sink { tunnel: TunnelId(0), upstream: UP },
            ]
            .map(node),
            ends: [strength.columns(), SUBSET_MIN, strength.columns()]
                .map(|columns| Recorder::counting(FRAMES, Some(End::new(strength, columns)))),
            frames: HeapFrames::new(FRAMES, FRAME_BYTES),
            hops: (keys != Keys::None).then(|| [0, 1, 2].map(hops)),
            on_the_way: Vec::with_capacity(FRAMES),
            now: 1_000_000_000,
        }
    }

    /// Fresh keys of envelopes and hops where the old ones are used up.
    fn renew(&mut self) {
        let [source, _, sink] = self.ends.each_mut().map(|end| end.keys.as_mut());
        if let (Some(source), Some(sink)) = (source, sink)
            && source.sealer.packets() == PACKETS_MAX
        {
            (source.sealer, sink.opener) = ends(Suite::preferred());
        }
    }

    /// Sends one packet, and delivers all resulting packets.
    fn carry(&mut self, packet: &[u8]) {
        self.now += PACKET_NANOS;
        let Self { nodes, ends, frames, now, .. } = self;
        nodes[0].ingress(frames, &mut ends[0], SHARD, packet, *now);
        self.travel(0);
        for node in 0..3 {
            self.nodes[node].tick(&mut self.frames, &mut self.ends[node], self.now);
            self.travel(node);
        }
    }

    /// Delivers the packets that a node sent, and all packets sent in response.
    fn travel(&mut self, node: usize) {
        let Self { nodes, ends, frames, hops, on_the_way, now } = self;
        let leave = |end: &mut Recorder<End>, node: usize, way: &mut Vec<_>| {
            way.extend(end.sent.drain(..).map(|sent| (node, sent)));
        };
        leave(&mut ends[node], node, on_the_way);
        while let Some((from, Sent { hop, span, outer })) = on_the_way.pop() {
            let is_down = hop == DOWN;
            if let Some(hops) = hops {
                let tagged = Span { len: span.len + TRAILER_BYTES as u16, ..span };
                hops[from][usize::from(is_down)].cross(frames.bytes_mut(tagged), outer.source_port);
            }
            let to = if is_down { from + 1 } else { from - 1 };
            let datagram = Datagram::best_effort(Some(if is_down { UP } else { DOWN }), span);
            nodes[to].receive(frames, &mut ends[to], datagram, *now);
            leave(&mut ends[to], to, on_the_way);
        }
    }
}
