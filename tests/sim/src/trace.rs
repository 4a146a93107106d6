//! The steps of a run: what is hashed, and what `--trace` prints.

use std::fmt;
use std::hash::{Hash, Hasher};

use recoded_wire::feedback::{Item, items};
use recoded_wire::header::{Flags, Header, PacketType};

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
        /// Who, 0 for the source.
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
    /// A node's timers were due.
    Woke {
        /// Which, 0 for the source.
        node: usize,
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
            Step::Arrived { node, payload } | Step::Forged { node, payload } => {
                (node, payload).hash(state);
            }
            Step::Woke { node } => node.hash(state),
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
            Step::Arrived { node, payload } => {
                write!(f, "node {node} receives: {}", Payload(payload))
            }
            Step::Forged { node, payload } => {
                write!(f, "forged for node {node}: {}", Payload(payload))
            }
            Step::Woke { node } => write!(f, "node {node} wakes"),
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
        let header = match Header::parse(self.0) {
            Ok(header) => header,
            Err(error) => return write!(f, "{} bytes, {error:?}", self.0.len()),
        };
        if header.packet_type == PacketType::Feedback {
            write!(f, "feedback {:08x}/{}", header.link_sequence, header.generation)?;
            return items(self.0).try_for_each(|item| match item {
                Item::Ranks(report) => write!(f, ", ranks of epoch {}", report.epoch),
                Item::Repair(ask) => write!(
                    f,
                    ", repair {} missing {} round {}",
                    ask.generation, ask.missing, ask.round
                ),
                item => write!(f, ", {item:?}"),
            });
        }
        let flags = [
            (Flags::SYSTEMATIC, " systematic"),
            (Flags::RECODED, " recoded"),
            (Flags::END, " end"),
        ];
        write!(
            f,
            "{:?} {} of {} symbols, planned {}, epoch {}, hop {}, sequence {}",
            header.packet_type,
            header.generation,
            header.size,
            header.planned,
            header.epoch,
            header.hop_index,
            header.link_sequence
        )?;
        let set = flags.into_iter().filter(|(mask, _)| header.flags.has(*mask));
        set.map(|(_, name)| name).try_for_each(|name| f.write_str(name))
    }
}
