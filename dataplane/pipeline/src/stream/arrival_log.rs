//! The newest numbers of a stream at its sink, by whether they arrived: where the source spreads
//! the stream over several paths, it judges them by blocks of this.

use recoded_wire::feedback::ARRIVALS_MAX;
use recoded_wire::header::serial_before;

/// Windows of numbers remembered at both ends. A report is about symbols that left up to three
/// round trips before, and a window may last for one.
pub(crate) const WINDOWS: usize = 4;

/// The newest numbers.
#[derive(Debug)]
pub(crate) struct ArrivalLog {
    /// By number, modulo their count, which is a power of two.
    bits: Box<[u64]>,
    /// The first number expected, or the oldest held, and the one after the newest.
    begun: u32,
    end: u32,
}

impl ArrivalLog {
    /// Creates the log for a window of this many symbols, a power of two.
    pub(crate) fn new(symbols: usize) -> Self {
        let words = Self::memory_bytes(symbols) / size_of::<u64>();
        Self { bits: vec![0; words].into_boxed_slice(), begun: 0, end: 0 }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(symbols: usize) -> usize {
        (WINDOWS * symbols / 8).max(ARRIVALS_MAX / 8)
    }

    fn numbers(&self) -> u32 {
        self.bits.len() as u32 * u64::BITS
    }

    /// Word and bit of a number.
    fn place(&self, number: u32) -> (usize, u64) {
        let place = number % self.numbers();
        ((place / u64::BITS) as usize, 1 << (place % u64::BITS))
    }

    /// Restarts at a number.
    pub(crate) fn begin(&mut self, number: u32) {
        self.bits.fill(0);
        (self.begun, self.end) = (number, number);
    }

    /// Notes the arrival of a number; those between the newest and a newer one are missing. Steps:
    /// the new numbers, at most all that are held.
    pub(crate) fn note(&mut self, number: u32) {
        let next = number.wrapping_add(1);
        if serial_before(self.end, next) {
            for back in 1..=next.wrapping_sub(self.end).min(self.numbers()) {
                let (word, bit) = self.place(next.wrapping_sub(back));
                self.bits[word] &= !bit;
            }
            self.end = next;
            if self.end.wrapping_sub(self.begun) > self.numbers() {
                self.begun = self.end.wrapping_sub(self.numbers());
            }
        }
        if (1..=self.numbers()).contains(&self.end.wrapping_sub(number)) {
            let (word, bit) = self.place(number);
            self.bits[word] |= bit;
        }
    }

    /// Whether a number that is held arrived.
    pub(crate) fn has(&self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        self.bits[word] & bit != 0
    }

    /// First and count of a block of numbers, drawn for each report, so that no relay knows
    /// which symbols count. Each scale of age is as likely as the next: rates and round trips that
    /// differ by orders of magnitude all have recent ones. `None` if there are too few numbers.
    pub(crate) fn block(&self, random: [u32; 2]) -> Option<(u32, usize)> {
        let held = self.end.wrapping_sub(self.begun);
        let count = held.min(ARRIVALS_MAX as u32);
        if count < u8::BITS {
            return None;
        }
        let scales = (held / count).ilog2() + 1;
        let back = held.min(count << (1 + random[0] % scales));
        let skipped = (u64::from(random[1]) * u64::from(back - count + 1)) >> 32;
        Some((self.end.wrapping_sub(back).wrapping_add(skipped as u32), count as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_held_across_the_wrap_of_numbers_until_there_are_newer_ones() {
        let mut log = ArrivalLog::new(64);
        let start = 0u32.wrapping_sub(100);
        log.begin(start);
        assert_eq!(log.block([0, 0]), None);
        for step in (0..200).filter(|step| step % 3 != 0) {
            log.note(start.wrapping_add(step));
        }
        log.note(start.wrapping_add(30));
        for step in 0..200 {
            let is_there = step % 3 != 0 || step == 30;
            assert_eq!(log.has(start.wrapping_add(step)), is_there && step < 200, "{step}");
        }
        assert_eq!(log.block([9, u32::MAX]), Some((start, 200)));
        log.note(start.wrapping_add(400));
        assert!(!log.has(start.wrapping_add(399)) && log.has(start.wrapping_add(199)));
        assert_eq!(log.begun, start.wrapping_add(401 - 256));
    }

    //= docs/protocol §2.8(i)
    #[test]
    fn blocks_lie_within_what_is_held_at_every_age() {
        let mut log = ArrivalLog::new(1024);
        log.begin(7);
        (7..10_000).for_each(|number| log.note(number));
        let (mut newest, mut oldest) = (0, u32::MAX);
        for turn in 0..1000u32 {
            let random = [turn.wrapping_mul(0x9E37_79B1) >> 3, turn.wrapping_mul(0x85EB_CA6B)];
            let (first, count) = log.block(random).expect("enough numbers");
            assert!(count == ARRIVALS_MAX && first >= 10_000 - 4096, "{first}");
            assert!(first + 256 <= 10_000, "{first}");
            (newest, oldest) = (newest.max(first), oldest.min(first));
        }
        assert!(newest > 10_000 - 270 && oldest < 10_000 - 3600, "{oldest} to {newest}");
    }
}
