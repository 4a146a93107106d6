//! A limit on the work that packets cause through equations.
//!
//! An equation in many unknown symbols takes a pass over all other equations, thousands of times
//! the bytes of its packet, and anyone may have sent that packet. Each packet of any kind therefore
//! earns a number of bytes of equations. Unused bytes are saved, up to a limit. When nothing is
//! left, equations are refused until further packets have arrived. The limit is per packet, not per
//! second: there is no clock here.

/// Bytes of equations that may be processed per packet, on average.
///
/// This is some 60 us of one core. With less, windows of 1024 symbols that are lost as a whole are
/// not recovered from the fewest possible repair packets (symbols of 1400 bytes). With more, fewer
/// forged packets keep a core busy.
pub const WORK_PER_PACKET: usize = 2 << 20;

/// Most saved bytes. Also the largest deficit after source packets, which cannot be refused: beyond
/// that all equations are dropped.
///
/// Work of 4 ms. Recovering a burst of losses takes more per packet at its end than before.
pub const WORK_SAVED: usize = 128 << 20;

/// Cost of access to a row in addition to its bytes. Rows are too far apart for any cache; the
/// access takes as long as this many bytes.
pub(super) const ROW_BYTES: usize = 512;

/// Cost of moving one byte within a row, as single bytes are not moved by vector instructions.
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
    /// Must be called for each packet.
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

    /// Whether the deficit exceeds [`WORK_SAVED`].
    pub const fn is_overdrawn(&self) -> bool {
        self.saved < -(WORK_SAVED as i64)
    }

    /// Bytes spent so far.
    pub const fn spent(&self) -> u64 {
        self.spent
    }
}
