//! Plans proactive redundancy: the number of combinations a hop sends in advance, and their span of
//! symbols.
//!
//! A hop can retransmit losses a round trip later. If that is soon enough, it does only that;
//! otherwise, combinations of the newest symbols compensate losses in advance. Their share is
//! slightly above the loss: with an excess of `x`, the uncompensated losses are a walk with drift
//! `x`, whose 99 % quantile is
//!
//! ```text
//!  T = (1.4 + 0.45 h) V ln(100) / (2 x^2 lambda)      V = e (1 - e) (2 B - 1) (1 + rho)
//! ```
//!
//! for `h` hops that lose `e` in bursts of `B`, `lambda` symbols a second and `rho` combinations a
//! symbol: measured by simulation, within a fifth.
//!
//! Bursts need a larger excess than is spent otherwise, or combinations of more symbols than there
//! are. Retransmission carries as much, but in order nearly every symbol waits for it: over three
//! hops of 7 ms that lose 17 % in bursts of 5, half of the packets took 52 ms more, and some 10 ms
//! with combinations; windows of TCP inside do not cover the former. So combinations are sent as
//! long as the link has room for them, and a full link is left to retransmission.

use crate::theory::LossModel;

/// Assumed hops of a path.
const HOPS: u32 = 4;

/// Symbols per second below which a flow is treated as sparse: people talk or type.
const SPARSE: f64 = 1500.0;

/// Delay that losses may add to the one-way time: for sparse or growing traffic, and otherwise in
/// addition to two round trips.
const SPARSE_SECONDS: f64 = 0.015;
const BULK_SECONDS: f64 = 0.010;

/// Delay that losses may add to an interactive flow, whatever its traffic.
const INTERACTIVE_SECONDS: f64 = 0.008;

/// Packets of an interactive flow that take several paths at once and are further apart than this
/// are protected singly: repair data in the next packet would be late. The second constant bounds
/// the share of packets lost together with all their repair data.
const ALONE_SECONDS: f64 = 0.003;
const ALONE_LOST: f64 = 0.005;

/// Largest delay budget in plans.
const BUDGET_MAX_SECONDS: f64 = 0.04;

/// Share of combinations above the losses, where traffic is not sparse: the minimum, and the
/// maximum before a part of the losses is added, as larger losses vary more.
const ABOVE: (f64, f64) = (0.03, 0.05);
const ABOVE_LOSS: f64 = 0.05;

/// Part of the link that symbols and combinations take together at most, where sparse traffic is
/// protected by more than its losses take: TCP that finds the rest grows into it.
const FILLED: f64 = 0.9;

/// Least mean burst for which the room of a link is used, and the largest excess then:
/// bursts of 8 at 17 % need 0.11. Twice spans bursts of 20, and at 0.7 of three hops that lose 17 %
/// in bursts of 8 one packet in a hundred took 295 ms more, when a rate fell for a moment. With
/// losses that come alone, retransmission is as quick.
const BURST: f64 = 2.0;
const BURST_ABOVE: f64 = 0.12;

/// Excess in bursts, as a multiple of the least that combinations outlast.
const BURST_MARGIN: f64 = 1.3;

/// Most combinations for a symbol, and the same for an interactive flow.
const SHARE_MAX: f64 = 1.0;
const INTERACTIVE_SHARE_MAX: f64 = 2.0;

/// Symbols of a combination.
const SYMBOLS: (f64, f64) = (8.0, 512.0);

/// Fewest symbols of a combination in an open loop, where they outlast bursts by themselves.
const OPEN_LOOP_SYMBOLS: f64 = 64.0;

/// Least number of combinations that cover a symbol. With rare losses, the walk spans few symbols;
/// but two adjacent losses need two combinations that cover both: with 12 symbols and a share of
/// 0.11, one packet in a hundred was retransmitted, over 100 ms.
const COVERED: f64 = 8.0;

