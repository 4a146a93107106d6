//! Getting symbols back, passing them on, and the matrices of both.

use std::hint::black_box;

use rand::RngCore;
use rand::rngs::SmallRng;
use recoded_gf::{Field, Kernel};

use crate::error::BenchError;
use crate::kernels::contest::{Contestant, Role};
use crate::kernels::memory::Layout;
use crate::kernels::rivals::rlnc::MARKER;

/// A generation received as coded packets, once modulo 0x11D and once in the rivals' format.
pub struct Decoding {
    /// Source symbols.
    pub sources: Vec<&'static [u8]>,
    /// Coded symbols: `matrix` times the sources.
    pub received: Vec<&'static [u8]>,
    /// Coding vectors, row-major, modulo 0x11D.
    pub matrix: Vec<u8>,
    /// Source symbols that end with the marker of crate `rlnc`.
    pub data_11b: Vec<Vec<u8>>,
    /// Coding vectors modulo 0x11B and their symbols, computed from `data_11b`.
    pub packets_11b: Vec<(Vec<u8>, Vec<u8>)>,
    layout: Layout,
}

impl Decoding {
    /// Draws `n` symbols of `bytes` and vectors that can be decoded.
    pub fn draw(n: usize, bytes: usize, random: &mut SmallRng) -> Decoding {
        Decoding::of(Layout::packed(n, bytes).random(random), random)
    }

    /// The same with given symbols, at least one, all of one length.
    pub fn of(sources: Vec<&'static [u8]>, random: &mut SmallRng) -> Decoding {
        let n = sources.len();
        let layout = Layout::packed(n, sources.first().map_or(0, |source| source.len()));
        let (matrix, _) = draw_matrix(kernel(Field::Gf256x11D), n, random);
        let received = multiply(Field::Gf256x11D, &matrix, &sources, layout);
        let mut data_11b: Vec<Vec<u8>> = sources.iter().map(|source| source.to_vec()).collect();
        if let Some(last) = data_11b.last_mut().and_then(|symbol| symbol.last_mut()) {
            *last = MARKER;
        }
        let (matrix_11b, _) = draw_matrix(kernel(Field::Gf256x11B), n, random);
        let data: Vec<&[u8]> = data_11b.iter().map(Vec::as_slice).collect();
        let symbols = multiply(Field::Gf256x11B, &matrix_11b, &data, layout);
        let packets_11b = matrix_11b
            .chunks(n)
            .zip(symbols)
            .map(|(vector, symbol)| (vector.to_vec(), symbol.to_vec()))
            .collect();
        Decoding { sources, received, matrix, data_11b, packets_11b, layout }
    }

    /// Symbols of the generation.
    pub fn n(&self) -> usize {
        self.layout.count
    }

    /// Bytes of a symbol.
    pub fn bytes(&self) -> usize {
        self.layout.bytes
    }

