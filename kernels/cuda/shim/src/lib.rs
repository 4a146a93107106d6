//! The device code of `recoded-cuda` on the CPU, for tests: the same files, one fiber a thread.
//!
//! See `README.md` for the faults that this can find and those it cannot.

use std::ffi::{CStr, CString, c_char, c_void};

/// The launch parameters of a kernel. All pointers are to memory of this process.
#[derive(Debug)]
#[repr(C)]
pub struct Launch {
    /// Filled in by the shim.
    kernel: *const c_void,
    /// Blocks.
    pub grid: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// The jobs, 64 bytes each, 16-byte aligned.
    pub jobs: *const c_void,
    /// Number of jobs.
    pub jobs_count: u32,
    /// The constant tables of all fields, 16-byte aligned.
    pub tables: *mut c_void,
    /// The arena, 16-byte aligned.
    pub arena: *mut u8,
    /// Its size; accesses beyond it are errors.
    pub arena_bytes: u64,
    /// Seed of the order of warps and lanes.
    pub seed: u64,
    /// Written bytes of the arena, a byte each: loads of others are errors, and stores mark theirs.
    /// Null disables the check.
    pub written: *mut u8,
    /// Whether races are errors.
    pub finds_races: bool,
}

impl Launch {
    /// A launch of `grid` blocks of `threads` threads, with nothing to work on.
    #[must_use]
    pub const fn new(grid: u32, threads: u32, shared_bytes: u32) -> Self {
        Self {
            kernel: std::ptr::null(),
            grid,
            threads,
            shared_bytes,
            jobs: std::ptr::null(),
            jobs_count: 0,
            tables: std::ptr::null_mut(),
            arena: std::ptr::null_mut(),
            arena_bytes: 0,
            seed: 0,
            written: std::ptr::null_mut(),
            finds_races: false,
        }
    }
}

/// A launch that would fail on a card, at least sometimes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault(pub String);

/// Runs the kernel `recoded_<name>` and waits for it.
///
/// # Errors
/// All threads are stuck, threads wait in different places, an access is misaligned or outside the
/// arena, something was written beyond the shared memory, two threads race, a byte is loaded that
/// was not written, or there is no such kernel.
///
/// # Safety
/// `jobs`, `tables` and `arena` must be valid for the sizes in `launch`, and no other thread may
/// use the arena and the tables meanwhile.
pub unsafe fn launch(name: &str, launch: &Launch) -> Result<(), Fault> {
    let name = CString::new(name).map_err(|_| Fault("a name with a zero byte".to_owned()))?;
    // SAFETY: the name is terminated and both live until the call returns; the rest is the
    // caller's.
    let message = unsafe { recoded_shim_launch(name.as_ptr(), launch) };
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: a terminated text, which this thread's next launch changes, not before.
    Err(Fault(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()))
}

/// A row of the tables of `job.h`: a kernel, and its numbers in that order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelEntry {
    /// Name of the technique, or of the kernel.
    pub name: String,
    /// The kernel; empty if the name is the kernel's.
    pub kernel: String,
    /// The rest.
    pub numbers: [u32; 5],
}

/// The kernels of `job.h`.
#[must_use]
pub fn geometries() -> Vec<KernelEntry> {
    let mut rows = Vec::new();
    let mut raw = RawGeometry { name: std::ptr::null(), numbers: [0; 5] };
    // SAFETY: the row is exclusively owned.
    while unsafe { recoded_shim_geometry(rows.len(), &mut raw) } {
        rows.push(KernelEntry {
            name: text(raw.name),
            kernel: String::new(),
            numbers: raw.numbers,
        });
    }
    rows
}

/// The techniques of `job.h`.
#[must_use]
pub fn techniques() -> Vec<KernelEntry> {
    let mut rows = Vec::new();
    let mut raw =
        RawTechnique { name: std::ptr::null(), kernel: std::ptr::null(), numbers: [0; 5] };
    // SAFETY: the row is exclusively owned.
    while unsafe { recoded_shim_technique(rows.len(), &mut raw) } {
        rows.push(KernelEntry {
            name: text(raw.name),
            kernel: text(raw.kernel),
            numbers: raw.numbers,
        });
    }
    rows
}

/// A job in the layout of `job.h`, with the members 1, 2, 3 and so on in order; the bytes of the
/// tables of all fields; and those of the state of progressive decoding of 100 symbols.
#[must_use]
pub fn sample() -> ([u8; 64], u64, [u64; 2]) {
    #[repr(C, align(16))]
    struct Sample([u8; 64]);
    let (mut job, mut tables, mut state) = (Sample([0; 64]), 0, [0; 2]);
    // SAFETY: all of them are exclusively owned, and a job is 64 bytes, 16-byte aligned.
    unsafe { recoded_shim_sample((&raw mut job).cast(), &mut tables, state.as_mut_ptr()) };
    (job.0, tables, state)
}

fn text(raw: *const c_char) -> String {
    // SAFETY: the tables hold literals.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}

#[repr(C)]
struct RawGeometry {
    name: *const c_char,
    numbers: [u32; 5],
}

#[repr(C)]
struct RawTechnique {
    name: *const c_char,
    kernel: *const c_char,
    numbers: [u32; 5],
}

unsafe extern "C" {
    fn recoded_shim_launch(name: *const c_char, launch: *const Launch) -> *const c_char;
    fn recoded_shim_geometry(index: usize, row: *mut RawGeometry) -> bool;
    fn recoded_shim_technique(index: usize, row: *mut RawTechnique) -> bool;
    fn recoded_shim_sample(job: *mut c_void, tables: *mut u64, state: *mut u64);
}
