//! Cost of sealing in the pipeline: a packet goes from the tunnel of a source to that of a sink,
//! with envelopes and without.

use std::hint::black_box;

use recoded_gf::FieldOrder;
use recoded_pipeline::egress::{Keys, Unsealed};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{
    FlowParams, Nanos, PeerId, Redundancy, Role, ShardId, Snapshot, TunnelId,
};
use recoded_pipeline::recorder::Recorder;
use recoded_pipeline::{Datagram, Pipeline};
use recoded_secure::{HEADER_BYTES, Opener, PACKETS_MAX, Sealer, Suite};
use recoded_wire::frames::Span;

use super::work::{PacketWork, ends, named, packets, suite_name};

const SHARD: ShardId = ShardId { flow: 7, shard: 0 };
const PEER: PeerId = PeerId(0);
const FRAMES: usize = 256;
const FRAME_BYTES: usize = 2048;
/// Bytes of a frame in addition to the packet: headers and headroom.
const AROUND_BYTES: usize = 512;
/// Packet interval: 12 Gbit/s of 1500 bytes.
const PACKET_NANOS: Nanos = 1000;
/// Longest packet that a frame holds.
const PACKET_BYTES_MAX: usize = FRAME_BYTES - AROUND_BYTES;

/// A flow in the clear, and one for each suite; none where packets are longer than a frame.
pub fn all(bytes: usize) -> Vec<Box<dyn PacketWork>> {
    if bytes > PACKET_BYTES_MAX {
        return Vec::new();
    }
    [None, Some(Suite::Aes128Gcm), Some(Suite::ChaCha20Poly1305)]
        .map(|suite| path(bytes, suite))
        .into()
}

fn path(bytes: usize, suite: Option<Suite>) -> Box<dyn PacketWork> {
    let mut path = Path::new(bytes, suite);
    let mut packets = packets(bytes);
    for packet in &mut packets {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    }
    packets.iter().for_each(|packet| path.carry(packet));
    assert_eq!(path.outputs.delivered_count, packets.len() as u64, "packets were lost");
    let how =
        suite.map_or("in the clear".into(), |suite| format!("sealed by {}", suite_name(suite)));
    named(format!("pipeline, source and sink, {how}"), move |number| {
        if let Some(keys) = &mut path.outputs.keys
            && keys.sealer.packets() == PACKETS_MAX
        {
            (keys.sealer, keys.opener) = ends(suite.unwrap_or(Suite::ALL[0]));
        }
        path.carry(&packets[number]);
        black_box(path.outputs.delivered_count);
    })
}

/// The keys of both ends.
struct Ends {
    sealer: Sealer,
    opener: Opener,
}

impl Keys for Ends {
    fn seal(&mut self, _shard: ShardId, packet: &[u8], out: &mut [u8]) -> Result<(), Unsealed> {
        out[HEADER_BYTES..][..packet.len()].copy_from_slice(packet);
        self.sealer.seal(out, &[1; 4]).map_err(|_| Unsealed::NoKeys)
    }

    fn unseal<'a>(&mut self, _shard: ShardId, sealed: &'a mut [u8]) -> Result<&'a [u8], Unsealed> {
        let packet = self.opener.open(sealed, &[1; 4]).map_err(|_| Unsealed::Refused)?;
        Ok(packet)
    }
}

/// A source and a sink, which share frames, without a link between them.
struct Path {
    source: Pipeline,
    sink: Pipeline,
    frames: HeapFrames,
    outputs: Recorder<Ends>,
    arriving: Vec<Span>,
    now: Nanos,
}

impl Path {
    fn new(bytes: usize, suite: Option<Suite>) -> Self {
        let pipeline = |role| {
            let flow = FlowParams::new(SHARD.flow, role, vec![PEER]);
            // A packet is a symbol, and each symbol leaves once.
            let mut flow = FlowParams {
                sealed: suite.is_some(),
                field: FieldOrder::TwoFiftySix,
                redundancy: Redundancy::Fixed(1.0),
                repair: false,
                generations: 4,
                ..flow
            };
            flow.symbol_bytes = bytes + flow.framing_bytes();
            Pipeline::new(&Snapshot { edition: 1, flows: vec![flow] }, 1)
        };
        let (sealer, opener) = ends(suite.unwrap_or(Suite::ALL[0]));
        Self {
            source: pipeline(Role::Source { tunnel: TunnelId(0) }),
            sink: pipeline(Role::Sink { tunnel: TunnelId(1), upstream: PEER }),
            frames: HeapFrames::new(FRAMES, FRAME_BYTES),
            outputs: Recorder::counting(FRAMES, Some(Ends { sealer, opener })),
            arriving: Vec::with_capacity(FRAMES),
            now: 0,
        }
    }

    /// Sends one packet, and delivers all packets of the source to the sink.
    fn carry(&mut self, packet: &[u8]) {
        let Self { source, sink, frames, outputs, arriving, now } = self;
        *now += PACKET_NANOS;
        source.ingress(frames, outputs, SHARD, packet, *now);
        arriving.extend(outputs.sent.drain(..).map(|sent| sent.span));
        for span in arriving.drain(..) {
            sink.receive(frames, outputs, Datagram::best_effort(Some(PEER), span), *now);
        }
        sink.tick(frames, outputs, *now);
        // Reports to the source.
        outputs.release(frames);
    }
}
