//! Coefficients times symbols.

use rand::RngCore;
use rand::rngs::SmallRng;
use recoded_gf::{Field, Kernel};

use crate::error::BenchError;
use crate::kernels::contest::{Contestant, Role};
use crate::kernels::memory::Layout;

/// A product to compute, and its expected result.
pub struct Workload {
    /// Field of coefficients and symbols.
    pub field: Field,
    /// Bytes of a symbol.
    pub bytes: usize,
    /// Number of output symbols.
    pub rows: usize,
    /// Symbols there are.
    pub sources: Vec<&'static [u8]>,
    /// Product of the first coefficients and the sources, by the naive kernel.
    pub expected: Vec<Vec<u8>>,
    /// Coefficients of many products, one after the other, because real coding uses fresh ones.
    pool: Vec<u8>,
    layout: Layout,
}

impl Workload {
    /// Draws symbols and coefficients below `order`.
    pub fn draw(
        field: Field,
        order: u16,
        sources: Layout,
        rows: usize,
        random: &mut SmallRng,
    ) -> Workload {
        let layout = Layout { count: rows, ..sources };
        let elements = rows * sources.count;
        // Every order divides 2^32, so all coefficients are equally likely.
        let draw = |_| (random.next_u32() % u32::from(order)) as u8;
        let pool: Vec<u8> = (0..POOL_BYTES.next_multiple_of(elements)).map(draw).collect();
        let symbols = sources.random(random);
        let expected = combine(field, &pool[..elements], &symbols);
        Workload { field, bytes: sources.bytes, rows, sources: symbols, expected, pool, layout }
    }

    /// The coefficients that `expected` belongs to, row-major.
    pub fn coefficients(&self) -> &[u8] {
        &self.pool[..self.rows * self.sources.len()]
    }

    /// Room for the result.
    pub fn destinations(&self) -> Vec<&'static mut [u8]> {
        self.layout.zeros()
    }

    /// Whether these are the right symbols.
    pub fn is_right(&self, made: &[&'static mut [u8]]) -> bool {
        self.expected.iter().zip(made).all(|(expected, made)| expected == made)
    }

    /// Coded payload bits of one product, in 10^9.
    pub fn gigabits(&self) -> f64 {
        (self.rows * self.bytes * 8) as f64 / 1e9
    }

    /// A level that computes the product.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] when its result is not the naive kernel's.
    pub fn ours(&self, kernel: &'static Kernel) -> Result<Contestant, BenchError> {
        let sources = self.sources.clone();
        let mut destinations = self.destinations();
        kernel.matmul(self.coefficients(), &sources, &mut destinations);
        self.require(self.is_right(&destinations), kernel, "matmul")?;
        let mut pool = Pool::of(self);
        Ok(Contestant::new(Role::Ours, kernel.name(), self.gigabits(), move || {
            kernel.matmul(pool.next(), &sources, &mut destinations);
        }))
    }

    /// A level that adds the product of one source to one destination.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] when its result is not the naive kernel's.
    pub fn ours_madd(&self, kernel: &'static Kernel) -> Result<Contestant, BenchError> {
        let source = self.sources[0];
        let destination = self.destinations().remove(0);
        kernel.madd(destination, self.pool[0], source);
        self.require(destination == self.expected[0], kernel, "madd")?;
        let amount = self.bytes as f64 / 1e9;
        let mut pool = Pool::of(self);
        Ok(Contestant::new(Role::Ours, kernel.name(), amount, move || {
            kernel.madd(destination, pool.next()[0], source);
        }))
    }

    fn require(
        &self,
        right: bool,
        kernel: &Kernel,
        operation: &'static str,
    ) -> Result<(), BenchError> {
        if right {
            return Ok(());
        }
        Err(BenchError::Wrong {
            kernel: kernel.name(),
            operation,
            field: self.field.to_string(),
            n: self.sources.len(),
            bytes: self.bytes,
        })
    }
}

/// Goes through the coefficients of a job in turns.
struct Pool {
    bytes: Vec<u8>,
    elements: usize,
    at: usize,
}

impl Pool {
    fn of(job: &Workload) -> Pool {
        Pool { bytes: job.pool.clone(), elements: job.coefficients().len(), at: 0 }
    }

    fn next(&mut self) -> &[u8] {
        let at = self.at;
        let end = at + self.elements;
        self.at = if end == self.bytes.len() { 0 } else { end };
        &self.bytes[at..end]
    }
}

/// Coefficients times symbols, by the naive kernel.
fn combine(field: Field, coefficients: &[u8], sources: &[&[u8]]) -> Vec<Vec<u8>> {
    let bytes = sources.first().map_or(0, |source| source.len());
    let mut made = vec![vec![0; bytes]; coefficients.len() / sources.len().max(1)];
    let naive = Kernel::by_name("naive").and_then(|naive| naive.over(field));
    let naive = naive.expect("the naive level has every field and runs on every processor");
    let mut destinations: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
    naive.matmul(coefficients, sources, &mut destinations);
    made
}

/// One combination over GF(256) modulo 0x11B, the polynomial of the rival crates.
pub fn combine_11b(coefficients: &[u8], sources: &[&[u8]]) -> Vec<u8> {
    combine(Field::Gf256x11B, coefficients, sources).remove(0)
}

/// Size of the coefficient pool: too many for a branch predictor to learn which of them are zero.
/// It can learn a sixteenth of this, and levels that branch on coefficients then look up to twice
/// as fast over small fields as with fresh ones.
const POOL_BYTES: usize = 64 * 1024;
