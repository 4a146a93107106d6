//! Tags of symbols that are linear over GF(256) modulo 0x11D, so that a relay which combines
//! symbols combines their tags by the same arithmetic, and needs no key for it: the homomorphic MAC
//! of Agrawal and Boneh (ACNS 2009), several columns of it. Construction, bound and open proofs:
//! `docs/internals/tags.md`.
//!
//! ```text
//! symbol on the wire = tag (8 or 16 bytes) || payload       both are recoded, as one
//!
//! tag[l] = sum over i of u_l[i] * (prefix || payload)[i]    u_l:  AES-128 of block numbers
//!        + sum over j of c[j] * mask_l(unit, j)             mask: AES-128 of space, unit, j / 16
//! ```
//!
//! The tag comes first, so that symbols of different lengths can be combined with zeros appended.
//! Each column has keys of its own, derived from a seed: a verifier holds some columns or all.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use aes::Aes128;
use recoded_wire::unit::Space;
use subtle::ConstantTimeEq;

use crate::columns::{BLOCK, Columns, cipher, encrypt};
use crate::derive::Secrets;
use crate::error::Refused;
use crate::secret::Secret;

/// Most columns of a tag.
const COLUMNS_MAX: usize = 16;

/// Number of the next key.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Fewest columns that a relay should hold: it then misses a forgery with probability 2^-32.
pub const SUBSET_MIN: usize = 4;

/// Columns of a tag.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum Strength {
    /// 8 columns: a forgery succeeds with probability 2^-64.
    #[default]
    Standard,
    /// 16 columns: 2^-128.
    Strict,
}

impl Strength {
    /// Bytes of a tag.
    #[must_use]
    pub const fn columns(self) -> usize {
        match self {
            Self::Standard => 8,
            Self::Strict => 16,
        }
    }
}

/// Seed of the keys of one column. A relay gets some of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColumnSeed {
    /// Index of the tag byte.
    pub column: u8,
    /// 32 random bytes.
    pub seed: Secret<32>,
}

impl Secrets {
    /// Seeds of all columns of homomorphic tags. The source and the sink need all of them; a relay
    /// gets some.
    #[must_use]
    pub fn column_seeds(&self, strength: Strength) -> Vec<ColumnSeed> {
        (0..strength.columns() as u8).map(|column| self.column_seed(column)).collect()
    }

    pub(crate) fn column_seed(&self, column: u8) -> ColumnSeed {
        ColumnSeed { column, seed: self.key("column", &[column]) }
    }
}

/// Columns of a key that its holder has, with their factors for payloads.
pub struct TagKey {
    serial: u64,
    strength: Strength,
    columns: Vec<Column>,
    factors: Columns,
}

struct Column {
    /// Index of the tag byte.
    byte: usize,
    masks: Aes128,
}

impl TagKey {
    /// A key of these columns, for prefix and payload of up to `bytes_max` bytes together. `None`
    /// without columns, or if they are out of range or not in ascending order.
    #[must_use]
    pub fn new(strength: Strength, seeds: &[ColumnSeed], bytes_max: usize) -> Option<Self> {
        let ascending = seeds.is_sorted_by(|a, b| a.column < b.column);
        let last = usize::from(seeds.last()?.column);
        if !ascending || last >= strength.columns() {
            return None;
        }
        let root = |seed: &ColumnSeed| Secrets::extract(&[], seed.seed.expose());
        let factors: Vec<Secret<16>> =
            seeds.iter().map(|seed| root(seed).key("factors", &[])).collect();
        let column = |seed: &ColumnSeed| Column {
            byte: usize::from(seed.column),
            masks: cipher(&root(seed).key("masks", &[])),
        };
        Some(Self {
            // No other memory is ordered by it.
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            strength,
            columns: seeds.iter().map(column).collect(),
            factors: Columns::expand(factors.iter(), bytes_max),
        })
    }

    /// Bytes of a tag.
    #[must_use]
    pub const fn tag_bytes(&self) -> usize {
        self.strength.columns()
    }

    /// Strength of the tags, of whose columns this holder may have only some.
    #[must_use]
    pub const fn strength(&self) -> Strength {
        self.strength
    }

    /// Distinguishes this key from all others of the process: a later one has a greater number.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// Like [`TagKey::tag`], after a context of `context_bytes` that the masks include.
    pub(crate) fn tag_behind(
        &self,
        context_bytes: usize,
        masks: &Masks,
        index: usize,
        payload: &[u8],
        tag: &mut [u8],
    ) -> Result<(), Refused> {
        if self.columns.len() != tag.len() {
            return Err(Refused::Incomplete);
        }
        let sums = self.sums_behind(context_bytes, masks, index, &[1], payload)?;
        tag.copy_from_slice(&sums[..tag.len()]);
        Ok(())
    }

