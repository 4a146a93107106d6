//! The journal of an update: all bytes that it will write, durable before the first of them is
//! written. An update that was interrupted is completed from it, or had no effect.
//!
//! ```text
//!  [ magic 8 | version 2 | zero 6 ][ header of shard 0 after the update 128 ]
//!  [ shard 2 | zero 6 | stripe 8 | unit ] ..                         one record for each unit
//!  [ BLAKE3 of everything before 32 ]
//! ```
//!
//! A journal under its final name is complete, because it was flushed before it got that name.
//! Replaying it twice has the effect of once.

use crate::error::Error;
use crate::header::{Header, number};
use crate::layout::{HEADER_BYTES, Layout};
use crate::set::{PARTIAL, shard_name, write_unit};
use crate::storage::{Access, Storage, StoredFile};
use crate::unit::{CHECKSUM_BYTES, Place};

/// Name of a complete journal.
pub const JOURNAL: &str = "update.journal";

/// First bytes of a journal, with its version.
const MAGIC: [u8; 16] = *b"RCDJOURN\x01\0\0\0\0\0\0\0";

/// Bytes before the first record.
const START: usize = MAGIC.len() + HEADER_BYTES;

/// Bytes of a record before its unit.
const RECORD: usize = 16;

/// Bytes read at a time to check the whole.
const CHUNK: usize = 1 << 20;

/// A journal that is being written.
pub(crate) struct Journal<'a, S: Storage> {
    storage: &'a S,
    file: S::File,
    offset: u64,
    hasher: blake3::Hasher,
}

fn partial() -> String {
    format!("{JOURNAL}{PARTIAL}")
}

impl<'a, S: Storage> Journal<'a, S> {
    /// Begins a journal. `header` is that of shard 0 after the update.
    pub fn create(storage: &'a S, header: &Header) -> Result<Self, Error> {
        let file = storage.create(&partial());
        let file = file.map_err(|source| Error::io("create", partial(), source))?;
        let mut journal = Self { storage, file, offset: 0, hasher: blake3::Hasher::new() };
        journal.write(&MAGIC)?;
        journal.write(&header.to_bytes())?;
        Ok(journal)
    }

    /// Adds a unit to be written.
    pub fn add(&mut self, place: Place, unit: &[u8]) -> Result<(), Error> {
        let mut record = [0; RECORD];
        record[..2].copy_from_slice(&(place.shard as u16).to_le_bytes());
        record[8..].copy_from_slice(&place.stripe.to_le_bytes());
        self.write(&record)?;
        self.write(unit)
    }

    /// Makes the journal durable: the update will be completed from now on.
    pub fn commit(mut self) -> Result<(), Error> {
        let sum = *self.hasher.finalize().as_bytes();
        self.write(&sum)?;
        let Self { storage, file, .. } = self;
        file.sync().map_err(|source| Error::io("flush", partial(), source))?;
        let renamed = storage.rename(&partial(), JOURNAL).and_then(|()| storage.sync());
        renamed.map_err(|source| Error::io("rename", partial(), source))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_at(self.offset, bytes);
        written.map_err(|source| Error::io("write", partial(), source))?;
        self.offset += bytes.len() as u64;
        self.hasher.update(bytes);
        Ok(())
    }
}

/// Removes the draft of an abandoned journal, if there is one.
pub(crate) fn discard<S: Storage>(storage: &S) {
    // Without it, the next update overwrites the file.
    let _ = storage.remove(&partial());
}

/// Whether a folder has a journal to replay.
///
/// # Errors
/// The folder cannot be read.
pub fn is_pending<S: Storage>(storage: &S) -> Result<bool, Error> {
    let names = storage.names().map_err(|source| Error::io("list", "the folder", source))?;
    Ok(names.iter().any(|name| name == JOURNAL))
}

/// Completes an interrupted update, if there is one, and returns whether there was.
///
/// # Errors
/// The journal is damaged or of another set, or a file cannot be read or written. It stays then.
pub fn replay<S: Storage>(storage: &S) -> Result<bool, Error> {
    if !is_pending(storage)? {
        return Ok(false);
    }
    let file = storage.open(JOURNAL, Access::Read).map_err(failed_read)?;
    let journal = Replay::check(file)?;
    let files = journal.open_shards(storage)?;
    journal.write_units(&files)?;
    let header = journal.header;
    for (shard, file) in files.iter().enumerate() {
        let Some(file) = file else { continue };
        let written = file.write_at(0, &header.of_shard(shard).to_bytes());
        written.and_then(|()| file.sync()).map_err(|source| failed_write(shard, source))?;
    }
    let removed = storage.remove(JOURNAL).and_then(|()| storage.sync());
    removed.map_err(|source| Error::io("remove", JOURNAL, source))?;
    Ok(true)
}

