//! Jobs with random contents anywhere in the simulated card's memory, and the CPU's results for
//! them.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::ops::Range;
use std::{env, iter};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_fpga::layout::{Completion, Descriptor, field, flag, op};
use recoded_fpga::sim::{MemoryModel, Simulation};
use recoded_fpga::{Driver, DriverOptions, Matrix, Transport, append_tiles};
use recoded_gf::{Field, Kernel};

/// A generator from `RECODED_SEED`, or from `seed`; prints which.
pub fn random(seed: u64) -> ChaCha8Rng {
    let seed = env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
    println!("RECODED_SEED={seed} repeats this run");
    ChaCha8Rng::seed_from_u64(seed)
}

pub fn below(random: &mut ChaCha8Rng, limit: usize) -> usize {
    ((u64::from(random.next_u32()) * limit as u64) >> 32) as usize
}

pub fn within(random: &mut ChaCha8Rng, range: Range<usize>) -> usize {
    range.start + below(random, range.len())
}

/// A product and the layout of its rows in memory.
#[derive(Copy, Clone, Debug)]
pub struct Shape {
    pub field: Field,
    pub rows: usize,
    pub columns: usize,
    pub row_bytes: usize,
    /// Rows are named by lists of addresses; otherwise they are a stride apart.
    pub is_listed: bool,
    /// Rows begin anywhere, not at whole beats.
    pub is_unaligned: bool,
}

/// A job that lies in memory.
pub struct Placed {
    pub descriptor: Descriptor,
    pub shape: Shape,
    destinations: Vec<u64>,
    expected: Vec<Vec<u8>>,
}

/// A driver over a simulated card, with memory for jobs.
pub struct Rig {
    pub driver: Driver<Simulation>,
    pub random: ChaCha8Rng,
    arena: Range<u64>,
    next: u64,
}

const MEMORY_BYTES: usize = 48 << 20;

/// Surrounds destinations, and must be intact afterwards.
const GUARD: u8 = 0xA5;

impl Rig {
    pub fn new(model: MemoryModel, options: DriverOptions, random: ChaCha8Rng) -> Self {
        let simulation = Simulation::new(model, MEMORY_BYTES + (1 << 20));
        let mut driver = Driver::open(simulation, options).expect("the card is there");
        let start = driver.transport().allocate(MEMORY_BYTES).expect("it has the memory");
        let arena = start..start + MEMORY_BYTES as u64;
        Self { driver, random, next: arena.start, arena }
    }

    /// Forgets all jobs.
    pub fn clear(&mut self) {
        self.next = self.arena.start;
    }

