//! Checks whether a neighbour's announcement of a flow fits this node's configuration. Pure.

use super::{Passing, Sizes, Surroundings};
use recoded_pipeline::open;
use recoded_pipeline::params::{FlowCode, FlowParams, PeerId};
use recoded_wire::announcement::{Entry, Refusal, code_bit, code_name};
use recoded_wire::header::PacketType;

/// The codes that this program was built with.
pub(super) fn codes() -> u8 {
    FlowCode::PACKET_TYPES.iter().fold(0, |codes, packet_type| codes | code_bit(*packet_type))
}

/// The packets of a source.
pub(super) fn packets_of(flow: &FlowParams) -> Passing {
    let bytes = flow.code.header_bytes(flow.generation_size, flow.field) + flow.symbol_bytes;
    let packet_bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
    Passing { code: flow.code.packet_type(), packet_bytes, sizes: Some(sizes_of(flow)) }
}

/// The sizes that the packets of a source have.
fn sizes_of(flow: &FlowParams) -> Sizes {
    let symbols = flow.code.unit_symbols();
    let size = if flow.code.is_stream() { 1 } else { flow.generation_size };
    let headers = flow.code.header_bytes(flow.generation_size, flow.field);
    Sizes {
        generation_size: u16::try_from(size).unwrap_or(u16::MAX),
        symbols_log2: symbols.next_power_of_two().trailing_zeros() as u8,
        header_bytes: u16::try_from(headers).unwrap_or(u16::MAX),
    }
}

/// Whether a flow is expected from a neighbour.
pub(super) fn comes_from(flow: &FlowParams, peer: PeerId) -> bool {
    flow.upstreams().any(|upstream| upstream == peer)
}

/// The refusal of an entry of `peer`, if any; `before` holds its last announcement of the flow's
/// packets.
pub(super) fn judge(
    around: &Surroundings<'_>,
    peer: PeerId,
    entry: Entry,
    before: Option<Passing>,
) -> Option<Refusal> {
    let Surroundings { snapshot, room, .. } = around;
    let find = |id| snapshot.flows.iter().find(|flow| flow.id == id);
    match entry {
        Entry::Sends { flow, code, packet_bytes } => {
            let Some(flow) = find(flow) else { return Some(Refusal::UnknownFlow) };
            if !comes_from(flow, peer) {
                return Some(Refusal::NotExpected);
            }
            let code = code?;
            if code_bit(code) & codes() == 0 {
                return Some(Refusal::Code(code));
            }
            // Streams discover the MTU of the path and follow it. Other codes arrive by one link,
            // too.
            let links = flow.next_hops.iter().chain([&peer]);
            let least = links.map(|hop| room(*hop)).min();
            least
                .filter(|room| code != PacketType::Stream && *room < packet_bytes)
                .map(Refusal::TooLarge)
        }
        Entry::Sizes { flow, generation_size, symbols_log2, header_bytes } => {
            let flow = find(flow).filter(|flow| comes_from(flow, peer))?;
            let sizes = Sizes { generation_size, symbols_log2, header_bytes };
            too_much(flow, before?, sizes, room(peer), around.memory_bytes)
        }
        Entry::Expects { flow } => match find(flow) {
            None => Some(Refusal::NotThere),
            Some(flow) if !flow.next_hops.contains(&peer) => Some(Refusal::NotSent),
            Some(_) => None,
        },
        Entry::Refuses { .. } => None,
    }
}

