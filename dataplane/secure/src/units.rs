//! Tags of the symbols of units as a worker makes and verifies them, with the masks of current
//! units: computed when a unit's first symbol arrives, used for all of it, and replaced by those of
//! a unit that takes their place. Allocates at creation only.
//!
//! ```text
//!  unit -> place = mix(key, space, number) % count -> its masks, or fill them -> tag, verify
//! ```
//!
//! A unit has a context: the fields besides its number that all of its packets share. It precedes
//! each symbol as if it were part of it, so the sum of a combination's coefficients is the
//! context's coefficient; added to every mask once, it costs nothing per packet. Symbols of a
//! stream have contexts of their own, which are multiplied with each. Their tags come last, since
//! intermediate nodes read the start of a packet, and verify the symbols solved from combinations,
//! not the combinations.

use std::fmt;

use recoded_wire::unit::{CONTEXT_BYTES, Formed, TaggedUnit, UnitKind};

use crate::error::Refused;
use crate::homomorphic::{Masks, TagKey};

/// Most symbols of a unit.
pub const UNIT_SYMBOLS_MAX: usize = 256;

/// The masks of the units that a worker tags or verifies.
pub struct UnitMasks {
    entries: Vec<Entry>,
}

struct Entry {
    /// The key and the unit of its masks.
    of: Option<(u64, TaggedUnit)>,
    masks: Masks,
}

impl UnitMasks {
    /// Room for the masks of `count` units, under keys that hold as many columns as this one. Units
    /// whose numbers differ by a multiple of `count` replace each other.
    #[must_use]
    pub fn new(key: &TagKey, count: usize) -> Self {
        let entry = |_| Entry { of: None, masks: Masks::new(key, UNIT_SYMBOLS_MAX) };
        Self { entries: (0..count.max(1)).map(entry).collect() }
    }

    /// Writes the tag of symbol `index` of a unit: `symbol` is room for the tag and then the
    /// payload; in a stream the payload comes first.
    ///
    /// # Errors
    /// As for [`TagKey::tag`], or the symbol is shorter than a tag.
    pub fn tag(
        &mut self,
        key: &TagKey,
        unit: &TaggedUnit,
        index: usize,
        symbol: &mut [u8],
    ) -> Result<(), Refused> {
        let masks = self.masks(key, unit, index.saturating_add(1))?;
        if unit.space.kind == UnitKind::Stream {
            let payload_bytes = symbol.len().checked_sub(key.tag_bytes());
            let (payload, tag) = symbol.split_at_mut(payload_bytes.ok_or(Refused::Malformed)?);
            return key.tag(masks, index, &unit.context, payload, tag);
        }
        let (tag, payload) =
            symbol.split_at_mut_checked(key.tag_bytes()).ok_or(Refused::Malformed)?;
        key.tag_behind(CONTEXT_BYTES, masks, index, payload, tag)
    }

    /// Like [`UnitMasks::verify`], with the first of several keys that fits the symbol. Returns the
    /// serial number of that key.
    ///
    /// # Errors
    /// The other end formed no such unit, or there are no keys.
    #[inline]
    pub fn verify_by_any<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a TagKey>,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<u64, Refused> {
        let mut verdict = Err(Refused::UnknownKey);
        for key in keys {
            verdict = self.verify(key, unit, formed, symbol).map(|()| key.serial());
            if verdict != Err(Refused::Tag) {
                break;
            }
        }
        verdict
    }

    /// Verifies a symbol, tag and payload, with the columns that the key has.
    ///
    /// # Errors
    /// The tag does not belong to such a symbol, or no symbol can have one.
    pub fn verify(
        &mut self,
        key: &TagKey,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<(), Refused> {
        let (first, coefficients) = match formed {
            Formed::Source(index) => (index, &[1][..]),
            Formed::Combination(coefficients) => (0, coefficients),
        };
        let count = first.saturating_add(coefficients.len());
        let masks = self.masks(key, unit, count)?;
        if unit.space.kind == UnitKind::Stream {
            let payload_bytes = symbol.len().checked_sub(key.tag_bytes());
            let (payload, tag) = symbol.split_at(payload_bytes.ok_or(Refused::Malformed)?);
            let prefix = &unit.context;
            return key.verify_sum(masks, first, coefficients, prefix, tag, payload);
        }
        let (tag, payload) = symbol.split_at_checked(key.tag_bytes()).ok_or(Refused::Malformed)?;
        key.verify_behind(CONTEXT_BYTES, masks, first, coefficients, tag, payload)
    }

    /// The masks of at least `count` symbols of a unit.
    fn masks(&mut self, key: &TagKey, unit: &TaggedUnit, count: usize) -> Result<&Masks, Refused> {
        if count > UNIT_SYMBOLS_MAX {
            return Err(Refused::Vector);
        }
        let is_stream = unit.space.kind == UnitKind::Stream;
        let context = if is_stream { [0; CONTEXT_BYTES] } else { unit.context };
        let unit = &TaggedUnit { context, ..*unit };
        let index = self.index(key, unit);
        let Entry { of, masks } = &mut self.entries[index];
        if *of != Some((key.serial(), *unit)) || masks.count() < count {
            *of = None;
            // One more block of AES for each column, so that few units are filled twice.
            let count = count.next_power_of_two().max(LEAST);
            let behind = if is_stream { &[][..] } else { &unit.context };
            masks.fill_behind(key, unit.space, unit.number, count, behind)?;
            *of = Some((key.serial(), *unit));
        }
        Ok(masks)
    }

    /// Consecutive units have consecutive places.
    fn index(&self, key: &TagKey, unit: &TaggedUnit) -> usize {
        let space = u64::from(unit.space.flow) << 8 | u64::from(unit.space.shard);
        let start = (key.serial() << 40 ^ space).wrapping_mul(MIX) >> 32;
        (start.wrapping_add(unit.number) % self.entries.len() as u64) as usize
    }
}

/// Minimum number of masks to fill: a block of AES.
const LEAST: usize = 16;

/// An odd constant without structure: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

impl fmt::Debug for UnitMasks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UnitMasks({} units)", self.entries.len())
    }
}
