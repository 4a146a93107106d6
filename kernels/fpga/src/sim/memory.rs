//! The memory behind the simulated engine: latency, bandwidth, back-pressure and errors.
//!
//! Responses are in request order, as the engine has one ID. A violation of AXI by the engine ends
//! the simulation with a panic.

use std::collections::VecDeque;
use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::host::HostMemory;
use super::model::{Inputs, Outputs};
use crate::transport::MemoryError;
use crate::transport::arenas::Arenas;

/// How the memory behaves.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryModel {
    /// Clocks from a read's address to its first beat.
    pub read_latency: u64,
    /// Clocks from a burst's last beat to its acknowledgement.
    pub write_latency: u64,
    /// Maximum of additional clocks, drawn for each burst.
    pub latency_jitter: u64,
    /// Beats read in 1,024 clocks, and the same number written: 1,024 is 19.2 GB/s each way at 300
    /// MHz.
    pub beats_per_1024: u32,
    /// Idle part of the clocks, for each channel.
    pub back_pressure: f64,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Default for MemoryModel {
    /// HBM as the fifth paper measured it at its slowest without contention: 110 clocks.
    fn default() -> Self {
        Self {
            read_latency: 110,
            write_latency: 110,
            latency_jitter: 0,
            beats_per_1024: 1024,
            back_pressure: 0.0,
            seed: 1,
        }
    }
}

/// Faults of the memory, for tests.
#[derive(Clone, Default, Debug)]
pub struct MemoryFaults {
    /// Reads of these addresses are answered with SLVERR.
    pub failing_reads: Vec<Range<u64>>,
    /// Writes to these addresses are answered with SLVERR, and change nothing.
    pub failing_writes: Vec<Range<u64>>,
    /// Nothing is answered any more.
    pub is_silent: bool,
}

/// A burst that waits for its beats or its acknowledgement.
struct Burst {
    address: u64,
    beats: u32,
    ready_at: u64,
    response: u8,
}

/// Memory and the two halves of its port.
pub struct Memory {
    model: MemoryModel,
    pub faults: MemoryFaults,
    /// Host memory that the card also reaches.
    pub host: Option<Arenas<HostMemory>>,
    random: SmallRng,
    base: u64,
    bytes: Vec<u8>,
    used: usize,
    reads: VecDeque<Burst>,
    writes: VecDeque<Burst>,
    acknowledgements: VecDeque<Burst>,
    read_credit: u32,
    write_credit: u32,
    /// Requests that the engine offered in the last clock and must offer again.
    read_offered: Option<(u64, u8)>,
    write_offered: Option<(u64, u8)>,
}

impl Memory {
    pub fn new(model: MemoryModel, bytes: usize) -> Self {
        let random = SmallRng::seed_from_u64(model.seed);
        Self {
            model,
            faults: MemoryFaults::default(),
            host: None,
            random,
            base: BASE,
            bytes: vec![0; bytes],
            used: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            acknowledgements: VecDeque::new(),
            read_credit: 0,
            write_credit: 0,
            read_offered: None,
            write_offered: None,
        }
    }

    pub fn allocate(&mut self, bytes: usize) -> Result<u64, MemoryError> {
        let room = bytes.next_multiple_of(PAGE_BYTES);
        if room > self.bytes.len() - self.used {
            return Err(MemoryError::NoRoom { bytes });
        }
        let address = self.base + self.used as u64;
        self.used += room;
        Ok(address)
    }

    pub fn slice(&mut self, address: u64, bytes: usize) -> Result<&mut [u8], MemoryError> {
        let outside = MemoryError::Outside { address, bytes };
        let start = address.checked_sub(self.base).ok_or(outside)? as usize;
        let end = start.checked_add(bytes).filter(|end| *end <= self.used).ok_or(outside)?;
        Ok(&mut self.bytes[start..end])
    }

    /// The beat that the card reads at `address`.
    fn beat(&mut self, address: u64) -> Option<[u8; BEAT_BYTES]> {
        if let Ok(bytes) = self.slice(address, BEAT_BYTES) {
            return bytes.try_into().ok();
        }
        self.host.as_ref()?.with(|host| host.read(address))
    }

    /// Writes the card's beat; `false` if there is no memory.
    fn set_beat(&mut self, address: u64, beat: &[u8; BEAT_BYTES], strobe: u64) -> bool {
        if let Ok(bytes) = self.slice(address, BEAT_BYTES) {
            for (index, (byte, new)) in bytes.iter_mut().zip(beat).enumerate() {
                if strobe >> index & 1 == 1 {
                    *byte = *new;
                }
            }
            return true;
        }
        let host = self.host.as_ref();
        host.is_some_and(|host| host.with(|host| host.write(address, beat, strobe)))
    }

    /// Drives the memory's outputs in this clock.
    pub fn drive(&mut self, now: u64, inputs: &mut Inputs) {
        self.read_credit = (self.read_credit + self.model.beats_per_1024).min(CREDIT_MAX);
        self.write_credit = (self.write_credit + self.model.beats_per_1024).min(CREDIT_MAX);
        inputs.read_address_ready = self.reads.len() < BURSTS_MAX && self.moves();
        inputs.write_address_ready = self.writes.len() < BURSTS_MAX && self.moves();
        inputs.write_ready =
            !self.writes.is_empty() && self.write_credit >= CREDIT_PER_BEAT && self.moves();
        // An offered beat stays until it is taken.
        if !inputs.read_valid
            && self.reads.front().is_some_and(|burst| burst.ready_at <= now)
            && self.read_credit >= CREDIT_PER_BEAT
            && self.moves()
        {
            self.offer_beat(inputs);
        }
        if !inputs.acknowledge_valid
            && let Some(burst) = self.acknowledgements.front()
            && burst.ready_at <= now
        {
            inputs.acknowledge_response = burst.response;
            inputs.acknowledge_valid = self.moves();
        }
    }

