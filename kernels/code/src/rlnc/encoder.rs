//! The source of a generation.

use recoded_gf::FieldOrder;

use crate::rlnc::generator::check_vector;
use crate::rlnc::{
    Error, GROUP, Generator, SIZE_LIMIT, check_lengths, check_payloads, check_size, draw, multiply,
};

/// The next packet to send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// The uncoded source symbol with this index.
    Systematic(usize),
    /// The combination whose vector was written.
    Coded,
}

/// Encodes one generation whose symbols the caller holds. Symbols may become present one after
/// another (on-the-fly encoding), in the order of their indices; if they come in another order, a
/// [`Recoder`](crate::rlnc::Recoder) of [`Coding::Systematic`](crate::rlnc::Coding::Systematic)
/// packets does the same.
#[derive(Clone, Debug)]
pub struct Encoder {
    size: usize,
    field: FieldOrder,
    is_systematic: bool,
    /// Symbols sent uncoded.
    sent: usize,
    /// Rows of coefficients without those of absent symbols, one group.
    rows: Box<[u8]>,
}

impl Encoder {
    /// An encoder for a generation of `size` symbols, initially systematic. Takes `64 * size`
    /// bytes.
    ///
    /// # Errors
    /// [`Error::Size`] unless `size` is in 1..=1024.
    pub fn new(size: usize, field: FieldOrder) -> Result<Self, Error> {
        check_size(size, SIZE_LIMIT)?;
        let rows = vec![0; GROUP * size].into_boxed_slice();
        Ok(Self { size, field, is_systematic: true, sent: 0, rows })
    }

    /// Begins the next generation of the same size.
    pub fn reset(&mut self) {
        self.sent = 0;
    }

    /// Symbols of the generation.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Field of the coefficients.
    #[must_use]
    pub fn field(&self) -> FieldOrder {
        self.field
    }

    /// Sets whether present symbols are first sent uncoded; at any time.
    pub fn set_systematic(&mut self, is_systematic: bool) {
        self.is_systematic = is_systematic;
    }

    /// Decides on the next packet when the first `present` symbols exist. Draws its vector, `size`
    /// elements, unless it is systematic; `vector` is untouched then.
    ///
    /// # Errors
    /// [`Error::VectorLength`] and those of [`draw`].
    pub fn next(
        &mut self,
        present: usize,
        generator: &mut impl Generator,
        vector: &mut [u8],
    ) -> Result<Packet, Error> {
        if vector.len() != self.size {
            return Err(Error::VectorLength { found: vector.len(), expected: self.size });
        }
        if present > self.size {
            return Err(Error::Present { present, size: self.size });
        }
        if self.is_systematic && self.sent < present {
            self.sent += 1;
            return Ok(Packet::Systematic(self.sent - 1));
        }
        draw(generator, self.field, present, vector)?;
        Ok(Packet::Coded)
    }

    /// Forms coded symbols: `payloads = vectors * symbols`.
    ///
    /// `symbols` are those present, from symbol 0 on; `vectors` one row of `size` coefficients per
    /// payload, drawn or custom.
    ///
    /// # Errors
    /// [`Error::Present`], [`Error::VectorLength`], [`Error::SymbolBytes`]; [`Error::Absent`],
    /// [`Error::ZeroVector`] and [`Error::OutsideField`] of a vector. No payload is written then.
    pub fn encode(
        &mut self,
        symbols: &[&[u8]],
        vectors: &[u8],
        payloads: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.check(symbols, vectors, payloads)?;
        let (size, present) = (self.size, symbols.len());
        let groups = vectors.chunks(GROUP * size).zip(payloads.chunks_mut(GROUP));
        for (vectors, payloads) in groups {
            if present == size {
                multiply(vectors, symbols, payloads);
                continue;
            }
            let rows = &mut self.rows[..payloads.len() * present];
            for (row, vector) in rows.chunks_exact_mut(present).zip(vectors.chunks_exact(size)) {
                row.copy_from_slice(&vector[..present]);
            }
            multiply(rows, symbols, payloads);
        }
        Ok(())
    }

    fn check(
        &self,
        symbols: &[&[u8]],
        vectors: &[u8],
        payloads: &[&mut [u8]],
    ) -> Result<(), Error> {
        let (size, present) = (self.size, symbols.len());
        if !(1..=size).contains(&present) {
            return Err(Error::Present { present, size });
        }
        if !vectors.len().is_multiple_of(size) {
            let expected = payloads.len() * size;
            return Err(Error::VectorLength { found: vectors.len(), expected });
        }
        check_payloads(payloads.len(), vectors.len() / size)?;
        check_lengths(symbols, payloads)?;
        for vector in vectors.chunks_exact(size) {
            check_vector(self.field, vector)?;
            if let Some(beyond) = vector[present..].iter().position(|&element| element != 0) {
                return Err(Error::Absent { symbol: present + beyond, present });
            }
        }
        Ok(())
    }
}