/// Combinations may span this many times fewer symbols than outlast the walk without a penalty.
/// With even fewer, they fall behind the missing symbols, and symbols are retransmitted that were
/// worth a combination each: over four hops that lose 10 % in bursts of 8, at 100 ms, 99 of 100
/// packets took 534 ms with them and 305 ms without.
const OUTLIVED: f64 = 2.0;

/// Time of a report in addition to the round trip, and of a keepalive behind the last of sparse
/// packets.
const REPORT_SECONDS: f64 = 0.001;

/// Share of repairs that may take longer than planned.
const LATE: f64 = 0.02;

/// ln(100): exceeded by one in a hundred.
const QUANTILE: f64 = 4.605;

/// The trade-off between packets and delay for a stream.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum StreamProfile {
    /// Few packets for bulk, more for sparse traffic.
    #[default]
    Balanced,
    /// Least delay: more packets for all traffic, and most for sparse traffic.
    Interactive,
}

impl StreamProfile {
    /// Name in configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Interactive => "interactive",
        }
    }
}

/// Symbols that a hop sends for the first time.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Traffic {
    /// Symbols per second.
    pub rate: f64,
    /// Whether more are expected: a start of TCP, which ends when packets are late.
    pub is_growing: bool,
    /// Part of the link that they take.
    pub share: f64,
}

impl Traffic {
    /// Traffic of a constant rate, in symbols per second, over a link with room for any redundancy.
    #[must_use]
    pub const fn steady(rate: f64) -> Self {
        Self { rate, is_growing: false, share: 0.0 }
    }

    /// Combinations for a symbol that the link has room for.
    fn room(self) -> f64 {
        (FILLED / self.share.max(f64::EPSILON) - 1.0).max(0.0)
    }
}

/// Proactive redundancy of a hop.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Plan {
    /// Combinations for a symbol.
    pub rho: f64,
    /// Symbols of a combination, at most.
    pub symbols: usize,
}

impl Plan {
    /// No combinations.
    pub const NONE: Self = Self { rho: 0.0, symbols: SYMBOLS.0 as usize };

    /// A fixed number of combinations per symbol, whatever is lost.
    #[must_use]
    pub fn open_loop(rho: f64) -> Self {
        let symbols = (COVERED / rho.max(f64::EPSILON)).clamp(OPEN_LOOP_SYMBOLS, SYMBOLS.1);
        Self { rho, symbols: symbols as usize }
    }

    /// Plans for a hop with this loss and traffic; its round trip in seconds. Growing traffic is
    /// protected as if it were sparse, at any cost. Sparse traffic gets no more than the link has
    /// room for: packets that wait for a full link are late anyway. An interactive flow is
    /// protected whether or not the link has room.
    #[must_use]
    pub fn new(loss: LossModel, traffic: Traffic, round_trip: f64, profile: StreamProfile) -> Self {
        Self::with(loss, traffic, round_trip, profile, true)
    }

    /// The same without the room of the link, which is all that is used against bursts: for a link
    /// that is filled, whatever its traffic is.
    #[must_use]
    pub fn without_room(
        loss: LossModel,
        traffic: Traffic,
        round_trip: f64,
        profile: StreamProfile,
    ) -> Self {
        Self::with(loss, traffic, round_trip, profile, false)
    }

