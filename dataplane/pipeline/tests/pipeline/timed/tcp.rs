//! Greedy TCP, packet by packet: windows and pacing by CUBIC ([RFC 9438], with HyStart) and by BBR
//! version 1 as in Linux, without its detection of policers.
//!
//! A packet is considered lost when a later one is acknowledged, and is retransmitted as the next
//! packet. Windows count packets.
//!
//! [RFC 9438]: https://www.rfc-editor.org/rfc/rfc9438

use super::Nanos;
use std::collections::VecDeque;

/// Without an acknowledgement for this time, all packets in flight are lost.
const TIMEOUT_NANOS: Nanos = 400_000_000;

/// Backlog that a sender that is woken late catches up with.
const BURST_NANOS: Nanos = 1_000_000;

/// A packet in flight: its number, when it was sent, packets delivered by then, when the last of
/// those was acknowledged, and when that one had been sent.
#[derive(Copy, Clone)]
struct Flight {
    number: u64,
    at: Nanos,
    delivered: u64,
    delivered_at: Nanos,
    first_at: Nanos,
}

/// Contents of an acknowledgement; rates in packets per second.
struct Ack {
    now: Nanos,
    round_trip: Nanos,
    rate: f64,
    /// Packets delivered by now, and when the packet was sent.
    delivered: u64,
    delivered_before: u64,
    lost: u64,
    /// Whether this is the first loss of a round trip, and whether loss recovery is in progress.
    is_congestion: bool,
    is_recovering: bool,
    on_the_way: f64,
}

trait Control {
    fn acked(&mut self, ack: &Ack);
    fn timed_out(&mut self);
    /// Congestion window in packets.
    fn window(&self) -> f64;
    /// Pacing rate in packets per second; `None`: paced by acknowledgements.
    fn pace(&self) -> Option<f64>;
}

pub struct Tcp {
    control: Box<dyn Control>,
    flight: VecDeque<Flight>,
    next: u64,
    /// Packets acknowledged.
    pub delivered: u64,
    delivered_at: Nanos,
    first_at: Nanos,
    /// Losses of packets before this one belong to the same congestion.
    recovered_at: u64,
    opens_at: Nanos,
}

impl Tcp {
    /// By the Linux name of the congestion control.
    pub fn new(control: &str) -> Tcp {
        let control: Box<dyn Control> = match control {
            "cubic" => Box::new(Cubic::new()),
            "bbr" => Box::new(Bbr::new()),
            _ => panic!("no congestion control {control}"),
        };
        Tcp {
            control,
            flight: VecDeque::new(),
            next: 0,
            delivered: 0,
            delivered_at: 0,
            first_at: 0,
            recovered_at: 0,
            opens_at: 0,
        }
    }

    /// Whether a packet may be sent now; otherwise when, if that is known.
    pub fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        match self.flight.front() {
            Some(_) if self.flight.len() as f64 >= self.control.window() => Err(None),
            _ if self.opens_at > now => Err(Some(self.opens_at)),
            _ => Ok(()),
        }
    }

    /// When to check for a timeout.
    pub fn times_out_at(&self) -> Option<Nanos> {
        self.flight.back().map(|last| last.at.max(self.delivered_at) + TIMEOUT_NANOS)
    }

    pub fn time_out(&mut self, now: Nanos) {
        if self.times_out_at().is_some_and(|at| at <= now) {
            self.flight.clear();
            self.control.timed_out();
        }
    }

    /// Sends a packet; returns its number.
    pub fn send(&mut self, now: Nanos) -> u64 {
        if self.flight.is_empty() {
            (self.first_at, self.delivered_at) = (now, now);
        }
        let Tcp { next: number, delivered, delivered_at, first_at, .. } = *self;
        self.flight.push_back(Flight { number, at: now, delivered, delivered_at, first_at });
        self.next += 1;
        if let Some(pace) = self.control.pace() {
            self.opens_at =
                self.opens_at.max(now.saturating_sub(BURST_NANOS)) + (1e9 / pace) as Nanos;
        }
        number
    }

    pub fn acked(&mut self, number: u64, now: Nanos) {
        let mut lost = 0;
        let mut newest_lost = 0;
        while let Some(first) = self.flight.front().filter(|first| first.number < number) {
            (lost, newest_lost) = (lost + 1, first.number);
            self.flight.pop_front();
        }
        let Some(flight) = self.flight.front().copied().filter(|first| first.number == number)
        else {
            return;
        };
        self.flight.pop_front();
        self.delivered += 1;
        let took = (flight.at - flight.first_at).max(now - flight.delivered_at).max(1);
        (self.delivered_at, self.first_at) = (now, flight.at);
        let is_congestion = lost > 0 && newest_lost >= self.recovered_at;
        if is_congestion {
            self.recovered_at = self.next;
        }
        let ack = Ack {
            now,
            round_trip: now - flight.at,
            rate: (self.delivered - flight.delivered) as f64 * 1e9 / took as f64,
            delivered: self.delivered,
            delivered_before: flight.delivered,
            lost,
            is_congestion,
            is_recovering: number < self.recovered_at,
            on_the_way: self.flight.len() as f64,
        };
        self.control.acked(&ack);
    }
}

