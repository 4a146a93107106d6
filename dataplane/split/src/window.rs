//! The window of the streams between the edges: congestion control for a path that loses nothing.
//!
//! The tunnel repairs losses, and delivers datagrams out of order, so that one that seems lost is
//! late. What says that too much is in flight is the queue of the tunnel (FQ-CoDel, RFC 8290), by
//! marks (RFC 3168), or by drops of many when it is full. So the window doubles each round trip
//! until the first signal, and then stays at what the path delivers:
//!
//! ```text
//!  start:  + acknowledged bytes            signal -> rate * least round trip * ABOVE,
//!  steady: + 1/GROWTH each round trip                 between FALL_MOST and FALL of the window
//! ```
//!
//! A mean round trip that is far above the least one ends the start, too: the queue then holds more
//! than its marks have said. Less changes nothing, as repairs make round trips vary: that ends the
//! slow start of the hosts' own CUBIC (HyStart, RFC 9406).

use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Packets of the first window.
const FIRST_PACKETS: u64 = 32;

/// Packets of the least window.
const LEAST_PACKETS: u64 = 4;

/// Most bytes in flight: 400 Mbit/s over 600 ms.
const MOST_BYTES: u64 = 32 << 20;

/// The window grows by one part in this many each round trip.
const GROWTH: u64 = 16;

/// After a signal: bytes in flight as a multiple of the bandwidth-delay product, and the largest
/// and the smallest part of the window that is kept.
const ABOVE: f64 = 1.1;
const FALL: f64 = 0.95;
const FALL_MOST: f64 = 0.7;

/// Part of the window that is lost in a round trip if the queue is full.
const MANY: u64 = 8;

/// A start ends when the mean round trip exceeds the least one by this part, and this time.
const LONGER: u32 = 5;
const LONGER_TIME: Duration = Duration::from_millis(10);

/// Part of the highest rate that remains after a round trip.
const RATE_LEFT: f64 = 0.95;

/// State of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    packet: u64,
    bytes: u64,
    is_start: bool,
    /// Signals about packets sent before belong to the last one.
    signalled: Instant,
    /// The present round trip: when it began, and bytes acknowledged since.
    began: Instant,
    delivered: u64,
    lost: u64,
    /// Highest recent rate in bytes per second, and the least round trip.
    rate: f64,
    least: Duration,
}

/// Makes a window for each connection.
#[derive(Debug)]
pub(crate) struct Windows;

impl ControllerFactory for Windows {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Window::new(now, current_mtu))
    }
}

impl Window {
    fn new(now: Instant, mtu: u16) -> Window {
        let packet = u64::from(mtu);
        Window {
            packet,
            bytes: FIRST_PACKETS * packet,
            is_start: true,
            signalled: now,
            began: now,
            delivered: 0,
            lost: 0,
            rate: 0.0,
            least: Duration::MAX,
        }
    }

    /// Notes bytes that were acknowledged at `now` of a packet sent at `sent`.
    fn acknowledged(&mut self, bytes: u64, sent: Instant, now: Instant) {
        self.delivered += bytes;
        if sent < self.began {
            return;
        }
        let seconds = now.duration_since(self.began).as_secs_f64().max(1e-4);
        let rate = self.delivered as f64 / seconds;
        self.rate = rate.max(RATE_LEFT * self.rate);
        (self.began, self.delivered, self.lost) = (now, 0, 0);
    }

    fn grow(&mut self, bytes: u64) {
        let more = if self.is_start { bytes } else { bytes / GROWTH };
        self.bytes = (self.bytes + more).min(MOST_BYTES);
    }

    /// Too much is in flight, as a packet sent at `sent` shows.
    fn signal(&mut self, sent: Instant, now: Instant) {
        if sent < self.signalled {
            return;
        }
        (self.signalled, self.is_start) = (now, false);
        let held = self.rate * self.least.min(Duration::from_secs(1)).as_secs_f64();
        let window = self.bytes as f64;
        let bytes = (ABOVE * held).clamp(FALL_MOST * window, FALL * window);
        self.bytes = (bytes as u64).max(LEAST_PACKETS * self.packet);
    }
}

impl Controller for Window {
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.least = rtt.min();
        self.acknowledged(bytes, sent, now);
        if self.is_start && rtt.get() > self.least + self.least / LONGER + LONGER_TIME {
            self.signal(sent.max(self.signalled), now);
        }
        if !app_limited {
            self.grow(bytes);
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        _is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.lost += lost_bytes;
        // A mark comes without lost bytes.
        if lost_bytes == 0 || self.lost > self.bytes / MANY {
            self.signal(sent, now);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.packet = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        self.bytes
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        FIRST_PACKETS * self.packet
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(100);

    /// A path of 100 MB/s and 100 ms, whose queue signals above 12 MB in flight.
    fn run(window: &mut Window, round_trips: u32, from: Instant) -> Vec<u64> {
        let mut at = from;
        window.least = TRIP;
        (0..round_trips)
            .map(|_| {
                let took = TRIP.max(Duration::from_secs_f64(window.bytes as f64 / 1e8));
                let bytes = window.bytes;
                window.acknowledged(bytes, at, at + took);
                window.grow(bytes);
                if bytes > 12_000_000 {
                    window.signal(at, at + took);
                }
                at += took;
                window.bytes
            })
            .collect()
    }

    #[test]
    fn window_doubles_until_the_first_signal_and_then_stays_near_what_the_path_holds() {
        let begin = Instant::now();
        let mut window = Window::new(begin, 1400);
        let windows = run(&mut window, 60, begin);
        assert!(windows[..8].windows(2).all(|pair| pair[1] == 2 * pair[0]), "{windows:?}");
        let later = &windows[16..];
        assert!(later.iter().all(|bytes| (9_000_000..14_000_000).contains(bytes)), "{later:?}");
    }

    #[test]
    fn signals_of_one_round_trip_count_once_and_leave_some_packets() {
        let begin = Instant::now();
        let mut window = Window::new(begin, 1400);
        let at = |millis| begin + Duration::from_millis(millis);
        window.signal(at(10), at(100));
        let once = window.bytes;
        window.signal(at(20), at(101));
        assert_eq!(window.bytes, once);
        for round in 2..40 {
            window.signal(at(100 * round), at(100 * round + 100));
        }
        assert_eq!(window.bytes, LEAST_PACKETS * 1400);
    }

    #[test]
    fn window_has_a_bound() {
        let mut window = Window::new(Instant::now(), 1400);
        (0..100).for_each(|_| window.grow(window.bytes));
        assert_eq!(window.bytes, MOST_BYTES);
    }
}
