//! Crate `rlnc-simdx` as a rival. It draws its own coefficients, modulo 0x11B, and allocates every
//! packet it makes.

use std::hint::black_box;

use recoded_gf::Field;
use rlnc_simdx::{CodedPacket, Decoder, Encoder, Recoder, SimpleRng, kernel};

use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::memory::Layout;
use crate::kernels::rivals::{Description, describe_crate};
use crate::kernels::rows::{Decoding, Workload, combine_11b};

/// Display name.
pub const NAME: &str = "rlnc-simdx";

/// Describes the library.
pub fn describe() -> Description {
    describe_crate(NAME, rlnc_simdx::active_kernel())
}

/// `destination += c * source`.
pub fn madd(job: &Workload) -> Result<Contestant, LeftOut> {
    let (source, c) = (job.sources[0], job.coefficients()[0]);
    let destination = Layout::packed(1, job.bytes).zeros().remove(0);
    kernel::axpy(c, source, destination);
    let product: Vec<u8> = source.iter().map(|byte| Field::Gf256x11B.mul(c, *byte)).collect();
    if destination != product {
        return Err(LeftOut::wrong(NAME, 1, job.bytes));
    }
    let amount = job.bytes as f64 / 1e9;
    Ok(Contestant::new(Role::Rival, NAME, amount, move || {
        kernel::axpy(c, source, destination);
    }))
}

/// As many coded packets as the job has rows.
pub fn encode(job: &Workload) -> Result<Contestant, LeftOut> {
    let refused = |error: rlnc_simdx::RlncError| LeftOut::refused(NAME, format!("{error:?}"));
    let (sources, rows) = (job.sources.clone(), job.rows);
    let encoder = Encoder::new(sources.len(), job.bytes).map_err(refused)?;
    let mut random = SimpleRng::new(1);
    let packet = encoder.encode_random(&sources, &mut random).map_err(refused)?;
    if combine_11b(packet.coefficients_slice(), &sources) != packet.payload_slice() {
        return Err(LeftOut::wrong(NAME, sources.len(), job.bytes));
    }
    Ok(Contestant::new(Role::Rival, NAME, job.gigabits(), move || {
        for _ in 0..rows {
            let _ = black_box(encoder.encode_random(&sources, &mut random));
        }
    }))
}

fn packets(job: &Decoding) -> Vec<CodedPacket> {
    let packets = job.packets_11b.iter();
    packets.map(|(vector, symbol)| CodedPacket::from_slices(vector, symbol)).collect()
}

/// Decoding packet by packet; each packet is in its own allocation, because the decoder keeps it.
pub fn decode(job: &Decoding) -> Result<Contestant, LeftOut> {
    let (n, bytes) = (job.n(), job.bytes());
    let packets = packets(job);
    let decode = move || {
        let mut decoder = Decoder::new(n, bytes)?;
        for packet in &packets {
            decoder.receive(packet.clone())?;
        }
        decoder.decode()
    };
    match decode() {
        Ok(Some(decoded)) if decoded == job.data_11b => {}
        Ok(_) => return Err(LeftOut::wrong(NAME, n, bytes)),
        Err(error) => return Err(LeftOut::refused(NAME, format!("{error:?}"))),
    }
    Ok(Contestant::new(Role::Rival, NAME, job.gigabits(), move || {
        let _ = black_box(decode());
    }))
}

/// As many fresh packets as are held, vectors included.
pub fn recode(job: &Decoding) -> Result<Contestant, LeftOut> {
    let (n, held) = (job.n(), packets(job));
    let mut random = SimpleRng::new(2);
    let packet = Recoder::recode(&held, &mut random)
        .map_err(|error| LeftOut::refused(NAME, format!("{error:?}")))?;
    if combine_11b(packet.coefficients_slice(), &job.data_11b()) != packet.payload_slice() {
        return Err(LeftOut::wrong(NAME, n, job.bytes()));
    }
    Ok(Contestant::new(Role::Rival, NAME, job.gigabits(), move || {
        for _ in 0..n {
            let _ = black_box(Recoder::recode(&held, &mut random));
        }
    }))
}
