//! Packets of RLNC in the caller's memory: a coding vector and a symbol.

use recoded_library::overlap;

use super::memory::{array, output, output_range};
use crate::Status;

/// Sizes that the packets of an object have.
#[derive(Copy, Clone)]
pub(super) struct Sizes {
    /// Elements of a coding vector, a byte each.
    pub(super) vector: usize,
    /// Bytes of a symbol.
    pub(super) symbol: usize,
}

/// Where the caller has a packet that the call reads.
#[derive(Copy, Clone)]
pub(super) struct Input {
    pub(super) vector: *const u8,
    pub(super) symbol: *const u8,
    /// As the caller says.
    pub(super) sizes: Sizes,
}

/// Where the caller has room for a packet.
#[derive(Copy, Clone)]
pub(super) struct Output {
    pub(super) vector: *mut u8,
    pub(super) symbol: *mut u8,
    /// As the caller says.
    pub(super) sizes: Sizes,
}

impl Sizes {
    /// # Errors
    /// [`Status::Size`] unless they are those of the object.
    fn check(self, object: Sizes) -> Result<(), Status> {
        let is_equal = self.vector == object.vector && self.symbol == object.symbol;
        if is_equal { Ok(()) } else { Err(Status::Size) }
    }
}

impl Input {
    /// The vector and the symbol.
    ///
    /// # Errors
    /// [`Status::Size`] unless the sizes are those of the object; [`Status::Pointer`].
    ///
    /// # Safety
    /// Unless they are NULL, the pointers have as many bytes, which nothing writes for `'a`.
    pub(super) unsafe fn slices<'a>(self, object: Sizes) -> Result<(&'a [u8], &'a [u8]), Status> {
        self.sizes.check(object)?;
        // SAFETY: by this function's contract.
        unsafe { Ok((array(self.vector, object.vector)?, array(self.symbol, object.symbol)?)) }
    }
}

impl Output {
    /// The vector and the symbol.
    ///
    /// # Errors
    /// [`Status::Size`] unless the sizes are those of the object; [`Status::Pointer`];
    /// [`Status::Overlap`] if both overlap.
    ///
    /// # Safety
    /// Unless they are NULL, the pointers have as many bytes, which nothing else uses for `'a`.
    pub(super) unsafe fn slices<'a>(
        self,
        object: Sizes,
    ) -> Result<(&'a mut [u8], &'a mut [u8]), Status> {
        self.sizes.check(object)?;
        let vector = output_range(self.vector, object.vector)?;
        overlap::check(&mut [vector, output_range(self.symbol, object.symbol)?])?;
        // SAFETY: by this function's contract; they do not overlap.
        unsafe { Ok((output(self.vector, object.vector)?, output(self.symbol, object.symbol)?)) }
    }
}
