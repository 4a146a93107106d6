//! Memory for symbols. It is never freed: contestants of all rows live until the program ends,
//! because each round measures all of them.

use rand::RngCore;
use rand::rngs::SmallRng;

/// Placement of symbols.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Number of symbols.
    pub count: usize,
    /// Bytes of a symbol.
    pub bytes: usize,
    /// Distance from one to the next.
    pub stride: usize,
}

impl Layout {
    /// One behind the other, each at the start of a cache line.
    pub fn packed(count: usize, bytes: usize) -> Layout {
        Layout { count, bytes, stride: bytes.next_multiple_of(LINE_BYTES) }
    }

    /// Symbols of zeros, the first at the start of a page.
    pub fn zeros(self) -> Vec<&'static mut [u8]> {
        let memory = vec![0; self.count * self.stride + PAGE_BYTES].leak();
        let skip = memory.as_ptr().align_offset(PAGE_BYTES);
        let symbols = memory[skip..].chunks_mut(self.stride).take(self.count);
        symbols.map(|symbol| &mut symbol[..self.bytes]).collect()
    }

    /// Symbols of random bytes, the first at the start of a page.
    pub fn random(self, random: &mut SmallRng) -> Vec<&'static [u8]> {
        let fill = |symbol: &'static mut [u8]| {
            random.fill_bytes(symbol);
            &*symbol
        };
        self.zeros().into_iter().map(fill).collect()
    }
}

const LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_lie_as_the_layout_says() {
        let symbols = Layout { count: 3, bytes: 100, stride: 4096 }.zeros();
        let address = |index: usize| symbols[index].as_ptr().addr();
        assert_eq!((symbols.len(), symbols[2].len(), address(0) % 4096), (3, 100, 0));
        assert_eq!(address(2) - address(0), 2 * 4096);
        assert_eq!(Layout::packed(2, 65).stride, 128);
    }
}
