//! Checks of blocks: a receiver verifies every combination on arrival, whichever peer formed it.
//!
//! The source and one receiver share a secret. It yields [`COLUMNS`] random vectors r for each
//! segment. The source sends the products r * x_j with all blocks x_j of the segment, encrypted.
//! A combination y with coefficients c is correct only if r * y = sum over j of c_j (r * x_j).
//!
//! Other peers know neither r nor the products, so a wrong combination passes with probability
//! 256^-8 = 2^-64. These are the secure random checksums of Gkantsidis and Rodriguez (INFOCOM
//! 2006). Unlike a MAC under a key of the group, no receiver can forge for another one.

use recoded_gf::Kernel;
use subtle::ConstantTimeEq;

use crate::keys::{SEAL_BYTES, SealPlace, SharedKey};

/// Independent columns: a forgery passes with probability 2^-64. With four, one of 2^32 would pass:
/// a poisoner is banned at the first one that does not. With sixteen, checks would take twice the
/// bytes and time.
pub(crate) const COLUMNS: usize = 8;

/// Blocks whose checks one message carries: 1 KiB.
pub(crate) const PART_BLOCKS: usize = 128;

/// What a receiver needs to verify combinations of one segment.
pub(crate) struct Checks {
    kernel: &'static Kernel,
    /// Secret vectors, `block_bytes` each, prepared.
    vectors: Vec<u8>,
    /// Products, one for each block and column; columns are consecutive. Prepared when complete.
    products: Vec<u8>,
    blocks: usize,
    block_bytes: usize,
    /// Bits of the parts that have arrived.
    parts: u8,
}

impl Checks {
    /// Room for the checks of a segment, whose products are to come.
    pub(crate) fn new(key: &SharedKey, segment: u32, blocks: usize, block_bytes: usize) -> Self {
        let kernel = Kernel::best();
        let mut vectors = vec![0; COLUMNS * block_bytes];
        key.columns(segment, &mut vectors);
        kernel.prepare(&mut vectors);
        Self { kernel, vectors, products: vec![0; COLUMNS * blocks], blocks, block_bytes, parts: 0 }
    }

    /// The next part to request; `None` if all have arrived.
    pub(crate) fn missing(&self) -> Option<u8> {
        (0..parts(self.blocks)).find(|part| self.parts >> part & 1 == 0)
    }

    /// Takes a sealed part. False if it is not of the source.
    pub(crate) fn take(&mut self, key: &SharedKey, place: SealPlace, sealed: &[u8]) -> bool {
        let Some((products, tag)) = sealed.split_last_chunk::<SEAL_BYTES>() else { return false };
        let first = usize::from(place.part) * PART_BLOCKS;
        let count = self.blocks.saturating_sub(first).min(PART_BLOCKS);
        if count == 0 || products.len() != count * COLUMNS {
            return false;
        }
        let mut bytes = [0; PART_BLOCKS * COLUMNS];
        let bytes = &mut bytes[..products.len()];
        bytes.copy_from_slice(products);
        if !key.open(place, bytes, tag) {
            return false;
        }
        if self.parts >> place.part & 1 == 0 {
            for (offset, block) in bytes.chunks_exact(COLUMNS).enumerate() {
                for (column, &product) in block.iter().enumerate() {
                    self.products[column * self.blocks + first + offset] = product;
                }
            }
            self.parts |= 1 << place.part;
            if self.missing().is_none() {
                self.kernel.prepare(&mut self.products);
            }
        }
        true
    }

    /// Whether `payload` is the combination with the coefficients `vector`.
    pub(crate) fn verify(&self, vector: &[u8], payload: &[u8]) -> bool {
        if self.missing().is_some()
            || vector.len() != self.blocks
            || payload.len() != self.block_bytes
        {
            return false;
        }
        let (mut actual, mut expected) = ([0; COLUMNS], [0; COLUMNS]);
        self.kernel.dots(&self.vectors, self.block_bytes, payload, &mut actual);
        self.kernel.dots(&self.products, self.blocks, vector, &mut expected);
        actual.ct_eq(&expected).into()
    }
}

/// Messages that carry the checks of a segment.
pub(crate) const fn parts(blocks: usize) -> u8 {
    blocks.div_ceil(PART_BLOCKS) as u8
}

/// Bytes of the products of a part with their tag. `None` if the segment has no such part.
pub(crate) fn checks_bytes(blocks: usize, part: u8) -> Option<usize> {
    let rest = blocks.checked_sub(usize::from(part) * PART_BLOCKS).filter(|&rest| rest > 0)?;
    Some(rest.min(PART_BLOCKS) * COLUMNS + SEAL_BYTES)
}

/// Computes and seals a part for a receiver. `segment` has the blocks end to end.
pub(crate) fn sealed_part(
    key: &SharedKey,
    place: SealPlace,
    segment: &[u8],
    block_bytes: usize,
) -> Option<Vec<u8>> {
    let first = usize::from(place.part) * PART_BLOCKS;
    let blocks = segment.chunks_exact(block_bytes).skip(first).take(PART_BLOCKS);
    if blocks.len() == 0 {
        return None;
    }
    let kernel = Kernel::best();
    let mut vectors = vec![0; COLUMNS * block_bytes];
    key.columns(place.segment, &mut vectors);
    kernel.prepare(&mut vectors);
    let mut bytes = vec![0; blocks.len() * COLUMNS];
    for (block, products) in blocks.zip(bytes.chunks_exact_mut(COLUMNS)) {
        kernel.dots(&vectors, block_bytes, block, products);
    }
    let tag = key.seal(place, &mut bytes);
    bytes.extend(tag);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyPair, SessionKeys};
    use crate::manifest::ContentId;
    use crate::random::Random;

    #[test]
    fn checks_accept_combinations_and_nothing_else() {
        let mut random = Random::new(&crate::tests_seed());
        let (source, receiver) = (KeyPair::new(random.array()), KeyPair::new(random.array()));
        let content = ContentId([0; 32]);
        let keys = SessionKeys { receiver: receiver.public(), source: source.public(), content };
        let key = source.shared(receiver.public(), keys);
        for (blocks, block_bytes) in [(1, 64), (5, 100), (128, 256), (129, 64), (256, 64)] {
            let mut segment = vec![0; blocks * block_bytes];
            random.fill(&mut segment);
            let mut checks = Checks::new(&key, 3, blocks, block_bytes);
            while let Some(part) = checks.missing() {
                let place = SealPlace { segment: 3, part };
                let mut sealed = sealed_part(&key, place, &segment, block_bytes).expect("a part");
                sealed[0] ^= 1;
                assert!(!checks.take(&key, place, &sealed), "forged checks");
                sealed[0] ^= 1;
                assert!(!checks.take(&key, SealPlace { segment: 4, part }, &sealed));
                assert!(checks.take(&key, place, &sealed));
            }
            for _ in 0..50 {
                let (mut vector, mut payload) = (vec![0; blocks], vec![0; block_bytes]);
                random.fill(&mut vector);
                for (&factor, block) in vector.iter().zip(segment.chunks_exact(block_bytes)) {
                    Kernel::best().madd(&mut payload, factor, block);
                }
                assert!(checks.verify(&vector, &payload));
                let index = random.number() as usize % block_bytes;
                payload[index] ^= 1 + random.number() as u8 % 255;
                assert!(!checks.verify(&vector, &payload), "a changed payload");
                assert!(!checks.verify(&vector[1..], &payload), "a short vector");
            }
        }
    }
}
