//! Pointers of callers, checked as far as a pointer can be.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

use recoded_library::overlap::Range;

use crate::Status;

/// Memory for a caller: zeroed, so that codes never read bytes without a value, such as those
/// between the end of a buffer and the next one.
pub(super) struct Allocation {
    block: NonNull<u8>,
    layout: Layout,
}

/// A cache line of x86-64 and of most ARM cores.
const LINE_BYTES: usize = 64;

// SAFETY: it owns its block, as a box does; any thread may free it.
unsafe impl Send for Allocation {}

impl Allocation {
    /// Reserves `bytes` bytes, at least one. The system provides pages when they are written to.
    ///
    /// # Errors
    /// [`Status::Memory`].
    pub(super) fn new(bytes: usize) -> Result<Self, Status> {
        // Room to align the start by itself: an allocator that aligns clears all pages at once.
        let with_room = bytes.checked_add(LINE_BYTES).ok_or(Status::Memory)?;
        let layout = Layout::from_size_align(with_room, 1).map_err(|_| Status::Memory)?;
        // SAFETY: the layout has more than 64 bytes.
        let block = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or(Status::Memory)?;
        Ok(Self { block, layout })
    }

    /// The first byte, aligned to 64.
    pub(super) fn start(&self) -> *mut u8 {
        let block = self.block.as_ptr();
        block.wrapping_add(block.addr().next_multiple_of(LINE_BYTES) - block.addr())
    }

    /// Bytes from [`Allocation::start`] on.
    pub(super) const fn bytes(&self) -> usize {
        self.layout.size() - LINE_BYTES
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the block has this layout, and is freed once.
        unsafe { alloc::dealloc(self.block.as_ptr(), self.layout) };
    }
}

/// # Errors
/// [`Status::Pointer`] if it is NULL or not aligned for `T`.
fn check_pointer<T>(pointer: *const T) -> Result<(), Status> {
    if pointer.is_null() || !pointer.is_aligned() { Err(Status::Pointer) } else { Ok(()) }
}

/// # Errors
/// [`Status::Pointer`]; [`Status::Size`] if `count` elements of `T` are no bytes, or more than the
/// address space has behind `pointer`.
fn check_range<T>(pointer: *const T, count: usize) -> Result<usize, Status> {
    check_pointer(pointer)?;
    let bytes = count.checked_mul(size_of::<T>()).ok_or(Status::Size)?;
    let is_possible =
        bytes > 0 && bytes <= isize::MAX as usize && pointer.addr().checked_add(bytes).is_some();
    if is_possible { Ok(bytes) } else { Err(Status::Size) }
}

/// The addresses of an input of `bytes` bytes.
///
/// # Errors
/// [`Status::Pointer`], [`Status::Size`].
pub(super) fn input_range(pointer: *const u8, bytes: usize) -> Result<Range, Status> {
    Ok(Range::input(pointer.addr(), check_range(pointer, bytes)?))
}

/// The addresses of an output of `bytes` bytes.
///
/// # Errors
/// [`Status::Pointer`], [`Status::Size`].
pub(super) fn output_range(pointer: *const u8, bytes: usize) -> Result<Range, Status> {
    Ok(Range::output(pointer.addr(), check_range(pointer, bytes)?))
}

