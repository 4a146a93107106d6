//! Payloads of one generation, end to end in memory that is reserved once.

use recoded_code::rlnc;

use crate::Error;

/// Up to a fixed number of payloads of one length.
pub(crate) struct Payloads {
    bytes: Vec<u8>,
    symbol_bytes: usize,
}

impl Payloads {
    /// Reserves memory for `symbols` payloads of `symbol_bytes` bytes each. The system provides its
    /// pages when payloads are added.
    ///
    /// # Errors
    /// [`Error::NoBytes`], [`Error::Memory`].
    pub(crate) fn new(symbols: usize, symbol_bytes: usize) -> Result<Self, Error> {
        if symbol_bytes == 0 {
            return Err(Error::NoBytes);
        }
        let shortage = Error::Memory { symbols, symbol_bytes };
        let total = symbols.checked_mul(symbol_bytes).ok_or(shortage)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(total).map_err(|_| shortage)?;
        Ok(Self { bytes, symbol_bytes })
    }

    /// Bytes of a payload.
    pub(crate) const fn symbol_bytes(&self) -> usize {
        self.symbol_bytes
    }

    /// Payloads held.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len() / self.symbol_bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds a payload whose length was checked, while there is room.
    pub(crate) fn push(&mut self, payload: &[u8]) {
        debug_assert!(self.bytes.len() + payload.len() <= self.bytes.capacity());
        self.bytes.extend_from_slice(payload);
    }

    /// A payload by its place.
    pub(crate) fn row(&self, place: usize) -> &[u8] {
        &self.bytes[place * self.symbol_bytes..][..self.symbol_bytes]
    }

    /// All payloads in the order of their arrival.
    pub(crate) fn rows(&self) -> Vec<&[u8]> {
        self.bytes.chunks_exact(self.symbol_bytes).collect()
    }

    /// # Errors
    /// [`Error::Length`] unless `payload` has the bytes of a symbol.
    pub(crate) fn check(&self, payload: &[u8]) -> Result<(), Error> {
        check_length(payload.len(), self.symbol_bytes)
    }
}

/// # Errors
/// [`Error::Length`] unless both are equal.
pub(crate) fn check_length(found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Length { found, expected }) }
}

/// # Errors
/// [`rlnc::Error::VectorLength`] unless `vector` has an element for each of `size` symbols.
pub(crate) fn check_vector(vector: &[u8], size: usize) -> Result<(), Error> {
    let found = vector.len();
    let wrong = rlnc::Error::VectorLength { found, expected: size };
    if found == size { Ok(()) } else { Err(wrong.into()) }
}

/// How a packet with this vector was formed: a source symbol as it is, or a combination.
pub(crate) fn coding(vector: &[u8]) -> rlnc::Coding<'_> {
    let mut elements = vector.iter().enumerate().filter(|(_, element)| **element != 0);
    match (elements.next(), elements.next()) {
        (Some((index, 1)), None) => rlnc::Coding::Systematic(index),
        _ => rlnc::Coding::Vector(vector),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coding_recognises_source_symbols_only() {
        assert_eq!(coding(&[0, 1, 0]), rlnc::Coding::Systematic(1));
        for vector in [[0, 0, 0], [0, 2, 0], [1, 1, 0], [1, 0, 9]] {
            assert_eq!(coding(&vector), rlnc::Coding::Vector(&vector));
        }
    }

    #[test]
    fn new_refuses_sizes_without_memory() {
        let refused = |symbols, symbol_bytes| Payloads::new(symbols, symbol_bytes).err();
        assert_eq!(refused(4, 0), Some(Error::NoBytes));
        for symbol_bytes in [usize::MAX, usize::MAX / 4, isize::MAX as usize / 2] {
            assert_eq!(refused(4, symbol_bytes), Some(Error::Memory { symbols: 4, symbol_bytes }));
        }
    }
}
