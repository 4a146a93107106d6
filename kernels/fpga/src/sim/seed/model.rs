//! The simulated unit, a clock at a time: the counterpart of `sim/seed.cpp`.

#![allow(unsafe_code)]

use std::ptr::NonNull;

/// Existing read ports, used or not.
pub const ADAPTERS: usize = 8;
/// Existing write ports.
pub const PORTS: usize = 2;
/// Bytes that a port moves in a clock.
pub const BEAT_BYTES: usize = 32;

/// The task of a unit, as in `sim/seed.cpp`. Changes only during a reset.
#[derive(Clone, Default)]
#[repr(C)]
pub struct Order {
    pub sources: u64,
    pub destinations: u64,
    pub batches: u16,
    pub packet_beats: u16,
    pub units_log2: u8,
    pub adapters_log2: u8,
    pub ports_log2: u8,
    pub policy: u8,
}

/// Its inputs in one clock; sets are a bit for each port.
#[derive(Clone, Default)]
#[repr(C)]
pub struct Inputs {
    pub beats: [[u8; BEAT_BYTES]; ADAPTERS],
    pub reset: bool,
    pub request_ready: u8,
    pub beat_valid: u8,
    pub write_ready: u8,
    pub acknowledged: u8,
}

/// Its outputs in the same clock.
#[derive(Clone, Default)]
#[repr(C)]
pub struct Outputs {
    pub request_address: [u64; ADAPTERS],
    pub write_address: [u64; PORTS],
    pub write_data: [[u8; BEAT_BYTES]; PORTS],
    pub request_beats: [u8; ADAPTERS],
    pub request_valid: u8,
    pub write_valid: u8,
    pub write_last: u8,
    pub finished: u8,
    pub busy: u8,
    pub waits_for_output: u8,
}

/// One unit.
pub struct Model(NonNull<Opaque>);

impl Model {
    /// A unit with coefficients of this width, to be reset for a few clocks; `None` if there is
    /// none of that width.
    pub fn new(bits: u8) -> Option<Self> {
        // SAFETY: takes a number, whatever it is.
        NonNull::new(unsafe { recoded_fpga_seed_new(bits.into()) }).map(Self)
    }

    /// Sets its task, which begins when its reset ends.
    pub fn order(&mut self, order: &Order) {
        // SAFETY: the simulation is alive and exclusively owned; the structure is that of the shim.
        unsafe { recoded_fpga_seed_order(self.0.as_ptr(), order) }
    }

    /// One clock.
    pub fn step(&mut self, inputs: &Inputs, outputs: &mut Outputs) {
        // SAFETY: the simulation is alive and exclusively owned; both structures are those of the
        // shim, and any bytes are valid for them.
        unsafe { recoded_fpga_seed_step(self.0.as_ptr(), inputs, outputs) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: it comes from `recoded_fpga_seed_new` and is not used again.
        unsafe { recoded_fpga_seed_free(self.0.as_ptr()) }
    }
}

/// Clocks of a schedule, 0 if it is invalid; unit and row of each batch.
pub fn makespan(
    units_log2: u32,
    policy: u32,
    batches: u16,
    clocks: &[u32; 8],
) -> (u64, Vec<(u8, u8)>) {
    let mut units = vec![0; batches.into()];
    let mut rows = vec![0; batches.into()];
    // SAFETY: reads 8 numbers, and writes one byte per batch to both.
    let clocks = unsafe {
        recoded_fpga_makespan(
            units_log2,
            policy,
            batches,
            clocks.as_ptr(),
            units.as_mut_ptr(),
            rows.as_mut_ptr(),
        )
    };
    (clocks, units.into_iter().zip(rows).collect())
}

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn recoded_fpga_seed_new(bits: u32) -> *mut Opaque;
    fn recoded_fpga_seed_free(unit: *mut Opaque);
    fn recoded_fpga_seed_order(unit: *mut Opaque, order: *const Order);
    fn recoded_fpga_seed_step(unit: *mut Opaque, inputs: *const Inputs, outputs: *mut Outputs);
    fn recoded_fpga_makespan(
        units_log2: u32,
        policy: u32,
        batches: u16,
        clocks: *const u32,
        units: *mut u8,
        rows: *mut u8,
    ) -> u64;
}
