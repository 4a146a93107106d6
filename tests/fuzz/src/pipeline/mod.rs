//! Nodes under hostile input. A script drives one node of any role and code ([`single`]), or a line
//! from a source to a sink with an attacker ([`line`]).

mod single;

mod line;

mod node;

mod forge;

use recoded_gf::FieldOrder;
use recoded_pipeline::params::{
    BatsParams, FlowCode, FlowParams, Interleave, PeerId, Profile, Recoding, Redundancy, Role,
    StreamParams, TunnelId,
};

use crate::Input;

const FLOW: u32 = 7;
const DOWN: PeerId = PeerId(0);
const UP: PeerId = PeerId(1);
const SYMBOL_BYTES: usize = 40;

/// Scripts that begin with this byte or a larger one drive a line, the others one node.
const LINES_FROM: u8 = 0xC0;

/// Shards of a flow that is spread over several workers.
const SHARDS: u8 = 3;

/// Parameters, then events.
pub fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        first @ LINES_FROM.. => line::run(first, &mut input),
        first => single::run(first, &mut input),
    }
}

/// The roles of a node, by its first byte.
fn role(byte: u8) -> Role {
    match byte % 3 {
        0 => Role::Source { tunnel: TunnelId(0) },
        1 => Role::Relay { upstream: UP },
        _ => Role::Sink { tunnel: TunnelId(0), upstream: UP },
    }
}

fn code(input: &mut Input<'_>) -> FlowCode {
    match input.below(4) {
        0 => FlowCode::Rlnc,
        1 => FlowCode::Bats(BatsParams {
            source_symbols: match 1 + input.below(48) {
                48 => 200, // more than the largest batch
                symbols => symbols,
            },
            profile: Profile::ALL[input.below(Profile::ALL.len())],
            generator_bits: [1, 2, 3, 4, 8][input.below(5)],
            interleave: match input.below(8) {
                0 => Interleave::Auto,
                depth => Interleave::Fixed(depth as u8),
            },
        }),
        // Number 2 reads two bytes, as scripts in the corpus expect.
        2 => {
            let [window, _] = [input.byte(), input.byte()];
            FlowCode::Stream(StreamParams::new(64 << (window % 2)))
        }
        _ => FlowCode::Stream(StreamParams::new(64 << input.below(2))),
    }
}

fn params(role: Role, input: &mut Input<'_>) -> FlowParams {
    let code = code(input);
    let sizes = if matches!(code, FlowCode::Bats(_)) { [1, 4, 16, 128] } else { [1, 3, 20, 256] };
    let switches = input.byte();
    FlowParams {
        code,
        field: FieldOrder::ALL[input.below(FieldOrder::ALL.len())],
        generation_size: sizes[input.below(4)],
        symbol_bytes: 4 + input.below(SYMBOL_BYTES),
        redundancy: if switches & 1 == 0 { Redundancy::Auto } else { Redundancy::Fixed(1.5) },
        redundancy_max: 1.0 + f64::from(switches >> 6),
        recoding: if switches & 2 == 0 { Recoding::Systematic } else { Recoding::Random },
        adaptive: switches & 4 != 0,
        repair: switches & 8 != 0,
        generations: 1 + input.below(6),
        ..FlowParams::new(FLOW, role, vec![DOWN])
    }
}
