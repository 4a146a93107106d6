//! The ends of sealed and tagged flows, with the library that the dataplane uses.

use recoded_pipeline::egress::{
    self, Formed, KeySerial, ReportFate, TaggedUnit, Unsealed, Untagged,
};
use recoded_pipeline::params::{FlowParams, ShardId};
use recoded_secure::{Opener, Refused, Sealer, Secrets, Strength, Suite, TagKey, UnitMasks};
use std::collections::BTreeMap;

/// Packets that may be late, the most that any code here holds.
const WINDOW_PACKETS: usize = 1 << 16;

/// Keys of one direction, at either end.
pub struct Keys {
    secret: [u8; 32],
    sealers: BTreeMap<ShardId, Sealer>,
    openers: BTreeMap<ShardId, Opener>,
    /// The same for reports, in the opposite direction; by session.
    report_sealers: BTreeMap<ShardId, Sealer>,
    report_openers: BTreeMap<(ShardId, u8), Opener>,
    /// Packets sealed, and opened.
    pub sealed: u64,
    pub opened: u64,
    /// Whether symbols under unknown keys belong to an earlier session.
    is_fresh: bool,
    tags: Tags,
}

/// Keys of tags: of all existing epochs, the newest last.
struct Tags {
    /// Epoch of the first of them.
    first: u8,
    strength: Strength,
    columns: usize,
    keys: Vec<TagKey>,
    masks: UnitMasks,
}

impl Tags {
    fn new(number: u8, strength: Strength, columns: usize) -> Self {
        let keys = vec![tag_key(number, 0, strength, columns)];
        let masks = UnitMasks::new(&keys[0], 256);
        Self { first: 0, strength, columns, masks, keys }
    }
}

fn tag_key(number: u8, epoch: u8, strength: Strength, columns: usize) -> TagKey {
    let seeds = Secrets::extract(&[epoch], &[number; 32]).column_seeds(strength);
    TagKey::new(strength, &seeds[seeds.len() - columns..], 9216).expect("a key")
}

impl Keys {
    /// Ends of the same number have the same keys.
    pub fn new(number: u8) -> Keys {
        Keys::of_columns(number, Strength::Standard.columns())
    }

    /// Keys of a relay, which holds `columns` columns of the tags.
    pub fn of_columns(number: u8, columns: usize) -> Keys {
        let tags = Tags::new(number, Strength::Standard, columns);
        let secret = [number; 32];
        Keys {
            secret,
            sealers: BTreeMap::new(),
            openers: BTreeMap::new(),
            report_sealers: BTreeMap::new(),
            report_openers: BTreeMap::new(),
            sealed: 0,
            opened: 0,
            is_fresh: false,
            tags,
        }
    }

    /// Keys for the tags of a strict flow: all columns, or as many as a relay had.
    pub fn strict(self) -> Keys {
        let Tags { columns, .. } = self.tags;
        let all = columns == Strength::Standard.columns();
        let columns = if all { Strength::Strict.columns() } else { columns };
        let tags = Tags::new(self.secret[0], Strength::Strict, columns);
        Keys { tags, ..self }
    }

    /// Keys for a flow with these parameters: strict ones if it is strict.
    pub fn of(self, params: &FlowParams) -> Keys {
        if params.strict { self.strict() } else { self }
    }

    /// Keys of an end that restarted: of its tags, only the next key.
    pub fn restarted(number: u8) -> Keys {
        let mut keys = Keys::new(number);
        keys.renew();
        keys.forget_first();
        Keys { is_fresh: true, ..keys }
    }

    /// Forgets the oldest key of tags.
    pub fn forget_first(&mut self) {
        self.tags.keys.remove(0);
        self.tags.first += 1;
    }

    /// Adds a new key of tags, which units are tagged with from now on.
    pub fn renew(&mut self) {
        let epoch = self.newest() + 1;
        let Tags { strength, columns, keys, .. } = &mut self.tags;
        keys.push(tag_key(self.secret[0], epoch, *strength, *columns));
    }

    fn newest(&self) -> u8 {
        self.tags.first + self.tags.keys.len() as u8 - 1
    }
}

impl egress::Keys for Keys {
    fn has_keys(&mut self, _shard: ShardId) -> bool {
        true
    }

    fn tag_key(&mut self, _shard: ShardId) -> Option<u8> {
        Some(self.newest())
    }

