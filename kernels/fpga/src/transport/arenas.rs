//! Memory of bundles that a card reads and writes in place: the arenas it reaches, and their
//! addresses.
//!
//! ```text
//!  share --> the IOMMU maps the arena's pages --> in use --> it is dropped: unmapped, then freed
//!                                                    '-----> end: all are unmapped, for good
//! ```
//!
//! An arena gets a guard, so that its memory is not freed while the IOMMU lets the card reach it;
//! if Linux does not unmap it, it is never freed. Bounded by [`ARENAS_MAX`]: arenas beyond that are
//! copied.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use recoded_code::engine::{Arena, Guard};

/// The card's access to memory.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    ReadWrite,
}

/// Controls the memory that a card reaches.
pub trait Iommu: Send + 'static {
    /// Maps `bytes` bytes of this process at `here` for the card at address `there`.
    ///
    /// # Errors
    /// Linux's error.
    fn map(&mut self, here: usize, there: u64, bytes: u64, access: Access) -> io::Result<()>;

    /// Ends a mapping by [`Self::map`]. The card reaches nothing there when this returns.
    ///
    /// # Errors
    /// Linux's error; the card may still reach it.
    fn unmap(&mut self, there: u64, bytes: u64) -> io::Result<()>;
}

/// The arenas that one card reaches. Guards of arenas hold it weakly.
pub struct Arenas<I> {
    table: Arc<Mutex<Table<I>>>,
    owner: u64,
}

struct Table<I> {
    iommu: I,
    /// The first address; each place has [`PLACE_BYTES`].
    base: u64,
    places: Vec<Option<Held>>,
    /// Whether nothing more is shared: Linux has refused something, or sharing has ended.
    is_closed: bool,
}

#[derive(Copy, Clone)]
struct Held {
    here: usize,
    bytes: u64,
    access: Access,
}