    /// Like [`TagKey::verify`], after a context of `context_bytes` that the masks include.
    pub(crate) fn verify_behind(
        &self,
        context_bytes: usize,
        masks: &Masks,
        first: usize,
        coefficients: &[u8],
        tag: &[u8],
        payload: &[u8],
    ) -> Result<(), Refused> {
        if coefficients.iter().fold(0, |bits, &c| bits | c) == 0 {
            return Err(Refused::ZeroVector);
        }
        let expected = self.sums_behind(context_bytes, masks, first, coefficients, payload)?;
        self.compare(&expected, tag)
    }

    /// Like [`TagKey::verify`], for the symbols from `first` on.
    pub(crate) fn verify_sum(
        &self,
        masks: &Masks,
        first: usize,
        coefficients: &[u8],
        prefix: &[u8],
        tag: &[u8],
        payload: &[u8],
    ) -> Result<(), Refused> {
        if coefficients.iter().fold(0, |bits, &c| bits | c) == 0 {
            return Err(Refused::ZeroVector);
        }
        let expected = self.sums(masks, first, coefficients, prefix, payload)?;
        self.compare(&expected, tag)
    }

    /// Writes the tag of symbol `index` of the unit of `masks`. `prefix` is combined with the
    /// payload and lies before it, but is not sent with it: number and length of a symbol of a
    /// stream.
    ///
    /// # Errors
    /// This holder has only some columns, the index has no mask, or the symbol is too long.
    pub fn tag(
        &self,
        masks: &Masks,
        index: usize,
        prefix: &[u8],
        payload: &[u8],
        tag: &mut [u8],
    ) -> Result<(), Refused> {
        if self.columns.len() != self.tag_bytes() {
            return Err(Refused::Incomplete);
        }
        if tag.len() != self.tag_bytes() {
            return Err(Refused::Malformed);
        }
        let sums = self.sums(masks, index, &[1], prefix, payload)?;
        tag.copy_from_slice(&sums[..tag.len()]);
        Ok(())
    }

    /// Verifies symbol `index` of the unit as the source formed it: `tag` and payload.
    ///
    /// # Errors
    /// The tag is wrong, or the index has no mask.
    pub fn verify_source(
        &self,
        masks: &Masks,
        index: usize,
        prefix: &[u8],
        tag: &[u8],
        payload: &[u8],
    ) -> Result<(), Refused> {
        self.verify_at(masks, index, &[1], prefix, tag, payload)
    }

    /// Verifies a combination of the unit's symbols with these coefficients, elements of GF(256)
    /// even if the code draws them from a subfield; absent coefficients are zero.
    ///
    /// # Errors
    /// The tag is wrong, all coefficients are zero, or there are more coefficients than masks.
    pub fn verify(
        &self,
        masks: &Masks,
        coefficients: &[u8],
        prefix: &[u8],
        tag: &[u8],
        payload: &[u8],
    ) -> Result<(), Refused> {
        if coefficients.iter().fold(0, |bits, &c| bits | c) == 0 {
            return Err(Refused::ZeroVector);
        }
        self.verify_at(masks, 0, coefficients, prefix, tag, payload)
    }

    fn verify_at(
        &self,
        masks: &Masks,
        first: usize,
        coefficients: &[u8],
        prefix: &[u8],
        tag: &[u8],
        payload: &[u8],
    ) -> Result<(), Refused> {
        if tag.len() != self.tag_bytes() {
            return Err(Refused::Malformed);
        }
        let expected = self.sums(masks, first, coefficients, prefix, payload)?;
        self.compare(&expected, tag)
    }

    /// Compares the held bytes of a tag, in constant time.
    fn compare(&self, expected: &[u8; COLUMNS_MAX], tag: &[u8]) -> Result<(), Refused> {
        let mut held = [0; COLUMNS_MAX];
        for (place, column) in held.iter_mut().zip(&self.columns) {
            *place = tag[column.byte];
        }
        // As words: both have zeros after the columns.
        let differs = u128::from_ne_bytes(*expected) ^ u128::from_ne_bytes(held);
        let equal: bool = (differs as u64 | (differs >> 64) as u64).ct_eq(&0).into();
        if equal { Ok(()) } else { Err(Refused::Tag) }
    }

    /// Expected values of the held bytes of the tag.
    fn sums(
        &self,
        masks: &Masks,
        first: usize,
        coefficients: &[u8],
        prefix: &[u8],
        payload: &[u8],
    ) -> Result<[u8; COLUMNS_MAX], Refused> {
        let mut sums = self.sums_behind(prefix.len(), masks, first, coefficients, payload)?;
        if !prefix.is_empty() {
            self.factors.add_dots(0, prefix, &mut sums);
        }
        Ok(sums)
    }