    /// Room for symbols.
    pub fn destinations(&self) -> Vec<&'static mut [u8]> {
        self.layout.zeros()
    }

    /// Payload bits of the generation, in 10^9.
    pub fn gigabits(&self) -> f64 {
        (self.n() * self.bytes() * 8) as f64 / 1e9
    }

    /// `data_11b` as slices.
    pub fn data_11b(&self) -> Vec<&[u8]> {
        self.data_11b.iter().map(Vec::as_slice).collect()
    }

    /// Inversion of the vectors, then one product.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] if the result differs from the sources.
    pub fn ours(&self, kernel: &'static Kernel) -> Result<Contestant, BenchError> {
        let (n, matrix, received) = (self.n(), self.matrix.clone(), self.received.clone());
        let mut scratch = matrix.clone();
        let mut decode = move |destinations: &mut Vec<&'static mut [u8]>| {
            scratch.copy_from_slice(&matrix);
            // The drawn matrix has an inverse; without, the check below fails.
            let _ = black_box(kernel.invert(&mut scratch, n));
            kernel.matmul(&scratch, &received, destinations);
        };
        let mut destinations = self.destinations();
        decode(&mut destinations);
        if !self.sources.iter().zip(&destinations).all(|(source, made)| source == made) {
            return Err(self.wrong(kernel, "invert and matmul"));
        }
        let job = move || decode(&mut destinations);
        Ok(Contestant::new(Role::Ours, kernel.name(), self.gigabits(), job))
    }

    /// As many fresh packets as there are, each a random combination of vectors and of symbols.
    /// `adjoining`: vectors precede their symbols, as on the wire, and one product computes both;
    /// otherwise there are two products.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] when a fresh vector does not describe its symbol.
    pub fn ours_recode(
        &self,
        kernel: &'static Kernel,
        adjoining: bool,
        random: &mut SmallRng,
    ) -> Result<Contestant, BenchError> {
        let n = self.n();
        let mut products = if adjoining { vec![self.packets()] } else { self.apart() };
        let pool: Vec<Vec<u8>> = (0..POOL).map(|_| draw_bytes(n * n, random)).collect();
        let recode = move |products: &mut [Product], turn: usize| {
            for (sources, destinations) in products {
                kernel.matmul(&pool[turn % POOL], sources, destinations);
            }
        };
        recode(&mut products, 0);
        let right = (0..n).all(|row| {
            let packet: Vec<u8> =
                products.iter().flat_map(|(_, made)| made[row].iter().copied()).collect();
            self.describes(&packet[..n], &packet[n..])
        });
        if !right {
            return Err(self.wrong(kernel, "recode"));
        }
        let mut turn = 0;
        Ok(Contestant::new(Role::Ours, kernel.name(), self.gigabits(), move || {
            recode(&mut products, turn);
            turn += 1;
        }))
    }

    /// Packets as on the wire, and room for as many.
    fn packets(&self) -> Product {
        let layout = Layout::packed(self.n(), self.n() + self.bytes());
        let mut held = layout.zeros();
        let vectors = self.matrix.chunks(self.n());
        for ((packet, vector), symbol) in held.iter_mut().zip(vectors).zip(&self.received) {
            packet[..vector.len()].copy_from_slice(vector);
            packet[vector.len()..].copy_from_slice(symbol);
        }
        (held.into_iter().map(|packet| &*packet).collect(), layout.zeros())
    }

    /// Vectors and symbols, each with room for as many.
    fn apart(&self) -> Vec<Product> {
        let matrix = &*self.matrix.clone().leak();
        let vectors_made = vec![0; matrix.len()].leak().chunks_mut(self.n());
        vec![
            (matrix.chunks(self.n()).collect(), vectors_made.collect()),
            (self.received.clone(), self.destinations()),
        ]
    }

    /// Whether a symbol matches its vector.
    fn describes(&self, vector: &[u8], symbol: &[u8]) -> bool {
        let mut expected = vec![0; symbol.len()];
        for (c, source) in vector.iter().zip(&self.sources) {
            for (expected, byte) in expected.iter_mut().zip(*source) {
                *expected ^= Field::Gf256x11D.mul(*c, *byte);
            }
        }
        expected == symbol
    }

    fn wrong(&self, kernel: &Kernel, operation: &'static str) -> BenchError {
        let field = Field::Gf256x11D.to_string();
        BenchError::Wrong {
            kernel: kernel.name(),
            operation,
            field,
            n: self.n(),
            bytes: self.bytes(),
        }
    }
}

type Product = (Vec<&'static [u8]>, Vec<&'static mut [u8]>);

/// A level that inverts, and the matrix and inverse for rivals.
///
/// # Errors
/// [`BenchError::Wrong`] when matrix and inverse do not make the identity.
pub fn invert(
    kernel: &'static Kernel,
    n: usize,
    random: &mut SmallRng,
) -> Result<(Contestant, Vec<u8>, Vec<u8>), BenchError> {
    let (matrix, inverse) = draw_matrix(kernel, n, random);
    if !are_inverse(kernel.field(), &matrix, &inverse, n) {
        let (operation, field) = ("invert", kernel.field().to_string());
        return Err(BenchError::Wrong { kernel: kernel.name(), operation, field, n, bytes: 0 });
    }
    let (original, mut scratch) = (matrix.clone(), matrix.clone());
    let ours = Contestant::new(Role::Ours, kernel.name(), 1.0, move || {
        scratch.copy_from_slice(&original);
        let _ = black_box(kernel.invert(&mut scratch, n));
    });
    Ok((ours, matrix, inverse))
}

fn are_inverse(field: Field, matrix: &[u8], inverse: &[u8], n: usize) -> bool {
    let element = |row: usize, column: usize| {
        (0..n).fold(0, |sum, i| sum ^ field.mul(matrix[row * n + i], inverse[i * n + column]))
    };
    (0..n).all(|row| (0..n).all(|column| element(row, column) == u8::from(row == column)))
}

/// A matrix that has an inverse, and that inverse.
fn draw_matrix(kernel: &Kernel, n: usize, random: &mut SmallRng) -> (Vec<u8>, Vec<u8>) {
    loop {
        let matrix = draw_bytes(n * n, random);
        let mut inverse = matrix.clone();
        if kernel.invert(&mut inverse, n).is_ok() {
            return (matrix, inverse);
        }
    }
}

fn draw_bytes(count: usize, random: &mut SmallRng) -> Vec<u8> {
    let mut bytes = vec![0; count];
    random.fill_bytes(&mut bytes);
    bytes
}

fn kernel(field: Field) -> &'static Kernel {
    Kernel::best().over(field).expect("every level has both fields of 256 elements")
}

fn multiply(field: Field, matrix: &[u8], sources: &[&[u8]], layout: Layout) -> Vec<&'static [u8]> {
    let mut made = layout.zeros();
    kernel(field).matmul(matrix, sources, &mut made);
    made.into_iter().map(|symbol| &*symbol).collect()
}

/// Generations whose coefficients are used in turn: more than a branch predictor can learn.
const POOL: usize = 256;