    fn with(
        LossModel { loss, burst_mean }: LossModel,
        traffic: Traffic,
        round_trip: f64,
        profile: StreamProfile,
        uses_room: bool,
    ) -> Self {
        let rate = traffic.rate;
        if loss < 1e-4 || rate <= 0.0 {
            return Self::NONE;
        }
        let loss = loss.min(0.5);
        // Runs of independent losses are not bursts.
        let burst = (burst_mean * (1.0 - loss)).max(1.0);
        let is_interactive = profile == StreamProfile::Interactive;
        // Fewer combinations than that fall behind the losses.
        let has_room = traffic.room() * (1.0 - loss) >= loss + ABOVE.0;
        let is_sparse = rate < SPARSE && has_room;
        let is_urgent = is_interactive || traffic.is_growing || is_sparse;
        let (soon, most) = match is_urgent {
            _ if is_interactive => (INTERACTIVE_SECONDS, INTERACTIVE_SHARE_MAX),
            _ if traffic.is_growing => (SPARSE_SECONDS, SHARE_MAX),
            true => (SPARSE_SECONDS, SHARE_MAX.min(traffic.room())),
            false => (2.0 * round_trip + BULK_SECONDS, SHARE_MAX),
        };
        let repaired = repaired(loss, rate, round_trip);
        if repaired <= soon {
            return Self::NONE;
        }
        let variance = |rho: f64| loss * (1.0 - loss) * (2.0 * burst - 1.0) * (1.0 + rho);
        let path = 1.4 + 0.45 * f64::from(HOPS);
        let seconds = |x: f64, rho: f64| path * variance(rho) * QUANTILE / (2.0 * x * x * rate);
        let within = |seconds: f64, rho: f64| {
            (path * variance(rho) * QUANTILE / (2.0 * seconds * rate)).sqrt()
        };
        let share = |x: f64| ((loss + x) / (1.0 - loss)).min(most);
        let budget = soon.min(BUDGET_MAX_SECONDS);
        // The share is on both sides.
        let mut x = within(budget, loss / (1.0 - loss));
        x = within(budget, share(x));
        if !is_urgent {
            x = (x * 1.5f64.sqrt()).clamp(ABOVE.0, ABOVE.1 + ABOVE_LOSS * loss);
        }
        let above = |rho: f64| (rho * (1.0 - loss) - loss).max(1e-3);
        let outlast = (100.0 * rate * round_trip.max(1e-3)).max(2.0).ln();
        let symbols = |rho: f64| variance(rho) * outlast / (2.0 * above(rho) * above(rho));
        let is_quick = |x: f64, rho: f64| is_urgent || seconds(x, rho) < repaired;
        let is_worth = |x: f64, rho: f64| is_quick(x, rho) && symbols(rho) <= OUTLIVED * SYMBOLS.1;
        let mut rho = share(x);
        if uses_room && !is_worth(x, rho) && !is_urgent && burst >= BURST {
            let reach = |rho: f64| (variance(rho) * outlast / (2.0 * OUTLIVED * SYMBOLS.1)).sqrt();
            let least = BURST_MARGIN * reach(share(reach(rho)));
            x = least.max(within(budget, share(within(budget, rho)))).min(BURST_ABOVE);
            rho = share(x).min(traffic.room());
            x = above(rho);
        }
        if !is_worth(x, rho) {
            return Self::NONE;
        }
        let least = (COVERED / rho).clamp(SYMBOLS.0, SYMBOLS.1);
        Self { rho, symbols: symbols(rho).clamp(least, SYMBOLS.1) as usize }
    }

    /// The same for an interactive flow of `rate` symbols per second that sends a copy over each of
    /// several paths: a widely spaced symbol lost on the fastest path arrives sooner by a copy of
    /// its own than over another path.
    #[must_use]
    pub fn for_copies(self, loss: LossModel, rate: f64, profile: StreamProfile) -> Self {
        let is_far_apart = rate * ALONE_SECONDS < 1.0;
        if self.rho > 0.0 && profile == StreamProfile::Interactive && is_far_apart {
            return Self { rho: alone(loss.loss.min(0.5)), symbols: SYMBOLS.0 as usize };
        }
        self
    }
}

/// Combinations that follow each packet at once, so that all of them are rarely lost.
fn alone(loss: f64) -> f64 {
    let copies = (ALONE_LOST.ln() / loss.ln()).ceil();
    (copies - 1.0).clamp(1.0, INTERACTIVE_SHARE_MAX)
}

/// Seconds that retransmission takes over all hops, for most symbols.
fn repaired(loss: f64, rate: f64, round_trip: f64) -> f64 {
    let turn = round_trip + REPORT_SECONDS;
    let at_once = (rate * turn).max(1.0);
    // Losses of one symbol over the path: negative binomial.
    let hops = f64::from(HOPS);
    let mut chance = (1.0 - loss).powi(HOPS as i32);
    let mut beyond = 1.0;
    let mut turns = 0.0;
    while at_once * beyond > LATE && turns < 20.0 {
        beyond -= chance;
        turns += 1.0;
        chance *= loss * (hops + turns - 1.0) / turns;
    }
    turns * turn
}

