//! Decoding row by row, as in the papers: for comparison with `Operation::Solve`.
//!
//! A bundle of one job `Solve` holds the received data: a coding vector and a payload per row, in
//! the order of the rows. Its results are left in the job's place.

use std::time::Instant;

use recoded_code::engine::{Arena, Bundle, Error, Operation, Placed, RANK_BYTES, Refused};
use recoded_gf::Field;

use super::{CudaEngine, InFlight};
use crate::driver::{DeviceMemory, Function};
use crate::job::{Geometry, Job};

/// Division of the work, row by row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Progressive {
    /// The card only, a launch per row (Nuclei §IV-F.2, Extreme NC §4.2.2).
    Card,
    /// The card only, all rows in one launch (Nuclei §IV-F, end).
    Buffered,
    /// The CPU finds the pivot between two launches per row (Nuclei §IV-F.1).
    Assisted,
}

impl CudaEngine {
    /// Decodes the bundle's only job, a `Solve`, and returns the seconds it took, without the
    /// copies of all rows to the card and back.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for other bundles, or as [`CudaEngine::measure`].
    pub fn decode_progressively(
        &mut self,
        bundle: Bundle,
        how: Progressive,
    ) -> Result<(Bundle, f64), Refused> {
        let refuse = |error, bundle| Refused { error, bundle: Box::new(bundle) };
        let placed = match bundle.jobs() {
            [placed] if placed.job.operation == Operation::Solve && bundle.segment().is_none() => {
                *placed
            }
            _ => {
                let error = Error::Unsupported { operation: "decode", rows: 0, columns: 0 };
                return Err(refuse(error, bundle));
            }
        };
        if let Err(error) = self.enter_idle() {
            return Err(refuse(error, bundle));
        }
        self.lanes[0].in_flight = Some(InFlight { bundle, error: None });
        let seconds = match how {
            Progressive::Card => self.decode_alone(&placed, 1),
            Progressive::Buffered => self.decode_alone(&placed, placed.job.columns),
            Progressive::Assisted => self.decode_assisted(&placed),
        };
        match (seconds, self.lanes.first_mut().and_then(|lane| lane.in_flight.take())) {
            (Ok(seconds), Some(in_flight)) => Ok((in_flight.bundle, seconds)),
            (Err(error), Some(in_flight)) => Err(refuse(error, in_flight.bundle)),
            (Err(error), None) => Err(refuse(error, Bundle::new(0, 0, 0))),
            (Ok(_), None) => Err(refuse(Error::Memory { bytes: 0 }, Bundle::new(0, 0, 0))),
        }
    }

    fn decode_alone(&mut self, placed: &Placed, rows_per_launch: usize) -> Result<f64, Error> {
        let (job, geometry) = (placed.job, geometry("decode_progressive")?);
        let (size, bytes) = (job.columns as u32, (job.row_bytes as u32).next_multiple_of(16));
        let blocks = geometry.blocks(size, bytes);
        let state_bytes = u64::from(Job::progressive_state_bytes(size) * blocks);
        let place = self.places(placed, state_bytes)?;
        let launches = job.columns.div_ceil(rows_per_launch);
        let jobs: Vec<Job> = (0..launches)
            .map(|launch| {
                let first = (launch * rows_per_launch) as u64;
                let vectors = place.input + placed.coefficients as u64;
                Job {
                    coefficients: vectors + first * job.coefficient_stride() as u64,
                    coefficient_stride: job.coefficient_stride() as u32,
                    sources: place.input + placed.sources as u64 + first * job.stride() as u64,
                    source_stride: job.stride() as u32,
                    destinations: place.output + placed.destinations as u64,
                    destination_stride: job.stride() as u32,
                    symbol_bytes: bytes,
                    rows: size,
                    depth: rows_per_launch.min(job.columns - first as usize) as u32,
                    field: Job::field_code(Field::Gf256x11D),
                    parameter: place.state,
                    ..Job::default()
                }
            })
            .collect();
        self.write_jobs(place.arena, &jobs)?;
        self.write(place.arena + place.state, &vec![0; state_bytes as usize])?;
        let function = self.function(geometry.name, geometry).map_err(|e| self.ended(&e))?;
        let tables = self.tables.as_ref().map_or(0, DeviceMemory::start);
        let shape = [blocks, geometry.threads, geometry.shared_bytes];
        let (begun, stream) = (Instant::now(), &self.lanes[0].stream);
        let launched = (0..launches as u64).try_for_each(|launch| {
            let jobs = place.arena + launch * size_of::<Job>() as u64;
            // SAFETY: the jobs name the parts of the arena that `places` has reserved.
            unsafe { stream.launch(function, shape, jobs, 1, tables, place.arena) }
        });
        launched.and_then(|()| stream.mark()).map_err(|error| self.ended(&error))?;
        self.wait_for_lane()?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut rank = [0; 4];
        self.read(&mut rank, place.arena + place.state)?;
        self.finish(placed, place.arena + place.output, u32::from_le_bytes(rank))?;
        Ok(seconds)
    }

