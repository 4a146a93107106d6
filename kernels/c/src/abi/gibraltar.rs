//! The six calls of Gibraltar, with the signatures of its paper (Curry, Skjellum, Ward, Brightwell:
//! "Gibraltar: a Reed-Solomon coding library for storage applications on programmable graphics
//! processors", 2011, appendix A).

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use recoded_library::ReedSolomon;

use super::call;
use super::memory::{Allocation, array, hand_over, object, output, release, write};
use crate::Status;

/// Gibraltar's context: one Reed-Solomon code, and the memory that `gib_alloc` provided for it.
pub struct GibContext {
    code: ReedSolomon,
    /// By address.
    allocations: Mutex<BTreeMap<usize, Allocation>>,
}

/// A context, as Gibraltar's calls have it.
#[expect(non_camel_case_types, reason = "the name in C programs")]
pub type gib_context = *mut GibContext;

/// Bytes from one buffer to the next are a multiple of this: two cache lines, which CPUs fetch
/// together.
const STRIDE_BYTES: usize = 128;

impl GibContext {
    /// k + m.
    const fn buffers(&self) -> usize {
        self.code.data() + self.code.parity()
    }

    /// Bytes of `count` buffers at `start`.
    ///
    /// # Errors
    /// [`Status::Size`] if a buffer has no bytes, or if `gib_alloc` provided `start`, but not
    /// as many bytes.
    fn bytes(&self, start: usize, count: usize, buf_size: c_int) -> Result<usize, Status> {
        let buffer_bytes = positive(buf_size).ok_or(Status::Size)?;
        let bytes = buffer_bytes.checked_mul(count).ok_or(Status::Size)?;
        let allocations = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        match allocations.range(..=start).next_back() {
            Some((first, allocation)) if start - first < allocation.bytes() => {
                let rest = allocation.bytes() - (start - first);
                if bytes <= rest { Ok(bytes) } else { Err(Status::Size) }
            }
            _ => Ok(bytes),
        }
    }
}

fn positive(number: c_int) -> Option<usize> {
    usize::try_from(number).ok().filter(|&number| number > 0)
}

/// Gibraltar: creates a context for the Reed-Solomon code of `k` data and `m` parity buffers, both
/// at least 1, their sum at most 256. `*gc` is NULL on failure.
///
/// Several threads may use one context at once, for different stripes.
///
/// Returns 0, or `RECODED_POINTER`, `RECODED_CODE` or `RECODED_INTERNAL`.
///
/// # Safety
/// A context can be written at `gc`, unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gib_init(k: c_int, m: c_int, gc: *mut gib_context) -> c_int {
    let make = || {
        let (data, parity) = (positive(k).ok_or(Status::Code)?, positive(m).ok_or(Status::Code)?);
        let code = ReedSolomon::new(data, parity)?;
        Ok(GibContext { code, allocations: Mutex::default() })
    };
    // SAFETY: by this function's contract.
    call(|| unsafe { hand_over(gc, make) })
}

/// Gibraltar: frees a context, and the memory that `gib_alloc` provided for it and `gib_free` did
/// not take back. NULL is ignored.
///
/// Returns 0 or `RECODED_INTERNAL`.
///
/// # Safety
/// `gc` comes from `gib_init`, was not destroyed, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gib_destroy(gc: gib_context) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        unsafe { release(gc) };
        Ok(())
    })
}

/// Gibraltar: provides memory for k + m buffers of `buf_size` bytes end to end, each `*ld` bytes
/// after its predecessor: `buf_size` rounded up to a multiple of 128. The memory is aligned to 64
/// bytes and cleared. Programs need not use this function for their buffers. `*buffers` is
/// NULL on failure.
///
/// Returns 0, or `RECODED_POINTER`, `RECODED_SIZE`, `RECODED_MEMORY` or `RECODED_INTERNAL`.
///
/// # Safety
/// `gc` is NULL or valid; `buffers` and `ld` are NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gib_alloc(
    buffers: *mut *mut c_void,
    buf_size: c_int,
    ld: *mut c_int,
    gc: gib_context,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        unsafe { write(buffers, std::ptr::null_mut()) }?;
        // SAFETY: by this function's contract.
        let context = unsafe { object(gc) }?;
        let buffer_bytes = positive(buf_size).ok_or(Status::Size)?;
        let stride = buffer_bytes.next_multiple_of(STRIDE_BYTES);
        let in_c = c_int::try_from(stride).map_err(|_| Status::Size)?;
        let bytes = stride.checked_mul(context.buffers()).ok_or(Status::Size)?;
        let allocation = Allocation::new(bytes)?;
        let start = allocation.start();
        // SAFETY: by this function's contract.
        unsafe { write(ld, in_c) }?;
        // SAFETY: by this function's contract.
        unsafe { write(buffers, start.cast()) }?;
        let mut allocations = context.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        allocations.insert(start.addr(), allocation);
        Ok(())
    })
}

