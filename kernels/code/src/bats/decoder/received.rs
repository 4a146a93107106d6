//! The packets of a block by batch: their coding vectors, and those that raise a rank.

use recoded_gf::{Kernel, inverse};

use crate::bats::decoder::Rejected;
use crate::bats::params::Limits;

/// Innovative packets of all batches. Batches are numbered in order of arrival.
pub(super) struct Received {
    kernel: &'static Kernel,
    limits: Limits,
    batch_size: usize,
    /// Batch ids with their numbers, ascending by id.
    ids: Vec<(u16, u16)>,
    /// Per batch, by number: its id.
    id_of: Vec<u16>,
    /// Per batch: its rank.
    ranks: Vec<u16>,
    /// Per batch `batch_size_max` entries: the slots of its innovative packets.
    slots: Vec<u32>,
    /// Per slot `batch_size_max` bytes: its coding vector as received.
    vectors: Vec<u8>,
    /// The same, reduced by the earlier ones of the batch.
    echelon: Vec<u8>,
    /// Per slot: the leading element of the reduced vector.
    leading: Vec<u8>,
    /// Per slot: its batch.
    batch_of_slot: Vec<u16>,
    fresh: Vec<u8>,
}

impl Received {
    pub(super) fn new(limits: Limits) -> Self {
        let (batches, size) = (limits.batches_max, limits.batch_size_max);
        let slots = batches * size;
        Self {
            kernel: Kernel::best(),
            limits,
            batch_size: size,
            ids: Vec::with_capacity(batches),
            id_of: Vec::with_capacity(batches),
            ranks: Vec::with_capacity(batches),
            slots: vec![0; slots],
            vectors: Vec::with_capacity(slots * size),
            echelon: Vec::with_capacity(slots * size),
            leading: Vec::with_capacity(slots),
            batch_of_slot: Vec::with_capacity(slots),
            fresh: vec![0; size],
        }
    }

    /// Bytes allocated for these limits, without constant ones.
    pub(super) fn memory_bytes(limits: Limits) -> usize {
        let slots = limits.batches_max * limits.batch_size_max;
        limits.batches_max * 8 + slots * (2 * limits.batch_size_max + 7)
    }

    pub(super) fn reset(&mut self, batch_size: usize) {
        self.batch_size = batch_size;
        self.ids.clear();
        self.id_of.clear();
        self.ranks.clear();
        self.vectors.clear();
        self.echelon.clear();
        self.leading.clear();
        self.batch_of_slot.clear();
    }

    /// Innovative packets.
    pub(super) fn total(&self) -> usize {
        self.leading.len()
    }

    /// Batches with at least one packet.
    pub(super) fn batches(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn batch_of(&self, id: u16) -> Option<usize> {
        let place = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(usize::from(self.ids[place].1))
    }

    /// Batch of an innovative packet.
    pub(super) fn batch_of_slot(&self, slot: u32) -> usize {
        usize::from(self.batch_of_slot[slot as usize])
    }

    pub(super) fn id(&self, batch: usize) -> u16 {
        self.id_of[batch]
    }

    pub(super) fn rank(&self, batch: usize) -> usize {
        usize::from(self.ranks[batch])
    }

    /// Slots of the innovative packets of a batch, in order of arrival.
    pub(super) fn slots(&self, batch: usize) -> &[u32] {
        &self.slots[batch * self.limits.batch_size_max..][..self.rank(batch)]
    }

    /// Coding vector of an innovative packet.
    pub(super) fn vector(&self, slot: u32) -> &[u8] {
        &self.vectors[slot as usize * self.batch_size..][..self.batch_size]
    }

    /// Finds the batch, or begins it. Returns whether it is new.
    pub(super) fn open(&mut self, id: u16) -> Result<(usize, bool), Rejected> {
        let place = match self.ids.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(place) => return Ok((usize::from(self.ids[place].1), false)),
            Err(place) => place,
        };
        let batch = self.ids.len();
        if batch == self.limits.batches_max {
            return Err(Rejected::TooManyBatches { max: batch });
        }
        self.ids.insert(place, (id, batch as u16));
        self.id_of.push(id);
        self.ranks.push(0);
        Ok((batch, true))
    }

    /// Processes a coding vector; returns its slot if it raised the rank of the batch.
    pub(super) fn insert(&mut self, batch: usize, vector: &[u8]) -> Option<u32> {
        let size = self.batch_size;
        let fresh = &mut self.fresh[..size];
        fresh.copy_from_slice(vector);
        let first = batch * self.limits.batch_size_max;
        let rank = usize::from(self.ranks[batch]);
        for &slot in &self.slots[first..first + rank] {
            let factor = fresh[usize::from(self.leading[slot as usize])];
            if factor != 0 {
                let row = &self.echelon[slot as usize * size..][..size];
                self.kernel.madd(fresh, factor, row);
            }
        }
        let leading = fresh.iter().position(|&element| element != 0)?;
        self.kernel.mul(fresh, inverse(fresh[leading]).unwrap_or(1));
        let slot = self.leading.len() as u32;
        self.echelon.extend_from_slice(fresh);
        self.vectors.extend_from_slice(vector);
        self.leading.push(leading as u8);
        self.batch_of_slot.push(batch as u16);
        self.slots[first + rank] = slot;
        self.ranks[batch] += 1;
        Some(slot)
    }
}
