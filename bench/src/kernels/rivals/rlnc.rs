//! Crate `rlnc` as a rival. It draws its own coefficients, modulo 0x11B, and puts them in front of
//! the symbol; a check multiplies the sources by these coefficients.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rlnc::full::{Decoder, Encoder, Recoder};

use crate::kernels::contest::{Contestant, LeftOut, Role};
use crate::kernels::rivals::{Description, describe_crate};
use crate::kernels::rows::{Decoding, Workload, combine_11b};

/// Display name.
pub const NAME: &str = "rlnc";

/// End marker, so that the crate knows the length of the data.
pub const MARKER: u8 = 0x81;

/// Describes the library.
pub fn describe() -> Description {
    describe_crate(NAME, "picks its level by itself")
}

/// `n` coded packets of `n` symbols, allocated once.
pub fn encode(job: &Workload) -> Result<Contestant, LeftOut> {
    let refused = |error| LeftOut::refused(NAME, error);
    let n = job.sources.len();
    let mut data: Vec<u8> = job.sources.concat();
    // The crate puts its marker where the last byte was, which keeps the size of the symbols.
    data.pop();
    let encoder = Encoder::new(data.clone(), n).map_err(refused)?;
    data.push(MARKER);
    let mut random = SmallRng::seed_from_u64(1);
    let mut packets = vec![0; encoder.get_full_coded_piece_byte_len() * job.rows];
    let mut encode = move |packets: &mut [u8]| {
        for packet in packets.chunks_mut(n + encoder.get_piece_byte_len()) {
            // Its only error is a buffer of the wrong size, and then the check fails.
            let _ = encoder.code_with_buf(&mut random, packet);
        }
    };
    encode(&mut packets);
    let sources: Vec<&[u8]> = data.chunks(job.bytes).collect();
    let right = packets.chunks(n + job.bytes).all(|packet| {
        let (vector, symbol) = packet.split_at(n);
        combine_11b(vector, &sources) == symbol
    });
    if !right {
        return Err(LeftOut::wrong(NAME, n, job.bytes));
    }
    Ok(Contestant::new(Role::Rival, NAME, job.gigabits(), move || encode(&mut packets)))
}

/// Decoding packet by packet, until the data are there.
pub fn decode(job: &Decoding) -> Result<Contestant, LeftOut> {
    let (n, bytes) = (job.n(), job.bytes());
    let packets: Vec<Vec<u8>> = job
        .packets_11b
        .iter()
        .map(|(vector, symbol)| [vector.as_slice(), symbol].concat())
        .collect();
    let decode = move || {
        let mut decoder = Decoder::new(bytes, n)?;
        for packet in &packets {
            decoder.decode(packet)?;
        }
        decoder.get_decoded_data()
    };
    let decoded = decode().map_err(|error| LeftOut::refused(NAME, error))?;
    let data = job.data_11b.concat();
    if decoded != data[..data.len() - 1] {
        return Err(LeftOut::wrong(NAME, n, bytes));
    }
    Ok(Contestant::new(Role::Rival, NAME, job.gigabits(), move || {
        let _ = std::hint::black_box(decode());
    }))
}

/// As many fresh packets as are held, vectors included.
pub fn recode(job: &Decoding) -> Result<Contestant, LeftOut> {
    let (n, bytes) = (job.n(), job.bytes());
    let held: Vec<u8> = job
        .packets_11b
        .iter()
        .flat_map(|(vector, symbol)| [vector.as_slice(), symbol].concat())
        .collect();
    let mut recoder =
        Recoder::new(held, n + bytes, n).map_err(|error| LeftOut::refused(NAME, error))?;
    let mut random = SmallRng::seed_from_u64(2);
    let mut packets = vec![0; (n + bytes) * n];
    let mut recode = move |packets: &mut [u8]| {
        for packet in packets.chunks_mut(n + bytes) {
            let _ = recoder.recode_with_buf(&mut random, packet);
        }
    };
    recode(&mut packets);
    let right = packets.chunks(n + bytes).all(|packet| {
        let (vector, symbol) = packet.split_at(n);
        combine_11b(vector, &job.data_11b()) == symbol
    });
    if !right {
        return Err(LeftOut::wrong(NAME, n, bytes));
    }
    Ok(Contestant::new(Role::Rival, NAME, job.gigabits(), move || recode(&mut packets)))
}
