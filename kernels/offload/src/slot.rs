//! Slots between a worker and the dispatcher, and their shared state.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossbeam::queue::ArrayQueue;
use recoded_code::engine::{Bundle, Error};
use recoded_counters::engine::Close;

use crate::config::Mode;
use crate::metrics::Counters;
use crate::model::Model;

/// A bundle between worker and device, owned by the thread that holds it: it cannot be delivered
/// twice or lost.
#[derive(Debug)]
pub(crate) struct Slot {
    pub bundle: Bundle,
    /// When its first job was added.
    pub opened: Instant,
    /// The reason why it was submitted.
    pub close: Close,
}

impl Slot {
    /// Bytes that cross a bus for it.
    pub fn bytes(&self) -> u64 {
        bytes(&self.bundle)
    }
}

/// Bytes that cross a bus for a bundle.
pub(crate) fn bytes(bundle: &Bundle) -> u64 {
    (bundle.input_bytes() + bundle.output_bytes()) as u64
}

/// The two rings between a worker and the dispatcher; each has room for all slots of the worker, so
/// that no push ever fails.
#[derive(Clone)]
pub(crate) struct Rings {
    /// One producer, the worker; one consumer, the dispatcher.
    pub submitted: Arc<ArrayQueue<Slot>>,
    /// One producer, the dispatcher; one consumer, the worker.
    pub done: Arc<ArrayQueue<Slot>>,
}

impl Rings {
    pub fn new(slots: usize) -> Self {
        let ring = || Arc::new(ArrayQueue::new(slots.max(1)));
        Self { submitted: ring(), done: ring() }
    }
}

/// State that all threads read. All but `is_finished` serves decisions that may be slightly late:
/// these atomics order nothing, hence they are relaxed. The rings order slots.
pub(crate) struct Shared {
    mode: AtomicU8,
    /// Whether there is a working device.
    pub is_up: AtomicBool,
    /// Whether the queue is being stopped.
    pub is_stopping: AtomicBool,
    /// Whether the dispatcher has ended.
    pub is_finished: AtomicBool,
    /// Whether another device must be opened to replace the present one.
    pub is_replaced: AtomicBool,
    /// The last failure of the device.
    why_down: Mutex<Option<Error>>,
    /// The device's name, while there is one.
    device: Mutex<Option<String>>,
    /// Submitted bytes and products that are not done yet.
    pub queued_bytes: AtomicU64,
    pub queued_products: AtomicU64,
    pub model: Model,
    pub counters: Counters,
    /// Number of workers, whose cores are compared with the device.
    pub workers: usize,
}

impl Shared {
    pub fn new(mode: Mode, model: Model, workers: usize) -> Self {
        Self {
            mode: AtomicU8::new(code(mode)),
            is_up: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            why_down: Mutex::default(),
            device: Mutex::default(),
            queued_bytes: AtomicU64::new(0),
            queued_products: AtomicU64::new(0),
            model,
            counters: Counters::default(),
            workers: workers.max(1),
        }
    }

    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Relaxed) {
            0 => Mode::Auto,
            1 => Mode::Cpu,
            _ => Mode::Device,
        }
    }

    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(code(mode), Ordering::Relaxed);
    }

    /// Records a failure of the device.
    pub fn explain(&self, error: Error) {
        *self.why_down.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub fn why_down(&self) -> Option<Error> {
        self.why_down.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Clears failures: they were another device's.
    pub fn forget(&self) {
        *self.why_down.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sets the present device.
    pub fn set_device(&self, name: Option<String>) {
        *self.device.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    pub fn device(&self) -> Option<String> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a slot as queued.
    pub fn enqueue(&self, slot: &Slot) {
        self.queued_bytes.fetch_add(slot.bytes(), Ordering::Relaxed);
        self.queued_products.fetch_add(slot.bundle.products(), Ordering::Relaxed);
    }

    /// Counts a slot as done.
    pub fn dequeue(&self, slot: &Slot) {
        self.queued_bytes.fetch_sub(slot.bytes(), Ordering::Relaxed);
        self.queued_products.fetch_sub(slot.bundle.products(), Ordering::Relaxed);
    }
}

const fn code(mode: Mode) -> u8 {
    match mode {
        Mode::Auto => 0,
        Mode::Cpu => 1,
        Mode::Device => 2,
    }
}
