//! Keys of the ends of a sealed flow: the real envelopes.

use std::collections::BTreeMap;

use recoded_pipeline::egress::Unsealed;
use recoded_pipeline::params::ShardId;
use recoded_secure::{HEADER_BYTES, Opener, Sealer, Secrets, Suite};

/// Packets that may be late: more than any scenario has of a shard.
const WINDOW_PACKETS: usize = 1 << 14;

/// What a node has of them. They outlive its restarts, where real ends would agree on others: what
/// an adversary kept is then refused without exception.
#[derive(Default)]
pub(crate) struct Keys {
    seed: u64,
    sealers: BTreeMap<ShardId, Sealer>,
    openers: BTreeMap<ShardId, Opener>,
}

impl Keys {
    /// Those of a run: both ends have the same.
    pub(crate) fn new(seed: u64) -> Keys {
        Keys { seed, ..Keys::default() }
    }

    pub(crate) fn seal(
        &mut self,
        shard: ShardId,
        packet: &[u8],
        out: &mut [u8],
    ) -> Result<(), Unsealed> {
        let seed = self.seed;
        let sealer =
            self.sealers.entry(shard).or_insert_with(|| secrets(seed, shard).sealer(SUITE, 1));
        out[HEADER_BYTES..][..packet.len()].copy_from_slice(packet);
        sealer.seal(out, &[shard.shard]).map_err(|_| Unsealed::NoKeys)
    }

    pub(crate) fn unseal<'a>(
        &mut self,
        shard: ShardId,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Unsealed> {
        let seed = self.seed;
        let opener = || secrets(seed, shard).opener(SUITE, WINDOW_PACKETS);
        let opener = self.openers.entry(shard).or_insert_with(opener);
        let packet = opener.open(sealed, &[shard.shard]).map_err(|_| Unsealed::Refused)?;
        Ok(packet)
    }
}

const SUITE: Suite = Suite::ChaCha20Poly1305;

/// Each shard has keys of its own: counters of two must not meet under one.
fn secrets(seed: u64, shard: ShardId) -> Secrets {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&seed.to_be_bytes());
    Secrets::extract(&[shard.shard], &secret)
}