/// Whether a relay or sink could not take packets of these sizes: it limits its symbols, or has too
/// little memory.
fn too_much(
    flow: &FlowParams,
    packets: Passing,
    sizes: Sizes,
    room: u16,
    memory_bytes: usize,
) -> Option<Refusal> {
    let code = FlowCode::of_type(packets.code, 1 << sizes.symbols_log2)?;
    let symbol_bytes = usize::from(packets.packet_bytes.saturating_sub(sizes.header_bytes));
    let most = flow.symbol_bytes.min(code.symbol_bytes_max());
    // Streams follow a link with a smaller MTU.
    let is_followed = code.is_stream()
        && usize::from(room) <= usize::from(sizes.header_bytes) + most + AROUND_BYTES;
    if symbol_bytes > most && !is_followed {
        return Some(Refusal::SymbolBytes(u16::try_from(most).unwrap_or(u16::MAX)));
    }
    // Tables are sized for symbols, whatever the field.
    let (field, symbol_bytes) = (flow.field, most);
    let generation_size = usize::from(sizes.generation_size);
    let sizes = open::Sizes { code, field, generation_size, symbol_bytes };
    let bytes = flow.with(sizes).memory_bytes();
    let mebibytes = u16::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u16::MAX);
    (bytes > memory_bytes).then_some(Refusal::Memory(mebibytes))
}

/// Bound on the difference between headers of packets with the same symbol, by IP version and code.
const AROUND_BYTES: usize = 64;

/// Describes the problem and its cure: `who` is the neighbour, `is_ours` whether this node refuses.
pub(super) fn words(flow: u32, refusal: Refusal, who: &str, is_ours: bool) -> (String, String) {
    match (refusal, is_ours) {
        (Refusal::UnknownFlow, true) => (
            format!("{who} sends flow {flow}, which this node does not have"),
            format!("configure flow {flow} here, or correct id or next_hops there"),
        ),
        (Refusal::UnknownFlow, false) => (
            format!("{who} does not have flow {flow}, which this node sends to it"),
            format!("configure flow {flow} there, or correct id or next_hops here"),
        ),
        (Refusal::NotExpected, true) => (
            format!(
                "{who} sends flow {flow}, which this node expects from another neighbour or begins"
            ),
            "correct upstream here, or next_hops there".into(),
        ),
        (Refusal::NotExpected, false) => (
            format!("{who} expects flow {flow} from another neighbour or begins it itself"),
            "correct upstream there, or next_hops here".into(),
        ),
        (Refusal::NotSent, true) => (
            format!("{who} expects flow {flow} of this node, which does not send it there"),
            "correct next_hops here, or upstream there".into(),
        ),
        (Refusal::NotSent, false) => (
            format!("{who} does not send flow {flow} to this node, which expects it"),
            "correct next_hops there, or upstream here".into(),
        ),
        (Refusal::NotThere, true) => (
            format!("{who} expects flow {flow} of this node, which does not have it"),
            format!("configure flow {flow} here, or correct id or upstream there"),
        ),
        (Refusal::NotThere, false) => (
            format!("{who} does not have flow {flow}, which this node expects of it"),
            format!("configure flow {flow} there, or correct id or upstream here"),
        ),
        (Refusal::Code(code), _) => code_words(flow, code, who, is_ours),
        (Refusal::TooLarge(bytes), _) => (
            match is_ours {
                true => format!(
                    "packets of flow {flow} of {who} are larger than the {bytes} bytes of UDP \
                     payload that a link of this node carries"
                ),
                false => format!(
                    "packets of flow {flow} are larger than the {bytes} bytes of UDP payload that \
                     a link of {who} carries"
                ),
            },
            "set a smaller symbol_bytes at its source, or a larger MTU on that link".into(),
        ),
        (Refusal::SymbolBytes(bytes), _) => symbol_words(flow, bytes, who, is_ours),
        (Refusal::Memory(mebibytes), _) => memory_words(flow, mebibytes, who, is_ours),
    }
}

fn code_words(flow: u32, code: PacketType, who: &str, is_ours: bool) -> (String, String) {
    let (code, place) = (code_name(code), if is_ours { "here" } else { "there" });
    let cause = match is_ours {
        true => format!("flow {flow} of {who} is of a code ({code}) that is not built in"),
        false => format!("{who} was built without the code of flow {flow} ({code})"),
    };
    let cure = "or set another code at the source";
    (cause, format!("install a build with that code {place}, {cure}"))
}

