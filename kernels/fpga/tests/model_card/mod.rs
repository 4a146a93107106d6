//! A card that is only a thread: it polls a register page in a file, follows the rings in its given
//! memory, and computes with the CPU.

#![allow(dead_code, reason = "each test file uses its part of this")]

pub mod fake_vfio;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use recoded_fpga::layout::{
    COMPLETION_BYTES, DESCRIPTOR_BYTES, MAGIC_VALUE, VERSION_VALUE, control, op, register,
};
use recoded_gf::Kernel;

/// A file in memory.
pub fn memfd(bytes: u64) -> File {
    let fd = rustix::fs::memfd_create("recoded", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(fd.expect("memory"));
    file.set_len(bytes).expect("memory");
    file
}

/// Memory by the card's addresses.
pub trait CardMemory: Send + 'static {
    /// Whether the card is running.
    fn is_well(&self) -> bool {
        true
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    fn write(&self, address: u64, bytes: &[u8]) -> bool;
}

impl CardMemory for File {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.read_exact_at(bytes, address).is_ok()
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.write_all_at(bytes, address).is_ok()
    }
}

/// Writes the identity registers of a card: tiles of 8 destinations by 4 sources, jobs of up to 64
/// rows of 4,096 bytes, so that larger ones are split.
pub fn write_identity(registers: &File, page: u64) {
    let shape = u32::from_le_bytes([4, 4, 8, 2]);
    for (offset, value) in [
        (register::MAGIC, MAGIC_VALUE),
        (register::VERSION, VERSION_VALUE),
        (register::SHAPE, shape),
        (register::LIMITS, 4096 << 16 | 64),
        (register::CLOCK, 300_000),
    ] {
        let place = page + u64::from(offset);
        registers.write_all_at(&value.to_le_bytes(), place).expect("a memfd");
    }
}

/// Tile of [`write_identity`]: rows and columns.
const TILE: (usize, usize) = (8, 4);

/// The thread. It ends when this is dropped.
pub struct ModelCard {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u32>>,
}

impl ModelCard {
    /// A card whose registers are at `page` of `registers`; writes the number 1 to `raise` when a
    /// job is done, in the given number of bytes.
    pub fn start(
        registers: File,
        page: u64,
        memory: impl CardMemory,
        raise: Option<(File, usize)>,
    ) -> Self {
        write_identity(&registers, page);
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let card = Card { registers, page, memory, raise };
        let thread = thread::spawn(move || card.run(&ended));
        Self { is_over, thread: Some(thread) }
    }

    /// Ends it; returns the number of its jobs.
    pub fn stop(mut self) -> u32 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map_or(0, |thread| thread.join().expect("the model does not panic"))
    }

    /// Leaves it running until the test's process ends.
    pub fn detach(mut self) {
        self.thread = None;
        std::mem::forget(self);
    }
}

impl Drop for ModelCard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

struct Card<M> {
    registers: File,
    page: u64,
    memory: M,
    raise: Option<(File, usize)>,
}

impl<M: CardMemory> Card<M> {
    fn run(mut self, is_over: &AtomicBool) -> u32 {
        let mut done = 0_u32;
        while !is_over.load(Ordering::Relaxed) {
            let is_running = self.register(register::CONTROL) == 1 << control::RUN;
            let is_well = is_running && self.memory.is_well();
            if is_well && done != self.register(register::SUBMISSION_TAIL) {
                self.job(done);
                done = done.wrapping_add(1);
            } else {
                thread::sleep(Duration::from_micros(50));
            }
        }
        done
    }

    fn register(&self, offset: u32) -> u32 {
        let mut bytes = [0; 4];
        let read = self.registers.read_exact_at(&mut bytes, self.page + u64::from(offset));
        read.map_or(0, |()| u32::from_le_bytes(bytes))
    }

    fn wide(&self, low: u32) -> u64 {
        u64::from(self.register(low)) | u64::from(self.register(low + 4)) << 32
    }

    fn job(&mut self, number: u32) {
        let log2 = self.register(register::SUBMISSION_LOG2);
        let place = u64::from(number & ((1 << log2) - 1));
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        let ring = self.wide(register::SUBMISSION_BASE_LOW);
        assert!(self.memory.read(ring + place * DESCRIPTOR_BYTES as u64, &mut descriptor));
        let is_done = descriptor[0] == op::NOP || self.multiply(&descriptor);
        // Status 6: a read was refused.
        let status = if is_done { 0_u16 } else { 6 };
        let phase = u16::from(number >> log2 & 1 == 0);
        let mut completion = [0; COMPLETION_BYTES];
        completion[..4].copy_from_slice(&descriptor[4..8]);
        completion[4..6].copy_from_slice(&status.to_le_bytes());
        completion[6..8].copy_from_slice(&phase.to_le_bytes());
        let ring = self.wide(register::COMPLETION_BASE_LOW);
        assert!(self.memory.write(ring + place * COMPLETION_BYTES as u64, &completion));
        if let Some((raise, bytes)) = &mut self.raise {
            // This fails when the host has closed its end.
            let _ = raise.write_all(&1_u64.to_le_bytes()[..*bytes]);
        }
    }

    fn multiply(&self, descriptor: &[u8; DESCRIPTOR_BYTES]) -> bool {
        let number = |start: usize, bytes: usize| {
            let mut wide = [0; 8];
            wide[..bytes].copy_from_slice(&descriptor[start..start + bytes]);
            u64::from_le_bytes(wide)
        };
        let [k, n, row_bytes] = [number(8, 2), number(10, 2), number(12, 4)].map(|n| n as usize);
        assert!(k <= 64 && n <= 64 && row_bytes <= 4096, "within what the registers say");
        let mut tiles = vec![0; recoded_fpga::tiled_bytes(n, k, TILE)];
        if !self.memory.read(number(16, 8), &mut tiles) {
            return false;
        }
        let padded = k.next_multiple_of(TILE.1);
        let at = |row: usize, column: usize| {
            tiles[(row / TILE.0 * padded + column) * TILE.0 + row % TILE.0]
        };
        let places = (0..n).flat_map(|row| (0..k).map(move |column| (row, column)));
        let matrix: Vec<u8> = places.map(|(row, column)| at(row, column)).collect();
        let mut sources = vec![vec![0; row_bytes]; k];
        let (first, stride) = (number(24, 8), number(40, 4));
        for (row, bytes) in (0..).zip(&mut sources) {
            if !self.memory.read(first + row * stride, bytes) {
                return false;
            }
        }
        let mut made = vec![vec![0; row_bytes]; n];
        let sources: Vec<&[u8]> = sources.iter().map(|row| &row[..]).collect();
        let mut rows: Vec<&mut [u8]> = made.iter_mut().map(|row| &mut row[..]).collect();
        Kernel::best().matmul(&matrix, &sources, &mut rows);
        let (first, stride) = (number(32, 8), number(44, 4));
        (0..).zip(&made).all(|(row, bytes)| self.memory.write(first + row * stride, bytes))
    }
}
