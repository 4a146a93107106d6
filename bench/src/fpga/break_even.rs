//! Break-even point: the number of concurrent jobs that makes the card, over PCIe, faster than one
//! core of this machine.

use recoded_gf::Kernel;
use serde::Serialize;

use super::engine::{JobShape, PCIE, measure_shape};
use crate::error::BenchError;
use crate::kernels::thread_seconds;

/// Jobs of 16 sources, 16 destinations, 1,500 bytes.
#[derive(Serialize)]
pub struct BreakEven {
    pub kernel: &'static str,
    /// Time of one core per job, by its own clock.
    pub core_nanos_per_job: f64,
    /// Jobs submitted at once, and nanoseconds from the doorbell to the last completion.
    pub card_nanos: Vec<(u64, f64)>,
    /// The smallest measured number of jobs that the card does faster than the core.
    pub jobs: Option<u64>,
}

const SHAPE: JobShape = JobShape { size: 16, row_bytes: 1500, is_unaligned: true };

/// Measures core and card.
pub fn measure(is_quick: bool) -> Result<BreakEven, BenchError> {
    let core_nanos_per_job = core(if is_quick { 100 } else { 20_000 });
    let counts: &[u64] = if is_quick { &[1, 4] } else { &[1, 2, 3, 4, 6, 8, 16, 32, 64] };
    let mut card_nanos = Vec::new();
    for &jobs in counts {
        let row = measure_shape(PCIE, SHAPE, jobs)?;
        let clocks = row.cycles_per_job * jobs as f64;
        card_nanos.push((jobs, clocks * 1e6 / recoded_fpga::sim::CLOCK_KHZ as f64));
    }
    let wins = |(jobs, nanos): &&(u64, f64)| *nanos < core_nanos_per_job * *jobs as f64;
    let jobs = card_nanos.iter().find(wins).map(|(jobs, _)| *jobs);
    Ok(BreakEven { kernel: Kernel::best().name(), core_nanos_per_job, card_nanos, jobs })
}

/// Nanoseconds per job, on rows that fit into L2 and differ each time.
fn core(jobs: usize) -> f64 {
    let JobShape { size, row_bytes, .. } = SHAPE;
    let coefficients: Vec<u8> = (0..size * size).map(|index| (index * 7 + 3) as u8).collect();
    let sources = vec![0x5a; SETS * size * row_bytes];
    let mut destinations = vec![0; SETS * size * row_bytes];
    let sources: Vec<&[u8]> = sources.chunks_exact(row_bytes).collect();
    let mut destinations: Vec<&mut [u8]> = destinations.chunks_exact_mut(row_bytes).collect();
    let begun = thread_seconds();
    for job in 0..jobs {
        let rows = job % SETS * size..(job % SETS + 1) * size;
        let sources = &sources[rows.clone()];
        Kernel::best().matmul(&coefficients, sources, &mut destinations[rows]);
    }
    (thread_seconds() - begun) * 1e9 / jobs as f64
}

const SETS: usize = 8;

impl BreakEven {
    /// It in a line.
    pub fn line(&self) -> String {
        let Self { kernel, core_nanos_per_job, card_nanos, jobs } = self;
        let times: Vec<String> =
            card_nanos.iter().map(|(jobs, nanos)| format!("{jobs}: {nanos:.0}")).collect();
        let times = times.join(", ");
        let verdict = match jobs {
            Some(jobs) => format!("the card is faster from {jobs} jobs at once"),
            None => "the card is never faster".into(),
        };
        format!(
            "16 x 16 x 1500 bytes: one core ({kernel}) {core_nanos_per_job:.0} ns a job; card over \
             PCIe, jobs: ns {times}; {verdict}"
        )
    }
}