/// An array that a call reads.
///
/// # Errors
/// [`Status::Pointer`], [`Status::Size`].
///
/// # Safety
/// Unless it is NULL, `count` elements at `pointer` can be read, and do not change, for `'a`.
pub(super) unsafe fn array<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], Status> {
    check_range(pointer, count)?;
    // SAFETY: not NULL, aligned and of a possible size; the rest is the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Bytes that a call writes.
///
/// # Errors
/// [`Status::Pointer`], [`Status::Size`].
///
/// # Safety
/// Unless it is NULL, `bytes` bytes at `pointer` can be written, and nothing else uses them, for
/// `'a`. They need not be initialised by the caller's program: memory from C has some bytes, of
/// which this compiler knows nothing.
pub(super) unsafe fn output<'a>(pointer: *mut u8, bytes: usize) -> Result<&'a mut [u8], Status> {
    check_range(pointer, bytes)?;
    // SAFETY: not NULL and of a possible size; the rest is the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, bytes) })
}

/// The object behind a handle that several threads may use.
///
/// # Errors
/// [`Status::Pointer`].
///
/// # Safety
/// Unless it is NULL, `handle` comes from [`hand_over`], was not freed, and nothing changes the
/// object during `'a`.
pub(super) unsafe fn object<'a, T>(handle: *const T) -> Result<&'a T, Status> {
    check_pointer(handle)?;
    // SAFETY: not NULL and aligned; the rest is the caller's contract.
    Ok(unsafe { &*handle })
}

/// The object behind a handle that one thread uses.
///
/// # Errors
/// [`Status::Pointer`].
///
/// # Safety
/// Unless it is NULL, `handle` comes from [`hand_over`], was not freed, and nothing else uses the
/// object during `'a`.
pub(super) unsafe fn object_mut<'a, T>(handle: *mut T) -> Result<&'a mut T, Status> {
    check_pointer(handle)?;
    // SAFETY: not NULL and aligned; the rest is the caller's contract.
    Ok(unsafe { &mut *handle })
}

/// Writes a result of the call.
///
/// # Errors
/// [`Status::Pointer`].
///
/// # Safety
/// Unless it is NULL, a `T` can be written at `place`.
pub(super) unsafe fn write<T>(place: *mut T, value: T) -> Result<(), Status> {
    check_pointer(place)?;
    // SAFETY: not NULL and aligned; the rest is the caller's contract.
    unsafe { place.write(value) };
    Ok(())
}

/// Makes an object and gives its handle to the caller: NULL if it cannot be made.
///
/// # Errors
/// [`Status::Pointer`], and those of `make`.
///
/// # Safety
/// Unless it is NULL, a pointer can be written at `place`.
pub(super) unsafe fn hand_over<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T, Status>,
) -> Result<(), Status> {
    // SAFETY: as this function's contract.
    unsafe { write(place, std::ptr::null_mut()) }?;
    let object = Box::new(make()?);
    // SAFETY: as before.
    unsafe { write(place, Box::into_raw(object)) }
}

/// Frees the object behind a handle, if it is not NULL.
///
/// # Safety
/// Unless it is NULL, `handle` comes from [`hand_over`] and was not freed.
pub(super) unsafe fn release<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the box of `hand_over`, by this function's contract.
        drop(unsafe { Box::from_raw(handle) });
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn ranges_without_bytes_or_beyond_memory_are_refused() {
        let byte = 0_u64;
        let pointer = &raw const byte;
        assert_eq!(check_range(pointer, 1), Ok(8));
        for count in [0, usize::MAX, usize::MAX / 8, isize::MAX as usize / 8 + 1] {
            assert_eq!(check_range(pointer, count), Err(Status::Size), "{count}");
        }
        assert_eq!(check_range(pointer.wrapping_byte_add(1), 1), Err(Status::Pointer));
        assert_eq!(check_range(std::ptr::null::<u8>(), 1), Err(Status::Pointer));
        let last = std::ptr::without_provenance::<u8>(usize::MAX);
        assert_eq!(check_range(last, 1), Err(Status::Size));
    }

    #[test]
    fn allocations_are_aligned_and_large_enough_or_refused() {
        let allocation = Allocation::new(65).expect("a page");
        assert_eq!((allocation.bytes(), allocation.start().addr() % 64), (65, 0));
        for bytes in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 64] {
            // The compiler may remove an allocation that nothing uses.
            assert!(matches!(black_box(Allocation::new(bytes)), Err(Status::Memory)));
        }
    }
}
