//! The codes: packets per symbol by theory, and the share of the resulting rate that TCP reached.
//!
//! - stream: per hop, for its losses and its planned combinations (`theory::stream`).
//! - rlnc: per hop, 1 / (1 - e); if reports take too long, as many as leave one generation in 200
//!   incomplete (`theory::plan`).
//! - bats: per hop, 1 / (1 - e); if reports take too long, those of batches that relays recode
//!   adaptively (`theory::adaptive`).
//!
//! TCP inside does not reach all of that over long round trips: its start takes time, and late
//! decoding delivers bursts. [`REACHED`] is the share that it reached in `bench line`.

use recoded_code::theory::adaptive::{Outgoing, expected_rank_adaptive};
use recoded_code::theory::burst::interleave_depth;
use recoded_code::theory::stream::{Plan, StreamHop, StreamProfile, Traffic, delays};
use recoded_code::theory::{LossModel, Recoding, plan};
use recoded_gf::FieldOrder;

use super::{Contender, ForecastRow, Hop};

/// A coded packet of 1500 bytes over IPv4 carries 1373 bytes of TCP payload; Ethernet's header adds
/// 14.
const HEADERS_BYTES: f64 = 127.0;
const ETHERNET_BYTES: f64 = 14.0;

/// Share of the theoretical rate that TCP reached, by round trip of the path in seconds. Beyond the
/// last entry it falls in proportion to the round trip.
struct Reached {
    round_trip: f64,
    stream: f64,
    rlnc: f64,
    bats: f64,
}

const REACHED: [Reached; 4] = [
    Reached { round_trip: 0.001, stream: 1.0, rlnc: 0.95, bats: 0.93 },
    Reached { round_trip: 0.08, stream: 0.97, rlnc: 0.76, bats: 0.46 },
    Reached { round_trip: 0.3, stream: 0.92, rlnc: 0.49, bats: 0.32 },
    Reached { round_trip: 0.54, stream: 0.73, rlnc: 0.073, bats: 0.3 },
];

/// Variation between runs of one line.
const RANGE: (f64, f64) = (0.85, 1.1);

/// Defaults of the daemon.
const SIZE: usize = 16;
const FIELD: FieldOrder = FieldOrder::TwoFiftySix;
const REDUNDANCY_MAX: f64 = 4.0;

/// Share of generations that stay incomplete with proactive redundancy.
const INCOMPLETE: f64 = 5e-3;

/// Range of packet rates for delay computations. Higher rates change only the computation time. At
/// lower rates, or with longer round trips, more losses or longer bursts, it takes minutes.
const DELAY_RATE: (f64, f64) = (500.0, 25_000.0);
const DELAY_ROUND_TRIP_MAX: f64 = 0.3;
const DELAY_LOSS_MAX: f64 = 0.3;
const DELAY_BURST_MAX: f64 = 16.0;
const HOPS_MAX: usize = 10;

pub(super) fn rows(hops: &[Hop]) -> Vec<ForecastRow> {
    let trip: f64 = hops.iter().map(|hop| hop.round_trip).sum();
    let planned: Vec<StreamHop> = hops.iter().map(stream_hop).collect();
    let reached = reached(trip);
    let own = |packets: &dyn Fn(&Hop) -> f64| carried(hops, packets);
    let stream = hops.iter().zip(&planned).map(|(hop, planned)| (planned.packets(), hop));
    let stream = stream.map(|(packets, hop)| (room(hop) / packets, packets));
    let added = added(hops, &planned);
    let row = |contender, reached, added| {
        move |(mbit, packets)| row(contender, mbit, packets, reached, added)
    };
    let mut rows = Vec::with_capacity(3);
    rows.extend(least(stream).map(row(Contender::Stream, reached.stream, added)));
    rows.extend(own(&rlnc).map(row(Contender::Rlnc, reached.rlnc, None)));
    let rank = 1.0 / batches(hops).max(1e-3);
    let bats = |hop: &Hop| if is_slow(hop) { rank } else { mended(hop) };
    rows.extend(own(&bats).map(row(Contender::Bats, reached.bats, None)));
    rows
}

/// Capacity of a link for symbols of a stream, in Mbit/s of TCP payload, and its packets per
/// symbol.
pub(crate) fn stream(hop: &Hop) -> (f64, f64) {
    let packets = stream_hop(hop).packets();
    (room(hop) / packets, packets)
}

/// Share of that which TCP reaches over streams, by the round trip in seconds.
pub(crate) fn stream_reached(trip: f64) -> f64 {
    reached(trip).stream
}