/// RFC 9438; HyStart's delay increase as in RFC 9406, without its conservative rounds.
struct Cubic {
    window: f64,
    threshold: f64,
    /// The window before the last congestion, and the one that grows towards it.
    most: f64,
    epoch: Option<(Nanos, f64, f64)>,
    estimate: f64,
    least: Nanos,
    /// Of the present round: packets delivered at its end, the minimum round trip, samples.
    round: (u64, Nanos, u32),
}

impl Cubic {
    const BETA: f64 = 0.7;
    const C: f64 = 0.4;

    fn new() -> Cubic {
        Cubic {
            window: 10.0,
            threshold: f64::MAX,
            most: 0.0,
            epoch: None,
            estimate: 0.0,
            least: Nanos::MAX,
            round: (0, Nanos::MAX, 0),
        }
    }

    /// Slow start ends when a round takes longer than the minimum.
    fn hystart(&mut self, ack: &Ack) {
        if ack.delivered_before >= self.round.0 {
            self.round = (ack.delivered, Nanos::MAX, 0);
        }
        self.round.1 = self.round.1.min(ack.round_trip);
        self.round.2 += 1;
        let more = (self.least / 8).clamp(4_000_000, 16_000_000);
        if self.window >= 16.0 && self.round.2 == 8 && self.round.1 > self.least + more {
            self.threshold = self.window;
        }
    }

    fn reduce(&mut self) {
        let is_less = self.window < self.most;
        self.most = if is_less { self.window * (1.0 + Self::BETA) / 2.0 } else { self.window };
        self.window = (self.window * Self::BETA).max(2.0);
        (self.threshold, self.epoch) = (self.window, None);
    }
}

impl Control for Cubic {
    fn acked(&mut self, ack: &Ack) {
        self.least = self.least.min(ack.round_trip);
        if ack.is_congestion {
            self.reduce();
        }
        if ack.is_recovering {
            return;
        }
        if self.window < self.threshold {
            self.hystart(ack);
            self.window += 1.0;
            return;
        }
        let (window, most) = (self.window, self.most.max(self.window));
        let (since, inflection, origin) = *self.epoch.get_or_insert_with(|| {
            self.estimate = window;
            (ack.now, ((most - window) / Self::C).cbrt(), most)
        });
        let seconds = (ack.now - since + self.least) as f64 * 1e-9;
        let target = origin + Self::C * (seconds - inflection).powi(3);
        self.estimate += 3.0 * (1.0 - Self::BETA) / (1.0 + Self::BETA) / self.window;
        let target = target.max(self.estimate).min(1.5 * self.window);
        self.window += ((target - self.window) / self.window).max(0.01 / self.window);
    }

    fn timed_out(&mut self) {
        self.reduce();
        self.window = 2.0;
    }

    fn window(&self) -> f64 {
        self.window
    }

    fn pace(&self) -> Option<f64> {
        None
    }
}

#[derive(Copy, Clone, PartialEq, Debug)]
enum Mode {
    Startup,
    Drain,
    Cycle { phase: usize, since: Nanos },
    RoundTrip { until: Option<Nanos> },
}

struct Bbr {
    mode: Mode,
    /// The maximum by rounds, packets per second, the newest last.
    most: VecDeque<f64>,
    round_at: u64,
    is_round: bool,
    full: (f64, u32),
    is_full: bool,
    least: (Nanos, Nanos),
    window: f64,
    /// The window before a loss or a probe of the round trip.
    before: f64,
    /// The round that a loss begins: packets in flight are conserved.
    conserved_until: Option<u64>,
    was_recovering: bool,
}

impl Bbr {
    const HIGH: f64 = 2.885;
    const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    const ROUNDS: usize = 10;
    const LEAST_NANOS: Nanos = 10_000_000_000;
    const PROBE_NANOS: Nanos = 200_000_000;
    /// Headroom that Linux adds to the window, in seconds: three bursts of a millisecond, and the
    /// effect of aggregated acknowledgements. With this it gets 0.85 of a link of 10 ms against
    /// CUBIC, as in the test bed; with half of that, a half.
    const BURSTS: f64 = 6e-3;

    fn new() -> Bbr {
        Bbr {
            mode: Mode::Startup,
            most: VecDeque::from([0.0]),
            round_at: 0,
            is_round: false,
            full: (0.0, 0),
            is_full: false,
            least: (Nanos::MAX, 0),
            window: 10.0,
            before: 0.0,
            conserved_until: None,
            was_recovering: false,
        }
    }

    fn rate(&self) -> f64 {
        self.most.iter().copied().fold(0.0, f64::max)
    }