fn symbol_words(flow: u32, bytes: u16, who: &str, is_ours: bool) -> (String, String) {
    let place = if is_ours { "here" } else { "there" };
    let cause = match is_ours {
        true => format!(
            "{who} sends flow {flow} with symbols longer than the {bytes} bytes that this node takes"
        ),
        false => {
            format!(
                "{who}, or a node behind it, accepts symbols of flow {flow} of up to {bytes} bytes: \
                 they are longer"
            )
        }
    };
    let cure = "or a smaller one at its source";
    (cause, format!("set a larger symbol_bytes for the flow {place}, {cure}"))
}

fn memory_words(flow: u32, mebibytes: u16, who: &str, is_ours: bool) -> (String, String) {
    let place = if is_ours { "here" } else { "there" };
    let cause = match is_ours {
        true => format!(
            "flow {flow} of {who} takes {mebibytes} MiB here by its sizes, more than memory under \
             [daemon] leaves"
        ),
        false => format!(
            "flow {flow} takes {mebibytes} MiB at {who} by its sizes, more than memory under \
             [daemon] leaves there"
        ),
    };
    (cause, format!("raise memory {place}, or set smaller sizes at the source of the flow"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_pipeline::params::{Role, Snapshot, StreamParams, TunnelId};

    const LEFT: PeerId = PeerId(0);
    const RIGHT: PeerId = PeerId(1);

    fn snapshot() -> Snapshot {
        let relay = FlowParams::new(1, Role::Relay { upstream: LEFT }, vec![RIGHT]);
        let source = FlowParams::new(2, Role::Source { tunnel: TunnelId(0) }, vec![RIGHT]);
        Snapshot { edition: 1, flows: vec![relay, source] }
    }

    /// Upstream links carry less.
    fn judged_after(peer: PeerId, entry: Entry, before: Option<Passing>) -> Option<Refusal> {
        let room = |peer| if peer == LEFT { 1472 } else { 1480 };
        let (snapshot, memory_bytes) = (&snapshot(), 32 << 20);
        let around = Surroundings { now: 0, clock: 0, snapshot, room: &room, memory_bytes };
        judge(&around, peer, entry, before)
    }

    fn judged(peer: PeerId, entry: Entry) -> Option<Refusal> {
        judged_after(peer, entry, None)
    }

    fn sends(flow: u32, code: PacketType, packet_bytes: u16) -> Entry {
        Entry::Sends { flow, code: Some(code), packet_bytes }
    }

    #[test]
    fn what_fits_is_accepted_and_what_does_not_is_refused_by_its_reason() {
        let rlnc = PacketType::Generation;
        assert_eq!(judged(LEFT, sends(1, rlnc, 1472)), None);
        assert_eq!(
            judged(LEFT, sends(1, rlnc, 1473)),
            Some(Refusal::TooLarge(1472)),
            "it comes in"
        );
        assert_eq!(judged(LEFT, sends(1, PacketType::Stream, 1473)), None);
        let unknown = Entry::Sends { flow: 1, code: None, packet_bytes: 0 };
        assert_eq!(judged(LEFT, unknown), None);
        assert_eq!(judged(LEFT, sends(9, rlnc, 100)), Some(Refusal::UnknownFlow));
        assert_eq!(judged(RIGHT, sends(1, rlnc, 100)), Some(Refusal::NotExpected));
        assert_eq!(judged(LEFT, sends(2, rlnc, 100)), Some(Refusal::NotExpected), "its source");
        assert_eq!(judged(RIGHT, Entry::Expects { flow: 1 }), None);
        assert_eq!(judged(RIGHT, Entry::Expects { flow: 2 }), None);
        assert_eq!(judged(LEFT, Entry::Expects { flow: 1 }), Some(Refusal::NotSent));
        assert_eq!(judged(LEFT, Entry::Expects { flow: 9 }), Some(Refusal::NotThere));
        let bats = judged(LEFT, sends(1, PacketType::Bats, 100));
        let expected = (!cfg!(feature = "bats")).then_some(Refusal::Code(PacketType::Bats));
        assert_eq!(bats, expected);
    }

    /// Sizes beyond the tables and symbols of this relay are refused.
    #[test]
    fn sizes_that_a_relay_cannot_take_are_refused_by_symbols_and_memory() {
        let header_bytes = 52;
        let sizes = |generation_size, symbols_log2| Entry::Sizes {
            flow: 1,
            generation_size,
            symbols_log2,
            header_bytes,
        };
        let judged = |code, packet_bytes, sizes| {
            judged_after(LEFT, sizes, Some(Passing { code, packet_bytes, sizes: None }))
        };
        let limit = snapshot().flows[0].symbol_bytes;
        let packet = |symbol: usize| header_bytes + u16::try_from(symbol).unwrap();
        let rlnc = PacketType::Generation;
        assert_eq!(judged(rlnc, packet(limit), sizes(32, 0)), None);
        let longer = judged(rlnc, packet(limit + 1), sizes(32, 0));
        assert_eq!(longer, Some(Refusal::SymbolBytes(limit as u16)));
        assert_eq!(judged_after(LEFT, sizes(32, 0), None), None, "nothing is known of its packets");
        let stream = PacketType::Stream;
        assert_eq!(judged(stream, packet(limit + 1), sizes(16, 10)), None, "the link has no room");
        let (snapshot, room) = (&snapshot(), |_| 9000);
        let around =
            Surroundings { now: 0, clock: 0, snapshot, room: &room, memory_bytes: 32 << 20 };
        for (symbol, expected) in
            [(limit, None), (limit + 1, Some(Refusal::SymbolBytes(limit as u16)))]
        {
            let before = Passing { code: stream, packet_bytes: packet(symbol), sizes: None };
            assert_eq!(judge(&around, LEFT, sizes(16, 10), Some(before)), expected, "{symbol}");
        }
        let Some(Refusal::Memory(mebibytes)) = judged(stream, 1400, sizes(16, 16)) else {
            panic!("65536 symbols do not fit 32 MiB");
        };
        assert!(mebibytes > 32, "{mebibytes}");
        assert_eq!(judged_after(RIGHT, sizes(32, 16), None), None, "it does not come from there");
    }

    #[test]
    fn sources_announce_the_sizes_that_receivers_have_to_hold() {
        let source = FlowParams { generation_size: 64, ..snapshot().flows.remove(1) };
        assert_eq!(sizes_of(&source).generation_size, 64);
        assert_eq!(sizes_of(&source).symbols_log2, 0);
        let Passing { packet_bytes, .. } = packets_of(&source);
        let symbol = usize::from(packet_bytes - sizes_of(&source).header_bytes);
        assert_eq!(symbol, source.symbol_bytes);
        let stream = FlowParams { code: FlowCode::Stream(StreamParams::new(1000)), ..source };
        assert_eq!(sizes_of(&stream).symbols_log2, 10, "rounded up");
    }

    #[test]
    fn sources_announce_their_largest_packets() {
        let flow = FlowParams { symbol_bytes: 1000, ..snapshot().flows.remove(1) };
        let Passing { code, packet_bytes: bytes, .. } = packets_of(&flow);
        assert_eq!(code, PacketType::Generation);
        assert_eq!(bytes as usize, 1000 + flow.code.header_bytes(flow.generation_size, flow.field));
        let stream = FlowParams { code: FlowCode::Stream(StreamParams::new(1024)), ..flow };
        assert_eq!(packets_of(&stream).code, PacketType::Stream);
    }

    #[test]
    fn every_refusal_names_flow_neighbour_and_cure_on_both_sides() {
        let refusals = [
            Refusal::UnknownFlow,
            Refusal::NotExpected,
            Refusal::NotSent,
            Refusal::NotThere,
            Refusal::Code(PacketType::Bats),
            Refusal::TooLarge(1372),
            Refusal::SymbolBytes(1200),
            Refusal::Memory(300),
        ];
        for (refusal, is_ours) in refusals.into_iter().flat_map(|it| [(it, true), (it, false)]) {
            let (cause, cure) = words(77, refusal, "192.0.2.7", is_ours);
            assert!(cause.contains("flow 77") && cause.contains("192.0.2.7"), "{cause}");
            assert!(!cure.is_empty());
        }
    }
}
