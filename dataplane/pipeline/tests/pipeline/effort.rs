//! Bound on the work of one call: blocks of thousands of symbols are coded and decoded in parts,
//! which give other packets and flows their turns. Work is counted in bytes multiplied, not in
//! time.

use crate::common::{Outputs, SHARD, UP, ip_packet, params};
use recoded_pipeline::memory::{HeapFrames, Probe};
use recoded_pipeline::params::{
    BatsParams, FlowCode, FlowParams, Interleave, Profile, Redundancy, Role, Snapshot, TunnelId,
};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::frames::Span;

const SYMBOL_BYTES: usize = 1300;
const FRAMES: usize = 16_384;

/// Most bytes multiplied in a call: its effort and one part more, three times if a packet continues
/// two blocks and timers act.
const BYTES_MAX: usize = 4 << 20;

/// Bytes multiplied.
struct Multiplied(usize);

impl Probe for Multiplied {
    fn combining(&mut self, sources: &[Span], destinations: &[Span]) {
        let bytes = sources.first().map_or(0, |source| usize::from(source.len));
        self.0 += sources.len() * destinations.len() * bytes;
    }
}

type Counted = HeapFrames<Multiplied>;

struct Host {
    pipeline: Pipeline,
    frames: Counted,
    outputs: Outputs,
    /// Most bytes multiplied in one call.
    most: usize,
}

impl Host {
    fn new(params: FlowParams) -> Host {
        let snapshot = Snapshot { edition: 1, flows: vec![params] };
        let frames = HeapFrames::probed(FRAMES, 2048, Multiplied(0));
        let pipeline = Pipeline::new(&snapshot, 1);
        Host { pipeline, frames, outputs: Outputs::default(), most: 0 }
    }

    fn call(&mut self, act: impl FnOnce(&mut Pipeline, &mut Counted, &mut Outputs)) {
        self.frames.probe.0 = 0;
        act(&mut self.pipeline, &mut self.frames, &mut self.outputs);
        self.most = self.most.max(self.frames.probe.0);
    }

    /// A timer call, as after each packet; if `all`, repeated until nothing is left to do.
    fn tick(&mut self, all: bool, now: u64) {
        let mut goes_on = true;
        while std::mem::take(&mut goes_on) {
            self.call(|pipeline, frames, outputs| {
                let due = pipeline.tick(frames, outputs, now);
                goes_on = all && due.is_some_and(|due| due <= now);
            });
        }
    }

    fn take_sent(&mut self) -> Vec<Vec<u8>> {
        let sent = self.outputs.take_sent(&mut self.frames);
        sent.into_iter().map(|(_, bytes)| bytes).collect()
    }
}

fn flow(role: Role, profile: Profile, source_symbols: usize) -> FlowParams {
    let (generator_bits, interleave) = (8, Interleave::Fixed(1));
    let bats = BatsParams { source_symbols, profile, generator_bits, interleave };
    let generations = 4 * source_symbols / 16;
    let redundancy = Redundancy::Fixed(1.4);
    let code = FlowCode::Bats(bats);
    let base = FlowParams { symbol_bytes: SYMBOL_BYTES, generations, redundancy, ..params(role) };
    FlowParams { code, ..base }
}

/// A source once computed the precode of a block in the call that closed it, 16 MB for 1024
/// symbols; a sink solved a block in the call that completed its rank, some 50 MB.
#[test]
fn no_call_at_source_or_sink_of_large_blocks_multiplies_more_than_its_part() {
    for (profile, symbols) in [(Profile::Precoded, 1024), (Profile::CyclicShift, 256)] {
        let mut source = Host::new(flow(Role::Source { tunnel: TunnelId(0) }, profile, symbols));
        let role = Role::Sink { tunnel: TunnelId(0), upstream: UP };
        let mut sink = Host::new(flow(role, profile, symbols));
        let count = 3 * symbols as u32;
        let mut nth = 0;
        let mut carry = |source: &mut Host, now: u64| {
            for packet in source.take_sent() {
                nth += 1;
                // Every seventh is lost.
                let Some(span) = (nth % 7 != 0).then(|| sink.frames.receive(&packet)) else {
                    continue;
                };
                let datagram = Datagram::best_effort(Some(UP), span.expect("a frame"));
                sink.call(|pipeline, frames, outputs| {
                    pipeline.receive(frames, outputs, datagram, now);
                });
                sink.tick(false, now);
                sink.take_sent();
            }
            sink.tick(true, now);
        };
        for number in 0..count {
            let (packet, now) = (ip_packet(SYMBOL_BYTES - 2, number), u64::from(number) * 40_000);
            source.call(|pipeline, frames, outputs| {
                pipeline.ingress(frames, outputs, SHARD, &packet, now);
            });
            source.tick(false, now);
            carry(&mut source, now);
        }
        for milli in 0..100 {
            let now = u64::from(count) * 40_000 + milli * 1_000_000;
            source.tick(true, now);
            carry(&mut source, now);
        }
        let delivered = std::mem::take(&mut sink.outputs.delivered);
        let expected: Vec<Vec<u8>> = (0..count).map(|n| ip_packet(SYMBOL_BYTES - 2, n)).collect();
        assert!(delivered == expected, "{profile:?}: {} of {count} packets", delivered.len());
        for (host, most) in [("source", source.most), ("sink", sink.most)] {
            assert!(most <= BYTES_MAX, "{profile:?}: {most} bytes in a call of the {host}");
        }
    }
}
