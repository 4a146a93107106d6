//! Descriptors of arbitrary bytes: required for transmission, and missing in xsk-rs.
//!
//! xsk-rs makes a `FrameDesc` for the place where a received packet begins (byte 256 of each chunk)
//! and has no way to move it. Transmission starts at wherever the headers begin: they are rewritten
//! in front of a payload that stays where it was received. So this module determines, once and by
//! experiment, which words of a `FrameDesc` hold the address and the length, and writes them there.
//!
//! Mapping the rings a second time would avoid this, but Linux before 6.4 refuses it on a bound
//! socket (EBUSY), and current long-term distributions use such kernels.

use xsk_rs::FrameDesc;

/// Words of a descriptor: address, options, length of the headroom, length of the packet.
const WORDS: usize = size_of::<FrameDesc>() / size_of::<usize>();

const _: () =
    assert!(size_of::<FrameDesc>() == 32 && align_of::<FrameDesc>() == align_of::<usize>());

/// Positions of the address and the length in a descriptor.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Descriptors {
    address_word: usize,
    length_word: usize,
}

impl Descriptors {
    /// Finds the two words; `None` when the descriptor does not have the expected layout.
    pub(crate) fn probe() -> Option<Self> {
        const MARK: usize = 0x5EED_CAFE_0BAD_F00D;
        let marked = |word| with_words(&[(word, MARK)]);
        let sees = |desc: FrameDesc| {
            let lengths = desc.lengths();
            (desc.addr(), desc.options(), lengths.headroom(), lengths.data())
        };
        let find = |wanted| (0..WORDS).find(|&word| sees(marked(word)) == wanted);
        let found = Descriptors {
            address_word: find((MARK, 0, 0, 0))?,
            length_word: find((0, 0, 0, MARK))?,
        };
        (sees(found.at(12_345, 678)) == (12_345, 0, 0, 678)).then_some(found)
    }

    /// The descriptor of `length` bytes at `address`, counted from the start of the UMEM.
    #[inline]
    pub(crate) fn at(self, address: usize, length: usize) -> FrameDesc {
        with_words(&[(self.address_word, address), (self.length_word, length)])
    }
}

#[inline]
fn with_words(words: &[(usize, usize)]) -> FrameDesc {
    let mut desc = FrameDesc::default();
    for &(word, value) in words {
        assert!(word < WORDS);
        // SAFETY: the word lies within `desc` (checked) and is aligned like it. In the pinned
        // version a `FrameDesc` consists of integers only (`addr: usize`, `options: u32`, two
        // `usize` lengths), so every bit pattern is a valid value, whichever field or padding it
        // lands in.
        unsafe { (&raw mut desc).cast::<usize>().add(word).write(value) };
    }
    desc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_at_any_address_and_length_reads_back() {
        let descriptors = Descriptors::probe().expect("layout of the pinned xsk-rs");
        for (address, length) in [(0, 1), (130, 60), (2047, 1), (8191 * 2048 + 77, 1500)] {
            let desc = descriptors.at(address, length);
            assert_eq!((desc.addr(), desc.lengths().data()), (address, length));
            assert_eq!((desc.options(), desc.lengths().headroom()), (0, 0));
        }
    }
}