    fn decode_assisted(&mut self, placed: &Placed) -> Result<f64, Error> {
        let (job, size) = (placed.job, placed.job.columns);
        let (reduce, eliminate) = (geometry("matmul_loop")?, geometry("eliminate_row")?);
        // Vector and payload are one row: first the arriving ones, then the held ones.
        let vector_bytes = size.next_multiple_of(16);
        let row_bytes = vector_bytes + job.row_bytes.next_multiple_of(16);
        let factors_bytes = vector_bytes;
        let state_bytes = (2 * size * row_bytes + 2 * factors_bytes) as u64;
        let place = self.places(placed, state_bytes)?;
        let received = self.received(placed, vector_bytes, row_bytes);
        let factors = place.state + (2 * size * row_bytes) as u64;
        let held = factors + factors_bytes as u64;
        let rows = place.state + (size * row_bytes) as u64;
        self.write(place.arena + place.state, &received)?;
        self.write(place.arena + rows, &vec![0; size * row_bytes])?;
        let functions = [(reduce.name, reduce), (eliminate.name, eliminate)]
            .map(|(name, geometry)| self.function(name, geometry));
        let [reducing, eliminating] = functions;
        let reducing = reducing.map_err(|error| self.ended(&error))?;
        let eliminating = eliminating.map_err(|error| self.ended(&error))?;
        let tables = self.tables.as_ref().map_or(0, DeviceMemory::start);
        let mut present = vec![0_u8; size];
        let (mut reduced, mut rank) = (vec![0; size], 0);
        let begun = Instant::now();
        for row in 0..size {
            let at = place.state + (row * row_bytes) as u64;
            let common = Job {
                destination_stride: row_bytes as u32,
                symbol_bytes: row_bytes as u32,
                field: Job::field_code(Field::Gf256x11D),
                ..Job::default()
            };
            let vector = &received[row * row_bytes..][..size];
            let known: Vec<u8> = vector.iter().zip(&present).map(|(c, held)| c * held).collect();
            self.write(place.arena + factors, &known)?;
            let job = Job {
                coefficients: factors,
                coefficient_stride: vector_bytes as u32,
                sources: rows,
                source_stride: row_bytes as u32,
                destinations: at,
                rows: 1,
                depth: size as u32,
                flags: Job::ACCUMULATE,
                ..common
            };
            self.write_jobs(place.arena, &[job])?;
            self.launch_one(reducing, reduce, &job, tables, place.arena)?;
            self.read(&mut reduced, place.arena + at)?;
            let pivot = (0..size).find(|&c| present[c] == 0 && reduced[c] != 0);
            let Some(pivot) = pivot else { continue };
            self.write(place.arena + held, &present)?;
            let job = Job {
                coefficients: held,
                sources: at,
                destinations: rows,
                rows: size as u32,
                parameter: pivot as u64,
                ..common
            };
            self.write_jobs(place.arena, &[job])?;
            self.launch_one(eliminating, eliminate, &job, tables, place.arena)?;
            (present[pivot], rank) = (1, rank + 1);
        }
        self.wait_for_lane()?;
        let seconds = begun.elapsed().as_secs_f64();
        self.gather(placed, place.arena, rows + vector_bytes as u64, row_bytes)?;
        self.finish(placed, place.arena + place.output, rank)?;
        Ok(seconds)
    }

    /// Launches one job that lies at the start of the arena, and marks its end.
    fn launch_one(
        &mut self,
        function: Function,
        geometry: &Geometry,
        job: &Job,
        tables: u64,
        arena: u64,
    ) -> Result<(), Error> {
        let shape =
            [geometry.blocks(job.rows, job.symbol_bytes), geometry.threads, geometry.shared_bytes];
        let stream = &self.lanes[0].stream;
        // SAFETY: the job names parts of the arena that `places` has reserved.
        let launched = unsafe { stream.launch(function, shape, arena, 1, tables, arena) };
        launched.and_then(|()| stream.mark()).map_err(|error| self.ended(&error))
    }

