//! Differences between codes: random parameters, state at the edges of a flow, delivery promises.

use std::fmt;

use recoded_gf::FieldOrder;
use recoded_pipeline::open::SIZE_MIN;
#[cfg(feature = "bats")]
use recoded_pipeline::params::{BatsParams, Interleave, Profile};
use recoded_pipeline::params::{FlowCode, FlowParams, Redundancy, Role, StreamParams};
use recoded_wire::header::PacketType;
use recoded_wire::stream::STREAM_LOG2_MIN;

use crate::random::Random;
use crate::traffic::{TUNNEL, Traffic, UP};

/// Most frames that a relay or an edge needs in addition to its table.
const FRAMES_SPARE: usize = 256;

/// Fewest symbols that nodes of a stream keep.
const STREAM_MIN: usize = 1 << STREAM_LOG2_MIN;

/// Which code a scenario's flow uses.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Code {
    /// Random linear network coding, generation by generation.
    Rlnc,
    /// BATS, block by block.
    #[cfg(feature = "bats")]
    Bats,
    /// A sliding window with per-hop retransmission; with a fixed redundancy an open loop.
    Stream,
}

/// Codes to draw from. Streams count twice: those with a fixed redundancy are open loops.
pub(crate) const DRAWN: &[Code] = &[
    Code::Rlnc,
    #[cfg(feature = "bats")]
    Code::Bats,
    Code::Stream,
    Code::Stream,
];

impl Code {
    /// Every code.
    pub const ALL: &[Code] = &[
        Code::Rlnc,
        #[cfg(feature = "bats")]
        Code::Bats,
        Code::Stream,
    ];

    /// Usual parameters of flows of this code.
    pub(crate) fn usual(self) -> FlowCode {
        match self {
            Code::Rlnc => FlowCode::Rlnc,
            #[cfg(feature = "bats")]
            Code::Bats => FlowCode::Bats(BatsParams {
                source_symbols: 96,
                profile: Profile::CyclicShift,
                generator_bits: 8,
                interleave: Interleave::Auto,
            }),
            Code::Stream => FlowCode::Stream(StreamParams::new(1024)),
        }
    }

    /// Packet type of its packets.
    pub(crate) fn packet_type(self) -> PacketType {
        self.usual().packet_type()
    }

    /// Draws parameters; if `is_fair`, the code can repair the losses of the network.
    pub(crate) fn draw(self, random: &mut Random, is_fair: bool) -> FlowCode {
        match self {
            Code::Rlnc => FlowCode::Rlnc,
            #[cfg(feature = "bats")]
            Code::Bats => FlowCode::Bats(BatsParams {
                source_symbols: random.pick(&[1, 2, 8, 32, 64, 100, 128]),
                profile: random.pick(&Profile::ALL),
                generator_bits: random.pick(&[1, 2, 3, 4, 8]),
                interleave: match random.among(0..=3) {
                    0 => Interleave::Fixed(random.among(1..=6) as u8),
                    _ => Interleave::Auto,
                },
            }),
            Code::Stream => {
                let sizes: &[usize] = if is_fair { &[256, 1024] } else { &[1, 64, 1024] };
                FlowCode::Stream(StreamParams::new(random.pick(sizes)))
            }
        }
    }

    /// Generation or batch sizes to draw from, for a line that is longer than most (`is_long`) or
    /// endless (`is_endless`).
    pub(crate) fn sizes(self, is_long: bool, is_endless: bool) -> &'static [usize] {
        match (self, is_long, is_endless) {
            #[cfg(feature = "bats")]
            (Code::Bats, false, _) => &[1, 3, 4, 8, 16, 16, 16, 32, 64, 128],
            #[cfg(feature = "bats")]
            (Code::Bats, true, _) => &[1, 4, 8, 16, 16, 16],
            (Code::Stream, ..) => &[1],
            (_, false, _) => &[1, 2, 3, 5, 8, 16, 16, 16, 32, 64, 100, 256],
            (_, true, false) => &[1, 2, 5, 8, 16, 16, 16, 32, 64],
            (_, true, true) => &[1, 4, 8, 16, 16, 16],
        }
    }

    /// Fields to draw from.
    pub(crate) fn fields(self) -> &'static [FieldOrder] {
        match self {
            Code::Stream => &[FieldOrder::TwoFiftySix],
            _ => &FieldOrder::ALL,
        }
    }

    /// Whether a source keeps its sent packets when the size changes.
    pub(crate) fn may_change_size(self) -> bool {
        self == Code::Rlnc
    }

    /// Maximum mean burst of losses at which everything is delivered. A block of one symbol gets
    /// some twenty packets, repairs included: with a mean of four, one burst in a few hundred is
    /// longer.
    pub(crate) fn burst_max(self) -> f64 {
        match self {
            Code::Rlnc => 4.0,
            _ => 2.0,
        }
    }

    /// Smallest symbol.
    pub(crate) fn symbol_bytes_min(self) -> usize {
        match self {
            Code::Stream => Traffic::BYTES_MIN,
            _ => Traffic::BYTES_MIN + 2,
        }
    }
}

/// Symbols that are coded together, of a generation or batch of `size`.
pub(crate) fn unit(code: &FlowCode, size: usize) -> usize {
    match code {
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => bats.source_symbols,
        FlowCode::Rlnc => size,
        FlowCode::Stream(_) => 1,
    }
}

/// Longest IP packet for symbols of `symbol_bytes`, coded `unit` at a time.
pub(crate) fn bytes_max(code: &FlowCode, unit: usize, symbol_bytes: usize) -> usize {
    match code {
        FlowCode::Stream(_) => symbol_bytes,
        _ => unit * symbol_bytes - 2,
    }
}

