//! Liars: relays with all the keys of a relay that replay, withhold or delay packets, or send false
//! reports. Neighbours accept their packets, unlike those of an attacker on a link.
//!
//! ```text
//!           ┌─ 1 liar ───┐        what passes the liar towards the sink, and its reports to the
//!  0 source ┤            ├ 3 sink source, are changed before they get the tag of the hop
//!           └─ 2 honest ─┘
//! ```

use recoded_pipeline::params::Nanos;
use recoded_wire::feedback::{
    FEEDBACK_BYTES, FeedbackHeader, FlowReport, HopReport, Item, Nack, SizeReport, Writer, items,
};
use recoded_wire::header::{Header, PacketType};
use recoded_wire::link::{LinkGap, Missing, parse_link, write_link};
use recoded_wire::parse::{Packet, parse};

const MILLI: Nanos = 1_000_000;

/// Delay of packets by [`Lie::Delay`]: more than a sink waits for a symbol, and than a hop for its
/// report.
const DELAY_NANOS: Nanos = 250 * MILLI;

/// Delay of packets by [`Lie::DelayHidden`].
const HIDDEN_DELAY_NANOS: Nanos = 1000 * MILLI;

/// Room for a falsified report.
const REPORT_BYTES: usize = 512;

/// Packet size of [`Lie::ClaimSizes`]: that of the smallest tunnel, which is believed.
const SIZE_BYTES: u16 = 620;

/// Size of the generations whose ranks [`Lie::ClaimRanks`] reports.
const RANKS: u32 = 17;

/// What a liar does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Sends earlier symbols, from the first on, in place of new ones: their tags are valid.
    Replay,
    /// Forwards nothing, and acknowledges all.
    AcknowledgeAll,
    /// The same, and drops the reports of the sink.
    AcknowledgeAllHidden,
    /// Forwards nothing, and reports all as lost.
    InventLosses,
    /// The same, and drops the reports of the sink.
    InventLossesHidden,
    /// Forwards all, and reports all as lost.
    DenyForwarded,
    /// Forwards every second packet.
    Withhold,
    /// Forwards all, a quarter of a second late, and says so.
    Delay,
    /// Acknowledges all at once, and forwards it a second late.
    DelayHidden,
    /// Reports that large packets do not arrive.
    ClaimSizes,
    /// Reports in the name of the sink that no rank arrives, that all was decoded, and that units
    /// are missing.
    ClaimRanks,
}

impl Lie {
    /// Every lie.
    pub const ALL: [Lie; 11] = [
        Lie::Replay,
        Lie::AcknowledgeAll,
        Lie::AcknowledgeAllHidden,
        Lie::InventLosses,
        Lie::InventLossesHidden,
        Lie::DenyForwarded,
        Lie::Withhold,
        Lie::Delay,
        Lie::DelayHidden,
        Lie::ClaimSizes,
        Lie::ClaimRanks,
    ];

    /// It in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Lie::Replay => "replays symbols",
            Lie::AcknowledgeAll => "acknowledges all",
            Lie::AcknowledgeAllHidden => "acknowledges all, hides reports",
            Lie::InventLosses => "invents losses",
            Lie::InventLossesHidden => "invents losses, hides reports",
            Lie::DenyForwarded => "invents losses, forwards",
            Lie::Withhold => "withholds half",
            Lie::Delay => "delays by 250 ms",
            Lie::DelayHidden => "acknowledges all, delays by 1 s",
            Lie::ClaimSizes => "claims sizes",
            Lie::ClaimRanks => "claims ranks",
        }
    }

    /// Share of packets forwarded: one in this many; 0 for none.
    const fn forwards(self) -> u64 {
        match self {
            Lie::AcknowledgeAll | Lie::AcknowledgeAllHidden => 0,
            Lie::InventLosses | Lie::InventLossesHidden => 0,
            Lie::Withhold => 2,
            _ => 1,
        }
    }

    const fn hides(self) -> bool {
        matches!(self, Lie::AcknowledgeAllHidden | Lie::InventLossesHidden)
    }

    /// Whether link reports name all packets as lost; `None` if they are left as they are.
    const fn invents(self) -> Option<bool> {
        match self {
            Lie::InventLosses | Lie::InventLossesHidden | Lie::DenyForwarded => Some(true),
            Lie::AcknowledgeAll | Lie::AcknowledgeAllHidden => Some(false),
            Lie::Withhold | Lie::DelayHidden => Some(false),
            _ => None,
        }
    }
}

/// A relay that lies.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Liar {
    /// Which node.
    pub node: usize,
    /// How.
    pub lie: Lie,
    /// Since when; before, it is honest.
    pub from: Nanos,
}

/// A liar at work.
pub(crate) struct LiarAtWork {
    pub liar: Liar,
    recorded: Vec<Vec<u8>>,
    replayed: usize,
    turn: u64,
}

