//! The memory behind the simulated unit: HBM with a few pseudo channels.
//!
//! ```text
//!  adapter 0 --.
//!  adapter 1 --+-- channel 0: beats for all its adapters together
//!  adapter 2 --+-- channel 1
//!  adapter 3 --'             port 0, port 1: a channel of their own each
//! ```

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::model::{ADAPTERS, BEAT_BYTES, Inputs, Outputs, PORTS};

/// How the memory behaves. Clocks are the unit's.
#[derive(Clone, PartialEq, Debug)]
pub struct ChannelModel {
    /// Pseudo channels with sources: adapter `a` reads from channel `a` modulo this.
    pub channels: usize,
    /// Clocks from a read's address to its first beat if an adapter has its own channel.
    pub aligned_latency: u64,
    /// The same if adapters share one.
    pub shared_latency: u64,
    /// Beats that a channel reads in 8 clocks.
    pub beats_per_8: u32,
    /// Clocks from the last beat of a buffer to its acknowledgement.
    pub write_latency: u64,
    /// Idle part of the clocks, for each port.
    pub back_pressure: f64,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for ChannelModel {
    /// The paper's figures for its card: at most 90 clocks within a switch, at least 110 beyond it,
    /// and, from the card's documentation, 14.4 GB/s for each channel: 12 beats in 8 clocks.
    fn default() -> Self {
        Self {
            channels: 1,
            aligned_latency: 90,
            shared_latency: 110,
            beats_per_8: 12,
            write_latency: 90,
            back_pressure: 0.0,
            seed: 1,
        }
    }
}

/// A read in progress.
struct Burst {
    at: usize,
    beats: u8,
    first: u64,
}

/// The memory, and its transfers in flight.
pub(super) struct Memory {
    model: ChannelModel,
    adapters: usize,
    base: u64,
    bytes: Vec<u8>,
    bursts: [Option<Burst>; ADAPTERS],
    /// Eighths of beats that each channel may still read.
    credits: [u32; ADAPTERS],
    acknowledgements: [Option<u64>; PORTS],
    random: SmallRng,
    /// Beats transferred, either way.
    pub beats: u64,
}

impl Memory {
    pub fn new(model: ChannelModel, adapters: usize, base: u64, bytes: Vec<u8>) -> Self {
        let random = SmallRng::seed_from_u64(model.seed);
        Self {
            model,
            adapters,
            base,
            bytes,
            bursts: Default::default(),
            credits: [0; ADAPTERS],
            acknowledgements: [None; PORTS],
            random,
            beats: 0,
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn moves(&mut self) -> bool {
        self.model.back_pressure == 0.0 || !self.random.random_bool(self.model.back_pressure)
    }

    /// Drives the memory's outputs in this clock.
    pub fn drive(&mut self, cycle: u64, inputs: &mut Inputs) {
        (inputs.request_ready, inputs.beat_valid, inputs.write_ready) = (0, 0, 0);
        inputs.acknowledged = 0;
        for credit in &mut self.credits {
            *credit = (*credit + self.model.beats_per_8).min(CREDIT_MAX);
        }
        // Adapters of a channel take turns in going first.
        for turn in 0..self.adapters {
            let adapter = (turn + cycle as usize) % self.adapters;
            let channel = adapter % self.model.channels;
            let moves = self.moves();
            match &mut self.bursts[adapter] {
                None if moves => inputs.request_ready |= 1 << adapter,
                Some(burst) if moves && burst.first <= cycle && self.credits[channel] >= BEAT => {
                    self.credits[channel] -= BEAT;
                    let beat = &self.bytes[burst.at..burst.at + BEAT_BYTES];
                    inputs.beats[adapter].copy_from_slice(beat);
                    inputs.beat_valid |= 1 << adapter;
                    burst.at += BEAT_BYTES;
                    burst.beats -= 1;
                    self.beats += 1;
                    if burst.beats == 0 {
                        self.bursts[adapter] = None;
                    }
                }
                _ => {}
            }
        }
        for port in 0..PORTS {
            inputs.write_ready |= u8::from(self.moves()) << port;
            if self.acknowledgements[port].is_some_and(|at| at <= cycle) {
                self.acknowledgements[port] = None;
                inputs.acknowledged |= 1 << port;
            }
        }
    }

    /// Processes the unit's outputs in this clock.
    pub fn settle(&mut self, cycle: u64, inputs: &Inputs, outputs: &Outputs) {
        let asked = outputs.request_valid & inputs.request_ready;
        for adapter in (0..ADAPTERS).filter(|adapter| asked >> adapter & 1 == 1) {
            let beats = outputs.request_beats[adapter];
            let at = self.place(outputs.request_address[adapter], beats.into());
            let is_aligned = self.model.channels >= self.adapters;
            let latency =
                if is_aligned { self.model.aligned_latency } else { self.model.shared_latency };
            self.bursts[adapter] = Some(Burst { at, beats, first: cycle + latency });
        }
        let written = outputs.write_valid & inputs.write_ready;
        for port in (0..PORTS).filter(|port| written >> port & 1 == 1) {
            let at = self.place(outputs.write_address[port], 1);
            self.bytes[at..at + BEAT_BYTES].copy_from_slice(&outputs.write_data[port]);
            self.beats += 1;
            if outputs.write_last >> port & 1 == 1 {
                self.acknowledgements[port] = Some(cycle + self.model.write_latency);
            }
        }
    }

    /// Ends the simulation on an access outside the memory.
    fn place(&self, address: u64, beats: usize) -> usize {
        let at = address.checked_sub(self.base).map(|at| at as usize);
        let end = at.and_then(|at| at.checked_add(beats * BEAT_BYTES));
        let is_there = beats != 0 && end.is_some_and(|end| end <= self.bytes.len());
        assert!(is_there, "the unit requests {beats} beats at {address:#x}");
        at.expect("it is there")
    }
}

const BEAT: u32 = 8;
const CREDIT_MAX: u32 = 4 * BEAT;