/// Whether the hops of a flow send without reports.
pub(crate) fn is_open_loop(code: &FlowCode, redundancy: Redundancy) -> bool {
    code.is_stream() && matches!(redundancy, Redundancy::Fixed(_))
}

/// Packets that may be missing although all are promised. One unit in ten thousand is not
/// delivered, so the `fitting` packets of one unit may be missing; a stream promises all. In an
/// open loop, losses beyond the redundancy are final.
pub(crate) fn missing_max(
    code: &FlowCode,
    redundancy: Redundancy,
    traffic: &Traffic,
    fitting: usize,
) -> u64 {
    match code {
        _ if is_open_loop(code, redundancy) => u64::from(traffic.packets) / 33,
        FlowCode::Stream(_) => 0,
        _ => fitting as u64,
    }
}

/// Generations, blocks or packets that a source and a sink hold.
pub(crate) fn table(params: &FlowParams) -> usize {
    match &params.code {
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => params.blocks(bats),
        FlowCode::Rlnc => params.sink_generations(),
        FlowCode::Stream(stream) => stream.window_symbols,
    }
}

/// Enough frames for every node.
pub(crate) fn frames(params: &FlowParams) -> usize {
    let generations = FRAMES_SPARE + 3 * params.generations * params.generation_size;
    match &params.code {
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => {
            // Blocks with their precode, and the packets of batches that take turns.
            let blocks = 4 * params.blocks(bats) * bats.source_symbols;
            generations.max(blocks) + 8 * (bats.source_symbols + params.generation_size)
        }
        _ => generations,
    }
}

/// Bounds from the parameters of everything that a scenario's source sends, whatever packets
/// announce.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Bounds {
    /// Symbols that are coded together, and two batches.
    pub unit: usize,
    /// Cap of packets per symbol.
    pub redundancy: f64,
    /// Generations, blocks or packets that an edge's stage holds.
    pub table: usize,
    /// Combinations per symbol of a stream on one hop.
    pub combinations: f64,
    /// Estimated bytes of the largest stage, at least 32 MiB.
    pub stage_bytes: usize,
    /// Units that an edge holds per shard; `None` if packets may announce any size.
    pub room: Option<usize>,
    /// Stages of a relay: one table serves all codes but streams.
    pub relay_stages: usize,
}

impl Bounds {
    /// Combines the bounds of all these parameters; `is_genuine` if nothing else sends packets.
    pub(crate) fn of<'a>(params: impl Iterator<Item = &'a FlowParams>, is_genuine: bool) -> Bounds {
        let mut bounds = Bounds {
            unit: 0,
            redundancy: 0.0,
            table: 0,
            combinations: 1.0,
            stage_bytes: 32 << 20,
            room: None,
            relay_stages: if is_genuine { 1 } else { 2 },
        };
        for params in params {
            if matches!(params.code, FlowCode::Stream(_)) {
                bounds.relay_stages = 2;
            }
            // Damaged and forged packets may announce an open loop.
            if !is_genuine || is_open_loop(&params.code, params.redundancy) {
                let fixed = match params.redundancy {
                    Redundancy::Fixed(factor) => factor,
                    Redundancy::Auto => 1.0,
                };
                let most = fixed.max(params.redundancy_max);
                bounds.combinations = bounds.combinations.max(most);
            }
            let size = params.generation_size;
            bounds.unit = bounds.unit.max(unit(&params.code, size) + 2 * size);
            bounds.redundancy = bounds.redundancy.max(params.redundancy_max);
            bounds.table = bounds.table.max(table(params));
            for role in [Role::Relay { upstream: UP }, Role::Sink { tunnel: TUNNEL, upstream: UP }]
            {
                let stage = FlowParams { role, ..rounded(params) };
                bounds.stage_bytes = bounds.stage_bytes.max(stage.memory_bytes());
                bounds.table = bounds.table.max(table(&stage));
            }
        }
        // Two stages: the one from before a change, and the current one.
        bounds.room = is_genuine.then_some(2 * bounds.table);
        bounds
    }
}

/// Parameters of a sink's stage for these of a source: sizes are rounded up.
pub(crate) fn rounded(params: &FlowParams) -> FlowParams {
    let code = match params.code {
        #[cfg(feature = "bats")]
        FlowCode::Bats(bats) => {
            let source_symbols = bats.source_symbols.next_power_of_two();
            FlowCode::Bats(BatsParams { source_symbols, profile: Profile::CyclicShift, ..bats })
        }
        FlowCode::Rlnc => FlowCode::Rlnc,
        FlowCode::Stream(stream) => {
            let window_symbols = stream.window_symbols.next_power_of_two().max(STREAM_MIN);
            FlowCode::Stream(StreamParams { window_symbols, ..stream })
        }
    };
    let least = if params.code == FlowCode::Rlnc { SIZE_MIN } else { 1 };
    let generation_size = params.generation_size.next_power_of_two().max(least);
    FlowParams { code, generation_size, ..params.clone() }
}

/// Shows a code with its parameters, to be followed by size and symbol.
pub(crate) struct Described<'a>(pub &'a FlowCode);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FlowCode::Rlnc => f.write_str("generations"),
            #[cfg(feature = "bats")]
            FlowCode::Bats(bats) => write!(
                f,
                "blocks of {} symbols, {}, {} bits, interleaved {:?}, batches",
                bats.source_symbols, bats.profile, bats.generator_bits, bats.interleave
            ),
            FlowCode::Stream(stream) => write!(f, "stream of {}, symbols", stream.window_symbols),
        }
    }
}
