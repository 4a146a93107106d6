//! RLNC at the sink.

use std::ffi::c_int;

use recoded_library::Decoder;

use super::memory::{hand_over, object, object_mut, output, release, write};
use super::packet::{Input, Sizes};
use super::{call, query};
use crate::Status;

/// Creates a decoder for generations of `generation_size` source symbols (1 to 1024) of
/// `symbol_bytes` bytes (at least 1), over GF(2^8). Reserves `generation_size * symbol_bytes`
/// bytes, and takes about `generation_size^2` bytes. `*decoder` is NULL on failure.
///
/// A decoder belongs to one thread at a time.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_CODE`, `RECODED_SIZE`, `RECODED_MEMORY` or
/// `RECODED_INTERNAL`.
///
/// # Safety
/// A pointer can be written at `decoder`, unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_new(
    generation_size: usize,
    symbol_bytes: usize,
    decoder: *mut *mut Decoder,
) -> c_int {
    let make = || Ok(Decoder::new(generation_size, symbol_bytes)?);
    // SAFETY: by this function's contract.
    call(|| unsafe { hand_over(decoder, make) })
}

/// Frees a decoder. NULL is ignored.
///
/// # Safety
/// `decoder` comes from `recoded_rlnc_decoder_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_free(decoder: *mut Decoder) {
    call(|| {
        // SAFETY: by this function's contract.
        unsafe { release(decoder) };
        Ok(())
    });
}

/// Begins the next generation: the decoder forgets its packets.
///
/// Returns `RECODED_OK`, `RECODED_POINTER` or `RECODED_INTERNAL`.
///
/// # Safety
/// `decoder` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_reset(decoder: *mut Decoder) -> c_int {
    // SAFETY: by this function's contract.
    call(|| Ok(unsafe { object_mut(decoder) }?.reset()?))
}

/// Takes a packet, and copies it if it is innovative: if it raises the rank. `*is_innovative` says
/// whether it is; the pointer may be NULL. The vector has a coefficient, a byte, for each source
/// symbol.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` if a size is not that of the decoder, or
/// `RECODED_INTERNAL`.
///
/// # Safety
/// `decoder` is NULL or valid; `vector` and `symbol` are NULL or have `vector_bytes` and
/// `symbol_bytes` bytes; `is_innovative` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_add(
    decoder: *mut Decoder,
    vector: *const u8,
    vector_bytes: usize,
    symbol: *const u8,
    symbol_bytes: usize,
    is_innovative: *mut bool,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let decoder = unsafe { object_mut(decoder) }?;
        let sizes = Sizes { vector: vector_bytes, symbol: symbol_bytes };
        let packet = Input { vector, symbol, sizes };
        let of_object = Sizes { vector: decoder.size(), symbol: decoder.symbol_bytes() };
        // SAFETY: by this function's contract.
        let (vector, symbol) = unsafe { packet.slices(of_object) }?;
        let outcome = decoder.add(vector, symbol)?;
        if is_innovative.is_null() {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        unsafe { write(is_innovative, outcome) }
    })
}

/// Innovative packets that the decoder received; 0 if it is NULL. All symbols are decoded at rank
/// `generation_size`, some often before.
///
/// # Safety
/// `decoder` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_rank(decoder: *const Decoder) -> usize {
    // SAFETY: by this function's contract.
    query(|| unsafe { object(decoder) }.ok().map(Decoder::rank))
}

/// Decoded symbols; 0 if the decoder is NULL.
///
/// # Safety
/// `decoder` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_decoded(decoder: *const Decoder) -> usize {
    // SAFETY: by this function's contract.
    query(|| unsafe { object(decoder) }.ok().map(Decoder::decoded))
}

/// Progressive decoding: writes a newly decoded symbol, and its number to `*index`, each symbol
/// once. Call it after a packet, until it returns `RECODED_NOT_DECODED`.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` if `symbol_bytes` is not that of the
/// decoder, `RECODED_NOT_DECODED` or `RECODED_INTERNAL`.
///
/// # Safety
/// `decoder` is NULL or valid; `index` is NULL or can be written; `symbol` is NULL or has
/// `symbol_bytes` bytes, and does not overlap `index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_next(
    decoder: *mut Decoder,
    index: *mut usize,
    symbol: *mut u8,
    symbol_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let decoder = unsafe { object_mut(decoder) }?;
        if symbol_bytes != decoder.symbol_bytes() {
            return Err(Status::Size);
        }
        if index.is_null() || !index.is_aligned() {
            return Err(Status::Pointer);
        }
        // SAFETY: by this function's contract.
        let symbol = unsafe { output(symbol, symbol_bytes) }?;
        let next = decoder.next(symbol)?.ok_or(Status::NotDecoded)?;
        // SAFETY: by this function's contract.
        unsafe { write(index, next) }
    })
}

/// Writes the source symbol `index`, once it is decoded, as often as it is called.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` if `symbol_bytes` is not that of the
/// decoder, `RECODED_ID`, `RECODED_NOT_DECODED` or `RECODED_INTERNAL`.
///
/// # Safety
/// `decoder` is NULL or valid; `symbol` is NULL or has `symbol_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_symbol(
    decoder: *mut Decoder,
    index: usize,
    symbol: *mut u8,
    symbol_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let decoder = unsafe { object_mut(decoder) }?;
        if symbol_bytes != decoder.symbol_bytes() {
            return Err(Status::Size);
        }
        // SAFETY: by this function's contract.
        Ok(decoder.symbol(index, unsafe { output(symbol, symbol_bytes) }?)?)
    })
}

/// Writes all source symbols one after another, `data_bytes` bytes: `generation_size *
/// symbol_bytes`.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` if `data_bytes` is another number,
/// `RECODED_NOT_DECODED` unless the rank is `generation_size`, or `RECODED_INTERNAL`.
///
/// # Safety
/// `decoder` is NULL or valid; `data` is NULL or has `data_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_rlnc_decoder_decode(
    decoder: *mut Decoder,
    data: *mut u8,
    data_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let decoder = unsafe { object_mut(decoder) }?;
        // Its own product did not overflow when its memory was reserved.
        if data_bytes != decoder.size() * decoder.symbol_bytes() {
            return Err(Status::Size);
        }
        // SAFETY: by this function's contract.
        Ok(decoder.decode(unsafe { output(data, data_bytes) }?)?)
    })
}