    /// Room for `bytes`, at a multiple of 64 or anywhere.
    pub fn place(&mut self, bytes: usize, is_unaligned: bool) -> u64 {
        let shift = if is_unaligned { below(&mut self.random, 64) } else { 0 };
        let start = self.next.next_multiple_of(64) + shift as u64;
        self.next = start + bytes as u64;
        assert!(self.next <= self.arena.end, "the test needs more memory");
        start
    }

    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        self.driver.transport().write(address, bytes).expect("it is allocated");
    }

    pub fn read(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.driver.transport().read(address, &mut read).expect("it is allocated");
        read
    }

    fn write_list(&mut self, addresses: &[u64]) -> u64 {
        let list = self.place(8 * addresses.len(), false);
        let bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
        self.write(list, &bytes);
        list
    }

    /// Rows of a job: their addresses, and the descriptor's fields for them.
    fn place_rows(&mut self, count: usize, shape: &Shape) -> (Vec<u64>, u64, u32) {
        let (bytes, is_unaligned) = (shape.row_bytes, shape.is_unaligned);
        // At least one guard byte on both sides.
        if shape.is_listed {
            let addresses: Vec<u64> =
                (0..count).map(|_| self.place(bytes + 65, is_unaligned) + 64).collect();
            let list = self.write_list(&addresses);
            return (addresses, list, 0);
        }
        let stride = if is_unaligned { bytes + 1 } else { (bytes + 1).next_multiple_of(64) };
        let first = self.place(stride * count + 128, is_unaligned) + 64;
        let addresses = (0..count).map(|row| first + (row * stride) as u64).collect();
        (addresses, first, stride as u32)
    }

    /// A job with random rows and these coefficients.
    pub fn job_with(&mut self, shape: Shape, coefficients: &[u8]) -> Placed {
        let Shape { field, rows, columns, row_bytes, .. } = shape;
        let mut sources = vec![vec![0; row_bytes]; columns];
        sources.iter_mut().for_each(|row| self.random.fill_bytes(row));
        self.job_of(Shape { field, rows, columns, ..shape }, coefficients, &sources)
    }

    /// A job with these rows and coefficients.
    pub fn job_of(&mut self, shape: Shape, coefficients: &[u8], sources: &[Vec<u8>]) -> Placed {
        let Shape { field, rows, columns, row_bytes, is_listed, .. } = shape;
        let (tile_rows, tile_columns) = self.driver.shape().tile();
        let mut tiles = Vec::new();
        let matrix = Matrix { elements: coefficients, rows, columns, stride: columns };
        append_tiles(&matrix, tile_rows, tile_columns, &mut tiles);
        let coefficients_at = self.place(tiles.len(), false);
        self.write(coefficients_at, &tiles);

        let (source_at, sources_field, source_stride) = self.place_rows(columns, &shape);
        for (address, row) in source_at.iter().zip(sources) {
            self.write(*address, row);
        }
        let (destinations, destinations_field, destination_stride) = self.place_rows(rows, &shape);
        for address in &destinations {
            self.write(address - 1, &vec![GUARD; row_bytes + 2]);
        }

        let mut expected = vec![vec![0; row_bytes]; rows];
        let views: Vec<&[u8]> = sources.iter().map(|row| &row[..]).collect();
        let mut made: Vec<&mut [u8]> = expected.iter_mut().map(|row| &mut row[..]).collect();
        let kernel = Kernel::best().over(field).expect("the best kernel does every field");
        kernel.matmul(coefficients, &views, &mut made);

        let flags =
            if is_listed { 0 } else { 1 << flag::SOURCE_STRIDE | 1 << flag::DESTINATION_STRIDE };
        let descriptor = Descriptor {
            op: op::MULTIPLY,
            field: field_code(field),
            polynomial: field.polynomial() as u8,
            flags,
            k: columns as u16,
            n: rows as u16,
            row_bytes: row_bytes as u32,
            coefficients: coefficients_at,
            sources: sources_field,
            destinations: destinations_field,
            source_stride,
            destination_stride,
            ..Descriptor::default()
        };
        Placed { descriptor, shape, destinations, expected }
    }

    /// A job with random coefficients, too.
    pub fn job(&mut self, shape: Shape) -> Placed {
        let mut coefficients = vec![0; shape.rows * shape.columns];
        self.random.fill_bytes(&mut coefficients);
        self.job_with(shape, &coefficients)
    }

    pub fn submit(&mut self, descriptor: Descriptor) {
        self.driver.submit(descriptor).expect("the ring has room");
    }

    /// The next completion.
    pub fn wait(&mut self) -> Completion {
        let completion = self.driver.wait().expect("the card works");
        completion.expect("a job is in flight")
    }

    /// Whether destinations equal the CPU's, with their neighbours unchanged.
    pub fn is_right(&mut self, job: &Placed) -> bool {
        let rows: Vec<_> = job.destinations.iter().copied().zip(&job.expected).collect();
        rows.into_iter().all(|(address, expected)| {
            let made = self.read(address - 1, expected.len() + 2);
            let guarded: Vec<u8> = iter::once(GUARD)
                .chain(expected.iter().copied())
                .chain(iter::once(GUARD))
                .collect();
            made == guarded
        })
    }

    /// Runs all jobs, as many at once as the ring takes, and compares them.
    pub fn run(&mut self, jobs: &[Placed]) {
        let mut waiting = jobs.iter();
        let mut done = 0;
        while done < jobs.len() {
            while self.driver.room() > 0
                && let Some(job) = waiting.next()
            {
                self.submit(job.descriptor);
            }
            let completion = self.wait();
            let job = &jobs[done];
            assert_eq!(completion.status, 0, "{:?}", job.shape);
            assert!(self.is_right(job), "wrong bytes: {:?}", job.shape);
            done += 1;
        }
    }
}

pub const fn field_code(field: Field) -> u8 {
    match field {
        Field::Gf256x11D | Field::Gf256x11B => field::GF256,
        Field::PackedGf16x13 => field::GF16,
        Field::PackedGf4x7 => field::GF4,
        Field::PackedGf2 => field::GF2,
    }
}
