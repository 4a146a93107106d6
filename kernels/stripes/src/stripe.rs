//! The memory of one stripe, and the arithmetic on it. Everything is allocated once per thread.

use recoded_code::reed_solomon::ReedSolomon;
use recoded_gf::Kernel;

use crate::error::Error;
use crate::layout::Layout;

/// k + m units, data first, end to end.
pub(crate) struct Stripe {
    code: ReedSolomon,
    bytes: Box<[u8]>,
    unit_bytes: usize,
    is_intact: Box<[bool]>,
}

impl Stripe {
    /// Memory for the longest stripe of a layout.
    pub fn new(layout: &Layout) -> Result<Self, Error> {
        let code = ReedSolomon::new(layout.data(), layout.parity())?;
        let bytes = vec![0; layout.shards() * layout.unit_bytes()].into_boxed_slice();
        let is_intact = vec![false; layout.shards()].into_boxed_slice();
        Ok(Self { code, bytes, unit_bytes: layout.unit_bytes(), is_intact })
    }

    /// Begins another stripe with units of `unit_bytes`, none of them intact.
    pub fn reset(&mut self, unit_bytes: usize) {
        self.unit_bytes = unit_bytes;
        self.is_intact.fill(false);
    }

    /// Room for the content of a stripe, longer than that of the last one.
    pub fn content_mut(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.bytes[..bytes]
    }

    /// Content of the stripe.
    pub fn content(&self, bytes: usize) -> &[u8] {
        &self.bytes[..bytes]
    }

    /// Divides `bytes` of content into k units, pads the last ones with zeros, and computes parity.
    pub fn generate(&mut self, bytes: usize) -> Result<(), Error> {
        let data = self.code.data();
        self.reset(bytes.div_ceil(data));
        let content = data * self.unit_bytes;
        self.bytes[bytes..content].fill(0);
        let (sources, rest) = self.bytes.split_at_mut(content);
        let sources: Vec<&[u8]> = sources.chunks_exact(self.unit_bytes).collect();
        let units = rest.chunks_exact_mut(self.unit_bytes).take(self.code.parity());
        self.code.generate(&sources, &mut units.collect::<Vec<_>>())?;
        self.is_intact.fill(true);
        Ok(())
    }

    /// A unit.
    pub fn unit(&self, shard: usize) -> &[u8] {
        &self.bytes[shard * self.unit_bytes..][..self.unit_bytes]
    }

    /// A unit, for writing.
    pub fn unit_mut(&mut self, shard: usize) -> &mut [u8] {
        &mut self.bytes[shard * self.unit_bytes..][..self.unit_bytes]
    }

    /// Notes that a unit has the right bytes.
    pub fn set_intact(&mut self, shard: usize) {
        self.is_intact[shard] = true;
    }

    /// Whether a unit has the right bytes.
    pub fn is_intact(&self, shard: usize) -> bool {
        self.is_intact[shard]
    }

    /// Number of intact units.
    pub fn intact(&self) -> usize {
        self.is_intact.iter().filter(|it| **it).count()
    }

    /// Computes those of the units `wanted` that are not intact. At least k units are intact.
    pub fn recover(&mut self, wanted: impl Iterator<Item = usize>) -> Result<(), Error> {
        let lost: Vec<usize> = wanted.filter(|shard| !self.is_intact[*shard]).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let mut ids: Vec<usize> = (0..self.is_intact.len()).collect();
        ids.retain(|shard| self.is_intact[*shard]);
        ids.truncate(self.code.data());
        let mut rows: Vec<_> = self.bytes.chunks_exact_mut(self.unit_bytes).map(Some).collect();
        let mut take = |shard: &usize| rows.get_mut(*shard).and_then(Option::take);
        let mut targets: Vec<&mut [u8]> = lost.iter().filter_map(&mut take).collect();
        let sources: Vec<&[u8]> = ids.iter().filter_map(|it| take(it).map(|row| &*row)).collect();
        ids.extend(&lost);
        self.code.recover(&ids, &sources, &mut targets)?;
        lost.iter().for_each(|shard| self.is_intact[*shard] = true);
        Ok(())
    }

