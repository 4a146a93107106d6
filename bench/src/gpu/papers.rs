//! Numbers that the papers print, in bytes a second. Their plots are not read off: what their text does not
//! say is not here. A megabyte of theirs is 2^20 bytes, as 133 MB/s and 4463 million products of a word
//! show (Extreme NC §4.3).

/// 2^20 bytes.
const MB: f64 = 1_048_576.0;

/// "Nuclei: Graphics-accelerated Many-core Network Coding", 2009; GeForce 8800 GT.
pub mod nuclei {
    use super::MB;

    /// §V-A: encoding for 128, 256 and 512 blocks, of any length.
    pub const ENCODE: [(usize, f64); 3] = [(128, 66.9 * MB), (256, 33.8 * MB), (512, 16.8 * MB)];
    /// §V-A: seconds of decoding 128 blocks of 128 to 2048 bytes.
    pub const DECODE_128_SECONDS: f64 = 31e-3;
    /// §IV-F: 1024 blocks of 2048 bytes, in seconds: row by row with pivots by the CPU, card alone,
    /// buffered, and eight cores, row by row and buffered.
    pub const DECODE_1024_SECONDS: [(&str, f64); 5] = [
        ("8800 GT, pivots by the CPU", 2.484),
        ("8800 GT alone", 6.073),
        ("8800 GT, buffered", 2.175),
        ("8 cores", 2.031),
        ("8 cores, buffered", 1.688),
    ];
    /// §V-B: CPU and card together, 128 blocks.
    pub const TOGETHER_128: f64 = 116.7 * MB;
    /// §I: tables instead of loops, 128 blocks.
    pub const TABLE_128: f64 = 84.0 * MB;
    /// §V-D: clients of a streaming server.
    pub const PEERS: f64 = 870.0;
}

/// "Pushing the Envelope: Extreme Network Coding on the GPU", 2009; GeForce GTX 280.
pub mod extreme {
    use super::MB;

    /// §4.3: 128 blocks by loops.
    pub const LOOP_128: f64 = 133.0 * MB;
    /// §5.1: tables in shared memory, a quarter less than loops.
    const TABLE_0: f64 = 0.74 * LOOP_128;
    /// §5.1.2: operands are logarithms, 30 % more than loops.
    const TABLE_1: f64 = 1.3 * LOOP_128;
    /// §5.1.3: a copy of the powers for every second lane.
    pub const TABLE_5: f64 = 293.7 * MB;
    /// §5.1.3: 23 % less, from texture memory.
    const TABLE_4: f64 = TABLE_5 / 1.23;
    /// §5.1.3: 15 % less again, zero is remapped. One test for a coefficient of zero: no number.
    const TABLE_3: f64 = TABLE_4 / 1.15;
    /// Fig. 7, 128 blocks.
    pub const LADDER: [(&str, f64); 6] = [
        ("loop", LOOP_128),
        ("table-0", TABLE_0),
        ("table-1", TABLE_1),
        ("table-3", TABLE_3),
        ("table-4", TABLE_4),
        ("table-5", TABLE_5),
    ];
    /// §1: decoding of many segments at once, 128 blocks, at most.
    pub const DECODE_MANY: f64 = 254.0 * MB;
    /// §5.2: what 60 segments at once gain over one, for blocks of 1024 bytes and more.
    pub const DECODE_GAIN: (f64, f64) = (2.7, 27.6);
    /// §5.2: the inversion's share of decoding 30 and 60 segments, blocks of 1024 bytes.
    pub const INVERSION_SHARE: [(usize, f64); 2] = [(30, 0.64), (60, 0.48)];
    /// §1: eight cores encode at most at this rate, as the card is 4.3 times as fast.
    pub const CPU_128: f64 = TABLE_5 / 4.3;
    /// §5.1.1 to §5.1.3: peers by loops, by the first tables, by the last.
    pub const PEERS: [(&str, f64); 3] =
        [("GTX 280, loop", 1385.0), ("GTX 280, table-1", 1844.0), ("GTX 280, table-5", 3050.0)];
}

/// "Gibraltar: a Reed-Solomon coding library for storage applications on programmable graphics
/// processors", 2011; GeForce GTX 285. Disks are of 100 MB/s.
pub mod gibraltar {
    /// §5: k+2 for three dozen disks, k+4 for two dozen, data bytes a second at least.
    pub const DATA_RATE: [(usize, f64); 2] = [(2, 3.6e9), (4, 2.4e9)];
    /// §5: what is left of the rate with buffers of a 32nd, at least.
    pub const SMALL_BUFFERS: f64 = 0.5;
}
