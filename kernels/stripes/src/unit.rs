//! The checksum of a unit. It covers the place of the unit too, so that a unit written to a wrong
//! offset or shard is found.

/// Bytes of a checksum.
pub const CHECKSUM_BYTES: usize = 32;

/// BLAKE3, without a key: it finds accidental damage, not forgery.
pub type Checksum = [u8; CHECKSUM_BYTES];

/// A random name of a set, which distinguishes its shards from those of others.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SetId(pub [u8; 16]);

/// Place of a unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The set.
    pub set: SetId,
    /// The shard.
    pub shard: usize,
    /// The stripe.
    pub stripe: u64,
}

impl std::fmt::Display for SetId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Place {
    /// Checksum of a unit here.
    #[must_use]
    pub fn checksum(&self, unit: &[u8]) -> Checksum {
        let mut hasher = blake3::Hasher::new();
        // The bytes first: they are then hashed in whole chunks, several at once.
        hasher.update(unit);
        hasher.update(&self.set.0);
        hasher.update(&(self.shard as u64).to_le_bytes());
        hasher.update(&self.stripe.to_le_bytes());
        *hasher.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_depends_on_bytes_and_place() {
        let place = Place { set: SetId([1; 16]), shard: 2, stripe: 3 };
        let sum = place.checksum(b"unit");
        assert_ne!(sum, place.checksum(b"unis"));
        assert_ne!(sum, Place { shard: 3, ..place }.checksum(b"unit"));
        assert_ne!(sum, Place { stripe: 2, ..place }.checksum(b"unit"));
        assert_ne!(sum, Place { set: SetId([2; 16]), ..place }.checksum(b"unit"));
    }
}
