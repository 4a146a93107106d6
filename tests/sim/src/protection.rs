//! Protection of a flow in addition to its code, and its overhead in symbols.

use recoded_pipeline::egress::{STRICT_TAG_BYTES, TAG_BYTES};
use recoded_pipeline::params::{FlowParams, Role, sealing_bytes};

use crate::random::{Random, Stream};

/// Share of flows that are sealed.
const SEALED: f64 = 0.3;

/// Of these, the share of flows with symbol tags. Of those, the share whose relays verify them, and
/// the share with tags of sixteen columns.
const TAGGED: f64 = 0.6;
const VERIFIED: f64 = 0.5;
const STRICT: f64 = 0.3;

/// Share of lines whose hops have keys.
const HOPS: f64 = 0.4;

/// How a flow is protected.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Protection {
    /// Packets are encrypted from end to end.
    pub sealed: bool,
    /// Symbols have tags that the sink verifies.
    tagged: bool,
    /// Relays have keys for the tags, too.
    verified: bool,
    /// They have sixteen columns.
    strict: bool,
    /// Packets of hops have tags.
    pub hops: bool,
}

impl Protection {
    pub(crate) fn draw(seed: u64) -> Self {
        let sealed = Random::new(seed, Stream::Sealed).chance(SEALED);
        let mut random = Random::new(seed, Stream::Tagged);
        let tagged = sealed && random.chance(TAGGED);
        let verified = tagged && random.chance(VERIFIED);
        let strict = tagged && random.chance(STRICT);
        let hops = Random::new(seed, Stream::HopKeys).chance(HOPS);
        Self { sealed, tagged, verified, strict, hops }
    }

    /// Of the room for an IP packet.
    pub(crate) fn packet_bytes(self) -> usize {
        sealing_bytes(self.sealed)
    }

    /// Of a symbol of a code that has tags.
    pub(crate) fn symbol_bytes(self) -> usize {
        match (self.tagged, self.strict) {
            (false, _) => 0,
            (true, false) => TAG_BYTES,
            (true, true) => STRICT_TAG_BYTES,
        }
    }

    /// These parameters, protected.
    pub(crate) fn of(self, params: FlowParams) -> FlowParams {
        let is_relay = matches!(params.role, Role::Relay { .. });
        let tagged = if is_relay { self.verified } else { self.tagged };
        FlowParams { sealed: self.sealed, tagged, strict: self.strict, ..params }
    }
}
