//! Failed attempts to read handshake messages of another edge. Their MAC shows that this edge
//! formed them, so they are recorded ones, and each costs two multiplications on the curve. Every
//! neighbour that brings such messages has a budget of its own.

/// Attempts per second and neighbour.
const TRIES_PER_SECOND: u32 = 20;

/// Neighbours with a budget: more than bring the messages of one flow.
const NEIGHBOURS_MAX: usize = 16;

const SECOND: u64 = 1_000_000_000;

/// The attempts of the current second.
#[derive(Clone, Debug, Default)]
pub struct Tries {
    second: u64,
    /// Neighbours, and the attempts that they caused.
    made: Vec<(u16, u32)>,
}

impl Tries {
    /// Whether one more attempt is allowed for this neighbour.
    #[must_use]
    pub fn are_left(&mut self, now: u64, from: u16) -> bool {
        let second = now / SECOND;
        if self.second != second {
            self.second = second;
            self.made.clear();
        }
        match self.made.iter().find(|(known, _)| *known == from) {
            Some((_, made)) => *made < TRIES_PER_SECOND,
            None => self.made.len() < NEIGHBOURS_MAX,
        }
    }

    /// Counts an attempt that was allowed.
    pub fn spend(&mut self, from: u16) {
        match self.made.iter_mut().find(|(known, _)| *known == from) {
            Some((_, made)) => *made += 1,
            None => self.made.push((from, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend_all(tries: &mut Tries, now: u64, from: u16) -> u32 {
        let mut made = 0;
        while tries.are_left(now, from) {
            tries.spend(from);
            made += 1;
        }
        made
    }

    #[test]
    fn each_neighbour_has_a_budget_of_its_own_and_their_number_is_bounded() {
        let mut tries = Tries::default();
        for second in 0..3 {
            let made = (0..100).map(|from| spend_all(&mut tries, second * SECOND, from));
            let made: Vec<u32> = made.collect();
            assert!(made[..NEIGHBOURS_MAX].iter().all(|made| *made == TRIES_PER_SECOND));
            assert!(made[NEIGHBOURS_MAX..].iter().all(|made| *made == 0));
            assert_eq!(spend_all(&mut tries, second * SECOND + 1, 3), 0);
        }
    }
}
