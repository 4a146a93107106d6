//! Sums over workers.

/// A part of a report that is summed over workers.
pub(crate) trait Merge {
    /// Adds what another worker counted.
    fn merge(&mut self, other: &Self);
}

impl Merge for u64 {
    fn merge(&mut self, other: &u64) {
        *self += other;
    }
}

impl<const N: usize> Merge for [u64; N] {
    fn merge(&mut self, other: &[u64; N]) {
        self.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
    }
}

/// A histogram of another length belongs to other parameters of the flow and is left out. Begin
/// with the one that counts.
impl Merge for Vec<u64> {
    fn merge(&mut self, other: &Vec<u64>) {
        if self.len() == other.len() {
            self.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
        }
    }
}
