//! Rates of one kernel on the core that runs this: the median of many short samples, which excludes
//! disturbed ones.

use recoded_gf::Kernel;
use std::time::{Duration, Instant};

/// Bytes of a full packet.
const PACKET_BYTES: usize = 1500;

/// Packets combined into one.
const SOURCES: usize = 16;

/// Calls of one sample: some tens of microseconds, long compared with the clock's resolution.
const CALLS: u32 = 256;

/// Multiply-add of one packet: gigabytes of source per second.
pub fn madd_gigabytes(kernel: &Kernel, time: Duration) -> f64 {
    let (source, mut sum) = ([0x5A; PACKET_BYTES], [0xC3; PACKET_BYTES]);
    let seconds = median_seconds(time, || kernel.madd(&mut sum, 77, &source));
    PACKET_BYTES as f64 / seconds / 1e9
}

/// One random combination of 16 packets: coded gigabits per second.
pub fn combine_gigabits(kernel: &Kernel, time: Duration) -> f64 {
    let packets = vec![0x5A; SOURCES * PACKET_BYTES];
    let sources: Vec<&[u8]> = packets.chunks(PACKET_BYTES).collect();
    let coefficients: Vec<u8> = (0..SOURCES).map(|i| (i * 13 + 2) as u8).collect();
    let mut coded = [0; PACKET_BYTES];
    let seconds =
        median_seconds(time, || kernel.matmul(&coefficients, &sources, &mut [&mut coded]));
    (8 * PACKET_BYTES) as f64 / seconds / 1e9
}

/// Seconds of one call: the median over samples taken for about `time`, at least one.
fn median_seconds(time: Duration, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut samples = Vec::new();
    loop {
        let before = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        samples.push(before.elapsed().as_secs_f64() / f64::from(CALLS));
        if start.elapsed() >= time {
            break;
        }
    }
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2].max(f64::MIN_POSITIVE)
}
