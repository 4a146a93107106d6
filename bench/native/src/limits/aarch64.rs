//! Loops for aarch64: NEON, 16 bytes per register.
//!
//! A product by a constant is two `tbl`, one per half of a byte; half of their rate is counted.

use core::arch::aarch64::*;
use std::hint::black_box;

use super::{CHAINS, Kind, Probe, STEPS};

/// Every loop of this module.
pub(super) static PROBES: &[Probe] = &[
    probe(Kind::Products, "tbl", tbl),
    probe(Kind::Load, "ldr q", load),
    probe(Kind::Store, "str q", store),
    probe(Kind::Add, "eor v", add),
];

const WIDTH: usize = size_of::<uint8x16_t>();
/// Registers in flight per step of a loop.
const GROUP: usize = 4;

const fn probe(kind: Kind, name: &'static str, pass: unsafe fn(&mut [u8], usize)) -> Probe {
    let products = CHAINS * STEPS * WIDTH / 2;
    Probe { kind, name, vector_bytes: WIDTH, is_available: || true, pass, products }
}

fn tbl(_: &mut [u8], times: usize) {
    // SAFETY: NEON belongs to every aarch64 processor this builds for.
    let (mut chains, index) = unsafe { ([vdupq_n_u8(3); CHAINS], vdupq_n_u8(3)) };
    chains = black_box(chains);
    let index = black_box(index);
    for _ in 0..times * STEPS {
        for chain in &mut chains {
            // SAFETY: as above.
            *chain = unsafe { vqtbl1q_u8(*chain, index) };
        }
    }
    black_box(chains);
}

fn load(buffer: &mut [u8], times: usize) {
    // SAFETY: as in `tbl`.
    let mut seen = unsafe { [vdupq_n_u8(0); GROUP] };
    for _ in 0..times {
        for group in black_box(&mut *buffer).chunks_exact(GROUP * WIDTH) {
            for (index, seen) in seen.iter_mut().enumerate() {
                // SAFETY: a group holds `GROUP` registers.
                *seen = unsafe { vorrq_u8(*seen, vld1q_u8(group.as_ptr().add(index * WIDTH))) };
            }
        }
    }
    black_box(seen);
}

fn store(buffer: &mut [u8], times: usize) {
    // SAFETY: as in `tbl`.
    let value = black_box(unsafe { vdupq_n_u8(0) });
    for _ in 0..times {
        for group in black_box(&mut *buffer).chunks_exact_mut(GROUP * WIDTH) {
            for index in 0..GROUP {
                // SAFETY: a group holds `GROUP` registers.
                unsafe { vst1q_u8(group.as_mut_ptr().add(index * WIDTH), value) };
            }
        }
    }
}

fn add(buffer: &mut [u8], times: usize) {
    let (destination, source) = buffer.split_at_mut(buffer.len() / 2);
    for _ in 0..times {
        let groups = black_box(&mut *destination).chunks_exact_mut(GROUP * WIDTH);
        for (to, from) in groups.zip(source.chunks_exact(GROUP * WIDTH)) {
            for at in (0..GROUP * WIDTH).step_by(WIDTH) {
                // SAFETY: both groups hold `GROUP` registers.
                unsafe {
                    let to = to.as_mut_ptr().add(at);
                    vst1q_u8(to, veorq_u8(vld1q_u8(to), vld1q_u8(from.as_ptr().add(at))));
                }
            }
        }
    }
}
