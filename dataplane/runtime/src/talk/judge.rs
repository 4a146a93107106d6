//! Does what a neighbour says of a flow fit what this node does for it? Pure.

use recoded_pipeline::params::{FlowCode, FlowParams, PeerId, Snapshot};
use recoded_wire::announcement::{Entry, Refusal, code_bit};
use recoded_wire::header::PacketType;

/// The codes that this program was built with.
pub(super) const CODES: u8 = code_bit(PacketType::Generation)
    | code_bit(PacketType::Window)
    | code_bit(PacketType::Stream)
    | if cfg!(feature = "bats") { code_bit(PacketType::Bats) } else { 0 };

/// The packets of a source.
pub(super) fn packets_of(flow: &FlowParams) -> (PacketType, u16) {
    let code = match flow.code {
        FlowCode::Rlnc => PacketType::Generation,
        #[cfg(feature = "bats")]
        FlowCode::Bats(_) => PacketType::Bats,
        FlowCode::Window(_) => PacketType::Window,
        FlowCode::Stream(_) => PacketType::Stream,
    };
    let bytes = flow.code.header_bytes(flow.generation_size, flow.field) + flow.symbol_bytes;
    (code, u16::try_from(bytes).unwrap_or(u16::MAX))
}

/// Whether a flow is expected from a neighbour.
pub(super) fn comes_from(flow: &FlowParams, peer: PeerId) -> bool {
    flow.upstreams().any(|upstream| upstream == peer)
}

/// What this node refuses of what `peer` says; `room` is the UDP payload that links carry.
pub(super) fn judge(
    snapshot: &Snapshot,
    peer: PeerId,
    entry: Entry,
    room: impl Fn(PeerId) -> u16,
) -> Option<Refusal> {
    let find = |id| snapshot.flows.iter().find(|flow| flow.id == id);
    match entry {
        Entry::Sends { flow, code, packet_bytes } => {
            let Some(flow) = find(flow) else { return Some(Refusal::UnknownFlow) };
            if !comes_from(flow, peer) {
                return Some(Refusal::NotExpected);
            }
            let code = code?;
            if code_bit(code) & CODES == 0 {
                return Some(Refusal::Code(code));
            }
            // Streams find the MTU of the path, and follow it.
            let least = flow.next_hops.iter().map(|hop| room(*hop)).min();
            least
                .filter(|room| code != PacketType::Stream && *room < packet_bytes)
                .map(Refusal::TooLarge)
        }
        Entry::Expects { flow } => match find(flow) {
            None => Some(Refusal::NotThere),
            Some(flow) if !flow.next_hops.contains(&peer) => Some(Refusal::NotSent),
            Some(_) => None,
        },
        Entry::Refuses { .. } => None,
    }
}

/// What is wrong, and what to do about it: `who` is the neighbour, `is_ours` whether this node
/// refuses.
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
        (Refusal::Code(code), true) => (
            format!("flow {flow} of {who} is of a code ({}) that is not built in", name(code)),
            "install a build with that code here, or set another code at the source".into(),
        ),
        (Refusal::Code(code), false) => (
            format!("{who} was built without the code of flow {flow} ({})", name(code)),
            "install a build with that code there, or set another code at the source".into(),
        ),
        (Refusal::TooLarge(bytes), true) => (
            format!(
                "packets of flow {flow} of {who} are larger than the {bytes} bytes of UDP payload \
                 that the next link carries"
            ),
            "set a smaller symbol_bytes at its source, or a larger MTU on that link".into(),
        ),
        (Refusal::TooLarge(bytes), false) => (
            format!(
                "packets of flow {flow} are larger than the {bytes} bytes of UDP payload that \
                 the link behind {who} carries"
            ),
            "set a smaller symbol_bytes at its source, or a larger MTU on that link".into(),
        ),
    }
}

fn name(code: PacketType) -> &'static str {
    match code {
        PacketType::Bats => "bats",
        PacketType::Window => "window",
        PacketType::Stream => "stream",
        _ => "rlnc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_pipeline::params::{Role, StreamParams, TunnelId};

    const LEFT: PeerId = PeerId(0);
    const RIGHT: PeerId = PeerId(1);

    fn snapshot() -> Snapshot {
        let relay = FlowParams::new(1, Role::Relay { upstream: LEFT }, vec![RIGHT]);
        let source = FlowParams::new(2, Role::Source { tunnel: TunnelId(0) }, vec![RIGHT]);
        Snapshot { edition: 1, flows: vec![relay, source] }
    }

    fn judged(peer: PeerId, entry: Entry) -> Option<Refusal> {
        judge(&snapshot(), peer, entry, |_| 1472)
    }

    fn sends(flow: u32, code: PacketType, packet_bytes: u16) -> Entry {
        Entry::Sends { flow, code: Some(code), packet_bytes }
    }

    #[test]
    fn what_fits_is_accepted_and_what_does_not_is_refused_by_its_reason() {
        let rlnc = PacketType::Generation;
        assert_eq!(judged(LEFT, sends(1, rlnc, 1472)), None);
        assert_eq!(judged(LEFT, sends(1, rlnc, 1473)), Some(Refusal::TooLarge(1472)));
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

    #[test]
    fn sources_announce_their_largest_packets() {
        let flow = FlowParams { symbol_bytes: 1000, ..snapshot().flows.remove(1) };
        let (code, bytes) = packets_of(&flow);
        assert_eq!(code, PacketType::Generation);
        assert_eq!(bytes as usize, 1000 + flow.code.header_bytes(flow.generation_size, flow.field));
        let stream = FlowParams { code: FlowCode::Stream(StreamParams::new(1024)), ..flow };
        assert_eq!(packets_of(&stream).0, PacketType::Stream);
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
        ];
        for (refusal, is_ours) in refusals.into_iter().flat_map(|it| [(it, true), (it, false)]) {
            let (cause, cure) = words(77, refusal, "192.0.2.7", is_ours);
            assert!(cause.contains("flow 77") && cause.contains("192.0.2.7"), "{cause}");
            assert!(!cure.is_empty());
        }
    }
}