    fn moves(&mut self) -> bool {
        let pressure = self.model.back_pressure;
        !self.faults.is_silent && (pressure == 0.0 || !self.random.random_bool(pressure))
    }

    fn offer_beat(&mut self, inputs: &mut Inputs) {
        let Some(burst) = self.reads.front() else { return };
        let (address, failing) = (burst.address, &self.faults.failing_reads);
        inputs.read_valid = true;
        inputs.read_response =
            if failing.iter().any(|range| range.contains(&address)) { SLVERR } else { 0 };
        match self.beat(address) {
            Some(bytes) => {
                for (word, bytes) in inputs.read_data.iter_mut().zip(bytes.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
            }
            None => inputs.read_response = DECERR,
        }
    }

    /// Processes the transfers of this clock.
    pub fn settle(&mut self, now: u64, inputs: &mut Inputs, outputs: &Outputs) {
        self.take_addresses(now, inputs, outputs);
        if inputs.read_valid && outputs.read_ready != 0 {
            inputs.read_valid = false;
            self.read_credit -= CREDIT_PER_BEAT;
            let burst = self.reads.front_mut().expect("a beat belongs to a burst");
            burst.address = burst.address.wrapping_add(BEAT_BYTES as u64);
            burst.beats -= 1;
            if burst.beats == 0 {
                self.reads.pop_front();
            }
        }
        if inputs.write_ready && outputs.write_valid != 0 {
            self.write_beat(now, outputs);
        }
        if inputs.acknowledge_valid && outputs.acknowledge_ready != 0 {
            inputs.acknowledge_valid = false;
            self.acknowledgements.pop_front();
        }
    }

    fn take_addresses(&mut self, now: u64, inputs: &Inputs, outputs: &Outputs) {
        let read = (outputs.read_address_valid != 0)
            .then_some((outputs.read_address, outputs.read_length));
        let write = (outputs.write_address_valid != 0)
            .then_some((outputs.write_address, outputs.write_length));
        let stays = |before: Option<_>, now| before.is_none() || before == now;
        assert!(stays(self.read_offered, read), "AXI: a read address must stay until it is taken");
        assert!(stays(self.write_offered, write), "AXI: a write address must stay, too");
        self.read_offered = read.filter(|_| !inputs.read_address_ready);
        self.write_offered = write.filter(|_| !inputs.write_address_ready);
        if let Some((address, length)) = read.filter(|_| inputs.read_address_ready) {
            let burst = self.burst(now + self.model.read_latency, address, length);
            self.reads.push_back(burst);
        }
        if let Some((address, length)) = write.filter(|_| inputs.write_address_ready) {
            let burst = self.burst(0, address, length);
            self.writes.push_back(burst);
        }
    }

    fn burst(&mut self, ready_at: u64, address: u64, length: u8) -> Burst {
        let beats = u32::from(length) + 1;
        assert!(address.is_multiple_of(BEAT_BYTES as u64), "AXI: bursts begin at whole beats");
        let bytes = u64::from(beats) * BEAT_BYTES as u64;
        assert!(address % AXI_PAGE + bytes <= AXI_PAGE, "AXI: bursts do not cross 4 KiB");
        let jitter = self.random.random_range(0..=self.model.latency_jitter);
        Burst { address, beats, ready_at: ready_at + jitter, response: 0 }
    }

    fn write_beat(&mut self, now: u64, outputs: &Outputs) {
        self.write_credit -= CREDIT_PER_BEAT;
        let burst = self.writes.front_mut().expect("a beat is taken when there is a burst");
        let address = burst.address;
        burst.address = burst.address.wrapping_add(BEAT_BYTES as u64);
        burst.beats -= 1;
        let is_last = burst.beats == 0;
        assert_eq!(outputs.write_last != 0, is_last, "AXI: WLAST marks the last beat");
        let failing = self.faults.failing_writes.iter().any(|range| range.contains(&address));
        let mut beat = [0; BEAT_BYTES];
        beat.copy_from_slice(outputs.write_data.map(u64::to_le_bytes).as_flattened());
        let response = if failing {
            SLVERR
        } else if self.set_beat(address, &beat, outputs.write_strobe) {
            0
        } else {
            DECERR
        };
        let Some(burst) = self.writes.front_mut() else { return };
        burst.response = burst.response.max(response);
        if is_last && let Some(mut burst) = self.writes.pop_front() {
            let jitter = self.random.random_range(0..=self.model.latency_jitter);
            burst.ready_at = now + self.model.write_latency + jitter;
            self.acknowledgements.push_back(burst);
        }
    }
}

/// Not 0, so that null is outside, and beyond what 32 bits reach.
const BASE: u64 = 0x12_3450_0000;

const BEAT_BYTES: usize = 64;

const PAGE_BYTES: usize = 4096;

/// The boundary that no burst may cross.
const AXI_PAGE: u64 = 4096;

/// Bursts that the memory accepts before it responds: more than the engine has in flight.
const BURSTS_MAX: usize = 256;

const CREDIT_PER_BEAT: u32 = 1024;

const CREDIT_MAX: u32 = 2 * CREDIT_PER_BEAT;

const SLVERR: u8 = 2;
const DECERR: u8 = 3;
