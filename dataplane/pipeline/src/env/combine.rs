//! Random combinations: fresh coded symbols from held ones, with their coding vectors.
//!
//! One fused multiply forms a whole group of packets in one pass over the sources.

use std::mem;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::vector;
use recoded_gf::{FieldOrder, Kernel};
use recoded_wire::coded::{Block, SIZE_MAX, coding_offset, vector_bytes};
use recoded_wire::frames::{Frames, GATHER_MAX, Span};
use recoded_wire::header::PacketType;

use crate::base::layout::symbol_offset;
use crate::plan::PlanMaker;

/// Packets formed per pass: enough destinations for the kernels to amortise their loads.
pub(crate) const GROUP_MAX: usize = 16;

/// Symbols decoded by one product: with groups of 16 the setup cost of a product is noticeable.
pub(crate) const SOLVED_MAX: usize = 64;

/// Operands of a combination.
pub(crate) struct Sources<'a> {
    /// Generation size: elements of a coding vector.
    pub size: usize,
    /// Field of the coefficients.
    pub field: FieldOrder,
    /// Block word, if it is a batch.
    pub block: Option<Block>,
    /// The held symbols.
    pub symbols: &'a [Span],
    /// Their coding vectors, unpacked, `stride` bytes apart; `None` when they are the source
    /// symbols themselves.
    pub vectors: Option<(&'a [u8], usize)>,
}

impl Sources<'_> {
    /// Type of the packets formed.
    pub(crate) fn packet_type(&self) -> PacketType {
        if self.block.is_some() { PacketType::Bats } else { PacketType::Generation }
    }

    /// Bytes in front of the symbol of a formed packet: header, block word and vector.
    pub(crate) fn bytes_before(&self) -> usize {
        coding_offset(self.block.is_some()) + vector_bytes(self.size, self.field.code())
    }

    /// Bytes of the UDP payload of a combination.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.bytes_before() + self.symbols.first().map_or(0, |symbol| usize::from(symbol.len))
    }
}

/// Scratch and random state of one worker.
pub(crate) struct Combiner {
    kernel: &'static Kernel,
    // ChaCha is not linear over GF(2): a shift-register generator caps the rank at its state bits.
    random: ChaCha8Rng,
    /// Makes plans if no other thread does.
    plan_maker: PlanMaker,
    coefficients: Vec<u8>,
    vectors: Vec<u8>,
    formed: Vec<Span>,
    solutions: Vec<u8>,
    /// Buffer for a packet that is sealed or opened.
    envelope: Vec<u8>,
    /// A copy of an IP packet.
    packet: Vec<u8>,
}

impl Combiner {
    pub(crate) fn new(seed: u64) -> Combiner {
        Combiner {
            kernel: Kernel::best(),
            random: ChaCha8Rng::seed_from_u64(seed),
            plan_maker: PlanMaker::new(),
            coefficients: vec![0; GROUP_MAX * GATHER_MAX],
            vectors: vec![0; GROUP_MAX * SIZE_MAX],
            formed: Vec::with_capacity(GROUP_MAX),
            solutions: vec![0; SOLVED_MAX * SIZE_MAX],
            envelope: vec![0; usize::from(u16::MAX)],
            packet: vec![0; usize::from(u16::MAX)],
        }
    }

