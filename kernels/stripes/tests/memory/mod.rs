//! A folder in memory that loses power. Bytes and names are durable only after a sync. Of those
//! that are not, a power cut keeps nothing, everything, or a random part, with torn writes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use recoded_stripes::{Access, Staging, Storage, StoredFile};

/// A folder. Clones share it.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<State>>);

/// A file of it.
pub struct MemoryFile {
    memory: Memory,
    inode: usize,
}

/// The part of unsynced changes that a power cut keeps.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// None of them.
    Nothing,
    /// All of them.
    Everything,
    /// A part that depends on this seed.
    Random(u64),
}

#[derive(Clone, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    is_published: bool,
    is_durably_published: bool,
    /// Changes and syncs so far.
    steps: u64,
    /// The step at which power is cut.
    cut_at: Option<u64>,
    /// The step that fails, after which everything works again.
    fails_at: Option<u64>,
    is_off: bool,
    /// Syncs do nothing, as on a disk that lies.
    ignores_syncs: bool,
}

#[derive(Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Truncate,
    Write { offset: usize, bytes: Vec<u8> },
}

#[derive(Clone)]
enum NameChange {
    Link { name: String, inode: usize },
    Unlink { name: String },
    Rename { from: String, to: String, inode: usize },
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Truncate => bytes.clear(),
        Change::Write { offset, bytes: written } => {
            bytes.resize(bytes.len().max(offset + written.len()), 0);
            bytes[*offset..][..written.len()].copy_from_slice(written);
        }
    }
}

fn apply_name(names: &mut BTreeMap<String, usize>, change: &NameChange) {
    match change {
        NameChange::Link { name, inode } => drop(names.insert(name.clone(), *inode)),
        NameChange::Unlink { name } => drop(names.remove(name)),
        NameChange::Rename { from, to, inode } => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
    }
}

