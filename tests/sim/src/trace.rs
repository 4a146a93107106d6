//! The steps of a run, which are hashed and printed by `--trace`.

use std::fmt;
use std::hash::{Hash, Hasher};

use recoded_wire::feedback::{Item, items};
use recoded_wire::header::{Flags, PacketType};
use recoded_wire::parse::{Packet, parse};
use recoded_wire::stream::StreamBody;

use crate::scenario::Change;

/// One thing that happened.
#[derive(Debug)]
pub enum Step<'a> {
    /// A packet entered the source's tunnel.
    Entered {
        /// Its number.
        number: u32,
        /// Its bytes.
        bytes: usize,
    },
    /// A node sent a packet.
    Sent {
        /// The node, 0 for the source.
        node: usize,
        /// Towards the source.
        is_up: bool,
        /// UDP payload.
        payload: &'a [u8],
    },
    /// A packet reached a node.
    Arrived {
        /// Which, 0 for the source.
        node: usize,
        /// Its worker.
        worker: usize,
        /// UDP payload.
        payload: &'a [u8],
    },
    /// A forged packet is about to reach a node.
    Forged {
        /// Which, 0 for the source.
        node: usize,
        /// UDP payload.
        payload: &'a [u8],
    },
    /// A worker's timers were due.
    Woke {
        /// The node, 0 for the source.
        node: usize,
        /// Its worker.
        worker: usize,
    },
    /// A worker gets the stage that it requested.
    Opened {
        /// The node.
        node: usize,
        /// Its worker.
        worker: usize,
        /// The shard.
        shard: u8,
        /// Whether it was refused for lack of memory.
        is_refused: bool,
    },
    /// A packet left the sink's tunnel.
    Delivered {
        /// Its number, if it is one of those sent.
        number: Option<u32>,
        /// Its bytes.
        bytes: usize,
    },
    /// The network changed.
    Changed {
        /// How.
        change: &'a Change,
    },
}

impl Hash for Step<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Step::Entered { number, bytes } => (number, bytes).hash(state),
            Step::Sent { node, is_up, payload } => (node, is_up, payload).hash(state),
            Step::Arrived { node, worker, payload } => (node, worker, payload).hash(state),
            Step::Forged { node, payload } => (node, payload).hash(state),
            Step::Woke { node, worker } => (node, worker).hash(state),
            Step::Opened { node, worker, shard, is_refused } => {
                (node, worker, shard, is_refused).hash(state);
            }
            Step::Delivered { number, bytes } => (number, bytes).hash(state),
            Step::Changed { change } => format!("{change:?}").hash(state),
        }
    }
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Entered { number, bytes } => write!(f, "packet {number} enters, {bytes} bytes"),
            Step::Sent { node, is_up, payload } => {
                let arrow = if *is_up { "up" } else { "down" };
                write!(f, "node {node} sends {arrow}: {}", Payload(payload))
            }
            Step::Arrived { node, worker, payload } => {
                write!(f, "node {node}.{worker} receives: {}", Payload(payload))
            }
            Step::Forged { node, payload } => {
                write!(f, "forged for node {node}: {}", Payload(payload))
            }
            Step::Woke { node, worker } => write!(f, "node {node}.{worker} wakes"),
            Step::Opened { node, worker, shard, is_refused } => {
                let what = if *is_refused { "is refused" } else { "opens" };
                write!(f, "node {node}.{worker} {what} shard {shard}")
            }
            Step::Delivered { number: Some(number), .. } => write!(f, "packet {number} delivered"),
            Step::Delivered { number: None, bytes } => {
                write!(f, "{bytes} bytes delivered that were never sent")
            }
            Step::Changed { change } => write!(f, "{change:?}"),
        }
    }
}

/// A UDP payload in words.
struct Payload<'a>(&'a [u8]);

impl fmt::Display for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packet = match parse(self.0) {
            Ok(packet) => packet,
            Err(error) => return write!(f, "{} bytes, {error:?}", self.0.len()),
        };
        let header = packet.header();
        match packet {
            Packet::Feedback(report) => {
                write!(f, "feedback {:08x}/{}", report.node, report.number)?;
                items(self.0).try_for_each(|item| match item {
                    Item::Ranks(report) => write!(f, ", ranks of epoch {}", report.epoch),
                    item => write!(f, ", {item:?}"),
                })?;
            }
            Packet::Stream(stream) => match stream.body {
                StreamBody::Symbol(symbol) => {
                    write!(f, "Stream {}, {} bytes", symbol.number, symbol.bytes)?;
                }
                StreamBody::Combination(sum) => {
                    let last = sum.first.wrapping_add(u32::from(sum.count)).wrapping_sub(1);
                    write!(f, "Combination of places {} to {last}", sum.first)?;
                }
                StreamBody::Keepalive => f.write_str("Keepalive")?,
            },
            Packet::Link(report) => write!(f, "Link up to {}", report.horizon)?,
            Packet::Handshake(_) => write!(f, "Handshake")?,
            Packet::Announcement(_) => write!(f, "Announcement")?,
            Packet::Coded(coded) => {
                let number = coded.header.generation;
                let (size, planned) = (coded.header.size, coded.header.planned);
                write!(f, "{:?} {number} of {size}, planned {planned}", header.packet_type)?;
                if let Some(block) = coded.block {
                    write!(f, ", block {} of {}", block.number, block.source_symbols)?;
                }
            }
        }
        write!(
            f,
            ", shard {}, epoch {}, hop {}, sequence {}",
            header.shard, header.epoch, header.hop_index, header.link_sequence
        )?;
        let flags = if header.packet_type == PacketType::Stream { STREAM_FLAGS } else { FLAGS };
        let set = flags.into_iter().filter(|(mask, _)| header.flags.has(*mask));
        set.map(|(_, name)| name).try_for_each(|name| f.write_str(name))
    }
}

/// Flags, and how they are shown.
const FLAGS: [(u8, &str); 5] = [
    (Flags::SYSTEMATIC, " systematic"),
    (Flags::RECODED, " recoded"),
    (Flags::REPAIR, " repair"),
    (Flags::END, " end"),
    (Flags::MENDED, " mended"),
];
const STREAM_FLAGS: [(u8, &str); 5] = [
    (Flags::SYSTEMATIC, " systematic"),
    (Flags::OPEN_LOOP, " open loop"),
    (Flags::REPAIR, " repair"),
    (Flags::END, " end"),
    (Flags::PATHS, " paths"),
];