    /// The same without the prefix, which has `prefix_bytes`.
    fn sums_behind(
        &self,
        prefix_bytes: usize,
        masks: &Masks,
        first: usize,
        coefficients: &[u8],
        payload: &[u8],
    ) -> Result<[u8; COLUMNS_MAX], Refused> {
        if prefix_bytes + payload.len() > self.factors.length() {
            return Err(Refused::Long);
        }
        let last = first.checked_add(coefficients.len()).ok_or(Refused::Vector)?;
        if masks.columns.count() != self.columns.len() || last > masks.count {
            return Err(Refused::Vector);
        }
        let mut sums = [0; COLUMNS_MAX];
        self.factors.add_dots(prefix_bytes, payload, &mut sums);
        masks.columns.add_dots(masks.offset + first, coefficients, &mut sums);
        Ok(sums)
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<usize> = self.columns.iter().map(|column| column.byte).collect();
        write!(formatter, "TagKey({:?}, columns {columns:?})", self.strength)
    }
}

/// The masks of the symbols of one unit, or of a window of a stream, for the columns of one key.
/// Made once per unit; a vector is verified against them. Filling allocates nothing.
pub struct Masks {
    columns: Columns,
    /// Offset of the first symbol's mask in a column.
    offset: usize,
    /// Symbols that have one.
    count: usize,
}

impl Masks {
    /// Room for the masks of `symbols_max` symbols; none is filled yet.
    #[must_use]
    pub fn new(key: &TagKey, symbols_max: usize) -> Self {
        // A window may begin at any symbol of a block.
        let columns = Columns::zero(key.columns.len(), symbols_max + BLOCK - 1);
        Self { columns, offset: 0, count: 0 }
    }

    /// Symbols that have masks.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The masks of the first `count` symbols of a unit, whose number has 64 bits: extended by the
    /// caller, it does not repeat under one key.
    ///
    /// # Errors
    /// There is no room for that many.
    pub fn fill(
        &mut self,
        key: &TagKey,
        space: Space,
        unit: u64,
        count: usize,
    ) -> Result<(), Refused> {
        self.fill_behind(key, space, unit, count, &[])
    }

    /// Like [`Masks::fill`], with the contribution of a context before each symbol to its tag.
    pub(crate) fn fill_behind(
        &mut self,
        key: &TagKey,
        space: Space,
        unit: u64,
        count: usize,
        context: &[u8],
    ) -> Result<(), Refused> {
        if count > BLOCK << u16::BITS {
            return Err(Refused::Vector);
        }
        if context.len() > key.factors.length() {
            return Err(Refused::Long);
        }
        let mut added = [0; COLUMNS_MAX];
        if !context.is_empty() {
            key.factors.add_dots(0, context, &mut added[..key.columns.len()]);
        }
        self.fill_blocks(key, 0, count, &added, |block| input(space, unit, block as u16))
    }

    /// The masks of `count` symbols of a stream from symbol `first` on.
    ///
    /// # Errors
    /// There is no room for that many.
    pub fn fill_stream(
        &mut self,
        key: &TagKey,
        space: Space,
        first: u64,
        count: usize,
    ) -> Result<(), Refused> {
        let unit = first / BLOCK as u64;
        let offset = (first % BLOCK as u64) as usize;
        self.fill_blocks(key, offset, count, &[0; COLUMNS_MAX], |block| {
            input(space, unit.wrapping_add(block as u64), 0)
        })
    }

    fn fill_blocks(
        &mut self,
        key: &TagKey,
        offset: usize,
        count: usize,
        added: &[u8; COLUMNS_MAX],
        input: impl Fn(usize) -> [u8; BLOCK],
    ) -> Result<(), Refused> {
        let end = offset.checked_add(count).ok_or(Refused::Vector)?;
        if end > self.columns.length() || self.columns.count() != key.columns.len() {
            return Err(Refused::Vector);
        }
        let blocks = end.div_ceil(BLOCK);
        for ((number, column), added) in key.columns.iter().enumerate().zip(added) {
            let block = |block| encrypt(&column.masks, &input(block)).map(|mask| mask ^ added);
            self.columns.fill_blocks(number, blocks, block);
        }
        (self.offset, self.count) = (offset, count);
        Ok(())
    }
}

/// Input block for the masks of 16 symbols: kind (8), shard (8), block (16), flow (32), unit (64).
fn input(space: Space, unit: u64, block: u16) -> [u8; BLOCK] {
    let mut input = [0; BLOCK];
    input[0] = space.kind as u8;
    input[1] = space.shard;
    input[2..4].copy_from_slice(&block.to_be_bytes());
    input[4..8].copy_from_slice(&space.flow.to_be_bytes());
    input[8..].copy_from_slice(&unit.to_be_bytes());
    input
}
