//! Packet memory in the form that the verifier accepts: every access follows its own comparison
//! with the end.

use core::arch::asm;

use aya_ebpf::programs::XdpContext;
use recoded_wire::packet::PacketBytes;

/// The bytes of the packet in an XDP context.
pub struct Packet {
    start: usize,
    end: usize,
}

impl Packet {
    #[inline(always)]
    pub fn new(ctx: &XdpContext) -> Self {
        Self { start: ctx.data(), end: ctx.data_end() }
    }

    /// `N` bytes from `offset`.
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        // The header walk stays far below this bound. Checking it gives the verifier a range for
        // the offset, without which it refuses the addition.
        if offset > OFFSET_MAX {
            return None;
        }
        let first = opaque(self.start + offset);
        if first + N > self.end {
            return None;
        }
        // SAFETY: `first .. first + N` lies between the start and the end of the packet, checked
        // above, and the packet outlives the program's run. An array of bytes has no alignment.
        Some(unsafe { *(first as *const [u8; N]) })
    }
}

impl PacketBytes for Packet {
    #[inline(always)]
    fn len_bytes(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn u8_at(&self, offset: usize) -> Option<u8> {
        self.read::<1>(offset).map(|[byte]| byte)
    }

    #[inline(always)]
    fn u16_at(&self, offset: usize) -> Option<u16> {
        self.read(offset).map(u16::from_be_bytes)
    }

    #[inline(always)]
    fn u32_at(&self, offset: usize) -> Option<u32> {
        self.read(offset).map(u32::from_be_bytes)
    }
}

/// Hides from the compiler how an address was computed. Otherwise the compiler drops the comparison
/// with the end if an earlier one at a larger offset implies it. The verifier cannot follow this:
/// to it, the same sum computed twice is two pointers, and only the compared one may be read.
#[inline(always)]
fn opaque(mut address: usize) -> usize {
    // SAFETY: a comment, no instruction; the register keeps its value.
    unsafe { asm!("// {0}", inout(reg) address, options(pure, nomem, nostack, preserves_flags)) };
    address
}

/// Ethernet, two tags, the longest IPv4 header, UDP and the Recoded header make 106 bytes.
const OFFSET_MAX: usize = 255;
