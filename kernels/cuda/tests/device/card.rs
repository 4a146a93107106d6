//! A card for tests of single kernels: memory, rows in it, launches, products.

use recoded_cuda::{Form, Geometry, Job, Returned, Technique};
use recoded_cuda_shim::Fault;
use recoded_gf::{Field, Kernel};

use crate::memory::Memory;

/// Random numbers of a seed that `RECODED_SEED` sets; printed, so that a failure can be repeated.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        let set = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = set.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
        println!("RECODED_SEED={seed}");
        Self(seed)
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// The arena and the constant tables, of the shim or of a card.
pub struct Card {
    memory: Memory,
    used: usize,
    pub seed: u64,
    /// Whether the shim treats races as faults: disabled for tests of the effect of a race.
    pub finds_races: bool,
}

impl Card {
    /// A card with `bytes` bytes of memory, and its tables filled.
    pub fn new(bytes: usize, seed: u64) -> Self {
        let mut card = Self { memory: Memory::new(bytes), used: 0, seed, finds_races: true };
        card.launch("field_tables", Field::ALL.len() as u32, &[]).expect("tables can be made");
        card
    }

    /// Frees all memory.
    pub fn forget(&mut self) {
        self.used = 0;
    }

    pub fn tables(&mut self) -> Vec<u8> {
        self.memory.tables()
    }

    /// Memory not allocated before, followed by 16 bytes that are never allocated.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let offset = self.used;
        self.used += (bytes as usize).next_multiple_of(16) + 16;
        assert!(self.used <= self.memory.bytes(), "the test's arena is too small");
        offset as u64
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.memory.write(offset, bytes);
    }

    pub fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.memory.read(offset, bytes)
    }

    /// Rows `stride` bytes apart, in fresh memory; gaps keep their poison.
    pub fn upload(&mut self, rows: &[Vec<u8>], stride: u32) -> u64 {
        let offset = self.allocate(rows.len() as u64 * u64::from(stride));
        for (index, row) in rows.iter().enumerate() {
            self.write(offset + index as u64 * u64::from(stride), row);
        }
        offset
    }

    pub fn download(
        &mut self,
        offset: u64,
        rows: usize,
        bytes: usize,
        stride: u32,
    ) -> Vec<Vec<u8>> {
        let row = |index| offset + index as u64 * u64::from(stride);
        (0..rows).map(|index| self.read(row(index), bytes)).collect()
    }

    pub fn outcome(&mut self, offset: u64) -> u32 {
        let bytes = self.read(offset, size_of::<Returned>());
        u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
    }

    /// Launches a kernel over jobs, with the geometry of `kernel`; fills in their first blocks.
    pub fn run(&mut self, kernel: &str, jobs: &[Job]) {
        let geometry = Geometry::of(kernel).expect("a kernel of the table");
        self.run_as(kernel, geometry, jobs);
    }

    /// The same for a kernel with the geometry of another one.
    pub fn run_as(&mut self, kernel: &str, geometry: &Geometry, jobs: &[Job]) {
        let mut jobs = jobs.to_vec();
        let mut blocks = 0;
        for job in &mut jobs {
            job.first_block = blocks;
            blocks += geometry.blocks(job.rows, job.symbol_bytes);
        }
        let fault = self.try_launch(kernel, geometry, blocks, &jobs).err();
        assert_eq!(fault, None, "{kernel}");
    }

    pub fn launch(&mut self, kernel: &str, grid: u32, jobs: &[Job]) -> Result<(), Fault> {
        let geometry = Geometry::of(kernel).expect("a kernel of the table");
        self.try_launch(kernel, geometry, grid, jobs)
    }

    pub fn try_launch(
        &mut self,
        kernel: &str,
        geometry: &Geometry,
        grid: u32,
        jobs: &[Job],
    ) -> Result<(), Fault> {
        self.seed = self.seed.wrapping_add(1);
        self.memory.launch(kernel, geometry, grid, jobs, self.seed, self.finds_races)
    }

    /// Converts `matrix`, of `columns` columns, `stride` bytes apart at `offset`, to a technique's
    /// form; returns its offset and its stride.
    pub fn convert(
        &mut self,
        form: Form,
        offset: u64,
        stride: u32,
        rows: u32,
        columns: u32,
        field: u8,
    ) -> (u64, u32) {
        let Some(kernel) = form.kernel() else { return (offset, stride) };
        let converted_stride = form.stride(columns, stride);
        let converted = self.allocate(form.bytes(rows, converted_stride));
        let job = Job {
            sources: offset,
            source_stride: stride,
            destinations: converted,
            destination_stride: converted_stride,
            rows,
            symbol_bytes: columns,
            field,
            ..Job::default()
        };
        self.run(kernel, &[job]);
        (converted, converted_stride)
    }
}

