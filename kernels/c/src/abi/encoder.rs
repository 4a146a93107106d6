//! RLNC at the source.

use std::ffi::c_int;

use recoded_library::Encoder;

use super::memory::{array, hand_over, object, object_mut, release};
use super::packet::{Output, Sizes};
use super::{call, query};
use crate::Status;

/// Creates an encoder for generations of `generation_size` source symbols (1 to 1024) of
/// `symbol_bytes` bytes (at least 1), over GF(2^8). Equal seeds give equal coefficients: use
/// another seed for each source. Reserves `generation_size * symbol_bytes` bytes. `*encoder` is
/// NULL on failure.
///
/// An encoder belongs to one thread at a time.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_CODE`, `RECODED_SIZE`, `RECODED_MEMORY` or
/// `RECODED_INTERNAL`.
///
/// # Safety
/// A pointer can be written at `encoder`, unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_encoder_new(
    generation_size: usize,
    symbol_bytes: usize,
    seed: u64,
    encoder: *mut *mut Encoder,
) -> c_int {
    let make = || Ok(Encoder::new(generation_size, symbol_bytes, seed)?);
    // SAFETY: by this function's contract.
    call(|| unsafe { hand_over(encoder, make) })
}

/// Frees an encoder. NULL is ignored.
///
/// # Safety
/// `encoder` comes from `recoded_rlnc_encoder_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_encoder_free(encoder: *mut Encoder) {
    call(|| {
        // SAFETY: by this function's contract.
        unsafe { release(encoder) };
        Ok(())
    });
}

/// Begins the next generation: the encoder forgets its symbols.
///
/// Returns `RECODED_OK`, `RECODED_POINTER` or `RECODED_INTERNAL`.
///
/// # Safety
/// `encoder` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_encoder_reset(encoder: *mut Encoder) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        unsafe { object_mut(encoder) }?.reset();
        Ok(())
    })
}

/// Sets whether each symbol is first sent as it is (the default) or only combinations are sent.
///
/// Returns `RECODED_OK`, `RECODED_POINTER` or `RECODED_INTERNAL`.
///
/// # Safety
/// `encoder` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_encoder_set_systematic(
    encoder: *mut Encoder,
    is_systematic: bool,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        unsafe { object_mut(encoder) }?.set_systematic(is_systematic);
        Ok(())
    })
}

/// Copies the next source symbol of the generation. Packets may be taken before all are present.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` if `symbol_bytes` is not that of the
/// encoder, `RECODED_FULL` or `RECODED_INTERNAL`.
///
/// # Safety
/// `encoder` is NULL or valid; `symbol` is NULL or has `symbol_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_encoder_add(
    encoder: *mut Encoder,
    symbol: *const u8,
    symbol_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let encoder = unsafe { object_mut(encoder) }?;
        if symbol_bytes != encoder.symbol_bytes() {
            return Err(Status::Size);
        }
        // SAFETY: by this function's contract.
        Ok(encoder.add(unsafe { array(symbol, symbol_bytes) }?)?)
    })
}

/// Source symbols that the encoder has; 0 if it is NULL.
///
/// # Safety
/// `encoder` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_encoder_present(encoder: *const Encoder) -> usize {
    // SAFETY: by this function's contract.
    query(|| unsafe { object(encoder) }.ok().map(Encoder::present))
}

/// Writes the next packet: its coding vector, of `generation_size` bytes, and its symbol. The
/// vector of a symbol that is sent as it is has a single 1.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` if a size is not that of the encoder,
/// `RECODED_OVERLAP`, `RECODED_EMPTY` before the first symbol is present, or `RECODED_INTERNAL`.
///
/// # Safety
/// `encoder` is NULL or valid; `vector` and `symbol` are NULL or have `vector_bytes` and
/// `symbol_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_encoder_take(
    encoder: *mut Encoder,
    vector: *mut u8,
    vector_bytes: usize,
    symbol: *mut u8,
    symbol_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let encoder = unsafe { object_mut(encoder) }?;
        let sizes = Sizes { vector: vector_bytes, symbol: symbol_bytes };
        let packet = Output { vector, symbol, sizes };
        let of_object = Sizes { vector: encoder.size(), symbol: encoder.symbol_bytes() };
        // SAFETY: by this function's contract.
        let (vector, symbol) = unsafe { packet.slices(of_object) }?;
        Ok(encoder.take(vector, symbol)?)
    })
}
