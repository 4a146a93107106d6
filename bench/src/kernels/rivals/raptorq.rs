//! Crate `raptorq` beside us: RFC 6330's fountain code. Sparse, with a structure that is not ours to
//! choose; nobody can recode.

use std::hint::black_box;

use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder, SourceBlockEncoder,
    SourceBlockEncodingPlan,
};

use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::rivals::{Description, describe_crate};
use crate::kernels::rows::{Decoding, Job};

/// What it is called.
pub const NAME: &str = "raptorq";

/// Who it is.
pub fn describe() -> Description {
    describe_crate(NAME, "picks its level by itself")
}

/// As many repair symbols as there are sources, encoder set-up included, with a plan that was made
/// before.
pub fn encode(job: &Job) -> Result<Contestant, LeftOut> {
    let block = Block::of(&job.sources)?;
    block.check()?;
    Ok(Contestant::new(Role::Structured, NAME, job.gigabits(), move || {
        black_box(block.repair(block.n));
    }))
}

/// All sources from repair symbols alone, two more than there are sources.
pub fn decode(job: &Decoding) -> Result<Contestant, LeftOut> {
    let block = Block::of(&job.sources)?;
    block.check()?;
    let packets = block.repair(block.n + SURPLUS);
    Ok(Contestant::new(Role::Structured, NAME, job.gigabits(), move || {
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
