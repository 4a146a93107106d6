//! Columns of key bytes, and sums of their products with packets. See `recoded_gf::Kernel::dots`.

use aes::Aes128;
use aes::cipher::{Block, BlockEncrypt, KeyInit};
use recoded_gf::Kernel;
use zeroize::Zeroizing;

use crate::secret::Secret;

/// Columns are aligned to cache lines, so that no register load touches two.
pub(crate) const LINE: usize = 64;

/// Bytes of a block of AES.
pub(crate) const BLOCK: usize = 16;

/// Columns of equal length, laid out for the kernel. Cleared when dropped.
pub(crate) struct Columns {
    kernel: &'static Kernel,
    bytes: Zeroizing<Vec<u8>>,
    /// Where the first column begins.
    start: usize,
    count: usize,
    length: usize,
    stride: usize,
}

impl Columns {
    /// `count` columns of zeros.
    pub fn zero(count: usize, length: usize) -> Self {
        let stride = length.next_multiple_of(LINE);
        let bytes = Zeroizing::new(vec![0_u8; count * stride + LINE]);
        // The alignment affects only speed.
        let start = bytes.as_ptr().align_offset(LINE).min(LINE);
        Self { kernel: Kernel::best(), bytes, start, count, length, stride }
    }

    /// One column per key: block i of 16 bytes is AES-128 of i as a 128-bit number.
    pub fn expand<'a>(keys: impl ExactSizeIterator<Item = &'a Secret<16>>, length: usize) -> Self {
        let mut columns = Self::zero(keys.len(), length);
        for (column, key) in keys.enumerate() {
            let cipher = cipher(key);
            columns.fill(column, |number| encrypt(&cipher, &(number as u128).to_be_bytes()));
        }
        columns
    }

    /// Fills a column with blocks; `block` gives each by its number.
    pub fn fill(&mut self, column: usize, block: impl Fn(usize) -> [u8; BLOCK]) {
        self.fill_blocks(column, self.length.div_ceil(BLOCK), block);
    }

    /// Fills the first `blocks` blocks of a column; the last one may extend beyond its length.
    pub fn fill_blocks(
        &mut self,
        column: usize,
        blocks: usize,
        block: impl Fn(usize) -> [u8; BLOCK],
    ) {
        let bytes = &mut self.bytes[self.start + column * self.stride..][..blocks * BLOCK];
        for (number, place) in bytes.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            *place = block(number);
        }
        self.kernel.prepare(bytes);
    }

    /// Bytes of a column.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Number of columns.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Adds to each sum the product of `vector` with the bytes of its column from `offset` on.
    ///
    /// # Panics
    /// If the vector is longer than the rest of a column.
    pub fn add_dots(&self, offset: usize, vector: &[u8], sums: &mut [u8]) {
        assert!(offset + vector.len() <= self.length, "a vector longer than its columns");
        let sums = &mut sums[..self.count];
        self.kernel.dots(&self.bytes[self.start + offset..], self.stride, vector, sums);
    }
}

/// AES-128 with a key.
pub(crate) fn cipher(key: &Secret<16>) -> Aes128 {
    Aes128::new(key.expose().into())
}

/// One block.
pub(crate) fn encrypt(cipher: &Aes128, input: &[u8; BLOCK]) -> [u8; BLOCK] {
    let mut block = Block::<Aes128>::from(*input);
    cipher.encrypt_block(&mut block);
    block.into()
}
