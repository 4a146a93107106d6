//! Secret bytes: cleared when dropped, compared in constant time, never printed.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// `N` secret bytes.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Takes ownership of bytes. The caller must clear its own copy.
    #[must_use]
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// The bytes themselves. Not to be stored or printed.
    #[must_use]
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    pub(crate) fn expose_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }
}

impl<const N: usize> PartialEq for Secret<N> {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl<const N: usize> Eq for Secret<N> {}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({N} bytes)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_secret_shows_its_length_only() {
        assert_eq!(format!("{:?}", Secret::new([0xAB; 32])), "Secret(32 bytes)");
    }

    #[test]
    fn zeroize_clears_every_byte() {
        let mut secret = Secret::new([0xAB; 32]);
        secret.zeroize();
        assert_eq!(secret.expose(), &[0; 32]);
    }
}