/// Gibraltar: frees memory of `gib_alloc`. NULL is ignored.
///
/// Returns 0, or `RECODED_POINTER` if the context is NULL, `RECODED_FOREIGN` if `gib_alloc` did not
/// provide the memory for this context, or `RECODED_INTERNAL`.
///
/// # Safety
/// `gc` is NULL or valid. Nothing uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gib_free(buffers: *mut c_void, gc: gib_context) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let context = unsafe { object(gc) }?;
        if buffers.is_null() {
            return Ok(());
        }
        let mut allocations = context.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        allocations.remove(&buffers.addr()).map(drop).ok_or(Status::Foreign)
    })
}

/// Gibraltar: computes the m parity buffers from the k data buffers before them. Buffers are
/// `buf_size` bytes apart and all of these are coded: it is the `ld` of `gib_alloc`, or the size of
/// buffers that lie next to each other.
///
/// Returns 0, or `RECODED_POINTER`, `RECODED_SIZE` or `RECODED_INTERNAL`.
///
/// # Safety
/// `gc` is NULL or valid. `buffers` is NULL or has `(k + m) * buf_size` bytes, which no other
/// uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gib_generate(
    buffers: *mut c_void,
    buf_size: c_int,
    gc: gib_context,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let context = unsafe { object(gc) }?;
        let bytes = context.bytes(buffers.addr(), context.buffers(), buf_size)?;
        // SAFETY: by this function's contract.
        let buffers = unsafe { output(buffers.cast(), bytes) }?;
        let stride = bytes / context.buffers();
        let (data, parity) = buffers.split_at_mut(context.code.data() * stride);
        let data: Vec<&[u8]> = data.chunks_exact(stride).collect();
        let mut parity: Vec<&mut [u8]> = parity.chunks_exact_mut(stride).collect();
        Ok(context.code.encode(&data, &mut parity)?)
    })
}

/// Gibraltar: computes `recover_last` lost buffers. The first k places hold intact buffers, data or
/// parity, in any order; the lost ones are computed into the places behind them. `buf_ids` has the
/// ids of the buffers in the order of their places: data buffers are 0 to k - 1, parity buffers k
/// to k + m - 1. Lost data and lost parity can be computed alike.
///
/// Returns 0, or `RECODED_POINTER`, `RECODED_SIZE` (also if `recover_last` is negative or above m),
/// `RECODED_ID` or `RECODED_INTERNAL`.
///
/// # Safety
/// `gc` is NULL or valid. `buffers` is NULL or has `(k + recover_last) * buf_size` bytes, which no
/// other thread uses; `buf_ids` is NULL or has `k + recover_last` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gib_recover(
    buffers: *mut c_void,
    buf_size: c_int,
    buf_ids: *mut c_int,
    recover_last: c_int,
    gc: gib_context,
) -> c_int {
    call(|| {
        // SAFETY: by this function's contract.
        let context = unsafe { object(gc) }?;
        let lost = usize::try_from(recover_last).map_err(|_| Status::Size)?;
        if lost > context.code.parity() {
            return Err(Status::Size);
        }
        let (data, count) = (context.code.data(), context.code.data() + lost);
        let bytes = context.bytes(buffers.addr(), count, buf_size)?;
        // SAFETY: by this function's contract.
        let ids = unsafe { array(buf_ids.cast_const(), count) }?;
        let ids = ids.iter().map(|&id| usize::try_from(id).map_err(|_| Status::Id));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        // SAFETY: by this function's contract; the ids are copied.
        let buffers = unsafe { output(buffers.cast(), bytes) }?;
        let stride = bytes / count;
        let (intact, lost) = buffers.split_at_mut(data * stride);
        let intact: Vec<&[u8]> = intact.chunks_exact(stride).collect();
        let mut lost: Vec<&mut [u8]> = lost.chunks_exact_mut(stride).collect();
        Ok(context.code.recover(&ids, &intact, &mut lost)?)
    })
}
