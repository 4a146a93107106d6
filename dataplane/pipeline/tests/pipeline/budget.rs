//! The memory estimate of a flow matches its allocations.

use crate::common::{FLOW, SHARD, UP, params};
use recoded_pipeline::Pipeline;
use recoded_pipeline::open::{OpenRequest, Opener, Sizes};
#[cfg(feature = "bats")]
use recoded_pipeline::params::{BatsParams, Interleave, Profile};
use recoded_pipeline::params::{
    FlowCode, FlowParams, PeerId, Role, Snapshot, StreamParams, TunnelId,
};

const SOURCE: Role = Role::Source { tunnel: TunnelId(0) };
const RELAY: Role = Role::Relay { upstream: UP };
const SINK: Role = Role::Sink { tunnel: TunnelId(0), upstream: UP };

/// Bytes allocated by a pipeline with this flow, beyond one without flows.
fn measured(params: &FlowParams) -> usize {
    if !matches!(params.role, Role::Source { .. }) {
        let request = OpenRequest { shard: SHARD, sizes: sizes(params) };
        let mut opener = Opener::new(1);
        let mut opened = None;
        let info = allocation_counter::measure(|| opened = Some(opener.open(&request, params)));
        return usize::try_from(info.bytes_current).expect("nothing was freed");
    }
    let bytes = |flows: Vec<FlowParams>| {
        let mut pipeline = None;
        let snapshot = Snapshot { edition: 1, flows };
        let info = allocation_counter::measure(|| pipeline = Some(Pipeline::new(&snapshot, 1)));
        usize::try_from(info.bytes_current).expect("nothing was freed that was there before")
    };
    bytes(vec![params.clone()]) - bytes(Vec::new())
}

fn sizes(params: &FlowParams) -> Sizes {
    let FlowParams { code, field, generation_size, symbol_bytes, .. } = *params;
    Sizes { code, field, generation_size, symbol_bytes }
}

/// The estimate is never too low, and not much too high for large flows.
fn check(params: &FlowParams) {
    let (said, taken) = (params.memory_bytes(), measured(params));
    let FlowParams { role, code, generation_size, generations, .. } = params;
    let what = format!("{role:?} {code:?}, size {generation_size}, {generations} held");
    println!("{what}: {said} said, {taken} taken");
    assert!(said >= taken, "{what}: {said} said, {taken} taken");
    let most = taken + taken / 2 + params.spare_bytes();
    assert!(said <= most, "{what}: {said} said, {taken} taken");
}

/// Fixed parts that are allocated later, or only for some parameters.
trait Spare {
    fn spare_bytes(&self) -> usize;
}

impl Spare for FlowParams {
    fn spare_bytes(&self) -> usize {
        let small = 512 << 10;
        match &self.code {
            #[cfg(feature = "bats")]
            FlowCode::Bats(bats) => small + self.blocks(bats) * (128 << 10),
            _ => small,
        }
    }
}

#[test]
fn generations_take_what_is_said() {
    for role in [SOURCE, RELAY, SINK] {
        for generation_size in [1, 16, 17, 64, 65, 100, 128, 200, 256] {
            for generations in [2, 256, 1024] {
                check(&FlowParams { generation_size, generations, ..params(role.clone()) });
            }
        }
    }
}

#[cfg(feature = "bats")]
#[test]
fn blocks_take_what_is_said() {
    for role in [SOURCE, SINK] {
        for profile in Profile::ALL {
            for source_symbols in [1, 64, 512, 1024, 4096] {
                for generation_size in [1, 16, 32, 128] {
                    let code = FlowCode::Bats(BatsParams {
                        source_symbols,
                        profile,
                        generator_bits: 8,
                        interleave: Interleave::Auto,
                    });
                    // The smallest table, so that the test itself stays small.
                    let generations = 2;
                    let role = role.clone();
                    check(&FlowParams { code, generation_size, generations, ..params(role) });
                }
            }
        }
    }
}

#[test]
fn streams_take_what_is_said() {
    for role in [SOURCE, RELAY, SINK] {
        for window_symbols in [1, 64, 100, 4096, 32_768] {
            let code = FlowCode::Stream(StreamParams::new(window_symbols));
            for symbol_bytes in [16, 1428] {
                for next_hops in [1, 3] {
                    let next_hops = (0..next_hops).map(PeerId).collect();
                    check(&FlowParams { code, symbol_bytes, next_hops, ..params(role.clone()) });
                }
            }
        }
    }
}

/// The configuration that allocated more than a gigabyte and passed every check.
#[test]
fn two_relays_of_the_largest_tables_are_said_to_take_a_gigabyte() {
    let relay = FlowParams { id: FLOW, generation_size: 256, generations: 4096, ..params(RELAY) };
    assert!(2 * relay.memory_bytes() > 1_000_000_000);
}
