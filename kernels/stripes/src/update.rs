//! Partial-stripe updates: new bytes in the middle of the content. Only the units that hold them
//! are read, and the parity units of their stripes, which change by the difference.
//!
//! ```text
//!  bytes --> old data and parity units --> new units --> journal, durable --> shards
//! ```
//!
//! The whole update takes effect, or none of it, wherever it is interrupted.

use std::io::{self, Read};

use crate::encode::Progress;
use crate::error::Error;
use crate::header::{Content, Header};
use crate::journal::{self, Journal};
use crate::set::{Set, Slot, shard_name};
use crate::storage::Storage;
use crate::stripe::Stripe;
use crate::unit::Place;

/// Replaces the bytes from `offset` on by all of `reader`. When this returns, they are durable.
/// Returns their number. The set must not be used afterwards.
///
/// # Errors
/// The bytes reach beyond the content, a shard is missing or a unit that is needed is damaged;
/// nothing has changed then. After an error of the storage the update may be completed later.
pub fn update<S: Storage>(
    storage: &S,
    set: &Set<S::File>,
    offset: u64,
    reader: impl Read,
    progress: Progress<'_>,
) -> Result<u64, Error> {
    check(set, offset)?;
    let committed = write_journal(storage, set, offset, reader, progress);
    let committed = committed.and_then(|Written { bytes, journal }| {
        if bytes > 0 {
            journal.commit()?;
        }
        Ok(bytes)
    });
    match committed {
        Ok(bytes) if bytes > 0 => {
            journal::replay(storage)?;
            Ok(bytes)
        }
        nothing => {
            journal::discard(storage);
            nothing
        }
    }
}

/// An update in its journal.
struct Written<'a, S: Storage> {
    bytes: u64,
    journal: Journal<'a, S>,
}

fn check<F>(set: &Set<F>, offset: u64) -> Result<(), Error> {
    let Header { content, layout, .. } = set.header;
    if content == Content::Folder {
        return Err(Error::Folder);
    }
    let total_bytes = layout.total_bytes();
    if offset > total_bytes {
        return Err(Error::PastEnd { offset, total_bytes });
    }
    for (shard, slot) in set.slots.iter().enumerate() {
        let canonical = shard_name(shard);
        match slot {
            Slot::Current { name, .. } if *name != canonical => {
                return Err(Error::Renamed { name: name.clone(), shard, canonical });
            }
            Slot::Current { bytes, .. } if *bytes == layout.shard_bytes() => {}
            _ => return Err(Error::NeedsRepair { shard }),
        }
    }
    Ok(())
}

fn write_journal<'a, S: Storage>(
    storage: &'a S,
    set: &Set<S::File>,
    mut offset: u64,
    mut reader: impl Read,
    progress: Progress<'_>,
) -> Result<Written<'a, S>, Error> {
    let layout = set.layout();
    let (start, stripe_bytes) = (offset, layout.stripe_bytes() as u64);
    let header = Header { revision: set.header.revision + 1, ..set.header };
    let mut journal = Journal::create(storage, &header)?;
    let mut stripe = Stripe::new(layout)?;
    let mut buffer = vec![0; layout.stripe_bytes()];
    while offset < layout.total_bytes() {
        let number = offset / stripe_bytes;
        let within = (offset % stripe_bytes) as usize;
        let room = layout.content_bytes(number) - within;
        let bytes = read_full(&mut reader, &mut buffer[..room])?;
        if bytes == 0 {
            return Ok(Written { bytes: offset - start, journal });
        }
        stripe.reset(layout.unit_bytes_of(number));
        let touched = stripe.units_of(within, bytes);
        for shard in touched.clone().chain(layout.data()..layout.shards()) {
            set.load_unit(number, shard, &mut stripe)?;
            if !stripe.is_intact(shard) {
                return Err(Error::NeedsRepair { shard });
            }
        }
        stripe.change(within, &buffer[..bytes]);
        for shard in touched.chain(layout.data()..layout.shards()) {
            let place = Place { set: set.header.set, shard, stripe: number };
            journal.add(place, stripe.unit(shard))?;
        }
        offset += bytes as u64;
        progress(bytes as u64);
    }
    let room_bytes = offset - start;
    if read_full(&mut reader, &mut [0])? > 0 {
        return Err(Error::TooLong { room_bytes });
    }
    Ok(Written { bytes: room_bytes, journal })
}

/// Reads until the buffer is full or the input ends.
fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::io("read", "the input", source)),
        }
    }
    Ok(filled)
}
