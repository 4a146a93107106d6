//! Keys of the ends of a sealed flow: real envelopes, and tags of symbols. Relays have four of the
//! tag columns, as granted by their source; consecutive relays have different ones.

use std::collections::BTreeMap;

use recoded_pipeline::egress::{
    self, ENVELOPE_BYTES, Formed, KeySerial, ReportFate, TaggedUnit, Unsealed, Untagged,
};
use recoded_pipeline::params::ShardId;
use recoded_secure::{
    HEADER_BYTES, Opener, Refused, Sealer, Secrets, Strength, Suite, TagKey, UnitMasks,
    granted_seeds,
};

/// Packets that may be late: more than any scenario has of a shard.
const WINDOW_PACKETS: usize = 1 << 14;

/// Keys of a node. Those of envelopes survive restarts, although real ends would agree on new ones:
/// this way a captured packet must be refused without exception.
#[derive(Default)]
pub(crate) struct Keys {
    seed: u64,
    /// A relay's index among those of the flow.
    relay: Option<usize>,
    strength: Strength,
    sealers: BTreeMap<ShardId, Sealer>,
    openers: BTreeMap<ShardId, Opener>,
    /// The same for reports of the sink.
    report_sealers: BTreeMap<ShardId, Sealer>,
    report_openers: BTreeMap<ShardId, Opener>,
    /// By shard and session of the source.
    tags: BTreeMap<(ShardId, u32), (TagKey, UnitMasks)>,
    /// Sessions that the source had before.
    sessions: u32,
}

/// Units that a node has masks of.
const UNITS: usize = 64;

impl Keys {
    /// Those of a run: both ends have the same, a relay some of them.
    pub(crate) fn new(seed: u64, relay: Option<usize>, is_strict: bool) -> Keys {
        let strength = if is_strict { Strength::Strict } else { Strength::Standard };
        Keys { seed, relay, strength, ..Keys::default() }
    }

    /// The source restarted: it has other keys of tags, and verifiers also know those before.
    pub(crate) fn renew_tags(&mut self) {
        self.sessions += 1;
    }

    fn tags(&mut self, shard: ShardId, session: u32) -> (&TagKey, &mut UnitMasks) {
        let Keys { seed, relay, strength, .. } = *self;
        let (key, masks) = self.tags.entry((shard, session)).or_insert_with(|| {
            let secrets = secrets(seed ^ u64::from(session) << 32, shard);
            let seeds = match relay {
                Some(place) => granted_seeds(&secrets, strength, place).into(),
                None => secrets.column_seeds(strength),
            };
            let key = TagKey::new(strength, &seeds, SYMBOL_BYTES_MAX).expect("a key");
            let masks = UnitMasks::new(&key, UNITS);
            (key, masks)
        });
        (key, masks)
    }
}

impl egress::Keys for Keys {
    fn seal(&mut self, shard: ShardId, packet: &[u8], out: &mut [u8]) -> Result<(), Unsealed> {
        let seed = self.seed;
        let sealer =
            self.sealers.entry(shard).or_insert_with(|| secrets(seed, shard).sealer(SUITE, 1));
        out[HEADER_BYTES..][..packet.len()].copy_from_slice(packet);
        sealer.seal(out, &[shard.shard]).map_err(|_| Unsealed::NoKeys)
    }

    fn seal_report(
        &mut self,
        shard: ShardId,
        report: &[u8],
    ) -> Result<[u8; ENVELOPE_BYTES], Unsealed> {
        let sealer = || secrets(!self.seed, shard).sealer(SUITE, 1);
        let sealer = self.report_sealers.entry(shard).or_insert_with(sealer);
        sealer.seal_report(report).map_err(|_| Unsealed::NoKeys)
    }

    fn verify_report(
        &mut self,
        shard: ShardId,
        report: &[u8],
        seal: Option<&[u8]>,
    ) -> Result<ReportFate, Unsealed> {
        let opener = || secrets(!self.seed, shard).opener(SUITE, WINDOW_PACKETS);
        let opener = self.report_openers.entry(shard).or_insert_with(opener);
        match opener.open_report(seal.ok_or(Unsealed::NoKeys)?, report) {
            Ok(()) => Ok(ReportFate::New),
            Err(Refused::Replayed) => Ok(ReportFate::Copy),
            Err(_) => Err(Unsealed::Refused),
        }
    }

    fn unseal<'a>(&mut self, shard: ShardId, sealed: &'a mut [u8]) -> Result<&'a [u8], Unsealed> {
        let seed = self.seed;
        let opener = || secrets(seed, shard).opener(SUITE, WINDOW_PACKETS);
        let opener = self.openers.entry(shard).or_insert_with(opener);
        let packet = opener.open(sealed, &[shard.shard]).map_err(|_| Unsealed::Refused)?;
        Ok(packet)
    }

    fn tag(
        &mut self,
        _key: u8,
        unit: &TaggedUnit,
        index: usize,
        symbol: &mut [u8],
    ) -> Result<(), Untagged> {
        let (key, masks) = self.tags(shard_of(unit), self.sessions);
        masks.tag(key, unit, index, symbol).map_err(|_| Untagged::Refused)
    }

    fn verify(
        &mut self,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<KeySerial, Untagged> {
        let sessions = self.sessions.saturating_sub(1)..=self.sessions;
        let verifies = |session: &u32| {
            let (key, masks) = self.tags(shard_of(unit), *session);
            masks.verify(key, unit, formed, symbol).is_ok()
        };
        let session = sessions.rev().find(verifies).ok_or(Untagged::Refused)?;
        Ok(KeySerial(u64::from(session)))
    }

    fn tag_key(&mut self, _shard: ShardId) -> Option<u8> {
        Some(0)
    }
}

fn shard_of(unit: &TaggedUnit) -> ShardId {
    ShardId { flow: unit.space.flow, shard: unit.space.shard }
}

/// Maximum bytes of a symbol in a frame, with its context.
const SYMBOL_BYTES_MAX: usize = 2048;

const SUITE: Suite = Suite::ChaCha20Poly1305;

/// Each shard has its own keys: counters of two shards must not share a key.
fn secrets(seed: u64, shard: ShardId) -> Secrets {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&seed.to_be_bytes());
    Secrets::extract(&[shard.shard], &secret)
}
