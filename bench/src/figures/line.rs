//! A line of nodes that recode one batch, on coding vectors only: the basis of every figure about
//! hops.
//!
//! ```text
//!  Holding --packets--> losses --arrivals--> Elimination --innovative--> Holding of the next node
//! ```

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use recoded_code::Elimination;
use recoded_code::theory::Recoding;
use recoded_gf::{FieldOrder, Kernel};

/// The innovative coding vectors that a node holds.
#[derive(Clone)]
pub struct Holding {
    size: usize,
    rows: Vec<u8>,
}

impl Holding {
    /// State of the source: every coded symbol of a batch of `size`.
    pub fn source(size: usize) -> Holding {
        let mut rows = vec![0; size * size];
        (0..size).for_each(|index| rows[index * size + index] = 1);
        Holding { size, rows }
    }

    /// Its rank.
    pub fn rank(&self) -> usize {
        self.rows.len() / self.size
    }

    /// Its vectors, each `size` elements of GF(256).
    pub fn vectors(&self) -> impl Iterator<Item = &[u8]> {
        self.rows.chunks_exact(self.size)
    }
}

/// Nodes of one kind, one batch at a time.
pub struct Relay {
    size: usize,
    field: FieldOrder,
    recoding: Recoding,
    kernel: &'static Kernel,
    elimination: Elimination,
    factors: Vec<u8>,
    fresh: Vec<u8>,
}

impl Relay {
    /// Nodes for batches of `size` that draw their coefficients from `field`.
    pub fn new(size: usize, field: FieldOrder, recoding: Recoding) -> Relay {
        Relay {
            size,
            field,
            recoding,
            kernel: Kernel::best(),
            elimination: Elimination::new(size),
            factors: vec![0; size],
            fresh: vec![0; size],
        }
    }

    /// State of the next node after this one, in state `held`, sends one packet per entry of
    /// `arrives`. An entry is true if its packet arrives.
    pub fn send(
        &mut self,
        held: &Holding,
        arrives: impl Iterator<Item = bool>,
        random: &mut ChaCha8Rng,
    ) -> Holding {
        let mut next = Holding { size: self.size, rows: Vec::with_capacity(self.size * self.size) };
        self.elimination.reset(self.size);
        self.deliver(held, arrives, random, |elimination, vector| {
            if elimination.insert(vector).is_innovative() {
                next.rows.extend_from_slice(vector);
            }
        });
        next
    }

    /// The coding vectors of all packets that arrive, redundant ones included.
    pub fn packets(
        &mut self,
        held: &Holding,
        arrives: impl Iterator<Item = bool>,
        random: &mut ChaCha8Rng,
    ) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        self.deliver(held, arrives, random, |_, vector| packets.push(vector.to_vec()));
        packets
    }

    fn deliver(
        &mut self,
        held: &Holding,
        arrives: impl Iterator<Item = bool>,
        random: &mut ChaCha8Rng,
        mut packet: impl FnMut(&mut Elimination, &[u8]),
    ) {
        if held.rank() == 0 {
            return;
        }
        let uncoded = match self.recoding {
            Recoding::Systematic => held.rank(),
            Recoding::Random => 0,
        };
        for (number, _) in arrives.enumerate().filter(|&(_, arrives)| arrives) {
            match held.vectors().nth(number).filter(|_| number < uncoded) {
                Some(vector) => self.fresh.copy_from_slice(vector),
                None => self.combine(held, random),
            }
            packet(&mut self.elimination, &self.fresh);
        }
    }

    /// A random combination of all that is held.
    fn combine(&mut self, held: &Holding, random: &mut ChaCha8Rng) {
        let factors = &mut self.factors[..held.rank()];
        random.fill_bytes(factors);
        factors.iter_mut().for_each(|factor| *factor = self.field.embed(*factor));
        self.fresh.fill(0);
        self.kernel.reduce(&mut self.fresh, factors, &held.rows, self.size);
    }
}

/// Whether a packet survives an independent loss.
pub fn survives(random: &mut ChaCha8Rng, loss: f64) -> bool {
    uniform(random) >= loss
}

/// A number from 0 up to 1.
pub fn uniform(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Symbols that cross a hop with independent losses when `packets` packets are sent.
pub fn hop(
    relay: &mut Relay,
    held: &Holding,
    packets: usize,
    loss: f64,
    random: &mut ChaCha8Rng,
) -> Holding {
    let arrivals: Vec<bool> = (0..packets).map(|_| survives(random, loss)).collect();
    relay.send(held, arrivals.into_iter(), random)
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn line_without_loss_keeps_full_rank_and_a_dead_one_has_none() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for recoding in [Recoding::Systematic, Recoding::Random] {
            let mut relay = Relay::new(16, FieldOrder::TwoFiftySix, recoding);
            let all = hop(&mut relay, &Holding::source(16), 20, 0.0, &mut random);
            assert_eq!(all.rank(), 16);
            let none = hop(&mut relay, &all, 20, 1.0, &mut random);
            assert_eq!(none.rank(), 0);
            assert_eq!(hop(&mut relay, &none, 20, 0.0, &mut random).rank(), 0);
        }
    }
}
