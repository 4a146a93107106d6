//! The simulated engine, a clock at a time: the counterpart of `sim/shim.cpp`.

#![allow(unsafe_code)]

use std::ptr::NonNull;

/// Inputs of the engine in one clock, as in `sim/shim.cpp`.
#[derive(Clone, Default)]
#[repr(C)]
pub struct Inputs {
    pub read_data: [u64; 8],
    pub lite_write_address: u32,
    pub lite_write_data: u32,
    pub lite_read_address: u32,
    pub reset: bool,
    pub lite_write: bool,
    pub lite_read: bool,
    pub read_address_ready: bool,
    pub read_valid: bool,
    pub read_response: u8,
    pub write_address_ready: bool,
    pub write_ready: bool,
    pub acknowledge_valid: bool,
    pub acknowledge_response: u8,
}

/// Its outputs in the same clock, as in `sim/shim.cpp`.
#[derive(Clone, Default)]
#[repr(C)]
pub struct Outputs {
    pub write_data: [u64; 8],
    pub read_address: u64,
    pub write_address: u64,
    pub write_strobe: u64,
    pub lite_data: u32,
    pub lite_write_done: u8,
    pub lite_read_done: u8,
    pub interrupt: u8,
    pub read_address_valid: u8,
    pub read_length: u8,
    pub read_ready: u8,
    pub write_address_valid: u8,
    pub write_length: u8,
    pub write_valid: u8,
    pub write_last: u8,
    pub acknowledge_ready: u8,
}

/// One engine.
pub struct Model(NonNull<Opaque>);

// SAFETY: the simulation has no thread of its own and keeps no state outside of itself.
unsafe impl Send for Model {}

impl Model {
    /// An engine that must be reset for a few clocks.
    pub fn new() -> Self {
        // SAFETY: takes nothing. C++ ends the process rather than return null.
        let simulation = unsafe { recoded_fpga_new() };
        Self(NonNull::new(simulation).expect("operator new does not return null"))
    }

    /// One clock.
    pub fn step(&mut self, inputs: &Inputs, outputs: &mut Outputs) {
        // SAFETY: the simulation is alive and exclusively owned; both structures are those of the
        // shim, and any bytes are valid for them.
        unsafe { recoded_fpga_step(self.0.as_ptr(), inputs, outputs) }
    }

    /// Flips a bit of a table in the tile.
    pub fn flip_table_bit(&mut self) {
        // SAFETY: the simulation is alive and exclusively owned.
        unsafe { recoded_fpga_flip_table_bit(self.0.as_ptr()) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: it comes from `recoded_fpga_new` and is not used again.
        unsafe { recoded_fpga_free(self.0.as_ptr()) }
    }
}

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn recoded_fpga_new() -> *mut Opaque;
    fn recoded_fpga_free(simulation: *mut Opaque);
    fn recoded_fpga_step(simulation: *mut Opaque, inputs: *const Inputs, outputs: *mut Outputs);
    fn recoded_fpga_flip_table_bit(simulation: *mut Opaque);
}
