//! Encoding: content in, a folder of shards out.
//!
//! ```text
//!  input --> [lock: next k units] --> parity --> checksums --> writes at offsets     per thread
//! ```
//!
//! A thread takes the next stripe of the input and does everything with it, because a stripe has
//! its own offsets in every shard. Memory is a stripe per thread.

use std::io::{self, Read};
use std::sync::Mutex;

use crate::error::Error;
use crate::header::{Content, Header};
use crate::layout::Layout;
use crate::set::{shard_name, write_unit};
use crate::storage::{Staging, StoredFile};
use crate::stripe::Stripe;
use crate::unit::{Place, SetId};
use crate::workers::{THREADS_MAX, Turns, lock, threads};

/// Receives the bytes of content that have been processed, from any thread.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Choices for [`encode`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The code and the length of units.
    pub layout: Layout,
    /// Kind of content.
    pub content: Content,
    /// Permissions of the protected file or folder, 9 bits.
    pub mode: u16,
    /// Number of threads; 0 means one per core.
    pub threads: usize,
}

/// The input and the number of its next stripe.
struct Input<R> {
    reader: R,
    stripe: u64,
    total_bytes: u64,
    is_ended: bool,
}

/// Content of a stripe that was read.
struct Filled {
    stripe: u64,
    bytes: usize,
}

/// Encodes everything that `reader` returns until its end. When this returns, all shards are
/// durable and visible. Returns the header of shard 0.
///
/// # Errors
/// An error of the input or the storage, which is not published then.
pub fn encode<S: Staging>(
    storage: &S,
    reader: impl Read + Send,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Header, Error> {
    let Options { layout, content, mode, threads: wanted } = *options;
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(Error::Random)?;
    let set = SetId(id);
    let mut files = Vec::with_capacity(layout.shards());
    for shard in 0..layout.shards() {
        let name = shard_name(shard);
        files.push(storage.create(&name).map_err(|source| Error::io("create", name, source))?);
    }
    let input = Input { reader, stripe: 0, total_bytes: 0, is_ended: false };
    let total_bytes = encode_stripes(input, &files, Job { set, options }, progress)?;
    let layout = layout.with_total(total_bytes)?;
    let header = Header { set, layout, content, mode, revision: 0, shard: 0 };
    for (shard, file) in files.iter().enumerate() {
        file.write_at(0, &header.of_shard(shard).to_bytes())
            .map_err(|source| Error::io("write", shard_name(shard), source))?;
    }
    sync_all(&files, wanted)?;
    let published = storage.sync().and_then(|()| storage.publish());
    published.map_err(|source| Error::io("publish", "the folder", source))?;
    Ok(header)
}

/// Flushes all files, several at a time, so that their requests to the disk overlap; one after
/// another if `wanted` is one thread.
pub(crate) fn sync_all<F: StoredFile>(files: &[F], wanted: usize) -> Result<(), Error> {
    let turns = Turns::new(files.len() as u64);
    let threads = if wanted == 1 { 1 } else { files.len().clamp(1, THREADS_MAX) };
    turns.run(threads, || {
        while let Some(index) = turns.claim() {
            let synced = files[index as usize].sync();
            synced.map_err(|source| Error::io("flush", "a shard", source))?;
        }
        Ok(())
    })
}

/// The set that is being written.
#[derive(Copy, Clone)]
struct Job<'a> {
    set: SetId,
    options: &'a Options,
}

fn encode_stripes<F: StoredFile>(
    input: Input<impl Read + Send>,
    files: &[F],
    Job { set, options }: Job<'_>,
    progress: Progress<'_>,
) -> Result<u64, Error> {
    let layout = &options.layout;
    let input = Mutex::new(input);
    let turns = Turns::new(u64::MAX);
    turns.run(threads(options.threads, layout, 1), || {
        let mut stripe = Stripe::new(layout)?;
        while !turns.is_stopped() {
            let filled = lock(&input).fill(stripe.content_mut(layout.stripe_bytes()))?;
            let Some(Filled { stripe: number, bytes }) = filled else { break };
            stripe.generate(bytes)?;
            for (shard, file) in files.iter().enumerate() {
                let place = Place { set, shard, stripe: number };
                write_unit(file, layout, place, stripe.unit(shard))
                    .map_err(|source| Error::io("write", shard_name(shard), source))?;
            }
            begin_sync(files, layout, number);
            progress(bytes as u64);
        }
        Ok(())
    })?;
    Ok(lock(&input).total_bytes)
}

/// Bytes of a shard that are sent to the disk at once while others are computed. With less, a disk
/// that turns would move between shards for most of the time.
const SYNC_BYTES: u64 = 8 << 20;

/// Begins to sync the bytes of each shard up to a stripe, if there are enough.
pub(crate) fn begin_sync<F: StoredFile>(files: &[F], layout: &Layout, stripe: u64) {
    let block = layout.unit_offset(stripe) / SYNC_BYTES;
    if layout.unit_offset(stripe + 1) / SYNC_BYTES > block {
        files.iter().for_each(|file| file.begin_sync(block * SYNC_BYTES, SYNC_BYTES));
    }
}

impl<R: Read> Input<R> {
    /// Fills the buffer with the next stripe; `None` at the end.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Option<Filled>, Error> {
        let mut bytes = 0;
        while bytes < buffer.len() && !self.is_ended {
            match self.reader.read(&mut buffer[bytes..]) {
                Ok(0) => self.is_ended = true,
                Ok(length) => bytes += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    self.is_ended = true;
                    return Err(Error::io("read", "the input", source));
                }
            }
        }
        if bytes == 0 {
            return Ok(None);
        }
        self.total_bytes += bytes as u64;
        self.stripe += 1;
        Ok(Some(Filled { stripe: self.stripe - 1, bytes }))
    }
}
