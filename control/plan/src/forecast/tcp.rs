//! TCP by formula.
//!
//! **Cubic**: the larger of the windows of RFC 5681 and RFC 9438 at a loss rate p, 1.22 / sqrt(p)
//! and 1.05 (RTT / p)^(3/4), less half of the time for timeouts according to Padhye et al. (SIGCOMM
//! 1998), since tail loss probes (RFC 8985) save about half of them.
//!
//! **BBR** ignores losses as long as its probing for a quarter more bandwidth outweighs them, up to
//! a loss rate of a fifth. Over long round trips it is slower: losses end its startup early, from
//! where it grows by a quarter in eight round trips, and its recovery holds some 12 / p^(3/2)
//! packets. Both were fitted to `bench line`.
//!
//! **Bursts** that cover a whole window are followed by timeouts that double.

use recoded_code::theory::LossModel;

use super::{Contender, ForecastRow, Hop};

/// Headers of a full packet over IPv4; below, those added on the wire.
const HEADERS_BYTES: f64 = 52.0;
const ETHERNET_BYTES: f64 = 14.0;

/// Minimum retransmission timeout of Linux.
const TIMEOUT_SECONDS: f64 = 0.2;

/// Duration of the connection.
const SECONDS: f64 = 10.0;

/// Loss rates: full rate up to the first; nothing from the second on.
const BBR_FULL: f64 = 0.15;
const BBR_NOTHING: f64 = 0.2333;

/// Packets in flight at the end of BBR's start, and the decrease with losses.
const BBR_START_PACKETS: f64 = 320.0;
const BBR_START_EXPONENT: i32 = 10;

/// Effective share of a connection's duration that it grows for.
const GROWING: f64 = 0.8;

/// Packets in a round trip during loss recovery at p: this over p^(3/2).
const BBR_RECOVERY: f64 = 11.7;

/// Factor for each additional proxy if the window is the limit.
const PROXY: f64 = 0.91;

/// Variation of rows of one line, if losses are the limit and if the rate is.
const UNSURE: (f64, f64) = (0.6, 1.6);
const SURE: (f64, f64) = (0.85, 1.05);

pub(super) fn rows(hops: &[Hop]) -> Vec<ForecastRow> {
    let path = whole(hops);
    let mut rows = vec![
        row(Contender::Cubic, cubic(&path), &path),
        row(Contender::Bbr, bbr(&path, 1.0), &path),
    ];
    if hops.len() > 1 {
        let proxies = PROXY.powf(hops.len() as f64 - 1.0);
        let slowest = hops.iter().map(|hop| (bbr(hop, proxies), hop));
        let slowest = slowest.min_by(|one, other| one.0.total_cmp(&other.0));
        rows.extend(slowest.map(|(mbit, hop)| row(Contender::SplitBbr, mbit, hop)));
    }
    rows
}

fn row(contender: Contender, mbit: f64, path: &Hop) -> ForecastRow {
    let is_sure = mbit > 0.95 * limit(path);
    let (least, most) = if is_sure { SURE } else { UNSURE };
    let range_mbit = (least * mbit, (most * mbit).min(limit(path)));
    ForecastRow { contender, mbit, range_mbit, packets_per_symbol: None, added_p99_ms: None }
}

/// Several hops as one, for packets that no hop repairs.
fn whole(hops: &[Hop]) -> Hop {
    let least = |of: fn(&Hop) -> f64| hops.iter().map(of).fold(f64::INFINITY, f64::min);
    // Packets lost on earlier hops do not load this one.
    let mut arriving = 1.0;
    let mut rate_mbit = f64::INFINITY;
    for hop in hops {
        rate_mbit = rate_mbit.min(hop.rate_mbit / arriving);
        arriving *= 1.0 - hop.loss.loss;
    }
    Hop {
        loss: LossModel::in_series(hops.iter().map(|hop| hop.loss)),
        rate_mbit,
        round_trip: hops.iter().map(|hop| hop.round_trip).sum(),
        mtu: least(|hop| hop.mtu),
        longer_header_bytes: hops.iter().map(|hop| hop.longer_header_bytes).fold(0.0, f64::max),
    }
}

/// Rate at which all packets that arrive are delivered.
fn limit(path: &Hop) -> f64 {
    path.rate_mbit * (1.0 - path.loss.loss) * path.payload(HEADERS_BYTES)
        / (path.mtu + ETHERNET_BYTES)
}

fn cubic(path: &Hop) -> f64 {
    let (loss, trip) = (path.loss.loss, path.round_trip.max(1e-4));
    if loss <= 0.0 {
        return limit(path);
    }
    if stalls(path, 1.22 / loss.sqrt()) {
        return 0.0;
    }
    let window = (1.22 / loss.sqrt()).max(1.05 * (trip / loss).powf(0.75));
    let timeout = TIMEOUT_SECONDS.max(trip + TIMEOUT_SECONDS);
    let timeouts = (3.0 * (3.0 * loss / 8.0).sqrt()).min(1.0) * loss * (1.0 + 32.0 * loss.powi(2));
    let seconds = trip / window + 0.5 * timeout * timeouts;
    megabits(path, seconds.recip()).min(limit(path))
}

/// With `share` of the window if that is the limit.
fn bbr(path: &Hop, share: f64) -> f64 {
    let (loss, trip) = (path.loss.loss, path.round_trip.max(1e-4));
    let on_way = path.rate_mbit * 1e6 * trip / ((path.mtu + ETHERNET_BYTES) * 8.0);
    if stalls(path, on_way) {
        return 0.0;
    }
    let left = ((BBR_NOTHING - loss) / (BBR_NOTHING - BBR_FULL)).clamp(0.0, 1.0);
    let most = left * limit(path);
    if loss * on_way < 1.0 {
        return most;
    }
    let start = BBR_START_PACKETS * (1.0 - loss).powi(BBR_START_EXPONENT);
    let grown = start * 1.25_f64.powf((GROWING * SECONDS / trip / 8.0).min(100.0));
    let window = grown.min(BBR_RECOVERY / loss.powf(1.5)) * share;
    megabits(path, window / trip).min(most)
}

/// Whether bursts of losses cover whole windows.
fn stalls(path: &Hop, window: f64) -> bool {
    let (loss, burst) = (path.loss.loss, path.burst());
    if burst < 2.0 {
        return false;
    }
    let packets = SECONDS * path.rate_mbit * 1e6 / ((path.mtu + ETHERNET_BYTES) * 8.0);
    let whole = (1.0 - burst.recip()).powf(window.max(4.0) - 1.0);
    packets * loss / burst * whole > 1.0 || (loss >= 0.05 && burst >= 3.0)
}

fn megabits(path: &Hop, packets_per_second: f64) -> f64 {
    packets_per_second * path.payload(HEADERS_BYTES) * 8.0 / 1e6
}