fn failed_read(source: std::io::Error) -> Error {
    Error::io("read", JOURNAL, source)
}

fn failed_write(shard: usize, source: std::io::Error) -> Error {
    Error::io("write", shard_name(shard), source)
}

const fn damaged(reason: &'static str) -> Error {
    Error::Journal { name: JOURNAL, reason }
}

/// A journal whose checksum is right.
struct Replay<F> {
    file: F,
    /// Bytes before the checksum.
    end: u64,
    header: Header,
}

impl<F: StoredFile> Replay<F> {
    fn check(file: F) -> Result<Self, Error> {
        let bytes = file.bytes().map_err(failed_read)?;
        let end = bytes.checked_sub(CHECKSUM_BYTES as u64).ok_or(damaged("too short"))?;
        let mut hasher = blake3::Hasher::new();
        let mut chunk = vec![0; CHUNK];
        let mut offset = 0;
        while offset < end {
            let length = (end - offset).min(CHUNK as u64) as usize;
            read_exact(&file, offset, &mut chunk[..length])?;
            hasher.update(&chunk[..length]);
            offset += length as u64;
        }
        let mut sum = [0; CHECKSUM_BYTES];
        read_exact(&file, end, &mut sum)?;
        if sum != *hasher.finalize().as_bytes() {
            return Err(damaged("damaged"));
        }
        let mut start = [0; START];
        if end < START as u64 {
            return Err(damaged("too short"));
        }
        read_exact(&file, 0, &mut start)?;
        let (magic, header) = start.split_at(MAGIC.len());
        let header = Header::parse(header).map_err(|_| damaged("of an unknown format"))?;
        if magic != MAGIC || header.shard != 0 {
            return Err(damaged("of an unknown format"));
        }
        Ok(Self { file, end, header })
    }

    /// Files of the shards to write. Shards that are missing, or have missed an earlier update, are
    /// left out; they are rebuilt later.
    fn open_shards<S: Storage<File = F>>(&self, storage: &S) -> Result<Vec<Option<F>>, Error> {
        let open = |shard: usize| {
            let name = shard_name(shard);
            let file = match storage.open(&name, Access::Write) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(source) => return Err(Error::io("open", name, source)),
            };
            let mut bytes = [0; HEADER_BYTES];
            let length = file.read_at(0, &mut bytes);
            let length = length.map_err(|source| Error::io("read", &name, source))?;
            // A header that is torn was being written by this update.
            let Ok(found) = Header::parse(&bytes[..length]) else { return Ok(Some(file)) };
            let is_same = found.shard == shard && self.header.agrees(&found.of_shard(0));
            if !is_same || found.revision > self.header.revision {
                return Err(damaged("of another set or older than its shards"));
            }
            Ok((found.revision + 1 >= self.header.revision).then_some(file))
        };
        (0..self.header.layout.shards()).map(open).collect()
    }

    fn write_units(&self, files: &[Option<F>]) -> Result<(), Error> {
        let layout: &Layout = &self.header.layout;
        let mut unit = vec![0; layout.unit_bytes()];
        let mut offset = START as u64;
        while offset < self.end {
            let mut record = [0; RECORD];
            read_exact(&self.file, offset, &mut record)?;
            let (shard, stripe) = (number(&record[..2]) as usize, number(&record[8..]));
            if shard >= layout.shards() || stripe >= layout.stripes() {
                return Err(damaged("inconsistent"));
            }
            let unit = &mut unit[..layout.unit_bytes_of(stripe)];
            read_exact(&self.file, offset + RECORD as u64, unit)?;
            offset += (RECORD + unit.len()) as u64;
            if let Some(file) = &files[shard] {
                let place = Place { set: self.header.set, shard, stripe };
                write_unit(file, layout, place, unit)
                    .map_err(|source| failed_write(shard, source))?;
            }
        }
        Ok(())
    }
}

fn read_exact(file: &impl StoredFile, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
    let length = file.read_at(offset, buffer).map_err(failed_read)?;
    if length == buffer.len() { Ok(()) } else { Err(damaged("too short")) }
}
