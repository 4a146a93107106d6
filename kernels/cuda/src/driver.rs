//! The driver's objects, each released when dropped. Everything that is `unsafe` about CUDA is
//! here.
//!
//! Nothing here may be called before [`is_present`] has returned true: cudarc panics if libcuda is
//! missing. [`crate::probe`] checks in another process first.
//!
//! # Memory that a card uses
//! Copies are asynchronous, so host memory and device memory must outlive them.
//! [`crate::CudaEngine`] ensures that: it owns bundles in flight, and leaks them if a card hangs.
//! Objects of a destroyed context are forgotten, not dropped, as they were destroyed with it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::{DriverError, result, sys};
use recoded_code::engine::{Arena, Guard};

/// A failed call of the driver.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} failed: {name} ({code})")]
pub struct CallError {
    /// The function of the driver.
    pub call: &'static str,
    /// `CUresult`.
    pub code: u32,
    /// Its name.
    pub name: String,
}

impl CallError {
    fn new(call: &'static str, error: DriverError) -> Self {
        let name = error.error_name().ok().and_then(|name| name.to_str().ok());
        Self { call, code: error.0 as u32, name: name.unwrap_or("unknown").into() }
    }

    /// The error for memory beyond this program's own limit, which is not requested from the
    /// driver.
    pub(crate) fn out_of_memory(call: &'static str) -> Self {
        let code = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;
        Self { call, code, name: "CUDA_ERROR_OUT_OF_MEMORY".into() }
    }

    /// Whether the driver documents that a process must end after such an error before it can use
    /// the card again. Some drivers permit a new context, which one attempt shows.
    #[must_use]
    pub const fn outlives_context(&self) -> bool {
        // Illegal address, timeout, failed assertion; stack, instruction, alignment, address space
        // and program counter of a kernel; failed launch.
        matches!(self.code, 700 | 702 | 710 | 714..=719)
    }

    /// Whether the card's compute mode reserves it for another process, or for none.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE as u32
    }

    /// Whether only the card's memory is too small.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32
    }
}

/// Adds the name of the call to an error of the driver.
trait Named<T> {
    fn named(self, call: &'static str) -> Result<T, CallError>;
}

impl<T> Named<T> for Result<T, DriverError> {
    fn named(self, call: &'static str) -> Result<T, CallError> {
        self.map_err(|error| CallError::new(call, error))
    }
}

/// Whether libcuda can be loaded. Does not panic without it, as all other calls here would.
#[must_use]
pub fn is_present() -> bool {
    // SAFETY: loading libcuda runs its initialisers, which is part of using it.
    unsafe { sys::is_culib_present() }
}

/// The version of CUDA that the driver supports, for example 12080 for 12.8.
pub fn version() -> Result<u32, CallError> {
    let mut version = 0;
    // SAFETY: the driver writes one int.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().named("cuDriverGetVersion")?;
    Ok(version as u32)
}

/// The number of cards.
pub fn device_count() -> Result<usize, CallError> {
    result::init().named("cuInit")?;
    let count = result::device::get_count().named("cuDeviceGetCount")?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Whether this process has a context, and the card serves one process only: another process then
/// cannot test it.
pub fn is_exclusively_ours(ordinal: usize) -> bool {
    if CONTEXTS.load(Ordering::Relaxed) == 0 {
        return false;
    }
    use sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE;
    let Ok(ordinal) = i32::try_from(ordinal) else { return false };
    let mode = result::device::get(ordinal).and_then(|device| {
        // SAFETY: the device comes from the driver.
        unsafe { result::device::get_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) }
    });
    mode.is_ok_and(|mode| mode == sys::CUcomputemode_enum::CU_COMPUTEMODE_EXCLUSIVE_PROCESS as i32)
}

/// Contexts of this process, including those whose card hangs. A count: nothing is ordered by it.
static CONTEXTS: AtomicU64 = AtomicU64::new(0);

/// Pinned host memory, by address: one registry for all contexts, like the driver's. A second
/// context must not copy through the registration of a first one, which may be destroyed meanwhile.
static PINNED: Mutex<BTreeMap<usize, Registration>> = Mutex::new(BTreeMap::new());

struct Registration {
    bytes: usize,
    /// The context; `None` if it hangs, so that it is never destroyed and all may use its
    /// registrations, which are portable.
    owner: Option<u64>,
}

/// The result of [`Context::pin`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Pinned {
    /// Copies of this context are fast and asynchronous.
    Here,
    /// Not pinned: copies block, and work.
    No,
    /// Pinned by another context of this process: this one must not copy it.
    Elsewhere,
}

