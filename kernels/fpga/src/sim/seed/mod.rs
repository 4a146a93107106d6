//! The unit of the paper whose card is compared with this one, as compiled by Verilator from
//! `rtl/seed`, with a model of its memory: "Towards High-Performance Network Coding: FPGA
//! Acceleration With Bounded-value Generators". It encodes batches of cyclic-shift BATS and does
//! nothing else; no engine of Recoded uses it.

mod memory;
mod model;
mod schedule;

pub use memory::ChannelModel;
use memory::Memory;
pub use model::BEAT_BYTES;
use model::{ADAPTERS, Inputs, Model, Order, Outputs, PORTS};
pub use schedule::{Schedule, schedule};

/// Source packets of a block.
pub const SYMBOLS: usize = 256;
/// Coded packets of a batch.
pub const BATCH_SIZE: usize = 16;

/// Assignment of batches to compute units.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Unit `u` of `n` makes batches `u`, `u + n`, and so on.
    InOrder = 0,
    /// The paper's algorithm 4, taken literally: rows of the base graph are dealt out, and after
    /// each round of them in the opposite order.
    Mirrored = 1,
    /// A free unit takes the batch with the highest degree among the next 32.
    LongestFirst = 2,
}

/// Configuration and memory of a unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Width of coefficients: 2, 3, 4 or 8.
    pub bits: u8,
    /// Compute units: 1, 2, 4 or 8; one of the widths other than 2.
    pub units: usize,
    /// Ports that read, 1, 2, 4 or 8: unit `u` uses adapter `u` modulo this.
    pub adapters: usize,
    /// Ports that write, 1 or 2, shared in the same way.
    pub ports: usize,
    /// The assignment of batches.
    pub policy: Policy,
    /// Its memory.
    pub memory: ChannelModel,
}

/// The encoded batches, and their cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// Coded packets of all batches, one after the other.
    pub coded: Vec<u8>,
    /// Clocks from the end of reset until memory had acknowledged the last batch.
    pub cycles: u64,
    /// Clocks of all compute units while the array had work.
    pub busy: u64,
    /// Clocks of waiting for a bank of results, as the port was busy. Otherwise it waited for
    /// packets, or had none left.
    pub waits_for_output: u64,
}

/// The reason why nothing was encoded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SeedError {
    /// No such unit can be simulated.
    #[error(
        "units, adapters and channels are 1, 2, 4 or 8, ports 1 or 2; bits 2, 3, 4 or 8, and \
             only with 2 more than one unit"
    )]
    Setup,
    /// A block cannot be read.
    #[error("a block is 256 packets of 1 to 65,535 whole beats of {BEAT_BYTES} bytes")]
    Block,
    /// No reads or writes for a long time.
    #[error("nothing has moved for {CLOCKS_MAX} clocks, after {0}")]
    Stuck(u64),
    /// A batch was assigned twice, or never.
    #[error("the scheduler does not hand out every batch once")]
    Schedule,
}

/// Makes the unit encode the first batches of a block of [`SYMBOLS`] packets.
///
/// # Errors
/// [`SeedError`] describes the fault of the setup or the block, or reports that the unit stalled.
pub fn encode(setup: &Setup, block: &[u8], batches: u16) -> Result<Encoded, SeedError> {
    let packet_bytes = block.len() / SYMBOLS;
    let packet_beats = u16::try_from(packet_bytes / BEAT_BYTES).map_err(|_| SeedError::Block)?;
    if packet_beats == 0 || block.len() != usize::from(packet_beats) * BEAT_BYTES * SYMBOLS {
        return Err(SeedError::Block);
    }
    let order = Order {
        sources: BASE,
        destinations: BASE + block.len() as u64,
        batches,
        packet_beats,
        ..setup.order()?
    };
    let mut model = Model::new(setup.bits).ok_or(SeedError::Setup)?;
    model.order(&order);
    let coded_bytes = usize::from(batches) * BATCH_SIZE * packet_bytes;
    let mut bytes = block.to_vec();
    bytes.resize(block.len() + coded_bytes, 0);
    let memory = Memory::new(setup.memory.clone(), setup.adapters, BASE, bytes);
    let mut encoded = run(&mut model, memory)?;
    encoded.coded.drain(..block.len());
    Ok(encoded)
}

impl Setup {
    fn order(&self) -> Result<Order, SeedError> {
        let Self { bits, units, adapters, ports, ref memory, .. } = *self;
        let within = |count: usize, max: usize| count.is_power_of_two() && count <= max;
        let is_sound = within(units, if bits == 2 { 8 } else { 1 })
            && within(adapters, ADAPTERS)
            && within(memory.channels, ADAPTERS)
            && within(ports, PORTS);
        if !is_sound {
            return Err(SeedError::Setup);
        }
        Ok(Order {
            units_log2: units.ilog2() as u8,
            adapters_log2: adapters.ilog2() as u8,
            ports_log2: ports.ilog2() as u8,
            policy: self.policy as u8,
            ..Order::default()
        })
    }
}

fn run(model: &mut Model, mut memory: Memory) -> Result<Encoded, SeedError> {
    let mut inputs = Inputs { reset: true, ..Inputs::default() };
    let mut outputs = Outputs::default();
    (0..RESET_CLOCKS).for_each(|_| model.step(&inputs, &mut outputs));
    inputs.reset = false;
    let mut encoded = Encoded { coded: Vec::new(), cycles: 0, busy: 0, waits_for_output: 0 };
    let (mut moved, mut moved_at) = (0, 0);
    loop {
        memory.drive(encoded.cycles, &mut inputs);
        model.step(&inputs, &mut outputs);
        memory.settle(encoded.cycles, &inputs, &outputs);
        if outputs.finished != 0 {
            break;
        }
        encoded.cycles += 1;
        encoded.busy += u64::from(outputs.busy.count_ones());
        encoded.waits_for_output += u64::from(outputs.waits_for_output.count_ones());
        if memory.beats != moved {
            (moved, moved_at) = (memory.beats, encoded.cycles);
        }
        if encoded.cycles - moved_at > CLOCKS_MAX {
            return Err(SeedError::Stuck(encoded.cycles));
        }
    }
    encoded.coded = memory.into_bytes();
    Ok(encoded)
}

/// Not 0, and beyond what 32 bits reach.
const BASE: u64 = 0x12_3450_0000;

const RESET_CLOCKS: u32 = 4;

/// The longest row of a chunk keeps the array for 4,480 clocks.
const CLOCKS_MAX: u64 = 50_000;
