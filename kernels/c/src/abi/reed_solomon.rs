//! Reed-Solomon on the caller's buffers.

use std::ffi::c_int;

use recoded_library::{ReedSolomon, overlap};

use super::call;
use super::memory::{array, hand_over, input_range, object, output, output_range, release};
use crate::Status;

/// Creates the systematic Reed-Solomon code of `data_count` data and `parity_count` parity buffers
/// over GF(2^8): any `data_count` of all buffers recover the others. Both are at least 1, their sum
/// is at most 256. `*code` is NULL on failure.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_CODE` or `RECODED_INTERNAL`.
///
/// # Safety
/// A pointer can be written at `code`, unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_reed_solomon_new(
    data_count: usize,
    parity_count: usize,
    code: *mut *mut ReedSolomon,
) -> c_int {
    // SAFETY: by this function's contract.
    call(|| unsafe { hand_over(code, || Ok(ReedSolomon::new(data_count, parity_count)?)) })
}

/// Frees a code. NULL is ignored.
///
/// # Safety
/// `code` comes from `recoded_reed_solomon_new`, was not freed, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_reed_solomon_free(code: *mut ReedSolomon) {
    call(|| {
        // SAFETY: by this function's contract.
        unsafe { release(code) };
        Ok(())
    });
}

/// Computes all parity buffers from all data buffers, each of `buffer_bytes` bytes. `data` has a
/// pointer for each data buffer, `parity` one for each parity buffer. Parity buffers overlap
/// nothing; data buffers may overlap each other. Several threads may use one code at once.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE`, `RECODED_OVERLAP` or
/// `RECODED_INTERNAL`.
///
/// # Safety
/// `code` is NULL or valid. The arrays have as many pointers as the code has buffers, and each
/// pointer that is not NULL has `buffer_bytes` bytes, which no other thread writes, and for parity
/// none reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_reed_solomon_encode(
    code: *const ReedSolomon,
    data: *const *const u8,
    parity: *const *mut u8,
    buffer_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let code = unsafe { object(code) }?;
        let (data_count, parity_count) = (code.data(), code.parity());
        // SAFETY: by this function's contract.
        let buffers =
            unsafe { Buffers::new(data, data_count, parity, parity_count, buffer_bytes) }?;
        let Buffers { inputs, mut outputs } = buffers;
        Ok(code.encode(&inputs, &mut outputs)?)
    })
}

/// Computes `lost_count` lost buffers from as many intact buffers as the code has data buffers.
///
/// Buffers have ids: data buffers from 0 on, parity buffers after them. `ids` has those of the
/// intact buffers, in the order of the pointers in `intact`, then those of the lost buffers, in the
/// order of the pointers in `lost`. The order of buffers is free. With `lost_count` 0, nothing is
/// computed, and `lost` may be NULL. Lost buffers overlap nothing. Several threads may use one code
/// at once.
///
/// Returns `RECODED_OK`, `RECODED_POINTER`, `RECODED_SIZE` (also if more buffers are lost than the
/// code has parity buffers), `RECODED_ID`, `RECODED_OVERLAP` or `RECODED_INTERNAL`.
///
/// # Safety
/// `code` is NULL or valid. `ids` has as many entries as the code has data buffers, and
/// `lost_count` more; `intact` has as many pointers as the code has data buffers, `lost` has
/// `lost_count`. Each pointer that is not NULL has `buffer_bytes` bytes, which no other thread
/// writes, and for lost buffers none reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recoded_reed_solomon_recover(
    code: *const ReedSolomon,
    ids: *const usize,
    intact: *const *const u8,
    lost: *const *mut u8,
    lost_count: usize,
    buffer_bytes: usize,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let code = unsafe { object(code) }?;
        if lost_count > code.parity() {
            return Err(Status::Size);
        }
        let data = code.data();
        // SAFETY: by this function's contract; the count is at most 256.
        let ids = unsafe { array(ids, data + lost_count) }?;
        // SAFETY: by this function's contract.
        let buffers = unsafe { Buffers::new(intact, data, lost, lost_count, buffer_bytes) }?;
        let Buffers { inputs, mut outputs } = buffers;
        Ok(code.recover(ids, &inputs, &mut outputs)?)
    })
}

/// The buffers of one call.
struct Buffers<'a> {
    inputs: Vec<&'a [u8]>,
    outputs: Vec<&'a mut [u8]>,
}

impl Buffers<'_> {
    /// Checks buffers of `bytes` bytes, and that outputs overlap nothing.
    ///
    /// # Errors
    /// [`Status::Pointer`], [`Status::Size`], [`Status::Overlap`].
    ///
    /// # Safety
    /// The arrays have this many pointers, unless they are NULL; each pointer that is not NULL has
    /// `bytes` bytes, which nothing writes during the call, and for outputs nothing reads.
    unsafe fn new(
        inputs: *const *const u8,
        input_count: usize,
        outputs: *const *mut u8,
        output_count: usize,
        bytes: usize,
    ) -> Result<Self, Status> {
        // SAFETY: by this function's contract.
        let inputs = unsafe { array(inputs, input_count) }?;
        let outputs = match output_count {
            0 => &[],
            // SAFETY: by this function's contract.
            _ => unsafe { array(outputs, output_count) }?,
        };
        let ranges = inputs.iter().map(|&input| input_range(input, bytes));
        let ranges = ranges.chain(outputs.iter().map(|&output| output_range(output, bytes)));
        overlap::check(&mut ranges.collect::<Result<Vec<_>, _>>()?)?;
        // SAFETY: by this function's contract; they do not overlap outputs.
        let inputs = inputs.iter().map(|&input| unsafe { array(input, bytes) });
        // SAFETY: by this function's contract; they overlap nothing.
        let outputs = outputs.iter().map(|&place| unsafe { output(place, bytes) });
        Ok(Buffers {
            inputs: inputs.collect::<Result<_, _>>()?,
            outputs: outputs.collect::<Result<_, _>>()?,
        })
    }
}