    fn tag(
        &mut self,
        key: u8,
        unit: &TaggedUnit,
        index: usize,
        symbol: &mut [u8],
    ) -> Result<(), Untagged> {
        let Tags { first, keys, masks, .. } = &mut self.tags;
        let place = key.checked_sub(*first).ok_or(Untagged::NoKeys)?;
        let key = keys.get(usize::from(place)).ok_or(Untagged::NoKeys)?;
        masks.tag(key, unit, index, symbol).map_err(|_| Untagged::Refused)
    }

    fn verify(
        &mut self,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<KeySerial, Untagged> {
        let Tags { first, keys, masks, .. } = &mut self.tags;
        let verifies = |key: &TagKey| masks.verify(key, unit, formed, symbol).is_ok();
        let refusal = if self.is_fresh { Untagged::NoKeys } else { Untagged::Refused };
        let verified = keys.iter().rposition(verifies).ok_or(refusal)?;
        Ok(KeySerial(u64::from(*first) + verified as u64))
    }

    fn seal(&mut self, shard: ShardId, packet: &[u8], out: &mut [u8]) -> Result<(), Unsealed> {
        let secrets = secrets(shard, &self.secret);
        let sealer = self.sealers.entry(shard).or_insert_with(|| secrets().sealer(SUITE, 1));
        out[recoded_secure::HEADER_BYTES..][..packet.len()].copy_from_slice(packet);
        sealer.seal(out, &bound(shard)).map_err(|_| Unsealed::NoKeys)?;
        self.sealed += 1;
        Ok(())
    }

    fn open_own(
        &mut self,
        shard: ShardId,
        sealed: &[u8],
        packet: &mut [u8],
    ) -> Result<(), Unsealed> {
        let sealer = self.sealers.get(&shard).ok_or(Unsealed::NoKeys)?;
        sealer.open_own(sealed, &bound(shard), packet).map_err(|_| Unsealed::Refused)
    }

    fn seal_report(
        &mut self,
        shard: ShardId,
        report: &[u8],
    ) -> Result<[u8; egress::ENVELOPE_BYTES], Unsealed> {
        let session = u8::from(self.is_fresh);
        let secrets = report_secrets(shard, self.secret, session);
        let sealer = || secrets.sealer(SUITE, session);
        let sealer = self.report_sealers.entry(shard).or_insert_with(sealer);
        sealer.seal_report(report).map_err(|_| Unsealed::NoKeys)
    }

    fn verify_report(
        &mut self,
        shard: ShardId,
        report: &[u8],
        seal: Option<&[u8]>,
    ) -> Result<ReportFate, Unsealed> {
        let seal = seal.ok_or(Unsealed::NoKeys)?;
        let session = seal[0] & 1;
        let secrets = report_secrets(shard, self.secret, session);
        let opener = self.report_openers.entry((shard, session));
        let opener = opener.or_insert_with(|| secrets.opener(SUITE, WINDOW_PACKETS));
        match opener.open_report(seal, report) {
            Ok(()) => Ok(ReportFate::New),
            Err(Refused::Replayed) => Ok(ReportFate::Copy),
            Err(_) => Err(Unsealed::Refused),
        }
    }

    fn unseal<'a>(&mut self, shard: ShardId, sealed: &'a mut [u8]) -> Result<&'a [u8], Unsealed> {
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

impl super::Line {
    /// Hops have keys from now on: only neighbours can form reports.
    pub fn authenticate(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.outputs.authenticated = true);
    }

    /// All nodes have another key of tags, which the source uses from now on.
    pub fn renew_tags(&mut self) {
        self.nodes.iter_mut().flat_map(|node| &mut node.outputs.keys).for_each(Keys::renew);
    }
}

const SUITE: Suite = Suite::ChaCha20Poly1305;

/// Each shard has keys of its own: counters of two must not meet under one.
fn secrets(shard: ShardId, secret: &[u8; 32]) -> impl Fn() -> Secrets {
    move || Secrets::extract(&bound(shard), secret)
}

/// Secrets of reports of a sink, by session.
fn report_secrets(shard: ShardId, secret: [u8; 32], session: u8) -> Secrets {
    secrets(shard, &secret.map(|byte| !byte ^ session))()
}

fn bound(ShardId { flow, shard }: ShardId) -> [u8; 5] {
    let [a, b, c, d] = flow.to_be_bytes();
    [a, b, c, d, shard]
}
