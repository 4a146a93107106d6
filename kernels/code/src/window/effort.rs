//! A limit to the work that packets cause by way of equations.
//!
//! An equation in many unknown symbols takes a pass over all other equations, thousands of times
//! the bytes of the packet that it came in, and anyone may have sent that packet. Each packet of
//! any kind is therefore worth a number of bytes of equations. What is not used is saved, up to a
//! limit. When nothing is left, equations are refused until further packets have come. The limit
//! is per packet, not per second: there is no clock here.

/// Bytes of equations that may be worked on per packet, on average.
///
/// This is some 60 us of one core. With less, windows of 1024 symbols that are lost as a whole are
/// not recovered from as few repair packets as possible (symbols of 1400 bytes). With more, fewer
/// forged packets keep a core busy.
pub const WORK_PER_PACKET: usize = 2 << 20;

/// Most bytes that are saved. Also the most that may be lacking after packets that cannot be
/// refused, source packets: beyond that all equations are forgotten.
///
/// Work of 4 ms. A burst of losses that comes back takes more per packet at its end than before.
pub const WORK_SAVED: usize = 128 << 20;

/// What access to a row takes besides its bytes. Rows are too far apart to be near in any cache;
/// the time is that of so many bytes.
pub(super) const ROW_BYTES: usize = 512;

/// What moving one byte within a row takes, as single bytes are not moved by vectors.
pub(super) const MOVE_BYTES: usize = 32;

/// The account of one decoder.
#[derive(Copy, Clone, Debug)]
pub(super) struct Effort {
    saved: i64,
    spent: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { saved: WORK_SAVED as i64, spent: 0 }
    }
}

impl Effort {
    /// To be called for each packet.
    pub fn earn(&mut self) {
        self.saved = (self.saved + WORK_PER_PACKET as i64).min(WORK_SAVED as i64);
    }

    pub fn spend(&mut self, bytes: usize) {
        self.saved -= bytes as i64;
        self.spent += bytes as u64;
    }

    /// Whether anything is left.
    pub const fn is_allowed(&self) -> bool {
        self.saved > 0
    }

    /// Whether more is lacking than what is saved at most.
    pub const fn is_overdrawn(&self) -> bool {
        self.saved < -(WORK_SAVED as i64)
    }

    /// Bytes spent so far.
    pub const fn spent(&self) -> u64 {
        self.spent
    }
}
