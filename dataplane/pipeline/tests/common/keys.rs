//! The ends of sealed flows, by the library that the dataplane uses.

use recoded_pipeline::egress::Unsealed;
use recoded_pipeline::params::ShardId;
use recoded_secure::{Opener, Refused, Sealer, Secrets, Suite};
use std::collections::BTreeMap;

/// Packets that may be late, as many as any code here holds.
const WINDOW_PACKETS: usize = 1 << 16;

/// Keys of one direction, at either end.
pub struct Keys {
    secret: [u8; 32],
    sealers: BTreeMap<ShardId, Sealer>,
    openers: BTreeMap<ShardId, Opener>,
    /// Packets sealed, and opened.
    pub sealed: u64,
    pub opened: u64,
}

impl Keys {
    /// Ends of the same number have the same keys.
    pub fn new(number: u8) -> Keys {
        let (sealers, openers) = (BTreeMap::new(), BTreeMap::new());
        Keys { secret: [number; 32], sealers, openers, sealed: 0, opened: 0 }
    }

    pub fn seal(&mut self, shard: ShardId, packet: &[u8], out: &mut [u8]) -> Result<(), Unsealed> {
        let secrets = secrets(shard, &self.secret);
        let sealer = self.sealers.entry(shard).or_insert_with(|| secrets().sealer(SUITE, 1));
        out[recoded_secure::HEADER_BYTES..][..packet.len()].copy_from_slice(packet);
        sealer.seal(out, &bound(shard)).map_err(|_| Unsealed::NoKeys)?;
        self.sealed += 1;
        Ok(())
    }

    pub fn unseal<'a>(
        &mut self,
        shard: ShardId,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Unsealed> {
        let secrets = secrets(shard, &self.secret);
        let opener =
            self.openers.entry(shard).or_insert_with(|| secrets().opener(SUITE, WINDOW_PACKETS));
        let packet = opener.open(sealed, &bound(shard)).map_err(|refused| match refused {
            Refused::Exhausted => Unsealed::NoKeys,
            _ => Unsealed::Refused,
        })?;
        self.opened += 1;
        Ok(packet)
    }
}

const SUITE: Suite = Suite::ChaCha20Poly1305;

/// Each shard has keys of its own: counters of two must not meet under one.
fn secrets(shard: ShardId, secret: &[u8; 32]) -> impl Fn() -> Secrets {
    move || Secrets::extract(&bound(shard), secret)
}

fn bound(ShardId { flow, shard }: ShardId) -> [u8; 5] {
    let [a, b, c, d] = flow.to_be_bytes();
    [a, b, c, d, shard]
}