impl<I: Iommu> Arenas<I> {
    /// No arenas yet; the card reaches them from `base` on.
    pub fn new(iommu: I, base: u64) -> Self {
        // Must only be unique: nothing is ordered by it. Other kinds of devices count from 1.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        let table = Table { iommu, base, places: Vec::new(), is_closed: false };
        Self { table: Arc::new(Mutex::new(table)), owner: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Calls `act` with the IOMMU.
    pub fn with<R>(&self, act: impl FnOnce(&mut I) -> R) -> R {
        act(&mut lock(&self.table).iommu)
    }

    /// The card's address for reading the arena; `None` if it must be copied.
    pub fn share(&self, arena: &Arena) -> Option<u64> {
        let pages = arena.pages();
        self.place(arena, pages.as_ptr().expose_provenance(), pages.len(), Access::Read)
    }

    /// The card's address for reading and writing the arena; `None` if it must be copied. The
    /// caller must not access it while the card may write to it.
    pub fn share_mut(&self, arena: &mut Arena) -> Option<u64> {
        let pages = arena.pages_mut();
        let (here, bytes) = (pages.as_mut_ptr().expose_provenance(), pages.len());
        self.place(arena, here, bytes, Access::ReadWrite)
    }

    fn place(&self, arena: &Arena, here: usize, bytes: usize, access: Access) -> Option<u64> {
        let mut table = lock(&self.table);
        let (address, is_new) = table.place(Held { here, bytes: bytes as u64, access })?;
        if is_new {
            let table = Arc::downgrade(&self.table);
            arena.attach(Box::new(Share { table, owner: self.owner, here }));
        }
        Some(address)
    }

    /// Ends all sharing: afterwards the card reaches none of the arenas, whatever it does, and no
    /// more are shared. False if it may still reach one of them.
    pub fn end(&self) -> bool {
        let mut table = lock(&self.table);
        table.is_closed = true;
        let held = (0..table.places.len()).filter(|place| !table.remove(*place)).count();
        held == 0
    }
}

impl<I: Iommu> Table<I> {
    /// The address of a shared or newly shared arena, and whether it is new.
    fn place(&mut self, wanted: Held) -> Option<(u64, bool)> {
        let is_it = |held: &Option<Held>| held.is_some_and(|held| held.here == wanted.here);
        if let Some(place) = self.places.iter().position(is_it) {
            let held = self.places[place]?;
            let suffices = held.bytes == wanted.bytes && held.access >= wanted.access;
            return suffices.then(|| (self.address(place), false));
        }
        let place = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        let fits = (1..=PLACE_BYTES).contains(&wanted.bytes) && place < ARENAS_MAX;
        if self.is_closed || !fits {
            return None;
        }
        let Held { here, bytes, access } = wanted;
        let address = self.address(place);
        if self.iommu.map(here, address, bytes, access).is_err() {
            // Unsuitable page size, or no more may be locked: the next one would be refused, too.
            self.is_closed = true;
            return None;
        }
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some(wanted);
        Some((address, true))
    }

    fn address(&self, place: usize) -> u64 {
        self.base + place as u64 * PLACE_BYTES
    }

    /// False if the card may still reach it; the place is then never reused.
    fn remove(&mut self, place: usize) -> bool {
        let Some(held) = self.places[place] else { return true };
        let is_over = self.iommu.unmap(self.address(place), held.bytes).is_ok();
        if is_over {
            self.places[place] = None;
        }
        is_over
    }
}

fn lock<I>(table: &Mutex<Table<I>>) -> MutexGuard<'_, Table<I>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The guard of an arena that a card reaches.
struct Share<I> {
    table: Weak<Mutex<Table<I>>>,
    owner: u64,
    here: usize,
}

impl<I: Iommu> Guard for Share<I> {
    fn owner(&self) -> u64 {
        self.owner
    }

    fn unpin(&mut self) -> bool {
        // A dropped transport has ended everything, and closed the card's access.
        let Some(table) = self.table.upgrade() else { return true };
        let mut table = lock(&table);
        let is_it = |held: &Option<Held>| held.is_some_and(|held| held.here == self.here);
        let place = table.places.iter().position(is_it);
        place.is_none_or(|place| table.remove(place))
    }
}

/// Most arenas at once: two for each slot of the queue; a worker has four.
pub const ARENAS_MAX: usize = 1024;

/// Most bytes of an arena: so that its address determines its place.
const PLACE_BYTES: u64 = 1 << 27;

/// Size of the address range of all arenas.
pub const ADDRESSES: u64 = ARENAS_MAX as u64 * PLACE_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    /// Records mappings, and refuses from some number on.
    #[derive(Default)]
    struct Fake {
        mapped: Vec<(u64, u64, Access)>,
        maps_max: usize,
        keeps: bool,
    }

    impl Iommu for Fake {
        fn map(&mut self, _: usize, there: u64, bytes: u64, access: Access) -> io::Result<()> {
            if self.mapped.len() == self.maps_max {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.mapped.push((there, bytes, access));
            Ok(())
        }

        fn unmap(&mut self, there: u64, bytes: u64) -> io::Result<()> {
            if self.keeps {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            let found = self.mapped.iter().position(|one| (one.0, one.1) == (there, bytes));
            self.mapped.swap_remove(found.expect("it was mapped"));
            Ok(())
        }
    }

    fn arenas(maps_max: usize) -> Arenas<Fake> {
        Arenas::new(Fake { maps_max, ..Fake::default() }, BASE)
    }

    const BASE: u64 = 1 << 37;

    #[test]
    fn arena_is_mapped_once_and_unmapped_before_it_is_freed() {
        let arenas = arenas(9);
        let (input, mut output) = (Arena::new(5000), Arena::new(100));
        let first = arenas.share(&input).expect("room");
        let second = arenas.share_mut(&mut output).expect("room");
        assert_eq!((first, second), (BASE, BASE + PLACE_BYTES));
        assert_eq!(arenas.share(&input), Some(first));
        let mapped = [(first, 8192, Access::Read), (second, 4096, Access::ReadWrite)];
        arenas.with(|fake| assert_eq!(fake.mapped, mapped));
        drop(input);
        arenas.with(|fake| assert_eq!(fake.mapped, mapped[1..]));
        // The place is free again.
        let third = Arena::new(1);
        assert_eq!(arenas.share(&third), Some(first));
    }

    /// The card must not write to memory that it may only read.
    #[test]
    fn arena_that_is_read_is_not_written() {
        let arenas = arenas(9);
        let mut arena = Arena::new(100);
        let address = arenas.share(&arena);
        assert!(address.is_some());
        assert_eq!(arenas.share_mut(&mut arena), None);
        assert_eq!(arenas.share(&arena), address);
    }

    #[test]
    fn refusal_ends_all_attempts_and_what_is_shared_stays() {
        let arenas = arenas(1);
        let (first, second) = (Arena::new(100), Arena::new(100));
        assert_eq!(arenas.share(&first), Some(BASE));
        assert_eq!(arenas.share(&second), None);
        arenas.with(|fake| fake.maps_max = 9);
        assert_eq!((arenas.share(&second), arenas.share(&first)), (None, Some(BASE)));
    }

    #[test]
    fn there_is_no_room_for_more_than_the_limit_or_for_a_huge_one() {
        let arenas = arenas(usize::MAX);
        assert_eq!(arenas.share(&Arena::new(0)), None);
        assert_eq!(arenas.share(&Arena::new(PLACE_BYTES as usize + 1)), None);
        let mut many: Vec<Arena> = (0..=ARENAS_MAX).map(|_| Arena::new(1)).collect();
        let shared = many.iter().filter(|arena| arenas.share(arena).is_some()).count();
        assert_eq!(shared, ARENAS_MAX);
        many.remove(7);
        assert_eq!(arenas.share(&many[ARENAS_MAX - 1]), Some(BASE + 7 * PLACE_BYTES));
    }

    #[test]
    fn after_the_end_nothing_is_mapped_and_nothing_more_is_shared() {
        let (arenas, arena) = (arenas(9), Arena::new(1));
        assert!(arenas.share(&arena).is_some());
        assert!(arenas.end());
        arenas.with(|fake| assert!(fake.mapped.is_empty()));
        assert_eq!(arenas.share(&arena), None);
        drop(arena);
        let other = Arena::new(1);
        drop(arenas);
        drop(other);
    }

    /// An arena that Linux does not unmap counts as in use, and its place is not reused.
    #[test]
    fn what_is_not_unmapped_is_never_freed() {
        let (arenas, arena) = (arenas(9), Arena::new(1));
        assert_eq!(arenas.share(&arena), Some(BASE));
        arenas.with(|fake| fake.keeps = true);
        assert!(!arenas.end());
        let mut guard = Share {
            table: Arc::downgrade(&arenas.table),
            owner: arenas.owner,
            here: arena.pages().as_ptr().addr(),
        };
        assert!(!guard.unpin());
        drop(arena);
        lock(&arenas.table).is_closed = false;
        let other = Arena::new(1);
        assert_ne!(arenas.share(&other), Some(BASE));
        arenas.with(|fake| fake.keeps = false);
    }
}
