//! The relay of a generation: fresh combinations of the arrivals.

use recoded_gf::{FieldOrder, Kernel};

use crate::Elimination;
use crate::rlnc::{
    Coding, Error, GROUP, Generator, Outcome, SIZE_LIMIT, check_lengths, check_payloads,
    check_size, draw, insert, multiply,
};

/// Recodes one generation from any payload set: coded or systematic packets, however few. It keeps
/// the vectors of innovative packets; the caller keeps their payloads by slot.
///
/// A relay may also forward an innovative packet unchanged (systematic recoding) and request
/// combinations only to replace lost ones.
pub struct Recoder {
    size_max: usize,
    elimination: Elimination,
    /// Vectors by slot, `size_max` bytes apart.
    vectors: Box<[u8]>,
    /// Coefficients over slots, one group of rows.
    rows: Box<[u8]>,
}

impl Recoder {
    /// A recoder of generations of up to `size_max` symbols, reset to that size. Takes about
    /// `2 * size_max^2` bytes.
    ///
    /// # Errors
    /// [`Error::Size`] unless `size_max` is in 1..=1024.
    pub fn new(size_max: usize) -> Result<Self, Error> {
        check_size(size_max, SIZE_LIMIT)?;
        Ok(Self {
            size_max,
            elimination: Elimination::new(size_max),
            vectors: vec![0; size_max * size_max].into_boxed_slice(),
            rows: vec![0; GROUP * size_max].into_boxed_slice(),
        })
    }

    /// Clears the state and starts a generation of `size` symbols.
    ///
    /// # Errors
    /// [`Error::Size`] unless there is room for it.
    pub fn reset(&mut self, size: usize) -> Result<(), Error> {
        check_size(size, self.size_max)?;
        self.elimination.reset(size);
        Ok(())
    }

    /// Symbols of the generation.
    #[must_use]
    pub fn size(&self) -> usize {
        self.elimination.size()
    }

    /// Innovative packets held: degrees of freedom.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.elimination.rank()
    }

    /// Processes a packet's coding. If it is innovative, the caller keeps the payload at the slot
    /// in the outcome.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::VectorLength`].
    pub fn insert(&mut self, coding: Coding<'_>) -> Result<Outcome, Error> {
        let outcome = insert(&mut self.elimination, coding)?;
        if let Outcome::Innovative { slot, .. } = outcome {
            let row = &mut self.vectors[slot * self.size_max..][..self.elimination.size()];
            match coding {
                Coding::Systematic(index) => {
                    row.fill(0);
                    row[index] = 1;
                }
                Coding::Vector(vector) => row.copy_from_slice(vector),
            }
        }
        Ok(outcome)
    }

    /// Forms one fresh packet per entry of `payloads`, each a combination of all payloads `held`
    /// (by slot) with coefficients drawn from `field`; their coding vectors go to `vectors`, a row
    /// of [`Recoder::size`] elements each.
    ///
    /// Fresh vectors lie in `field` when those held do.
    ///
    /// # Errors
    /// [`Error::Payloads`], [`Error::SymbolBytes`], [`Error::VectorLength`] and those of [`draw`];
    /// with nothing held, [`Error::Present`].
    pub fn recode(
        &mut self,
        field: FieldOrder,
        generator: &mut impl Generator,
        held: &[&[u8]],
        vectors: &mut [u8],
        payloads: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.check(held, vectors, payloads)?;
        let (size, rank) = (self.size(), self.rank());
        let groups = vectors.chunks_mut(GROUP * size).zip(payloads.chunks_mut(GROUP));
        for (vectors, payloads) in groups {
            let rows = &mut self.rows[..payloads.len() * rank];
            for (row, vector) in rows.chunks_exact_mut(rank).zip(vectors.chunks_exact_mut(size)) {
                draw(generator, field, rank, row)?;
                combine(vector, row, &self.vectors, self.size_max);
            }
            multiply(rows, held, payloads);
        }
        Ok(())
    }

    /// As [`Recoder::recode`] with the caller's coefficients: a row of [`Recoder::rank`] per
    /// payload, elements of GF(256).
    ///
    /// # Errors
    /// [`Error::Payloads`], [`Error::SymbolBytes`], [`Error::VectorLength`]; with nothing held,
    /// [`Error::Present`]. Nothing is written then.
    pub fn recode_with(
        &self,
        coefficients: &[u8],
        held: &[&[u8]],
        vectors: &mut [u8],
        payloads: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.check(held, vectors, payloads)?;
        let (size, rank) = (self.size(), self.rank());
        let (found, expected) = (coefficients.len(), rank * payloads.len());
        if found != expected {
            return Err(Error::VectorLength { found, expected });
        }
        for (row, vector) in coefficients.chunks_exact(rank).zip(vectors.chunks_exact_mut(size)) {
            combine(vector, row, &self.vectors, self.size_max);
        }
        for (rows, payloads) in coefficients.chunks(GROUP * rank).zip(payloads.chunks_mut(GROUP)) {
            multiply(rows, held, payloads);
        }
        Ok(())
    }

    fn check(&self, held: &[&[u8]], vectors: &[u8], payloads: &[&mut [u8]]) -> Result<(), Error> {
        let (found, expected) = (vectors.len(), self.size() * payloads.len());
        if self.rank() == 0 {
            return Err(Error::Present { present: 0, size: self.size() });
        }
        if found != expected {
            return Err(Error::VectorLength { found, expected });
        }
        check_payloads(held.len(), self.rank())?;
        check_lengths(held, payloads)
    }
}

/// `vector = row * vectors`, the rows of `vectors` lying `stride` bytes apart.
fn combine(vector: &mut [u8], row: &[u8], vectors: &[u8], stride: usize) {
    vector.fill(0);
    Kernel::best().reduce(vector, row, vectors, stride);
}