    /// Packets in flight at a gain.
    fn on_the_way(&self, gain: f64) -> f64 {
        gain * self.rate() * self.least.0.min(Self::PROBE_NANOS) as f64 * 1e-9
    }

    fn gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => Self::HIGH,
            Mode::Drain => 1.0 / Self::HIGH,
            Mode::Cycle { phase, .. } => Self::GAINS[phase],
            Mode::RoundTrip { .. } => 1.0,
        }
    }

    fn cycle(&mut self, ack: &Ack) {
        let Mode::Cycle { phase, since } = self.mode else { return };
        let is_long = ack.now - since > self.least.0;
        let is_over = match phase {
            0 => is_long && (ack.lost > 0 || ack.on_the_way >= self.on_the_way(1.25)),
            1 => is_long || ack.on_the_way <= self.on_the_way(1.0),
            _ => is_long,
        };
        if is_over {
            self.mode = Mode::Cycle { phase: (phase + 1) % 8, since: ack.now };
        }
    }

    fn begin_cycle(&mut self, now: Nanos) {
        // Linux begins in any phase except the second.
        self.mode = Mode::Cycle { phase: 2 + (now / 1000 % 6) as usize, since: now };
    }

    fn round_trip(&mut self, ack: &Ack) {
        let is_expired = ack.now > self.least.1 + Self::LEAST_NANOS;
        if ack.round_trip < self.least.0 || is_expired {
            self.least = (ack.round_trip, ack.now);
        }
        match self.mode {
            Mode::RoundTrip { until: None } if ack.on_the_way <= 4.0 => {
                self.mode = Mode::RoundTrip { until: Some(ack.now + Self::PROBE_NANOS) };
            }
            Mode::RoundTrip { until: Some(until) } if ack.now > until => {
                self.least.1 = ack.now;
                self.window = self.window.max(self.before);
                if self.is_full { self.begin_cycle(ack.now) } else { self.mode = Mode::Startup }
            }
            Mode::RoundTrip { .. } => {}
            _ if is_expired => {
                self.before = self.before.max(self.window);
                self.mode = Mode::RoundTrip { until: None };
            }
            _ => {}
        }
    }

    fn set_window(&mut self, ack: &Ack) {
        if ack.lost > 0 {
            self.window = (self.window - ack.lost as f64).max(1.0);
        }
        if ack.is_recovering && !self.was_recovering {
            self.before = self.window;
            self.window = ack.on_the_way + 1.0;
            self.conserved_until = Some(ack.delivered + ack.on_the_way as u64);
        }
        if self.was_recovering && !ack.is_recovering {
            self.window = self.window.max(self.before);
            self.conserved_until = None;
        }
        self.was_recovering = ack.is_recovering;
        if self.conserved_until.is_some_and(|until| ack.delivered > until) {
            self.conserved_until = None;
            self.window = self.window.max(self.before);
        }
        if self.conserved_until.is_some() {
            self.window = self.window.max(ack.on_the_way + 1.0);
        } else {
            let gain =
                if matches!(self.mode, Mode::Startup | Mode::Drain) { Self::HIGH } else { 2.0 };
            let target = self.on_the_way(gain) + Self::BURSTS * self.rate();
            if self.is_full {
                self.window = (self.window + 1.0).min(target);
            } else if self.window < target || ack.delivered < 10 {
                self.window += 1.0;
            }
        }
        self.window = self.window.max(4.0);
        if matches!(self.mode, Mode::RoundTrip { .. }) {
            self.window = self.window.min(4.0);
        }
    }
}

impl Control for Bbr {
    fn acked(&mut self, ack: &Ack) {
        self.is_round = ack.delivered_before >= self.round_at;
        if self.is_round {
            self.round_at = ack.delivered;
        }
        // While the round trip is probed, rates are application-limited.
        if self.is_round && !matches!(self.mode, Mode::RoundTrip { .. }) {
            self.most.push_back(0.0);
            if self.most.len() > Self::ROUNDS {
                self.most.pop_front();
            }
        }
        if let Some(newest) = self.most.back_mut() {
            *newest = newest.max(ack.rate);
        }
        self.cycle(ack);
        if self.is_round && !self.is_full {
            if self.rate() >= 1.25 * self.full.0 {
                self.full = (self.rate(), 0);
            } else {
                self.full.1 += 1;
                self.is_full = self.full.1 >= 3;
            }
        }
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.on_the_way <= self.on_the_way(1.0) {
            self.begin_cycle(ack.now);
        }
        self.round_trip(ack);
        self.set_window(ack);
    }

    fn timed_out(&mut self) {
        self.window = 4.0;
    }

    fn window(&self) -> f64 {
        self.window
    }

    fn pace(&self) -> Option<f64> {
        let rate = if self.rate() == 0.0 { 10.0 * 1e3 } else { self.rate() };
        Some(0.99 * self.gain() * rate)
    }
}