/// Rows to multiply and their expected results.
pub struct Product {
    pub field: Field,
    pub coefficients: Vec<Vec<u8>>,
    pub sources: Vec<Vec<u8>>,
    /// Previous content of the destinations, if products are added.
    pub before: Option<Vec<Vec<u8>>>,
}

impl Product {
    pub fn random(
        random: &mut Random,
        field: Field,
        rows: usize,
        depth: usize,
        bytes: usize,
        accumulate: bool,
    ) -> Self {
        // A third of the coefficients are 0 or 1, so that special cases coincide.
        let mut element = || match random.next() % 6 {
            0 => 0,
            1 => 1,
            _ => random.next() as u8 & (field.order() - 1) as u8,
        };
        let coefficients = (0..rows).map(|_| (0..depth).map(|_| element()).collect()).collect();
        let sources = (0..depth).map(|_| random.bytes(bytes)).collect();
        let before = accumulate.then(|| (0..rows).map(|_| random.bytes(bytes)).collect());
        Self { field, coefficients, sources, before }
    }

    pub fn bytes(&self) -> usize {
        self.sources.first().map_or(0, Vec::len)
    }

    /// The CPU's results.
    pub fn expected(&self) -> Vec<Vec<u8>> {
        let kernel = Kernel::best().over(self.field).expect("every level serves every field");
        let fresh = || vec![vec![0xAB; self.bytes()]; self.coefficients.len()];
        let mut destinations = self.before.clone().unwrap_or_else(fresh);
        let sources: Vec<&[u8]> = self.sources.iter().map(Vec::as_slice).collect();
        let mut rows: Vec<&mut [u8]> = destinations.iter_mut().map(Vec::as_mut_slice).collect();
        let coefficients = self.coefficients.concat();
        if self.before.is_some() {
            kernel.matmul_accumulate(&coefficients, &sources, &mut rows);
        } else {
            kernel.matmul(&coefficients, &sources, &mut rows);
        }
        destinations
    }

    /// Copies everything to the card, in the forms of `technique`. `gap` is added to strides.
    pub fn upload(&self, card: &mut Card, technique: &Technique, gap: u32) -> Job {
        let (rows, depth) = (self.coefficients.len() as u32, self.sources.len() as u32);
        let bytes = self.bytes() as u32;
        let field = Job::field_code(self.field);
        let stride = depth.next_multiple_of(16) + gap;
        let coefficients = card.upload(&self.coefficients, stride);
        let (coefficients, coefficient_stride) =
            card.convert(technique.coefficients, coefficients, stride, rows, depth, field);
        let stride = bytes + gap;
        let sources = card.upload(&self.sources, stride);
        let (sources, source_stride) =
            card.convert(technique.sources, sources, stride, depth, bytes, field);
        let destination_stride = bytes + gap;
        let destinations = match &self.before {
            Some(before) => card.upload(before, destination_stride),
            None => card.allocate(u64::from(rows) * u64::from(destination_stride)),
        };
        Job {
            coefficients,
            sources,
            destinations,
            coefficient_stride,
            source_stride,
            destination_stride,
            symbol_bytes: bytes,
            rows,
            depth,
            field,
            flags: if self.before.is_some() { Job::ACCUMULATE } else { 0 },
            ..Job::default()
        }
    }

    /// Compares a job's results with the CPU's, and checks that gaps between rows are intact.
    pub fn check(&self, card: &mut Card, job: &Job, what: &str) {
        let shape = (job.rows, job.depth, job.symbol_bytes, self.field);
        let stride = job.destination_stride as usize;
        for (index, expected) in self.expected().iter().enumerate() {
            let offset = job.destinations + (index * stride) as u64;
            let row = card.read(offset, stride);
            let (bytes, gap) = row.split_at(expected.len());
            let wrong = bytes.iter().zip(expected).filter(|(a, b)| a != b).count();
            assert_eq!(wrong, 0, "{what} {shape:?}: wrong bytes in destination {index}");
            assert!(gap.iter().all(|&byte| byte == 0xEE), "{what} {shape:?}: wrote into a gap");
        }
    }
}
