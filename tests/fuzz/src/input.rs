//! Bytes read as a script.

/// Rest of an input. After its end, everything read is zero.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// A script consisting of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether the end was reached.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// A number below `limit`, which is 1 to 256, from one byte.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    /// The next `length` bytes, or as many as are left.
    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, left) = self.0.split_at(length.min(self.0.len()));
        self.0 = left;
        taken
    }

    /// The next `length` bytes, with zeros after the end.
    pub fn filled(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = self.bytes(length).to_vec();
        bytes.resize(length, 0);
        bytes
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.bytes(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}
