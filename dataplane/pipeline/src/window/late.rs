//! Symbols that a sink abandoned and that may still arrive: on a long hop, the second
//! retransmission of a symbol arrives after the decoding window has moved past it.
//!
//! A bit per symbol, found by number modulo their count. Bits before the next symbol to be
//! delivered are valid.

/// Symbols that are remembered: 0.6 s of 300 Mbit/s.
const SYMBOLS: u32 = 1 << 14;

/// Abandoned symbols of a window flow.
#[derive(Debug)]
pub(crate) struct GivenUp {
    bits: Box<[u64]>,
}

impl GivenUp {
    pub(crate) fn new() -> Self {
        Self { bits: vec![0; (SYMBOLS / u64::BITS) as usize].into_boxed_slice() }
    }

    /// Bytes that it allocates.
    pub(crate) const fn memory_bytes() -> usize {
        SYMBOLS as usize / 8
    }

    /// Notes the outcome of the next symbol in order.
    pub(crate) fn note(&mut self, esi: u32, is_given_up: bool) {
        let (word, bit) = place(esi);
        self.bits[word] = self.bits[word] & !bit | if is_given_up { bit } else { 0 };
    }

    /// Notes that none of the `count` symbols from `first` on is awaited, since none was seen.
    pub(crate) fn note_unheard(&mut self, first: u32, count: u32) {
        for back in 1..=count.min(SYMBOLS) {
            self.note(first.wrapping_add(count).wrapping_sub(back), true);
        }
    }

    /// Whether a symbol is so close before `next` that its outcome is known.
    pub(crate) fn is_near(esi: u32, next: u32) -> bool {
        (1..=SYMBOLS).contains(&next.wrapping_sub(esi))
    }

    /// Whether a symbol was abandoned before `next`; this also clears it.
    pub(crate) fn take(&mut self, esi: u32, next: u32) -> bool {
        let (word, bit) = place(esi);
        let was_given_up = Self::is_near(esi, next) && self.bits[word] & bit != 0;
        if was_given_up {
            self.bits[word] &= !bit;
        }
        was_given_up
    }

    /// Forgets all symbols: another window begins.
    pub(crate) fn clear(&mut self) {
        self.bits.fill(0);
    }
}

fn place(esi: u32) -> (usize, u64) {
    let bit = esi % SYMBOLS;
    ((bit / u64::BITS) as usize, 1 << (bit % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbol_that_was_given_up_is_taken_once_and_only_while_it_is_near() {
        let mut given_up = GivenUp::new();
        let first = u32::MAX - 1;
        given_up.note(first, true);
        given_up.note(first.wrapping_add(1), false);
        given_up.note_unheard(first.wrapping_add(2), 3);
        let next = first.wrapping_add(5);
        assert!(!given_up.take(first.wrapping_add(1), next), "delivered in order");
        assert!(given_up.take(first, next) && !given_up.take(first, next));
        assert!(!given_up.take(first.wrapping_add(3), first.wrapping_add(3 + SYMBOLS + 1)));
        assert!(given_up.take(first.wrapping_add(3), first.wrapping_add(3 + SYMBOLS)));
        given_up.clear();
        assert!(!given_up.take(first.wrapping_add(2), next));
    }

    #[test]
    fn many_unheard_symbols_take_a_bounded_number_of_steps() {
        let mut given_up = GivenUp::new();
        given_up.note_unheard(5, u32::MAX);
        assert!(
            given_up.take(3, 4) && given_up.bits.iter().map(|it| it.count_ones()).sum::<u32>() > 0
        );
    }
}
