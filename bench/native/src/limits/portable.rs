//! Loops for processors without dedicated probes: plain code, as the compiler translates it.

use std::hint::black_box;

use super::{CHAINS, Kind, Probe, STEPS};

/// Every loop of this module.
pub(super) static PROBES: &[Probe] = &[
    probe(Kind::Products, "table look-up", look_up),
    probe(Kind::Load, "u64 loads", load),
    probe(Kind::Store, "u64 stores", store),
    probe(Kind::Add, "u64 xor", add),
];

const fn probe(kind: Kind, name: &'static str, pass: unsafe fn(&mut [u8], usize)) -> Probe {
    let products = CHAINS * STEPS;
    Probe { kind, name, vector_bytes: 1, is_available: || true, pass, products }
}

fn look_up(_: &mut [u8], times: usize) {
    let table = black_box([3_u8; 256]);
    let mut chains = black_box([3_u8; CHAINS]);
    for _ in 0..times * STEPS {
        for chain in &mut chains {
            *chain = table[usize::from(*chain)];
        }
    }
    black_box(chains);
}

fn load(buffer: &mut [u8], times: usize) {
    let mut seen = [0; 8];
    for _ in 0..times {
        for word in black_box(&mut *buffer).as_chunks::<8>().0 {
            let (word, seen) = (u64::from_ne_bytes(*word), &mut seen[0]);
            *seen |= word;
        }
    }
    black_box(seen);
}

fn store(buffer: &mut [u8], times: usize) {
    let value = black_box([0; 8]);
    for _ in 0..times {
        black_box(&mut *buffer).as_chunks_mut::<8>().0.fill(value);
    }
}

fn add(buffer: &mut [u8], times: usize) {
    let (destination, source) = buffer.split_at_mut(buffer.len() / 2);
    for _ in 0..times {
        let words = black_box(&mut *destination).iter_mut().zip(&*source);
        words.for_each(|(to, from)| *to ^= from);
    }
}
