//! Size of a run: everything, enough for an overview, or a minimum for tests.

use std::time::Duration;

/// Sizes of everything.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Scale {
    /// Its name.
    pub name: &'static str,
    /// Source symbols of a segment.
    pub sizes: &'static [usize],
    /// Sizes where every technique is measured; at other sizes only the best ones are.
    pub ladder_sizes: &'static [usize],
    /// Bytes of a symbol.
    pub symbols: &'static [usize],
    /// Bytes of results of one measurement, at most.
    pub bytes: usize,
    /// The same of one of several bundles in flight.
    pub slot_bytes: usize,
    /// Size and symbol of the streaming server.
    pub streaming: (usize, usize),
    /// Numbers of data buffers of a stripe.
    pub data_buffers: &'static [usize],
    /// Bytes of a buffer: the last size is that of the tables.
    pub buffers: &'static [usize],
    /// Sizes of the single segments that compare CPU and card, in bytes.
    pub jobs: &'static [usize],
    /// Bytes of the copies that measure the bus.
    pub copies: &'static [usize],
    /// Rounds of the kernels that measure the card's cores.
    pub probe_rounds: u32,
    /// Rounds, in turns; each number is their median.
    pub rounds: usize,
    /// Duration of a round, if a single repetition is shorter.
    #[serde(serialize_with = "seconds")]
    pub sample: Duration,
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// Everything.
pub const FULL: Scale = Scale {
    name: "full",
    sizes: &[16, 32, 64, 128, 256, 512, 1024],
    ladder_sizes: &[128, 256, 512],
    symbols: &[128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768],
    bytes: 64 << 20,
    slot_bytes: 4 << 20,
    streaming: (128, 4096),
    data_buffers: &[2, 4, 6, 8, 10, 12, 14, 16],
    buffers: &[32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20],
    jobs: &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20],
    copies: &[4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20],
    probe_rounds: 2000,
    rounds: 3,
    sample: Duration::from_millis(4),
};

/// Under a minute.
pub const QUICK: Scale = Scale {
    name: "quick",
    sizes: &[16, 128, 1024],
    ladder_sizes: &[128],
    symbols: &[128, 1024, 4096, 32768],
    bytes: 16 << 20,
    data_buffers: &[4, 10, 16],
    buffers: &[32 << 10, 1 << 20],
    jobs: &[16 << 10, 256 << 10, 4 << 20],
    copies: &[64 << 10, 16 << 20],
    rounds: 2,
    sample: Duration::from_millis(2),
    ..FULL
};

/// For tests: every path runs, but the numbers mean nothing.
pub const TINY: Scale = Scale {
    name: "tiny",
    sizes: &[16, 24],
    ladder_sizes: &[16],
    symbols: &[128, 256],
    bytes: 8 << 10,
    slot_bytes: 4 << 10,
    streaming: (16, 256),
    // Codes that the stand-in for a card supports.
    data_buffers: &[4],
    buffers: &[1 << 10, 2 << 10],
    jobs: &[2 << 10, 4 << 10],
    copies: &[4 << 10],
    probe_rounds: 1,
    rounds: 1,
    sample: Duration::from_micros(20),
};
