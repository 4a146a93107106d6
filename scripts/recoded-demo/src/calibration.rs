//! The link rate that this machine can carry now: the recoded line itself, measured for a few
//! seconds before the demo. Links get no higher rate, so that a run on a small or busy machine
//! shows the effect of recoding and not the number of cores.

use std::fs::File;
use std::time::{Duration, Instant};

use recoded_netns::traffic::{Fetch, WebServer};
use recoded_netns::{Bed, BedConfig, BedError, Daemon, LinkConfig, Loss};

use crate::findings::goodput_wanted;
use crate::load::{Load, Meter};
use crate::options::DemoOptions;
use crate::protected::{self, TUNNEL};

/// Time for TCP and the stream to find their rate, and duration of the measurement.
const SETTLE: Duration = Duration::from_millis(1500);
const MEASURE: Duration = Duration::from_millis(2500);

/// Margin of the scaled rate over the goodput that is later required: the load may grow.
const MARGIN: f64 = 1.5;

/// Slowest links, in Mbit/s: with slower ones a file takes minutes.
const RATE_MIN: f64 = 20.0;

/// Scaled rates are multiples of this, in Mbit/s.
const RATE_STEP: f64 = 5.0;

/// Bytes of the file served: more than the line can carry meanwhile. It is sparse on disk.
const FILE_BYTES: u64 = 4 << 30;

/// Result of the calibration.
pub struct Carried {
    /// Goodput of a download over links of the full rate, in Mbit/s.
    pub goodput_mbit: f64,
    /// The load during the measurement.
    pub load: Load,
}

impl Carried {
    /// The link rate instead of `full`, if a link of the full rate should reach the goodput
    /// `wanted`.
    pub fn rate_mbit(&self, full: f64, wanted: f64) -> f64 {
        let share = self.goodput_mbit / (MARGIN * wanted);
        let carries_full = self.goodput_mbit >= wanted && self.load.is_idle_enough();
        if carries_full || share >= 1.0 {
            return full;
        }
        let rate = (full * share / RATE_STEP).floor() * RATE_STEP;
        rate.clamp(RATE_MIN.min(full), full)
    }
}

/// Downloads over a separate line, whose links have the configured loss, independent per packet,
/// and no delay: only the machine differs from run to run.
///
/// # Errors
/// When something of the bed fails.
pub fn measure(options: &DemoOptions) -> Result<Carried, BedError> {
    let link = LinkConfig::new(Loss::independent(options.loss_share()), options.rate_mbit());
    let uniform = BedConfig::uniform(options.hop_count(), link);
    let bed = Bed::build(&BedConfig { neighbours_known: false, ..uniform })?;
    let file = bed.directory().join("sparse");
    let served = File::create(&file).and_then(|served| served.set_len(FILE_BYTES));
    served.map_err(BedError::file(&file))?;
    let _server = WebServer::start(bed.source(), bed.directory())?;
    let daemons = Daemon::start_line(&bed, &protected::plan(options))?;
    let copy = bed.directory().join("calibration.download");
    let limit = SETTLE + MEASURE + Duration::from_secs(5);
    let fetch = Fetch::start(bed.sink(), TUNNEL.source_address(), "sparse", &copy, limit)?;
    std::thread::sleep(SETTLE);
    let (started, before, meter) = (Instant::now(), fetch.bytes(), Meter::start(&daemons));
    std::thread::sleep(MEASURE);
    let (bytes, load) = (fetch.bytes() - before, meter.stop());
    let goodput_mbit = bytes as f64 * 8e-6 / started.elapsed().as_secs_f64();
    Ok(Carried { goodput_mbit, load })
}

/// The options with a rate that this machine can carry, and a message about it. A rate given by the
/// user is kept.
///
/// # Errors
/// If the bed fails.
pub fn scale(options: &DemoOptions) -> Result<(DemoOptions, String), BedError> {
    let carried = measure(options)?;
    let wanted = goodput_wanted(options);
    let (full, found) = (options.rate_mbit(), carried.goodput_mbit);
    let rate = carried.rate_mbit(full, wanted);
    let text = if rate < full {
        format!("{found:.0} Mbit/s now: links get {rate} instead of {full} Mbit/s")
    } else {
        format!("{found:.0} Mbit/s, enough for links of {full} Mbit/s")
    };
    Ok((DemoOptions { rate: Some(rate), ..options.clone() }, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_get_the_full_rate_or_what_the_machine_carries() {
        let carried = |goodput_mbit: f64, idle: f64| {
            Carried { goodput_mbit, load: Load { idle, ..Load::default() } }.rate_mbit(300.0, 160.0)
        };
        assert_eq!(carried(245.0, 0.0), 300.0);
        assert_eq!(carried(165.0, 0.3), 300.0, "the code needs no more, and cores are idle");
        assert_eq!(carried(165.0, 0.0), 205.0);
        assert_eq!(carried(80.0, 0.0), 100.0);
        assert_eq!(carried(0.1, 0.0), RATE_MIN);
        let slow = Carried { goodput_mbit: 1.0, load: Load::default() };
        assert_eq!(slow.rate_mbit(10.0, 6.0), 10.0, "never above the requested rate");
    }
}