#[cfg(test)]
mod tests {
    use super::StreamProfile::{Balanced, Interactive};
    use super::*;

    fn planned(loss: f64, burst: f64, rate: f64, round_trip: f64) -> (f64, usize) {
        let burst_mean = if burst > 1.0 { burst } else { 1.0 / (1.0 - loss) };
        let loss = LossModel { loss, burst_mean };
        let Plan { rho, symbols } = Plan::new(loss, Traffic::steady(rate), round_trip, Balanced);
        (rho, symbols)
    }

    #[test]
    fn short_hops_send_again_and_nothing_in_advance() {
        for (loss, rate) in [(0.1, 25_000.0), (0.2, 10_000.0), (0.1, 250.0), (0.0, 25_000.0)] {
            assert_eq!(planned(loss, 1.0, rate, 0.000_6).0, 0.0, "{loss} of {rate}");
        }
    }

    #[test]
    fn long_hops_send_a_little_more_than_their_losses_take() {
        for (loss, round_trip) in [(0.1, 0.02), (0.1, 0.1), (0.03, 0.1), (0.02, 0.54)] {
            let (rho, symbols) = planned(loss, 1.0, 25_000.0, round_trip);
            let above = rho * (1.0 - loss) - loss;
            assert!((0.029..0.061).contains(&above), "{above} at {loss}, {round_trip} s");
            assert!((32..=512).contains(&symbols), "{symbols}");
        }
    }

    #[test]
    fn bursts_on_short_hops_are_left_to_sending_again() {
        let plan = |share, round_trip| {
            let loss = LossModel { loss: 0.1, burst_mean: 8.0 };
            let traffic = Traffic { share, ..Traffic::steady(25_000.0) };
            Plan::new(loss, traffic, round_trip, Balanced).rho
        };
        assert_eq!(plan(0.0, 0.000_6), 0.0);
        assert_eq!(plan(0.9, 0.011), 0.0, "a full link");
        assert!(plan(0.5, 0.011) > 0.0, "a link with room");
    }

    /// Combinations of 512 symbols span bursts of 8 at a loss of 10 % only with a larger excess: a
    /// full link has no room for it.
    #[test]
    fn bursts_take_the_room_of_the_link_and_none_of_a_full_one() {
        for (loss, burst_mean, rate, round_trip) in
            [(0.1, 8.0, 9600.0, 0.1), (0.17, 5.0, 17_000.0, 0.014), (0.17, 8.0, 17_000.0, 0.014)]
        {
            let loss = LossModel { loss, burst_mean };
            let plan = |share| {
                let traffic = Traffic { share, ..Traffic::steady(rate) };
                Plan::new(loss, traffic, round_trip, Balanced)
            };
            let Plan { rho, symbols } = plan(0.3);
            let above = rho * (1.0 - loss.loss) - loss.loss;
            println!("{loss:?}: {rho:.3}, {above:.3} above, {symbols} symbols");
            assert!((0.08..BURST_ABOVE + 1e-9).contains(&above), "{above}");
            assert!((128..=512).contains(&symbols), "{symbols}");
            assert_eq!(plan(0.8), Plan::NONE);
        }
        assert_eq!(planned(0.17, 20.0, 9600.0, 0.014).0, 0.0);
        assert!(planned(0.3, 1.0, 9600.0, 0.1).0 > 0.0);
    }

    /// Cubic's slow start once ended early because packets of its bursts were retransmitted.
    #[test]
    fn traffic_that_grows_is_protected_by_more() {
        let loss = LossModel { loss: 0.1, burst_mean: 1.0 / 0.9 };
        let traffic = |is_growing| Traffic { is_growing, ..Traffic::steady(4000.0) };
        let rho = |is_growing| Plan::new(loss, traffic(is_growing), 0.02, Balanced).rho;
        assert!(rho(true) > 1.15 * rho(false), "{} {}", rho(true), rho(false));
    }