fn registry() -> MutexGuard<'static, BTreeMap<usize, Registration>> {
    PINNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Properties of a card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Its name, as text.
    pub name: String,
    /// Its compute capability times ten.
    pub capability: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// The version of CUDA that the driver supports, for example 12080.
    pub driver: u32,
}

/// A separate context on one card. It is not the primary one, so that it can be destroyed, with all
/// its faults, and recreated.
pub struct Context {
    /// `None` once it is destroyed. Guards take the lock to unpin, in whichever thread they are.
    raw: Mutex<Option<Raw>>,
    device: sys::CUdevice,
    id: u64,
    is_hung: AtomicBool,
}

#[derive(Copy, Clone)]
struct Raw(sys::CUcontext);

// SAFETY: any thread may use a context after making it current.
unsafe impl Send for Raw {}

impl Context {
    /// A context on card number `ordinal`, current in this thread.
    pub fn new(ordinal: usize) -> Result<Arc<Self>, CallError> {
        result::init().named("cuInit")?;
        let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let device = result::device::get(ordinal).named("cuDeviceGet")?;
        // SAFETY: the device comes from the driver.
        let raw = unsafe { result::ctx::create_v3(0, device) }.named("cuCtxCreate")?;
        CONTEXTS.fetch_add(1, Ordering::Relaxed);
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Arc::new(Self {
            raw: Mutex::new(Some(Raw(raw))),
            device,
            // Must only be unique: nothing is ordered by it.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            is_hung: AtomicBool::new(false),
        }))
    }

    /// Makes it current in this thread.
    pub fn enter(&self) -> Result<(), CallError> {
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = raw.map_or(ptr::null_mut(), |raw| raw.0);
        // SAFETY: it is a context or null, which means none.
        unsafe { result::ctx::set_current(raw) }.named("cuCtxSetCurrent")
    }

    pub fn info(&self) -> Result<DeviceInfo, CallError> {
        use sys::CUdevice_attribute_enum as Attribute;
        let attribute = |attribute| {
            // SAFETY: the device comes from the driver.
            let value = unsafe { result::device::get_attribute(self.device, attribute) };
            value.map(|value| value as u32).named("cuDeviceGetAttribute")
        };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        // SAFETY: as above.
        let memory = unsafe { result::device::total_mem(self.device) }.named("cuDeviceTotalMem")?;
        Ok(DeviceInfo {
            name: result::device::get_name(self.device).named("cuDeviceGetName")?,
            capability: major * 10 + minor,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory_bytes: memory as u64,
            driver: version()?,
        })
    }

    /// Pins memory for fast, asynchronous copies, until it is freed or the context destroyed.
    /// Memory that shares a page with other memory is left unpinned: half-pinned memory cannot be
    /// copied. So is memory that the driver refuses to pin, which is merely slower.
    pub fn pin(self: &Arc<Self>, arena: &Arena) -> Pinned {
        let (start, bytes) = (arena.pages().as_ptr() as usize, arena.pages().len());
        let has_own_pages = start.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES);
        if arena.is_empty() || !has_own_pages {
            return Pinned::No;
        }
        let mut registry = registry();
        let before = registry.range(..start + bytes).next_back();
        if let Some((_, known)) = before.filter(|(at, known)| **at + known.bytes > start) {
            let is_ours = known.owner.is_none_or(|owner| owner == self.id);
            return if is_ours { Pinned::Here } else { Pinned::Elsewhere };
        }
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the memory is that of the arena, which unpins it by the guard before it frees it.
        let pinned = unsafe { sys::cuMemHostRegister_v2(start as *mut _, bytes, flags) };
        if pinned.result().is_err() {
            return Pinned::No;
        }
        registry.insert(start, Registration { bytes, owner: Some(self.id) });
        let pin = Pin { context: Arc::downgrade(self), owner: self.id, start };
        arena.attach(Box::new(pin));
        Pinned::Here
    }

    /// Destroys it with everything in it; all work in flight is over afterwards.
    pub fn destroy(&self) {
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(raw) = raw.filter(|_| !self.is_hung()) {
            // Its pinned memory is unpinned with it.
            registry().retain(|_, known| known.owner != Some(self.id));
            CONTEXTS.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: it was taken out, so that it is not used or destroyed again. An error means
            // that the context cannot be destroyed any more.
            let _ = unsafe { sys::cuCtxDestroy_v2(raw.0) };
        }
    }

    /// Abandons it: its card does not respond, so that destroying it might never return.
    pub fn give_up(&self) {
        // Read by `is_hung` in threads that only decide whether to leak; no data depends on it.
        self.is_hung.store(true, Ordering::Relaxed);
        let mut registry = registry();
        let ours = registry.values_mut().filter(|known| known.owner == Some(self.id));
        ours.for_each(|known| known.owner = None);
    }

    pub fn is_hung(&self) -> bool {
        self.is_hung.load(Ordering::Relaxed)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// Memory pinned by a context.
struct Pin {
    context: Weak<Context>,
    owner: u64,
    start: usize,
}

impl Guard for Pin {
    fn owner(&self) -> u64 {
        self.owner
    }

    fn unpin(&mut self) -> bool {
        // A destroyed context has unpinned everything.
        let Some(context) = self.context.upgrade() else { return true };
        if context.is_hung() {
            return false;
        }
        let raw = context.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(raw) = *raw else { return true };
        let current = result::ctx::get_current().ok().flatten().unwrap_or(ptr::null_mut());
        let mut registry = registry();
        // SAFETY: the context exists while its lock is held; the memory was pinned in it.
        unsafe {
            let is_entered = result::ctx::set_current(raw.0).is_ok();
            let unpinned =
                is_entered && sys::cuMemHostUnregister(self.start as *mut _).result().is_ok();
            // An error leaves no context current, which `enter` corrects.
            let _ = result::ctx::set_current(current);
            if unpinned {
                registry.remove(&self.start);
            }
            unpinned
        }
    }
}

/// Memory on the card.
pub struct DeviceMemory {
    start: sys::CUdeviceptr,
    bytes: u64,
}

impl DeviceMemory {
    pub fn new(bytes: u64) -> Result<Self, CallError> {
        // SAFETY: it is not read before it is written.
        let start = unsafe { result::malloc_sync(bytes as usize) }.named("cuMemAlloc")?;
        Ok(Self { start, bytes })
    }

    pub const fn start(&self) -> u64 {
        self.start
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated here, and its context exists: objects of destroyed ones are
        // forgotten.
        let _ = unsafe { result::free_sync(self.start) };
    }
}

/// Code on the card.
pub struct Module(sys::CUmodule);

// SAFETY: any thread may use a module while its context is current.
unsafe impl Send for Module {}

impl Module {
    /// Loads a fatbin, a cubin or PTX. The image is followed by a zero, as the driver requires for
    /// PTX.
    pub fn load(image: &[u8]) -> Result<Self, CallError> {
        let mut image = image.to_vec();
        image.push(0);
        // SAFETY: the driver checks the image, reads it during this call and keeps a copy.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) };
        module.map(Self).named("cuModuleLoadData")
    }

    /// A kernel that may use `shared_bytes` of dynamic shared memory.
    pub fn function(&self, name: &str, shared_bytes: u32) -> Result<Function, CallError> {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded.
        let raw = unsafe { result::module::get_function(self.0, name) };
        let raw = raw.named("cuModuleGetFunction")?;
        if shared_bytes > SHARED_BYTES_UNASKED {
            let attribute =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function exists.
            let set = unsafe {
                result::function::set_function_attribute(raw, attribute, shared_bytes as i32)
            };
            set.named("cuFuncSetAttribute")?;
        }
        Ok(Function(raw))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: it was loaded here, and its context exists: objects of destroyed ones are
        // forgotten.
        let _ = unsafe { result::module::unload(self.0) };
    }
}

/// A kernel of a [`Module`], which must outlive it.
#[derive(Copy, Clone)]
pub struct Function(sys::CUfunction);

// SAFETY: as for modules.
unsafe impl Send for Function {}

/// A queue of work on the card, with an event that marks its progress.
pub struct Stream {
    raw: sys::CUstream,
    event: sys::CUevent,
}

// SAFETY: any thread may use a stream while its context is current.
unsafe impl Send for Stream {}

impl Stream {
    pub fn new() -> Result<Self, CallError> {
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking);
        let raw = raw.named("cuStreamCreate")?;
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING;
        match result::event::create(flags).named("cuEventCreate") {
            Ok(event) => Ok(Self { raw, event }),
            Err(error) => {
                // SAFETY: it was created above and is not used.
                let _ = unsafe { result::stream::destroy(raw) };
                Err(error)
            }
        }
    }

    /// Copies to the card.
    ///
    /// # Safety
    /// Both memories must stay in place until the stream is idle, and the host's must not be
    /// written.
    pub unsafe fn copy_to(&self, to: u64, from: &[u8]) -> Result<(), CallError> {
        // SAFETY: by contract.
        unsafe { result::memcpy_htod_async(to, from, self.raw) }.named("cuMemcpyHtoDAsync")
    }

    /// Copies from the card.
    ///
    /// # Safety
    /// Both memories must stay in place until the stream is idle, and the host's must not be used
    /// otherwise.
    pub unsafe fn copy_from(&self, to: &mut [u8], from: u64) -> Result<(), CallError> {
        // SAFETY: by contract.
        unsafe { result::memcpy_dtoh_async(to, from, self.raw) }.named("cuMemcpyDtoHAsync")
    }

    /// Copies from one place on the card to another.
    ///
    /// # Safety
    /// Both must be within device memory that stays allocated until the stream is idle.
    pub unsafe fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), CallError> {
        // SAFETY: by contract.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.raw) }.named("cuMemcpyDtoDAsync")
    }

    /// Launches a kernel of the ABI of `job.h`.
    ///
    /// # Safety
    /// The jobs at `jobs` must name places within the arena only, and fit the kernel and the grid.
    pub unsafe fn launch(
        &self,
        function: Function,
        [blocks, threads, shared_bytes]: [u32; 3],
        mut jobs: u64,
        mut count: u32,
        mut tables: u64,
        mut arena: u64,
    ) -> Result<(), CallError> {
        let mut parameters = [
            (&raw mut jobs).cast(),
            (&raw mut count).cast(),
            (&raw mut tables).cast(),
            (&raw mut arena).cast(),
        ];
        let (grid, block) = ((blocks, 1, 1), (threads, 1, 1));
        // SAFETY: the driver copies the parameters during this call; the rest is by contract.
        unsafe {
            result::launch_kernel(function.0, grid, block, shared_bytes, self.raw, &mut parameters)
        }
        .named("cuLaunchKernel")
    }

    /// Marks the end of the stream's present work, for [`Stream::is_done`].
    pub fn mark(&self) -> Result<(), CallError> {
        // SAFETY: both exist.
        unsafe { result::event::record(self.event, self.raw) }.named("cuEventRecord")
    }

    /// Whether everything before the mark is done.
    pub fn is_done(&self) -> Result<bool, CallError> {
        // SAFETY: the event exists.
        match unsafe { result::event::query(self.event) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(CallError::new("cuEventQuery", error)),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: both were created here, and their context exists: objects of destroyed ones are
        // forgotten.
        unsafe {
            let _ = result::event::destroy(self.event);
            let _ = result::stream::destroy(self.raw);
        }
    }
}

/// Page size: arenas with pages of their own are whole numbers of pages.
const PAGE_BYTES: usize = 4096;

/// Dynamic shared memory that a kernel gets without a request.
const SHARED_BYTES_UNASKED: u32 = 48 << 10;
