//! RLNC at a relay.

use std::ffi::c_int;

use recoded_library::Recoder;

use super::memory::{hand_over, object, object_mut, release, write};
use super::packet::{Input, Output, Sizes};
use super::{call, query};

/// Creates a recoder for generations of `generation_size` source symbols (1 to 1024) of
/// `symbol_bytes` bytes (at least 1), over GF(2^8). Equal seeds give equal coefficients: use
/// another seed for each relay. Reserves `generation_size * symbol_bytes` bytes, and takes about
/// `2 * generation_size^2` bytes. `*recoder` is NULL on failure.
///
/// A recoder belongs to one thread at a time.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_CODE`, `RECODED_SIZE`, `RECODED_MEMORY` or
/// `RECODED_INTERNAL`.
///
/// # Safety
/// A pointer can be written at `recoder`, unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_recoder_new(
    generation_size: usize,
    symbol_bytes: usize,
    seed: u64,
    recoder: *mut *mut Recoder,
) -> c_int {
    let make = || Ok(Recoder::new(generation_size, symbol_bytes, seed)?);
    // SAFETY: by this function's contract.
    call(|| unsafe { hand_over(recoder, make) })
}

/// Frees a recoder. NULL is ignored.
///
/// # Safety
/// `recoder` comes from `recoded_rlnc_recoder_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_recoder_free(recoder: *mut Recoder) {
    call(|| {
        // SAFETY: by this function's contract.
        unsafe { release(recoder) };
        Ok(())
    });
}

/// Begins the next generation: the recoder forgets its packets.
///
/// Returns `RECODED_OK`, `RECODED_POINTER` or `RECODED_INTERNAL`.
///
/// # Safety
/// `recoder` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_recoder_reset(recoder: *mut Recoder) -> c_int {
    // SAFETY: by this function's contract.
    call(|| Ok(unsafe { object_mut(recoder) }?.reset()?))
}

/// Takes a packet, and copies it if it is innovative: if it raises the rank. `*is_innovative` says
/// whether it is; the pointer may be NULL.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` if a size is not that of the recoder, or
/// `RECODED_INTERNAL`.
///
/// # Safety
/// `recoder` is NULL or valid; `vector` and `symbol` are NULL or have `vector_bytes` and
/// `symbol_bytes` bytes; `is_innovative` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_recoder_add(
    recoder: *mut Recoder,
    vector: *const u8,
    vector_bytes: usize,
    symbol: *const u8,
    symbol_bytes: usize,
    is_innovative: *mut bool,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let recoder = unsafe { object_mut(recoder) }?;
        let sizes = Sizes { vector: vector_bytes, symbol: symbol_bytes };
        let packet = Input { vector, symbol, sizes };
        let of_object = Sizes { vector: recoder.size(), symbol: recoder.symbol_bytes() };
        // SAFETY: by this function's contract.
        let (vector, symbol) = unsafe { packet.slices(of_object) }?;
        let outcome = recoder.add(vector, symbol)?;
        if is_innovative.is_null() {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        unsafe { write(is_innovative, outcome) }
    })
}

/// Innovative packets that the recoder holds; 0 if it is NULL.
///
/// # Safety
/// `recoder` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_recoder_rank(recoder: *const Recoder) -> usize {
    // SAFETY: by this function's contract.
    query(|| unsafe { object(recoder) }.ok().map(Recoder::rank))
}

/// Writes a new packet, a random combination of all packets held: its coding vector over the source
/// symbols, of `generation_size` bytes, and its symbol.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` if a size is not that of the recoder,
/// `RECODED_OVERLAP`, `RECODED_EMPTY` before the first packet, or `RECODED_INTERNAL`.
///
/// # Safety
/// `recoder` is NULL or valid; `vector` and `symbol` are NULL or have `vector_bytes` and
/// `symbol_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_recoder_take(
    recoder: *mut Recoder,
    vector: *mut u8,
    vector_bytes: usize,
    symbol: *mut u8,
    symbol_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let recoder = unsafe { object_mut(recoder) }?;
        let sizes = Sizes { vector: vector_bytes, symbol: symbol_bytes };
        let packet = Output { vector, symbol, sizes };
        let of_object = Sizes { vector: recoder.size(), symbol: recoder.symbol_bytes() };
        // SAFETY: by this function's contract.
        let (vector, symbol) = unsafe { packet.slices(of_object) }?;
        Ok(recoder.take(vector, symbol)?)
    })
}