    /// Whether the intact units belong to one content: whether any k of them determine the others.
    /// More than k are intact; units that are not are computed. `scratch` has the same layout and
    /// loses its contents.
    pub fn is_consistent(&mut self, scratch: &mut Stripe) -> Result<bool, Error> {
        let content = self.code.data() * self.unit_bytes;
        self.recover(0..self.code.data())?;
        scratch.content_mut(content).copy_from_slice(self.content(content));
        scratch.generate(content)?;
        let mut intact = (0..self.is_intact.len()).filter(|shard| self.is_intact[*shard]);
        Ok(intact.all(|shard| self.unit(shard) == scratch.unit(shard)))
    }

    /// Writes `bytes` into the content at `start`, and corrects parity by the difference. Reads
    /// and changes only the units that hold these bytes, and the parity units.
    pub fn change(&mut self, start: usize, bytes: &[u8]) {
        let (data, unit) = (self.code.data(), self.unit_bytes);
        let units = self.units_of(start, bytes.len());
        let span = units.start * unit..units.end * unit;
        let mut difference = self.bytes[span.clone()].to_vec();
        self.bytes[start..][..bytes.len()].copy_from_slice(bytes);
        Kernel::best().add(&mut difference, &self.bytes[span]);
        let columns = self.code.generator().chunks_exact(data).map(|row| &row[units.clone()]);
        let coefficients = columns.collect::<Vec<_>>().concat();
        let sources: Vec<&[u8]> = difference.chunks_exact(unit).collect();
        let parity = self.bytes[data * unit..].chunks_exact_mut(unit).take(self.code.parity());
        let mut parity: Vec<&mut [u8]> = parity.collect();
        Kernel::best().matmul_accumulate(&coefficients, &sources, &mut parity);
    }

    /// Data units that hold `bytes` of the content from `start` on.
    pub fn units_of(&self, start: usize, bytes: usize) -> std::ops::Range<usize> {
        start / self.unit_bytes..(start + bytes).div_ceil(self.unit_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(content: &[u8]) -> Stripe {
        let layout = Layout::new(3, 2, 64).expect("it is in range");
        let mut stripe = Stripe::new(&layout).expect("the code exists");
        stripe.content_mut(content.len()).copy_from_slice(content);
        stripe.generate(content.len()).expect("it is no longer than a stripe");
        stripe
    }

    #[test]
    fn change_by_difference_matches_parity_of_new_content() {
        let old: Vec<u8> = (0..190).collect();
        for (start, length) in [(0, 1), (63, 2), (64, 64), (0, 190), (189, 1), (10, 150)] {
            let mut changed = stripe(&old);
            let bytes: Vec<u8> = (0..length).map(|it| 200 ^ it as u8).collect();
            changed.change(start, &bytes);
            let mut new = old.clone();
            new[start..][..length].copy_from_slice(&bytes);
            let new = stripe(&new);
            (0..5).for_each(|it| assert_eq!(changed.unit(it), new.unit(it), "{start} {length}"));
        }
    }

    #[test]
    fn every_two_lost_units_are_recovered() {
        let content: Vec<u8> = (0..100).collect();
        let whole = stripe(&content);
        for (one, other) in (0..5).flat_map(|one| (0..5).map(move |other| (one, other))) {
            let mut lossy = stripe(&content);
            for shard in [one, other] {
                lossy.unit_mut(shard).fill(0xFF);
                lossy.is_intact[shard] = false;
            }
            lossy.recover(0..5).expect("three units are left");
            (0..5).for_each(|it| assert_eq!(lossy.unit(it), whole.unit(it), "{one} {other}"));
        }
    }
}
