//! Flows of code `stream`: a sliding window with loss recovery on every hop.
//!
//! ```text
//!  source ── symbols, as they come ──► relay ── as they become known ──► sink ── IP packets ► TUN
//!         ◄── link reports: packets received, packets missing, backlog ──
//! ```
//!
//! An IP packet is one symbol, and its number is the same on every hop. A node keeps the newest
//! symbols, and retransmits those that a neighbour reports missing. There is no head-of-line
//! blocking: a relay forwards a symbol as soon as it is known, and a sink delivers it unless an
//! earlier packet of the same TCP flow is missing.

pub(crate) mod store;

pub(crate) mod fec_scheduler;

pub(crate) mod received_bitmap;

pub(crate) mod arrival_log;

pub(crate) mod combination_decoder;

pub(crate) mod paths;

pub(crate) mod sender;

pub(crate) mod senders;

pub(crate) mod window_admission;

pub(crate) mod delivery;

pub(crate) mod flow_order;

pub(crate) mod sink_restart;

pub(crate) mod source;

pub(crate) mod relay;

pub(crate) mod sink;

use crate::config::params::{StreamParams, StreamProfile};
use recoded_wire::header::Flags;
use recoded_wire::stream::{STREAM_LOG2_MAX, STREAM_LOG2_MIN, StreamHeader};

impl StreamParams {
    /// The parameters that packets announce to relays and sinks.
    pub(crate) fn announced(header: &StreamHeader) -> Self {
        let profile = match header.common.flags.has(Flags::INTERACTIVE) {
            true => StreamProfile::Interactive,
            false => StreamProfile::Balanced,
        };
        Self { window_symbols: header.window_symbols(), profile }
    }

    /// Binary logarithm of the number of symbols that nodes keep, within the range of the wire
    /// format.
    pub(crate) fn window_log2(&self) -> u8 {
        let log2 = self.window_symbols.max(1).next_power_of_two().trailing_zeros() as u8;
        log2.clamp(STREAM_LOG2_MIN, STREAM_LOG2_MAX)
    }
}
