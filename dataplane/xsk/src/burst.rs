//! Packets as a socket hands them over, one burst at a time.

use recoded_wire::frames::FrameId;

/// Most packets that one [`crate::Socket::receive`] returns.
///
/// Enough to spread the cost of a ring poll over many packets. Few enough that the first of a burst
/// does not wait long for the last, and that headers of the whole burst stay in the first-level
/// cache.
pub const BURST_FRAMES_MAX: usize = 256;

/// A received packet; its owner holds one reference to its frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The frame.
    pub frame: FrameId,
    /// Where the Ethernet header begins, counted from the start of the frame.
    pub offset: u16,
    /// Bytes of the packet, Ethernet header included.
    pub len: u16,
}
