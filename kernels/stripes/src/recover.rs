//! Recovery: the content to a writer, or missing and damaged shards in place.

use std::io::{self, Write};
use std::sync::Mutex;

use crate::encode::{Progress, begin_sync, sync_all};
use crate::error::Error;
use crate::layout::HEADER_BYTES;
use crate::set::{PARTIAL, Set, Slot, Wanted, shard_name, write_unit};
use crate::storage::{Storage, StoredFile};
use crate::stripe::Stripe;
use crate::unit::Place;
use crate::verify::{Report, Verdict};
use crate::workers::{Turns, lock, threads};

/// Writes the content, in order. Missing and damaged units are computed; the set does not change.
/// `wanted` threads; 0 means one per core.
///
/// # Errors
/// A stripe is lost, or a file cannot be read or the output written. Parts may have been written.
pub fn extract<F: StoredFile>(
    set: &Set<F>,
    output: impl Write + Send,
    wanted: usize,
    progress: Progress<'_>,
) -> Result<(), Error> {
    set.check_length()?;
    let layout = set.layout();
    let failed = |source: io::Error| Error::io("write", "the output", source);
    let output = Mutex::new(output);
    let turns = Turns::new(layout.stripes());
    turns.run(threads(wanted, layout, 1), || {
        let mut stripe = Stripe::new(layout)?;
        while let Some(number) = turns.claim() {
            set.load(number, Wanted::Data, &mut stripe)?;
            check_intact(number, &stripe, layout.data())?;
            stripe.recover(0..layout.data())?;
            let content = stripe.content(layout.content_bytes(number));
            turns.in_turn(number, || lock(&output).write_all(content).map_err(failed))?;
            progress(content.len() as u64);
        }
        Ok(())
    })?;
    lock(&output).flush().map_err(failed)
}

/// Rebuilds every shard that a report of the same set calls not intact. Each is written to a
/// temporary file, made durable and renamed, so that a set is never worse than before. Returns
/// their numbers.
///
/// # Errors
/// The set is lost, or a file cannot be read or written.
pub fn repair<S: Storage>(
    storage: &S,
    set: &Set<S::File>,
    report: &Report,
    wanted: usize,
    progress: Progress<'_>,
) -> Result<Vec<usize>, Error> {
    check_verdict(set, report)?;
    let bad: Vec<usize> =
        (0..report.shards.len()).filter(|shard| !report.shards[*shard].is_intact()).collect();
    let targets = bad.iter().map(|shard| target(set, *shard)).collect::<Result<Vec<_>, _>>()?;
    if bad.is_empty() {
        return Ok(bad);
    }
    let partials: Vec<String> = targets.iter().map(|name| format!("{name}{PARTIAL}")).collect();
    let replaced = partials
        .iter()
        .map(|name| storage.create(name).map_err(|source| Error::io("create", name, source)))
        .collect::<Result<Vec<_>, _>>()
        .and_then(|files| {
            rebuild(set, &bad, &files, wanted, progress)?;
            sync_all(&files, wanted)?;
            partials.iter().zip(&targets).try_for_each(|(partial, name)| {
                let renamed = storage.rename(partial, name);
                renamed.map_err(|source| Error::io("rename", partial, source))
            })
        });
    if let Err(error) = replaced {
        // They take room on a disk that may be full. If one stays, the next repair overwrites it.
        partials.iter().for_each(|name| drop(storage.remove(name)));
        return Err(error);
    }
    storage.sync().map_err(|source| Error::io("flush", "the folder", source))?;
    Ok(bad)
}

fn check_verdict<F: StoredFile>(set: &Set<F>, report: &Report) -> Result<(), Error> {
    if report.verdict() != Verdict::Lost {
        return Ok(());
    }
    set.check_length()?;
    if let Some(stripe) = report.inconsistent.lowest().next() {
        return Err(Error::Inconsistent { stripe });
    }
    let needed = set.layout().data();
    if let Some(number) = report.lost.lowest().next() {
        let mut stripe = Stripe::new(set.layout())?;
        set.load(number, Wanted::All, &mut stripe)?;
        check_intact(number, &stripe, needed)?;
    }
    let intact = set.slots.iter().filter(|slot| matches!(slot, Slot::Current { .. })).count();
    Err(Error::Lost { stripe: 0, intact, needed })
}

/// Name of the file that a rebuilt shard gets: the one it has, otherwise its canonical one.
fn target<F: StoredFile>(set: &Set<F>, shard: usize) -> Result<String, Error> {
    if let Some(name) = set.slots[shard].name() {
        return Ok(name.into());
    }
    let name = shard_name(shard);
    match set.slots.iter().position(|slot| slot.name() == Some(&name)) {
        None => Ok(name),
        Some(found) => {
            let canonical = shard_name(found);
            Err(Error::Misnamed { name, found, expected: shard, canonical })
        }
    }
}

fn rebuild<F: StoredFile>(
    set: &Set<F>,
    bad: &[usize],
    files: &[F],
    wanted: usize,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let layout = set.layout();
    let failed = |shard: usize, source| Error::io("write", shard_name(shard), source);
    for (&shard, file) in bad.iter().zip(files) {
        let header: [u8; HEADER_BYTES] = set.header.of_shard(shard).to_bytes();
        file.write_at(0, &header).map_err(|source| failed(shard, source))?;
    }
    let turns = Turns::new(layout.stripes());
    turns.run(threads(wanted, layout, 1), || {
        let mut stripe = Stripe::new(layout)?;
        while let Some(number) = turns.claim() {
            set.load(number, Wanted::All, &mut stripe)?;
            check_intact(number, &stripe, layout.data())?;
            stripe.recover(bad.iter().copied())?;
            for (&shard, file) in bad.iter().zip(files) {
                let place = Place { set: set.header.set, shard, stripe: number };
                write_unit(file, layout, place, stripe.unit(shard))
                    .map_err(|source| failed(shard, source))?;
            }
            begin_sync(files, layout, number);
            progress(layout.content_bytes(number) as u64);
        }
        Ok(())
    })
}

fn check_intact(number: u64, stripe: &Stripe, needed: usize) -> Result<(), Error> {
    let intact = stripe.intact();
    if intact < needed { Err(Error::Lost { stripe: number, intact, needed }) } else { Ok(()) }
}