/// Delay that losses add at the 99th percentile, in milliseconds.
fn added(hops: &[Hop], planned: &[StreamHop]) -> Option<f64> {
    let is_quick = |hop: &Hop| {
        symbols_per_second(hop) >= DELAY_RATE.0
            && hop.round_trip <= DELAY_ROUND_TRIP_MAX
            && hop.loss.loss <= DELAY_LOSS_MAX
            && hop.loss.burst_mean <= DELAY_BURST_MAX
    };
    let is_cheap = hops.len() <= HOPS_MAX && hops.iter().all(is_quick);
    let delays = if is_cheap { delays(planned) } else { Vec::new() };
    delays.last().map(|delay| delay.quantile(0.99) * 1e3)
}

fn row(
    contender: Contender,
    mbit: f64,
    packets: f64,
    reached: f64,
    added_p99_ms: Option<f64>,
) -> ForecastRow {
    let mbit = mbit * reached;
    ForecastRow {
        contender,
        mbit,
        range_mbit: (RANGE.0 * mbit, RANGE.1 * mbit),
        packets_per_symbol: Some(packets),
        added_p99_ms,
    }
}

/// TCP payload of a link that carries only symbols, each once.
fn room(hop: &Hop) -> f64 {
    hop.rate_mbit * hop.payload(HEADERS_BYTES) / (hop.mtu + ETHERNET_BYTES)
}

/// The hop with the least capacity, with its packets per symbol.
fn carried(hops: &[Hop], packets: &dyn Fn(&Hop) -> f64) -> Option<(f64, f64)> {
    let of = |hop: &Hop| {
        let packets = packets(hop);
        (room(hop) / packets, packets)
    };
    least(hops.iter().map(of))
}

fn least(found: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    found.min_by(|one, other| one.0.total_cmp(&other.0))
}

/// Symbols a second on a fully loaded hop.
fn symbols_per_second(hop: &Hop) -> f64 {
    hop.rate_mbit * 1e6 * (1.0 - hop.loss.loss) / ((hop.mtu + ETHERNET_BYTES) * 8.0)
}

/// Combinations per symbol on a fully loaded hop, which has no room for any against bursts.
fn combinations(hop: &Hop, rate: f64) -> f64 {
    let traffic = Traffic::steady(rate);
    Plan::without_room(hop.loss, traffic, hop.round_trip, StreamProfile::Balanced).rho
}

fn stream_hop(hop: &Hop) -> StreamHop {
    let rate = symbols_per_second(hop).min(DELAY_RATE.1);
    StreamHop::new(hop.loss, hop.round_trip, rate, combinations(hop, rate))
}

/// Whether waiting for reports takes too long, by the dataplane's rule.
fn is_slow(hop: &Hop) -> bool {
    combinations(hop, symbols_per_second(hop)) > 0.0
}

fn mended(hop: &Hop) -> f64 {
    1.0 / (1.0 - hop.loss.loss)
}

fn rlnc(hop: &Hop) -> f64 {
    if !is_slow(hop) {
        return mended(hop);
    }
    let most = (REDUNDANCY_MAX * SIZE as f64) as usize;
    plan(SIZE, FIELD, &[hop.loss], INCOMPLETE, most) as f64 / SIZE as f64
}

/// Relative rank of batches at the end without repair.
fn batches(hops: &[Hop]) -> f64 {
    let burst = hops.iter().map(|hop| hop.loss.burst_mean).fold(1.0, f64::max);
    let depth = interleave_depth(burst, SIZE, 0, u64::MAX, 255);
    let line: Vec<LossModel> = hops.iter().map(|hop| hop.loss.interleaved(depth)).collect();
    let Some(first) = line.first() else { return 1.0 };
    let outgoing = Outgoing::equal_airtime(SIZE, FIELD, *first, Recoding::Systematic);
    expected_rank_adaptive(&outgoing, &line).last().copied().unwrap_or(1.0)
}

/// Interpolates between the measured round trips.
fn reached(trip: f64) -> Reached {
    let last = &REACHED[REACHED.len() - 1];
    let after = REACHED.iter().position(|row| row.round_trip > trip);
    let (one, other) = match after {
        Some(0) => (&REACHED[0], &REACHED[0]),
        Some(after) => (&REACHED[after - 1], &REACHED[after]),
        None => (last, last),
    };
    let width = (other.round_trip - one.round_trip).max(1e-9);
    let share = ((trip - one.round_trip) / width).clamp(0.0, 1.0);
    let beyond = (last.round_trip / trip).min(1.0);
    let mix = |of: fn(&Reached) -> f64| (of(one) + share * (of(other) - of(one))) * beyond;
    Reached {
        round_trip: trip,
        stream: mix(|row| row.stream),
        rlnc: mix(|row| row.rlnc),
        bats: mix(|row| row.bats),
    }
}
