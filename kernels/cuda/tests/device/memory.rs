//! Runs the kernels: by the shim on this CPU, or, if `RECODED_CUDA_CARD` is set, on the card that
//! the driver finds.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use recoded_cuda::{BareCard, Geometry, Job, Options, TABLES_BYTES};
use recoded_cuda_shim::{Fault, Launch, launch};

/// Chooses the card.
pub const CARD_VARIABLE: &str = "RECODED_CUDA_CARD";

/// Content of memory before the first write.
const POISON: u8 = 0xEE;

/// No kernel of a test takes long, on a card or on a stand-in of one.
const TIMEOUT: Duration = Duration::from_secs(60);

pub enum Memory {
    /// The arena and the constant tables, 16-byte aligned as a card's are.
    Shim {
        arena: Vec<u128>,
        written: Vec<u8>,
        tables: Vec<u128>,
    },
    Card(Box<Lent>),
}

thread_local! {
    /// Cards of finished tests of this thread: opening one takes longer than most tests.
    static IDLE: RefCell<Vec<BareCard>> = const { RefCell::new(Vec::new()) };
}

impl Memory {
    /// Memory of at least `bytes` bytes, all poisoned.
    pub fn new(bytes: usize) -> Self {
        if std::env::var_os(CARD_VARIABLE).is_none() {
            let poison = || u128::from_ne_bytes([POISON; 16]);
            let arena = vec![poison(); bytes.div_ceil(16)];
            let written = vec![0; 16 * arena.len()];
            return Self::Shim { arena, written, tables: vec![poison(); TABLES_BYTES / 16] };
        }
        let idle = IDLE.with_borrow_mut(|idle| {
            let found = idle.iter().position(|card| card.arena_bytes() >= bytes as u64)?;
            Some(idle.swap_remove(found))
        });
        let mut card = idle.unwrap_or_else(|| {
            let options = Options::find().unwrap_or_else(|error| panic!("{error}"));
            let opened = BareCard::open(&options, bytes.next_multiple_of(16) as u64);
            opened.unwrap_or_else(|error| panic!("{error}"))
        });
        let all = vec![POISON; card.arena_bytes() as usize];
        card.write(0, &all).unwrap_or_else(|error| panic!("{error}"));
        Self::Card(Box::new(Lent(Some(card))))
    }

    pub fn bytes(&self) -> usize {
        match self {
            Self::Shim { arena, .. } => 16 * arena.len(),
            Self::Card(card) => card.arena_bytes() as usize,
        }
    }

    pub fn tables(&mut self) -> Vec<u8> {
        match self {
            Self::Shim { tables, .. } => tables.iter().flat_map(|w| w.to_ne_bytes()).collect(),
            Self::Card(card) => card.tables().unwrap_or_else(|error| panic!("{error}")),
        }
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        match self {
            Self::Shim { arena, written, .. } => {
                view(arena)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                written[offset as usize..][..bytes.len()].fill(1);
            }
            Self::Card(card) => card.write(offset, bytes).unwrap_or_else(|error| panic!("{error}")),
        }
    }

    pub fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        match self {
            Self::Shim { arena, .. } => view(arena)[offset as usize..][..bytes].to_vec(),
            Self::Card(card) => card.read(offset, bytes).unwrap_or_else(|error| panic!("{error}")),
        }
    }

    pub fn launch(
        &mut self,
        kernel: &str,
        geometry: &Geometry,
        grid: u32,
        jobs: &[Job],
        seed: u64,
        finds_races: bool,
    ) -> Result<(), Fault> {
        match self {
            Self::Shim { arena, written, tables } => {
                let mut how = Launch::new(grid, geometry.threads, geometry.shared_bytes);
                how.jobs = jobs.as_ptr().cast();
                how.jobs_count = jobs.len() as u32;
                how.tables = tables.as_mut_ptr().cast();
                how.arena = arena.as_mut_ptr().cast();
                how.arena_bytes = arena.len() as u64 * 16;
                how.written = written.as_mut_ptr();
                how.finds_races = finds_races;
                how.seed = seed;
                // SAFETY: the vectors outlive the call and are not used meanwhile.
                unsafe { launch(kernel, &how) }
            }
            // A grid of no blocks needs no launch.
            Self::Card(_) if grid == 0 => Ok(()),
            Self::Card(card) => {
                // SAFETY: jobs of tests name places that the test has allocated in the arena.
                let launched = unsafe { card.launch(kernel, geometry, grid, jobs, TIMEOUT) };
                launched.map_err(|error| Fault(error.to_string()))
            }
        }
    }
}

/// A card that is idle again afterwards, unless the test failed: its context may then be unusable.
pub struct Lent(Option<BareCard>);

impl Drop for Lent {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            IDLE.with_borrow_mut(|idle| idle.extend(self.0.take()));
        }
    }
}

impl Deref for Lent {
    type Target = BareCard;

    fn deref(&self) -> &BareCard {
        self.0.as_ref().expect("taken when dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut BareCard {
        self.0.as_mut().expect("taken when dropped")
    }
}

fn view(words: &mut [u128]) -> &mut [u8] {
    let bytes = 16 * words.len();
    // SAFETY: the words are initialised, and bytes have no alignment and no invalid values.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), bytes) }
}
