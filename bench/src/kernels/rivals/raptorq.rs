//! Crate `raptorq` as a rival: RFC 6330's fountain code. Sparse, with a fixed structure; it cannot
//! be recoded.

use std::hint::black_box;

use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder, SourceBlockEncoder,
    SourceBlockEncodingPlan,
};

use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::rivals::{Description, describe_crate};
use crate::kernels::rows::{Decoding, Workload};

/// Display name.
pub const NAME: &str = "raptorq";

/// Describes the library.
pub fn describe() -> Description {
    describe_crate(NAME, "picks its level by itself")
}

/// As many repair symbols as there are sources, including encoder set-up, with a precomputed plan.
pub fn encode(job: &Workload) -> Result<Contestant, LeftOut> {
    let block = Block::of(&job.sources)?;
    block.check()?;
    Ok(Contestant::new(Role::Structured, NAME, job.gigabits(), move || {
        black_box(block.repair(block.n));
    }))
}

/// All sources from repair symbols only, two more than there are sources.
pub fn decode(job: &Decoding) -> Result<Contestant, LeftOut> {
    let block = Block::of(&job.sources)?;
    block.check()?;
    let packets = block.repair(block.n + SURPLUS);
    Ok(Contestant::new(Role::Structured, NAME, job.gigabits(), move || {
        black_box(block.decode(packets.clone()));
    }))
}

/// `count` repair symbols of a block, including encoder set-up, with a precomputed plan.
///
/// # Errors
/// If the code does not support the block, or does not recover it.
pub fn encode_repair(sources: &[&[u8]], count: usize) -> Result<Contestant, LeftOut> {
    let block = Block::of(sources)?;
    block.check()?;
    let bits = (count * sources.first().map_or(0, |source| source.len()) * 8) as f64;
    let count = count as u32;
    Ok(Contestant::new(Role::Structured, NAME, bits / 1e9, move || {
        black_box(block.repair(count));
    }))
}

/// All sources from those that `arrived` names and from repair symbols for the others, and two
/// more.
///
/// # Errors
/// If the code does not support the block, or does not recover it.
pub fn decode_rest(
    name: &str,
    sources: &[&[u8]],
    arrived: &[usize],
) -> Result<Contestant, LeftOut> {
    let block = Block::of(sources)?;
    let missing = sources.len().saturating_sub(arrived.len()) as u32;
    let mut packets = block.sources(arrived);
    packets.extend(block.repair(missing + SURPLUS));
    if block.decode(packets.clone()).as_ref() != Some(&block.data) {
        return Err(LeftOut::wrong(name, sources.len(), block.data.len() / sources.len().max(1)));
    }
    let gigabits = (block.data.len() * 8) as f64 / 1e9;
    Ok(Contestant::new(Role::Structured, name, gigabits, move || {
        black_box(block.decode(packets.clone()));
    }))
}

/// A source block.
struct Block {
    n: u32,
    data: Vec<u8>,
    information: ObjectTransmissionInformation,
    plan: SourceBlockEncodingPlan,
}

impl Block {
    fn of(sources: &[&[u8]]) -> Result<Block, LeftOut> {
        let (data, bytes) = (sources.concat(), sources.first().map_or(0, |source| source.len()));
        let (Ok(n), Ok(symbol)) = (u16::try_from(sources.len()), u16::try_from(bytes)) else {
            return Err(LeftOut::refused(NAME, "symbols too many or too long"));
        };
        if bytes % usize::from(ALIGNMENT) != 0 {
            return Err(LeftOut::refused(
                NAME,
                format!("{bytes} bytes, no multiple of {ALIGNMENT}"),
            ));
        }
        let information =
            ObjectTransmissionInformation::new(data.len() as u64, symbol, 1, 1, ALIGNMENT);
        let plan = SourceBlockEncodingPlan::generate(n);
        Ok(Block { n: n.into(), data, information, plan })
    }

    fn repair(&self, count: u32) -> Vec<EncodingPacket> {
        let encoder =
            SourceBlockEncoder::with_encoding_plan(0, &self.information, &self.data, &self.plan);
        encoder.repair_packets(0, count)
    }

    fn sources(&self, numbers: &[usize]) -> Vec<EncodingPacket> {
        let encoder =
            SourceBlockEncoder::with_encoding_plan(0, &self.information, &self.data, &self.plan);
        let packets = encoder.source_packets();
        numbers.iter().filter_map(|&number| packets.get(number).cloned()).collect()
    }

    fn decode(&self, packets: Vec<EncodingPacket>) -> Option<Vec<u8>> {
        SourceBlockDecoder::new(0, &self.information, self.data.len() as u64).decode(packets)
    }

    fn check(&self) -> Result<(), LeftOut> {
        let decoded = self.decode(self.repair(self.n + SURPLUS));
        if decoded.as_ref() != Some(&self.data) {
            return Err(LeftOut::wrong(NAME, self.n as usize, self.data.len() / self.n as usize));
        }
        Ok(())
    }
}

/// Divides every size that is measured.
const ALIGNMENT: u8 = 4;
/// With as many repair symbols as sources, one decoding in a hundred fails.
const SURPLUS: u32 = 2;
