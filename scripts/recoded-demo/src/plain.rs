//! Results of plain Linux forwarding on the line.

use std::time::Duration;

use recoded_netns::traffic::{Download, Fetch, IPERF_PORT, Iperf, UdpLoad, UdpOutcome};
use recoded_netns::{Bed, BedError, Loss};

use crate::progress::Note;

/// UDP payload of a plain packet, in bytes.
const PAYLOAD_BYTES: usize = 1400;

/// Bytes around it on a link: Ethernet, IPv4, UDP.
const HEADER_BYTES: usize = 14 + 20 + 8;

/// Offered load as a share of capacity, so that only the loss programs drop.
const LOAD: f64 = 0.5;

/// iperf3 over the lossy links, below their rate.
///
/// # Errors
/// When iperf3 fails.
pub fn udp(
    bed: &mut Bed,
    loss: Loss,
    rate_mbit: f64,
    seconds: u64,
) -> Result<UdpOutcome, BedError> {
    bed.side_path(IPERF_PORT)?;
    bed.set_loss(Loss::independent(0.0))?;
    let payload_share = PAYLOAD_BYTES as f64 / (PAYLOAD_BYTES + HEADER_BYTES) as f64;
    let load = UdpLoad {
        to: bed.sink_address(),
        payload_bytes: PAYLOAD_BYTES,
        mbit: LOAD * rate_mbit * payload_share,
        seconds,
    };
    let iperf = Iperf::start(bed.source(), bed.sink(), &load, bed.directory())?;
    let before_loss = bed.set_loss_once_flowing(loss)?;
    let outcome = iperf.finish()?;
    Ok(UdpOutcome { packets: outcome.packets.saturating_sub(before_loss), ..outcome })
}

/// Goodput of the same download in Mbit/s with another congestion control at the sender; `None` if
/// Linux does not have it, or not for namespaces.
///
/// # Errors
/// If curl fails to report, or the default congestion control cannot be restored.
pub fn download_with(
    bed: &Bed,
    control: &str,
    file: &str,
    seconds: u64,
    note: &Note,
) -> Result<Option<f64>, BedError> {
    let before = bed.congestion_control()?;
    if bed.set_congestion_control(control).is_err() {
        return Ok(None);
    }
    let download = download(bed, file, seconds, note);
    bed.set_congestion_control(&before)?;
    Ok(Some(download?.mbit()))
}

/// A download over the lossy links for a fixed time, because it would hardly ever finish.
///
/// # Errors
/// When curl fails to report.
pub fn download(bed: &Bed, file: &str, seconds: u64, note: &Note) -> Result<Download, BedError> {
    let limit = Duration::from_secs(seconds);
    let copy = bed.directory().join("plain.download");
    let mut fetch = Fetch::start(bed.sink(), bed.source_address(), file, &copy, limit)?;
    while fetch.is_running() {
        note.say(format_args!("{:.2} MB so far", fetch.bytes() as f64 / 1e6));
        std::thread::sleep(Duration::from_millis(200));
    }
    let download = fetch.finish()?;
    // The copy is no longer needed, and takes space.
    let _ = std::fs::remove_file(&copy);
    Ok(download)
}
