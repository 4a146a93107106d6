//! Buffers of stripes, in memory: data, parity, and room for recovered data.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// Data and parity buffers of a code.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Data buffers, k.
    pub data: usize,
    /// Parity buffers, m.
    pub parity: usize,
    /// Bytes of a buffer.
    pub bytes: usize,
    /// Stripes, one behind the other.
    pub stripes: usize,
}

impl Shape {
    /// Bytes of the data of all stripes.
    pub fn data_bytes(&self) -> usize {
        self.stripes * self.data * self.bytes
    }
}

/// Bytes of buffers that are to be written.
const SPOILT: u8 = 0xA5;

/// The buffers of one shape. Each stripe has its data, its parity and then room for its recovered
/// data, without gaps: stripes are as densely packed as a file of them.
pub struct Bed {
    /// The shape.
    pub shape: Shape,
    memory: Box<[u8]>,
}

/// The buffers of a stripe.
pub struct Stripe<'a> {
    /// Data.
    pub data: Vec<&'a [u8]>,
    /// Parity, to be written by an encoder and read by a decoder.
    pub parity: Vec<&'a mut [u8]>,
    /// Room for each data buffer.
    pub recovered: Vec<&'a mut [u8]>,
}

impl Bed {
    /// Random data.
    pub fn new(shape: Shape, seed: u64) -> Bed {
        let buffers = shape.stripes * (2 * shape.data + shape.parity);
        let mut bed = Bed { shape, memory: vec![0; buffers * shape.bytes].into_boxed_slice() };
        let mut random = SmallRng::seed_from_u64(seed);
        let data = shape.data * shape.bytes;
        let stripes = bed.memory.chunks_exact_mut(Self::stripe_bytes(shape));
        stripes.for_each(|stripe| random.fill_bytes(&mut stripe[..data]));
        bed
    }

    /// All stripes in turn.
    pub fn stripes(&mut self) -> impl Iterator<Item = Stripe<'_>> {
        let shape = self.shape;
        self.memory.chunks_exact_mut(Self::stripe_bytes(shape)).map(move |stripe| {
            let (data, rest) = stripe.split_at_mut(shape.data * shape.bytes);
            let (parity, recovered) = rest.split_at_mut(shape.parity * shape.bytes);
            Stripe {
                data: data.chunks_exact(shape.bytes).collect(),
                parity: parity.chunks_exact_mut(shape.bytes).collect(),
                recovered: recovered.chunks_exact_mut(shape.bytes).collect(),
            }
        })
    }

    /// Overwrites parity, so that a code that does nothing is found out.
    pub fn spoil_parity(&mut self) {
        self.stripes().flat_map(|stripe| stripe.parity).for_each(|buffer| buffer.fill(SPOILT));
    }

    /// Fills the room for recovered data with copies of the data, but for the buffers `lost`.
    pub fn spoil_data(&mut self, lost: &[usize]) {
        for Stripe { data, recovered, .. } in self.stripes() {
            for (id, (target, source)) in recovered.into_iter().zip(data).enumerate() {
                match lost.contains(&id) {
                    true => target.fill(SPOILT),
                    false => target.copy_from_slice(source),
                }
            }
        }
    }

    /// Whether recovered data equal the data.
    pub fn is_recovered(&mut self) -> bool {
        self.stripes().all(|stripe| stripe.recovered.iter().zip(&stripe.data).all(|(a, b)| a == b))
    }

    fn stripe_bytes(shape: Shape) -> usize {
        (2 * shape.data + shape.parity) * shape.bytes
    }
}