impl LiarAtWork {
    pub(crate) fn new(liar: Liar) -> LiarAtWork {
        LiarAtWork { liar, recorded: Vec::new(), replayed: 0, turn: 0 }
    }

    /// Changes a packet that the node sends. Returns by how much it is delayed; `None` if it is
    /// dropped.
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        is_up: bool,
        payload: &mut Vec<u8>,
    ) -> Option<Nanos> {
        let is_active = now >= self.liar.from;
        if !is_up && self.liar.lie == Lie::Replay {
            self.replay(payload, is_active);
            return Some(0);
        }
        if !is_active {
            return Some(0);
        }
        if is_up { self.report(payload).then_some(0) } else { self.forward() }
    }

    fn forward(&mut self) -> Option<Nanos> {
        let lie = self.liar.lie;
        self.turn += 1;
        let is_sent = self.turn.checked_rem(lie.forwards()) == Some(0);
        is_sent.then_some(match lie {
            Lie::Delay => DELAY_NANOS,
            Lie::DelayHidden => HIDDEN_DELAY_NANOS,
            _ => 0,
        })
    }

    /// Records a symbol, and replaces it by an earlier one under the numbers of this hop.
    fn replay(&mut self, payload: &mut Vec<u8>, is_active: bool) {
        let is_stream = match parse(payload) {
            Ok(Packet::Coded(_)) => false,
            Ok(Packet::Stream(packet)) if packet.symbol().is_some() => true,
            _ => return,
        };
        let earlier = is_active.then(|| self.recorded.get(self.replayed).cloned()).flatten();
        self.recorded.push(payload.clone());
        let Some(mut earlier) = earlier else { return };
        self.replayed += 1;
        // Link sequence number, and place of a symbol of a stream.
        earlier[8..12].copy_from_slice(&payload[8..12]);
        if is_stream {
            earlier[22..24].copy_from_slice(&payload[22..24]);
        }
        *payload = earlier;
    }

    /// Falsifies a report towards the source; false if it is dropped.
    fn report(&mut self, payload: &mut Vec<u8>) -> bool {
        let lie = self.liar.lie;
        match Header::parse(payload).map(|header| header.packet_type) {
            Ok(PacketType::Link) => {
                if let Some(all_lost) = lie.invents() {
                    falsify(payload, all_lost);
                }
            }
            Ok(PacketType::Feedback) if lie.hides() => return false,
            Ok(PacketType::Feedback) => claim(lie, payload),
            _ => {}
        }
        true
    }
}

/// Rewrites a link report: no backlog, a short path, and all packets received, or all lost.
fn falsify(payload: &mut Vec<u8>, all_lost: bool) {
    let Ok(mut report) = parse_link(payload) else { return };
    (report.backlog, report.beyond, report.missing) = (0, 0, Missing::default());
    let back = report.horizon.wrapping_sub(report.from).min(u16::MAX.into()) as u16;
    let first = report.horizon.wrapping_sub(u32::from(back));
    let gap = (all_lost && back > 0).then_some(LinkGap { first, count: back });
    let mut out = vec![0; REPORT_BYTES];
    let length = write_link(&report, gap.into_iter(), &mut out);
    out.truncate(length);
    *payload = out;
}

/// Replaces the liar's own report, which travels no hop before, by claims.
fn claim(lie: Lie, payload: &mut Vec<u8>) {
    let Ok(header) = FeedbackHeader::parse(payload) else { return };
    if header.common.hop_index != 0 || !matches!(lie, Lie::ClaimSizes | Lie::ClaimRanks) {
        return;
    }
    let newest = items(payload).find_map(|item| match item {
        Item::Flow(report) => Some(report.newest),
        _ => None,
    });
    let newest = newest.unwrap_or(header.number);
    let mut out = vec![0; REPORT_BYTES];
    header.write(&mut out[..FEEDBACK_BYTES]);
    let mut writer = Writer::new(&mut out);
    match lie {
        Lie::ClaimSizes => _ = writer.push(Item::Size(SizeReport { hop: 0, bytes: SIZE_BYTES })),
        _ => {
            writer.push(Item::Hop(HopReport { hop: 0, loss: 1.0, burst_mean: 255.0 }));
            writer.push(Item::Flow(FlowReport { newest, complete: newest, failed: 0 }));
            writer.push(Item::BlockAck(newest as u16));
            let nack =
                |back| Nack { unit: newest.wrapping_sub(back), missing: Nack::ALL, round: 0 };
            (0..8).for_each(|back| _ = writer.push(Item::Nack(nack(back))));
            let ranks = (0..RANKS).map(|rank| if rank == 0 { header.number } else { 0 });
            writer.push_ranks(header.common.epoch, ranks.collect::<Vec<_>>().into_iter());
        }
    }
    let length = writer.finish();
    out.truncate(length);
    *payload = out;
}