    #[test]
    fn few_combinations_are_of_many_symbols() {
        let (rho, symbols) = planned(0.02, 1.0, 1000.0, 0.02);
        assert!(rho < 0.3 && symbols as f64 * rho > 3.0, "{rho} of {symbols}");
    }

    #[test]
    fn sparse_packets_over_long_hops_are_protected_by_many() {
        let (probe, _) = planned(0.1, 1.0, 250.0, 0.02);
        assert!((0.5..1.0).contains(&probe), "{probe}");
        let (voice, symbols) = planned(0.1, 1.0, 50.0, 0.02);
        assert_eq!((voice, symbols), (SHARE_MAX, 8));
    }

    /// A greedy flow over 2 Mbit/s once sent a combination with each symbol, which took half of the
    /// link: it has as few packets as sparse traffic.
    #[test]
    fn sparse_packets_that_fill_a_slow_link_leave_it_no_combinations() {
        let loss = LossModel { loss: 0.1, burst_mean: 1.0 / 0.9 };
        let rho = |share| {
            let traffic = Traffic { share, ..Traffic::steady(190.0) };
            Plan::new(loss, traffic, 0.02, Balanced).rho
        };
        let most = rho(0.0);
        assert!(most > 0.5 && rho(0.3) == most, "{most} with room");
        let half = rho(0.7);
        assert!((0.2..0.3).contains(&half), "{half} where the rest of the link is less");
        assert_eq!(rho(1.0), 0.0);
        // A flow that takes the remaining rate ends there.
        let mut share = 1.0 / (1.0 + most);
        for _ in 0..20 {
            share = 1.0 / (1.0 + rho(share));
        }
        assert_eq!(share, 1.0);
    }

    /// Each rate takes more than otherwise, and sparser rates take most; a loss that a round trip
    /// repairs soon enough is left to retransmission.
    #[test]
    fn interactive_flows_are_protected_by_more_at_any_rate() {
        let loss = LossModel { loss: 0.1, burst_mean: 1.0 / 0.9 };
        let share = |rate, round_trip, profile| {
            Plan::new(loss, Traffic::steady(rate), round_trip, profile).rho
        };
        let mut before = INTERACTIVE_SHARE_MAX;
        for rate in [50.0, 250.0, 1000.0, 5000.0, 25_000.0] {
            let (balanced, rho) = (share(rate, 0.02, Balanced), share(rate, 0.02, Interactive));
            assert!(rho > balanced + 0.01 && rho <= before, "{rho}, {balanced} at {rate}");
            before = rho;
            assert_eq!(share(rate, 0.000_6, Interactive), 0.0);
        }
        assert_eq!(share(50.0, 0.02, Interactive), INTERACTIVE_SHARE_MAX);
    }

    /// One or two combinations with the packet, by the hop's loss; at the highest loss the usual
    /// maximum.
    #[test]
    fn copies_of_packets_that_are_far_apart_are_protected_alone() {
        for (loss, copies) in [(0.001, 1.0), (0.05, 1.0), (0.1, 2.0), (0.17, 2.0), (0.4, 2.0)] {
            let model = LossModel { loss, burst_mean: 1.0 / (1.0 - loss) };
            let plan = |rate, profile| {
                Plan::new(model, Traffic::steady(rate), 0.04, profile)
                    .for_copies(model, rate, profile)
            };
            assert_eq!(plan(250.0, Interactive).rho, copies, "{loss}");
            let before = |rate, profile| Plan::new(model, Traffic::steady(rate), 0.04, profile);
            assert_eq!(plan(4000.0, Interactive), before(4000.0, Interactive), "close together");
            assert_eq!(plan(250.0, Balanced), before(250.0, Balanced), "no hurry");
            assert!(loss > 0.17 || loss.powf(1.0 + copies) <= ALONE_LOST, "{loss}");
        }
    }
}