impl Memory {
    /// An empty folder.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State::default())))
    }

    /// A copy with a power cut at a step, counted from 1.
    pub fn with_cut(&self, step: u64) -> Self {
        let state = State { steps: 0, cut_at: Some(step), ..self.state().clone() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// A copy with an error at a step, counted from 1, as of a full disk.
    pub fn with_error(&self, step: u64) -> Self {
        let state = State { steps: 0, fails_at: Some(step), ..self.state().clone() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Whether the step of [`Memory::with_error`] was reached.
    pub fn has_failed(&self) -> bool {
        let state = self.state();
        state.fails_at.is_some_and(|step| step <= state.steps)
    }

    /// A copy whose syncs do nothing.
    pub fn without_syncs(&self) -> Self {
        let state = State { ignores_syncs: true, ..self.state().clone() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// The folder after power returns.
    pub fn after_power_cut(&self, kept: Kept) -> Self {
        let old = self.state().clone();
        let mut random = SmallRng::seed_from_u64(match kept {
            Kept::Random(seed) => seed,
            _ => 0,
        });
        let keeps = |random: &mut SmallRng| match kept {
            Kept::Nothing => false,
            Kept::Everything => true,
            Kept::Random(_) => random.random(),
        };
        let mut names = old.durable_names;
        for change in &old.pending_names {
            if keeps(&mut random) {
                apply_name(&mut names, change);
            }
        }
        let inodes = old.inodes.into_iter().map(|inode| {
            let mut bytes = inode.durable;
            for change in &inode.pending {
                if keeps(&mut random) {
                    apply(&mut bytes, &torn(change, kept, &mut random));
                }
            }
            Inode { durable: bytes.clone(), bytes, pending: Vec::new() }
        });
        let inodes = inodes.collect();
        let is_published = old.is_durably_published || old.is_published && keeps(&mut random);
        Self(Arc::new(Mutex::new(State {
            inodes,
            durable_names: names.clone(),
            names,
            is_published,
            is_durably_published: is_published,
            ignores_syncs: old.ignores_syncs,
            ..State::default()
        })))
    }

    /// Whether the folder is visible under its name.
    pub fn is_published(&self) -> bool {
        self.state().is_published
    }

    /// Changes bytes of a file durably, as a failing disk does.
    pub fn damage(&self, name: &str, change: impl Fn(&mut Vec<u8>)) {
        let mut state = self.state();
        let inode = state.names[name];
        change(&mut state.inodes[inode].bytes);
        change(&mut state.inodes[inode].durable);
    }

    /// Removes a file durably.
    pub fn lose(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with the lock")
    }

    /// Counts a step, and does it unless power is off. At the cut it counts as begun.
    fn step(&self, change: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state();
        if state.is_off {
            return Err(io::Error::other("power is off"));
        }
        state.steps += 1;
        if state.fails_at == Some(state.steps) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.cut_at == Some(state.steps) {
            change(&mut state)?;
            state.is_off = true;
            return Err(io::Error::other("power is cut"));
        }
        change(&mut state)
    }

    /// As a step, but without effect at the cut, where the progress of a sync is random anyway.
    fn sync_step(&self, sync: impl FnOnce(&mut State)) -> io::Result<()> {
        self.step(|state| {
            if state.cut_at != Some(state.steps) && !state.ignores_syncs {
                sync(state);
            }
            Ok(())
        })
    }
}

/// A write that reached the disk in part only.
fn torn(change: &Change, kept: Kept, random: &mut SmallRng) -> Change {
    match change {
        Change::Write { offset, bytes } if matches!(kept, Kept::Random(_)) && random.random() => {
            let start = random.random_range(0..=bytes.len());
            let end = random.random_range(start..=bytes.len());
            Change::Write { offset: offset + start, bytes: bytes[start..end].to_vec() }
        }
        other => other.clone(),
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Storage for Memory {
    type File = MemoryFile;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn open(&self, name: &str, _: Access) -> io::Result<MemoryFile> {
        let inode = *self.state().names.get(name).ok_or_else(not_found)?;
        Ok(MemoryFile { memory: self.clone(), inode })
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        let mut created = 0;
        self.step(|state| {
            if let Some(inode) = state.names.get(name).copied() {
                state.inodes[inode].bytes.clear();
                state.inodes[inode].pending.push(Change::Truncate);
                created = inode;
                return Ok(());
            }
            created = state.inodes.len();
            state.inodes.push(Inode::default());
            let change = NameChange::Link { name: name.into(), inode: created };
            apply_name(&mut state.names, &change);
            state.pending_names.push(change);
            Ok(())
        })?;
        Ok(MemoryFile { memory: self.clone(), inode: created })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.step(|state| {
            let inode = *state.names.get(from).ok_or_else(not_found)?;
            let change = NameChange::Rename { from: from.into(), to: to.into(), inode };
            apply_name(&mut state.names, &change);
            state.pending_names.push(change);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.step(|state| {
            let change = NameChange::Unlink { name: name.into() };
            apply_name(&mut state.names, &change);
            state.pending_names.push(change);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_step(|state| {
            state.durable_names = state.names.clone();
            state.pending_names.clear();
        })
    }
}

impl Staging for Memory {
    fn publish(&self) -> io::Result<()> {
        self.step(|state| {
            state.is_published = true;
            Ok(())
        })?;
        self.sync_step(|state| state.is_durably_published = true)
    }
}

impl StoredFile for MemoryFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.memory.state().inodes[self.inode].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.memory.state();
        let bytes = &state.inodes[self.inode].bytes;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.step(|state| {
            let change = Change::Write { offset: offset as usize, bytes: bytes.to_vec() };
            let inode = &mut state.inodes[self.inode];
            apply(&mut inode.bytes, &change);
            inode.pending.push(change);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.memory.sync_step(|state| {
            let inode = &mut state.inodes[self.inode];
            inode.durable = inode.bytes.clone();
            inode.pending.clear();
        })
    }
}