    /// A random 32-bit number.
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.random.next_u32()
    }

    /// The maker of plans.
    pub(crate) fn plan_maker(&mut self) -> &mut PlanMaker {
        &mut self.plan_maker
    }

    /// Buffers for an opened envelope and for a copy of an IP packet, each of maximum length.
    pub(crate) fn packets(&mut self) -> (&mut [u8], &mut [u8]) {
        (&mut self.envelope, &mut self.packet)
    }

    /// Takes the envelope buffer out; [`Combiner::put_back`] returns it.
    pub(crate) fn take_envelope(&mut self) -> Vec<u8> {
        mem::take(&mut self.envelope)
    }

    /// Puts the envelope buffer back.
    pub(crate) fn put_back(&mut self, envelope: Vec<u8>) {
        self.envelope = envelope;
    }

    /// Takes the IP packet buffer out; [`Combiner::put_back_packet`] returns it.
    pub(crate) fn take_packet(&mut self) -> Vec<u8> {
        mem::take(&mut self.packet)
    }

    /// Puts back the buffer that [`Combiner::take_packet`] took out.
    pub(crate) fn put_back_packet(&mut self, packet: Vec<u8>) {
        self.packet = packet;
    }

    /// The kernel in use.
    pub(crate) fn kernel(&self) -> &'static Kernel {
        self.kernel
    }

    /// The kernel, and room for the coefficients of [`SOLVED_MAX`] decoded symbols.
    pub(crate) fn solver(&mut self) -> (&'static Kernel, &mut [u8]) {
        (self.kernel, &mut self.solutions)
    }

    /// Forms up to `count` (at most [`GROUP_MAX`]) fresh combinations, each in a frame of its own
    /// with its packed coding vector in front of the symbol. Fewer when frames run out. The caller
    /// owns one reference to each frame of the returned symbol spans.
    pub(crate) fn combine(
        &mut self,
        frames: &mut impl Frames,
        sources: &Sources<'_>,
        count: usize,
    ) -> &[Span] {
        self.formed.clear();
        let Some(first) = sources.symbols.first() else {
            return &self.formed;
        };
        let packed_bytes = vector_bytes(sources.size, sources.field.code());
        let offset = symbol_offset(sources.bytes_before()) as u16;
        for _ in 0..count.min(GROUP_MAX) {
            let Some(frame) = frames.take() else { break };
            self.formed.push(Span { frame, offset, len: first.len });
        }
        self.draw(sources);
        self.form_vectors(sources);
        let held = sources.symbols.len();
        let (kernel, coefficients) = (self.kernel, &self.coefficients[..self.formed.len() * held]);
        frames.with_disjoint(sources.symbols, &self.formed, |held, out| {
            kernel.matmul(coefficients, held, out);
        });
        for (index, symbol) in self.formed.iter().enumerate() {
            let packed = Span {
                offset: symbol.offset - packed_bytes as u16,
                len: packed_bytes as u16,
                ..*symbol
            };
            let elements = &self.vectors[index * sources.size..(index + 1) * sources.size];
            vector::pack(sources.field, elements, frames.bytes_mut(packed));
        }
        &self.formed
    }

    /// Draws a row of coefficients per packet, uniform over the field but never all zero.
    fn draw(&mut self, sources: &Sources<'_>) {
        let mask = (sources.field.order() - 1) as u8;
        let held = sources.symbols.len();
        for row in self.coefficients.chunks_exact_mut(held).take(self.formed.len()) {
            loop {
                self.random.fill_bytes(row);
                for byte in row.iter_mut() {
                    *byte = sources.field.embed(*byte & mask);
                }
                if row.iter().any(|byte| *byte != 0) {
                    break;
                }
            }
        }
    }

    fn form_vectors(&mut self, sources: &Sources<'_>) {
        let (held, size, count) = (sources.symbols.len(), sources.size, self.formed.len());
        let Some((vectors, stride)) = sources.vectors else {
            // Sources are the first symbols of the generation, so coefficients are the vector.
            self.vectors[..count * size].copy_from_slice(&self.coefficients[..count * held]);
            return;
        };
        let mut rows: [&[u8]; GATHER_MAX] = [&[]; GATHER_MAX];
        for (row, vector) in rows.iter_mut().zip(vectors.chunks(stride)).take(held) {
            *row = &vector[..size];
        }
        let mut outputs = self.vectors[..count * size].chunks_exact_mut(size);
        let mut views: [&mut [u8]; GROUP_MAX] =
            std::array::from_fn(|_| outputs.next().unwrap_or_default());
        self.kernel.matmul(&self.coefficients[..count * held], &rows[..held], &mut views[..count]);
    }
}