    /// Received rows in one allocation, vectors before payloads.
    fn received(&self, placed: &Placed, vector_bytes: usize, row_bytes: usize) -> Vec<u8> {
        let (job, mut all) = (placed.job, vec![0; placed.job.columns * row_bytes]);
        let in_flight = self.lanes[0].in_flight.as_ref();
        for (row, bytes) in all.chunks_exact_mut(row_bytes).enumerate() {
            let Some(InFlight { bundle, .. }) = in_flight else { break };
            bytes[..job.columns].copy_from_slice(bundle.coefficients(0, row));
            bytes[vector_bytes..][..job.row_bytes].copy_from_slice(bundle.source(0, row));
        }
        all
    }

    /// Moves decoded rows to the job's destinations.
    fn gather(
        &mut self,
        placed: &Placed,
        arena: u64,
        first: u64,
        row_bytes: usize,
    ) -> Result<(), Error> {
        let (job, output) = (placed.job, self.plan.output + placed.destinations as u64);
        let stream = &self.lanes[0].stream;
        let copied = (0..job.columns as u64).try_for_each(|row| {
            let (to, from) = (output + row * job.stride() as u64, first + row * row_bytes as u64);
            // SAFETY: both rows are within the arena.
            unsafe { stream.copy_within(arena + to, arena + from, job.row_bytes) }
        });
        copied.and_then(|()| stream.mark()).map_err(|error| self.ended(&error))?;
        self.wait_for_lane()
    }

    /// Room for jobs, inputs, outputs and state, with the inputs in place.
    fn places(&mut self, placed: &Placed, state_bytes: u64) -> Result<Places, Error> {
        let Some(InFlight { bundle, .. }) = &self.lanes[0].in_flight else {
            return Err(Error::Memory { bytes: 0 });
        };
        let aligned = |bytes: usize| bytes.next_multiple_of(256) as u64;
        let input = aligned(placed.job.columns * size_of::<Job>());
        let output = input + aligned(bundle.input_bytes());
        let state = output + aligned(bundle.output_bytes());
        let bytes = bundle.input()[..bundle.input_bytes()].to_vec();
        self.plan.output = output;
        let arena = self.reserve(state + state_bytes)?;
        self.write(arena + input, &bytes)?;
        Ok(Places { arena, input, output, state })
    }

    /// Copies from the card to this thread's memory.
    fn read(&mut self, to: &mut [u8], from: u64) -> Result<(), Error> {
        let lane = &mut self.lanes[0];
        if lane.staging.len() < to.len() {
            lane.staging = Arena::new(to.len().next_power_of_two());
        }
        // SAFETY: `from` is within the arena; staging stays in the lane.
        let copied = unsafe { lane.stream.copy_from(&mut lane.staging[..to.len()], from) };
        copied.and_then(|()| lane.stream.mark()).map_err(|error| self.ended(&error))?;
        self.wait_for_lane()?;
        to.copy_from_slice(&self.lanes[0].staging[..to.len()]);
        Ok(())
    }

    /// Copies the results into the bundle, with the reached rank.
    fn finish(&mut self, placed: &Placed, from: u64, rank: u32) -> Result<(), Error> {
        let bytes = placed.destinations + placed.job.output_bytes();
        let mut results = vec![0; bytes];
        self.read(&mut results, from)?;
        if let Some(InFlight { bundle, .. }) = &mut self.lanes[0].in_flight {
            bundle.output_mut()[..bytes].copy_from_slice(&results);
            bundle.output_mut()[..4].copy_from_slice(&rank.to_le_bytes());
            const { assert!(RANK_BYTES >= 4) };
        }
        Ok(())
    }
}

/// Addresses: the arena on the card, the others relative to its start.
struct Places {
    arena: u64,
    input: u64,
    output: u64,
    state: u64,
}

fn geometry(kernel: &str) -> Result<&'static Geometry, Error> {
    let missing = Error::Unsupported { operation: "decode", rows: 0, columns: 0 };
    Geometry::of(kernel).ok_or(missing)
}
