//! Sealed packets in symbols: ciphertext from source to sink, which relays recode like any other
//! bytes.
//!
//! ```text
//!  | 0x00 | class | key id and counter 9 | IP packet, encrypted | tag 16 |
//!  '--- head ----' '--------------------- envelope --------------------'
//! ```
//!
//! The first byte of the head differs from that of any IP packet. Its class, DSCP and ECN
//! capability, is visible in the outer IP header anyway; intermediate nodes read it here. It is not
//! authenticated, and no sink reads it. Keys are behind [`Egress::keys`].

use crate::base::layout::{HEAD_BYTES, MARKER, SEALED_BYTES_MIN};
use crate::config::params::ShardId;
use crate::edge::class;
use crate::env::egress::{Egress, Keys, Unsealed};

/// The envelope in a symbol's content, if that is a sealed packet.
pub(crate) fn envelope_of(carried: &[u8]) -> Option<&[u8]> {
    let is_sealed = carried.len() >= SEALED_BYTES_MIN && carried[0] == MARKER;
    is_sealed.then(|| &carried[HEAD_BYTES..])
}

/// Seals an IP packet into `out`, which is `SEALING_BYTES` longer.
pub(crate) fn seal(
    egress: &mut impl Egress,
    shard: ShardId,
    packet: &[u8],
    out: &mut [u8],
) -> Result<(), Unsealed> {
    let (head, envelope) = out.split_at_mut(HEAD_BYTES);
    head.copy_from_slice(&[MARKER, class::outer(class::of(packet))]);
    egress.keys().ok_or(Unsealed::NoKeys)?.seal(shard, packet, envelope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::layout::ENVELOPE_BYTES;

    #[test]
    fn only_what_is_marked_and_long_enough_has_an_envelope() {
        let mut carried = [7; SEALED_BYTES_MIN];
        assert_eq!(envelope_of(&carried), None);
        carried[0] = MARKER;
        assert_eq!(envelope_of(&carried).map(<[u8]>::len), Some(ENVELOPE_BYTES + 20));
        assert_eq!(envelope_of(&carried[1..]), None);
        assert_eq!(envelope_of(&carried[..SEALED_BYTES_MIN - 1]), None);
        assert_eq!(envelope_of(&[]), None);
    }
}
