//! A simulated card: the RTL as compiled by Verilator, with a model of its memory, in this process.
//! It runs only during calls of its methods.

mod host;
mod memory;
mod mishaps;
mod model;

pub mod seed;

use std::time::Duration;

use recoded_code::engine::Arena;

pub use memory::{MemoryFaults, MemoryModel};
pub use mishaps::{Mishap, Mishaps};

use crate::layout::{control, register};
use crate::transport::arenas::Arenas;
use crate::transport::{MemoryError, Transport};
use host::HostMemory;
use memory::Memory;
use model::{Inputs, Model, Outputs};

/// An engine of the default shape with its memory.
pub struct Simulation {
    model: Model,
    memory: Memory,
    inputs: Inputs,
    outputs: Outputs,
    cycle: u64,
    mishaps: Option<Mishaps>,
}

impl Simulation {
    /// A card with `memory_bytes` of memory, after power-on reset.
    #[must_use]
    pub fn new(model: MemoryModel, memory_bytes: usize) -> Self {
        let mut simulation = Self {
            model: Model::new(),
            memory: Memory::new(model, memory_bytes),
            inputs: Inputs { reset: true, ..Inputs::default() },
            outputs: Outputs::default(),
            cycle: 0,
            mishaps: None,
        };
        simulation.run(RESET_CYCLES);
        simulation.inputs.reset = false;
        simulation
    }

    /// The same card with access to the memory of bundles, as through an IOMMU: without this it has
    /// its own memory only, to which they are copied.
    #[must_use]
    pub fn with_host_memory(mut self) -> Self {
        self.memory.host = Some(Arenas::new(HostMemory::default(), HOST_BASE));
        self
    }

    /// Clocks since power-on.
    #[must_use]
    pub const fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Sets the faults from now on.
    pub const fn faults(&mut self) -> &mut MemoryFaults {
        &mut self.memory.faults
    }

    /// Lets a file control the faults.
    pub fn set_mishaps(&mut self, mishaps: Mishaps) {
        self.mishaps = Some(mishaps);
    }

    fn apply_mishap(&mut self) {
        let Some(mishap) = self.mishaps.as_mut().map(Mishaps::next) else { return };
        let faults = self.faults();
        faults.is_silent = mishap == Mishap::Stall;
        faults.failing_reads.clear();
        match mishap {
            Mishap::None | Mishap::Stall => {}
            Mishap::Reset => self.write32(register::CONTROL, 1 << control::RESET),
            Mishap::Lie => self.flip_table_bit(),
            Mishap::Refuse => faults.failing_reads.push(0..u64::MAX),
        }
    }

    /// Flips one bit of the tables in the tile, which must cause wrong results.
    pub fn flip_table_bit(&mut self) {
        self.model.flip_table_bit();
    }

    /// Runs for `cycles` clocks.
    pub fn run(&mut self, cycles: u64) {
        (0..cycles).for_each(|_| self.step());
    }

    fn step(&mut self) {
        if !self.inputs.reset {
            self.memory.drive(self.cycle, &mut self.inputs);
        }
        self.model.step(&self.inputs, &mut self.outputs);
        if !self.inputs.reset {
            self.memory.settle(self.cycle, &mut self.inputs, &self.outputs);
        }
        self.cycle += 1;
    }
}

impl Transport for Simulation {
    fn read32(&mut self, offset: u32) -> u32 {
        self.inputs.lite_read_address = offset;
        self.inputs.lite_read = true;
        self.step();
        self.inputs.lite_read = false;
        for _ in 0..LITE_CYCLES_MAX {
            self.step();
            if self.outputs.lite_read_done != 0 {
                return self.outputs.lite_data;
            }
        }
        u32::MAX
    }

    fn write32(&mut self, offset: u32, value: u32) {
        self.inputs.lite_write_address = offset;
        self.inputs.lite_write_data = value;
        self.inputs.lite_write = true;
        for _ in 0..LITE_CYCLES_MAX {
            self.step();
            if self.outputs.lite_write_done != 0 {
                break;
            }
        }
        self.inputs.lite_write = false;
        // Its acknowledgement.
        self.step();
    }

    fn allocate(&mut self, bytes: usize) -> Result<u64, MemoryError> {
        self.memory.allocate(bytes)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.memory.slice(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        bytes.copy_from_slice(self.memory.slice(address, bytes.len())?);
        Ok(())
    }

    fn share(&mut self, arena: &Arena) -> Option<u64> {
        self.memory.host.as_ref()?.share(arena)
    }

    fn share_mut(&mut self, arena: &mut Arena) -> Option<u64> {
        self.memory.host.as_ref()?.share_mut(arena)
    }

    fn unshare(&mut self) -> bool {
        self.memory.host.as_ref().is_none_or(Arenas::end)
    }

    fn describe(&self) -> String {
        "simulated".into()
    }

    fn advance(&mut self) {
        self.apply_mishap();
        self.wait(ADVANCE);
    }

    fn wait(&mut self, timeout: Duration) {
        let end = self.cycle + (timeout.as_nanos() as u64 * CLOCK_KHZ).div_ceil(1_000_000);
        while self.cycle < end && self.outputs.interrupt == 0 {
            self.step();
        }
        // So that a host that has taken a completion, but not acknowledged it yet, makes progress.
        self.step();
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.cycle * 1_000_000 / CLOCK_KHZ)
    }
}

/// The clock that the RTL reports. An assumption until it has been placed and routed.
pub const CLOCK_KHZ: u64 = 300_000;

/// Base address of bundles: as with VFIO, far from the card's own memory.
const HOST_BASE: u64 = 1 << 37;

/// Simulated time of the card for each poll of the host: a call takes a millisecond or so.
const ADVANCE: Duration = Duration::from_micros(1);

const RESET_CYCLES: u64 = 4;

/// The register page responds in two.
const LITE_CYCLES_MAX: u32 = 64;
