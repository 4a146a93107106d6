//! The near end: a session with a listener, and the measurements in turn.
//!
//! ```text
//!  meet -> largest packets -> round trips -> rate -> losses -> queue
//!                                            └─── there, then back ───┘
//! ```
//!
//! Reports of the listener are used only if plausible. They determine no allocation size, and can
//! abort nothing but this measurement.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::error::MeasureError;
use crate::listen::is_remote;
use crate::measured::{Measured, OneWayMeasurement, RoundTrip, Sums};
use crate::packet::{Body, OPENING_BYTES, PORT, ParseError, Refusal, Token};
use crate::ramp::{self, Losses, Rate, TrainShape};
use crate::socket::{Endpoint, Received, header_bytes, interface};
use crate::summary::Summary;
use crate::train::{Arrivals, TrainPlan, be_prompt, send, wall_nanos};

mod mtu;

/// Ethernet header, which rates include.
pub const ETHERNET_BYTES: u16 = 14;

/// Size of packets in trains, if the path carries it.
const PACKET_BYTES_MAX: u16 = 1500;

/// Opening packets and the interval between them: three seconds in all before giving up.
const OPENINGS: u32 = 12;
const OPENING_PATIENCE: Duration = Duration::from_millis(250);

/// Number of pings, and the interval between them.
const PINGS: u32 = 150;
const PING_PAUSE: Duration = Duration::from_millis(6);

/// Attempts of a request before its response counts as lost for good. Each attempt sends one more
/// copy: a channel whose loss bursts are counted in packets, not in time, must be driven out of its
/// bad state.
const ASKED_MAX: u32 = 12;

/// Allowance for late packets of a train in addition to the round trip: queues, jitter, reordering.
const LATE: Duration = Duration::from_millis(150);

/// Grace period for packets that are overtaken by the query about their train.
const GRACE: Duration = Duration::from_millis(12);

/// Share of the rate at which losses are measured, and the upper limit in packets a second.
const LOSS_RATE_SHARE: f64 = 0.6;
const LOSS_PACKETS_PER_SECOND: f64 = 8000.0;
const LOSS_TRAIN_SECONDS: f64 = 0.4;

/// Queue growth at which loss trains back off: the rate was overestimated.
const GROWTH_NANOS: u64 = 20_000_000;
const BACK_OFF: f64 = 0.7;

/// Filling the queue: factor above the rate, and duration.
const FILLING: f64 = 1.5;
const FILLING_SECONDS: f64 = 0.12;

/// Options of a measurement.
#[derive(Copy, Clone, Debug)]
pub struct MeasurementOptions {
    /// Time for measuring losses, both directions together.
    pub seconds: f64,
    /// Highest rate in either direction.
    pub rate_max_mbit: f64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Direction {
    There,
    Back,
}

/// A session.
struct Client {
    endpoint: Endpoint,
    remote: SocketAddr,
    token: Token,
    /// Round trip estimate, for timeouts.
    round_trip: Duration,
    rate_max_mbit: f64,
    arrivals: Arrivals,
    train: u32,
    notes: Vec<String>,
    /// Packets dropped by a full socket buffer at either host.
    overruns: u64,
}

/// Measures the path to a listener. `progress` receives the current step.
///
/// # Errors
/// No listener answers, or it stops answering.
pub fn measure(
    host: &str,
    options: &MeasurementOptions,
    mut progress: impl FnMut(&str),
) -> Result<Measured, MeasureError> {
    be_prompt();
    let remote = resolve(host)?;
    progress(&format!("asking {remote}"));
    let mut client = Client::meet(remote, options.rate_max_mbit)?;
    let outcome = client.all(options, &mut progress);
    client.say(Body::Bye, 0).ok();
    outcome
}

/// Resolves a host that is given with or without a port.
fn resolve(host: &str) -> Result<SocketAddr, MeasureError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // The colons of a bare IPv6 address are its own.
    let port = host.rsplit_once(':').filter(|_| bare.parse::<IpAddr>().is_err());
    if let Some((_, port)) = port
        && port.parse::<u64>().is_ok_and(|port| port > u64::from(u16::MAX))
    {
        return Err(MeasureError::Port(port.to_owned()));
    }
    let found = match bare.parse() {
        Ok(address) => return Ok(SocketAddr::new(address, PORT)),
        Err(_) if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            host.to_socket_addrs()
        }
        Err(_) => (host, PORT).to_socket_addrs(),
    };
    let none = || io::Error::other("no address");
    found
        .and_then(|mut found| found.next().ok_or_else(none))
        .map_err(|source| MeasureError::Resolve { host: host.to_owned(), port: PORT, source })
}

impl Client {
    fn meet(remote: SocketAddr, rate_max_mbit: f64) -> Result<Client, MeasureError> {
        let any: SocketAddr =
            if remote.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
        let endpoint = Endpoint::bind(any)?;
        endpoint.socket().connect(remote).map_err(|error| failed(remote, error))?;
        let mut client = Client {
            endpoint,
            remote,
            token: [0; 16],
            round_trip: OPENING_PATIENCE,
            rate_max_mbit,
            arrivals: Arrivals::default(),
            train: 0,
            notes: Vec::new(),
            overruns: 0,
        };
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
        let nonce = u64::from_be_bytes(nonce);
        let asked = Instant::now();
        client.token = client.open(Body::Hello { nonce }, |packet, token| match packet {
            Body::Cookie { nonce: own } if own == nonce => Some(token),
            _ => None,
        })?;
        client.round_trip = asked.elapsed().max(Duration::from_millis(20));
        let limit = client.open(Body::Open { nonce }, |packet, _| match packet {
            Body::Opened { nonce: own, rate_max_kbit, .. } if own == nonce => Some(rate_max_kbit),
            _ => None,
        })?;
        let limit_mbit = f64::from(limit.max(1)) / 1e3;
        if limit_mbit < client.rate_max_mbit {
            client.notes.push(format!("the far end allows {limit_mbit} Mbit/s at most"));
            client.rate_max_mbit = limit_mbit;
        }
        Ok(client)
    }

    /// Repeats a request until a valid response arrives.
    fn open<T>(
        &mut self,
        body: Body,
        answer: impl Fn(Body, Token) -> Option<T>,
    ) -> Result<T, MeasureError> {
        let remote = self.remote;
        let mut refused = None;
        for tried in 0..OPENINGS {
            let copies = 0..=(tried / 2);
            let said = copies.into_iter().try_for_each(|_| self.say(body, OPENING_BYTES));
            if let Err(error) = said {
                // An ICMP error may stem from an earlier packet, or from a listener that is
                // starting.
                refused = Some(error);
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            let until = Instant::now() + OPENING_PATIENCE.max(self.round_trip * 2);
            while let Some(left) = left(until) {
                let received = match self.endpoint.receive(left) {
                    Ok(Some(received)) => received,
                    Ok(None) => continue,
                    Err(error) => {
                        refused = Some(failed(remote, error));
                        break;
                    }
                };
                match received.packet {
                    Err(ParseError::Version(theirs)) => {
                        return Err(MeasureError::Version { from: remote, theirs });
                    }
                    Ok(packet) => match packet.body {
                        Body::Refused { refusal: Refusal::Busy(seconds), .. } => {
                            return Err(MeasureError::Busy(remote, seconds));
                        }
                        body => {
                            if let Some(answer) = answer(body, packet.token) {
                                return Ok(answer);
                            }
                        }
                    },
                    Err(_) => {}
                }
            }
        }
        Err(refused.unwrap_or(MeasureError::Silent(remote)))
    }

    fn all(
        &mut self,
        options: &MeasurementOptions,
        progress: &mut impl FnMut(&str),
    ) -> Result<Measured, MeasureError> {
        progress("largest packets");
        let (there_mtu, back_mtu) = self.largest()?;
        progress("round trips");
        let round_trip = self.pings()?;
        let seconds = options.seconds / 2.0;
        progress("rate and losses, there");
        let mut there = self.way(Direction::There, there_mtu, seconds)?;
        progress("rate and losses, back");
        let mut back = self.way(Direction::Back, back_mtu, seconds)?;
        (there.mtu, back.mtu) = (there_mtu, back_mtu);
        for (way, name) in [(&there, "there"), (&back, "back")] {
            if way.rate_is_least && way.rate_mbit < 0.9 * self.rate_max_mbit {
                self.notes.push(format!(
                    "{name}, the sending host had no core for more than {:.0} Mbit/s",
                    way.rate_mbit
                ));
            }
        }
        if self.overruns > 0 {
            self.notes.push(format!(
                "{} packets found a host too busy to take them; they do not count as lost",
                self.overruns
            ));
        }
        let local = self.endpoint.socket().local_addr()?;
        Ok(Measured {
            from: local.ip().to_canonical().to_string(),
            interface: interface(local.ip().to_canonical()),
            to: self.remote.ip().to_canonical().to_string(),
            there,
            back,
            round_trip,
            notes: std::mem::take(&mut self.notes),
        })
    }

    fn pings(&mut self) -> Result<RoundTrip, MeasureError> {
        let mut millis: Vec<f64> = Vec::with_capacity(PINGS as usize);
        let mut answered = [false; PINGS as usize];
        for number in 0..PINGS {
            self.say(Body::Ping { number, at: wall_nanos() }, 0)?;
            let until = Instant::now() + PING_PAUSE;
            self.pongs(until, &mut answered, &mut millis)?;
        }
        let until = Instant::now() + self.round_trip * 2 + LATE;
        while left(until).is_some() && millis.len() < PINGS as usize {
            let soon = Instant::now() + Duration::from_millis(20);
            self.pongs(soon.min(until), &mut answered, &mut millis)?;
        }
        millis.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let at = (millis.len() as f64 * share) as usize;
            millis.get(at.min(millis.len().saturating_sub(1))).copied()
        };
        let (Some(min_ms), Some(median_ms), Some(p99_ms)) =
            (quantile(0.0), quantile(0.5), quantile(0.99))
        else {
            return Err(MeasureError::Lost(self.remote, "round trips were measured"));
        };
        self.round_trip = Duration::from_secs_f64((p99_ms / 1e3).clamp(0.001, 4.0));
        Ok(RoundTrip { min_ms, median_ms, p99_ms, answers: millis.len() as u64 })
    }

    fn pongs(
        &mut self,
        until: Instant,
        answered: &mut [bool],
        millis: &mut Vec<f64>,
    ) -> Result<(), MeasureError> {
        while let Some(received) = self.hear(until)? {
            let Some(Body::Pong { number, at, held_nanos }) = self.said(&received) else {
                continue;
            };
            let Some(slot) = answered.get_mut(number as usize) else { continue };
            let nanos = received.at.saturating_sub(at).saturating_sub(u64::from(held_nanos));
            if !std::mem::replace(slot, true) {
                millis.push((nanos as f64 / 1e6).min(1e5));
            }
        }
        Ok(())
    }

    fn way(
        &mut self,
        direction: Direction,
        mtu: u16,
        seconds: f64,
    ) -> Result<OneWayMeasurement, MeasureError> {
        // Larger ones are rare outside of a site, and make trains coarse.
        let packet = mtu.min(PACKET_BYTES_MAX);
        let bits = f64::from(packet + ETHERNET_BYTES) * 8.0;
        let payload_bytes = usize::from(packet - header_bytes(self.remote.ip()));
        let (cap, mut losses) = (self.rate_max_mbit, Losses::default());
        let mut base: Option<i64> = None;
        let found = ramp::find(cap, bits, &mut losses, |shape| {
            let summary = self.train(direction, shape, bits, payload_bytes)?;
            if summary.received > 0 {
                base = Some(base.unwrap_or(i64::MAX).min(summary.way_min_nanos));
            }
            Ok::<_, MeasureError>(summary)
        })?;
        let name = if direction == Direction::There { "there" } else { "back" };
        let Some(mut rate) = found else { return Err(MeasureError::NoTrains(self.remote, name)) };
        let sums = self.losses(direction, bits, payload_bytes, &mut rate, seconds)?;
        let measured_at_mbit = loss_rate(rate.mbit, bits);
        let mbit = (FILLING * rate.mbit).min(cap);
        let packets = (mbit * 1e6 * FILLING_SECONDS / bits).max(48.0) as u32;
        let full = self.train(direction, TrainShape { mbit, packets }, bits, payload_bytes)?;
        let base = base.unwrap_or(full.way_min_nanos).min(full.way_min_nanos);
        let above = full.way_min_nanos.saturating_sub(base).max(0) as f64;
        let sent = full.sent - full.sent / 2;
        let is_full = losses.is_exceeded_by(sent, full.lost_late) && full.overrun == 0;
        Ok(OneWayMeasurement {
            measured_at_mbit,
            rate_mbit: rate.mbit,
            rate_is_least: rate.is_least,
            queue_ms: (above + full.queue_max_nanos as f64) / 1e6,
            queue_is_least: !is_full,
            ..sums.way()
        })
    }

    /// Sends below the rate, and lowers it if a queue grows.
    fn losses(
        &mut self,
        direction: Direction,
        bits: f64,
        payload_bytes: usize,
        rate: &mut Rate,
        seconds: f64,
    ) -> Result<Sums, MeasureError> {
        let mut sums = Sums::default();
        let (mut mbit, began) = (loss_rate(rate.mbit, bits), Instant::now());
        // Queries about trains take time, too; a path with long round trips gets twice the time.
        let (mut sent_seconds, longest) = (0.0, Duration::from_secs_f64(2.0 * seconds + 2.0));
        while sent_seconds < seconds && began.elapsed() < longest {
            let packets = (mbit * 1e6 * LOSS_TRAIN_SECONDS / bits).max(8.0) as u32;
            let summary =
                self.train(direction, TrainShape { mbit, packets }, bits, payload_bytes)?;
            sent_seconds += f64::from(summary.sent) * bits / mbit / 1e6;
            let carried = ramp::carried(&summary, bits, &Losses::default());
            let grew = summary.queue_late_nanos.saturating_sub(summary.queue_early_nanos);
            match carried {
                Some(carried) if grew > GROWTH_NANOS && carried < 0.8 * mbit => {
                    *rate = Rate { mbit: carried, is_least: false };
                    mbit *= BACK_OFF;
                }
                // A packet dropped for lack of room at a host is not a loss of the path.
                _ if summary.overrun == 0 => sums.add(&summary),
                _ => {}
            }
        }
        if sums.packets() == 0 {
            return Err(MeasureError::Lost(self.remote, "losses were measured"));
        }
        Ok(sums)
    }

    /// Sends a train, or requests one; returns its summary.
    fn train(
        &mut self,
        direction: Direction,
        shape: TrainShape,
        bits: f64,
        payload_bytes: usize,
    ) -> Result<Summary, MeasureError> {
        self.train += 1;
        let interval_nanos = (bits * 1e3 / shape.mbit.max(1e-3)) as u64;
        let plan =
            TrainPlan { train: self.train, packets: shape.packets, payload_bytes, interval_nanos };
        let plan = plan.bounded(self.rate_max_mbit * 1e6 / bits * 1.001);
        let summary = match direction {
            Direction::There => self.train_there(&plan),
            Direction::Back => self.train_back(&plan),
        }?;
        self.overruns += u64::from(summary.overrun);
        Ok(summary)
    }

    fn train_there(&mut self, plan: &TrainPlan) -> Result<Summary, MeasureError> {
        let socket = self.endpoint.socket();
        let sent = send(plan, self.token, |bytes| match socket.send(bytes) {
            // The error of an earlier packet.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket.send(bytes),
            sent => sent,
        });
        let sent = sent.map_err(|error| failed(self.remote, error))?;
        std::thread::sleep(GRACE);
        let train = plan.train;
        for tried in 0..ASKED_MAX {
            self.ask(Body::Ask { train, sent }, tried)?;
            let until = Instant::now() + self.round_trip * 3 / 2 + LATE;
            while let Some(received) = self.hear(until)? {
                match self.said(&received) {
                    Some(Body::Report(summary)) if summary.train == train => {
                        let summary = summary.plausible(train, sent);
                        return summary.ok_or(MeasureError::Nonsense(self.remote));
                    }
                    _ => {}
                }
            }
        }
        Err(MeasureError::Lost(self.remote, "trains were sent to it"))
    }

    fn train_back(&mut self, plan: &TrainPlan) -> Result<Summary, MeasureError> {
        let train = plan.train;
        let payload_bytes = u16::try_from(plan.payload_bytes).unwrap_or(u16::MAX);
        let interval_nanos = u32::try_from(plan.interval_nanos).unwrap_or(u32::MAX);
        let ask = Body::Send { train, packets: plan.packets, payload_bytes, interval_nanos };
        self.arrivals.begin(train);
        let mut sent = None;
        for tried in 0..ASKED_MAX {
            self.ask(ask, tried)?;
            let mut until = Instant::now() + self.round_trip * 3 / 2 + plan.length() + LATE;
            while let Some(received) = self.hear(until)? {
                match self.said(&received) {
                    Some(Body::Data { train: own, number, at }) if own == train => {
                        self.arrivals.note(number, at, received.at, received.overrun);
                    }
                    Some(Body::Sent { train: own, sent: packets }) if own == train => {
                        sent = Some(packets.min(plan.packets));
                        until = until.min(Instant::now() + GRACE);
                    }
                    _ => {}
                }
            }
            match sent {
                // The listener's Linux refused to send: try again.
                Some(0) if !self.arrivals.any() => self.round_trip += Duration::from_millis(1),
                Some(sent) => return Ok(self.arrivals.summary(sent)),
                None => {}
            }
        }
        Err(MeasureError::Lost(self.remote, "it was to send trains"))
    }

    /// The body of a packet from the listener in this session.
    fn said(&self, received: &Received) -> Option<Body> {
        let packet = received.packet.ok()?;
        (packet.token == self.token).then_some(packet.body)
    }

    /// Waits for a packet until this time.
    fn hear(&mut self, until: Instant) -> Result<Option<Received>, MeasureError> {
        while let Some(left) = left(until) {
            match self.endpoint.receive(left) {
                Ok(Some(received)) => return Ok(Some(received)),
                Ok(None) => {}
                Err(error) if is_remote(&error) => {}
                Err(error) => return Err(failed(self.remote, error)),
            }
        }
        Ok(None)
    }

    fn ask(&mut self, body: Body, tried: u32) -> Result<(), MeasureError> {
        (0..=tried).try_for_each(|_| self.say(body, 0))
    }

    fn say(&mut self, body: Body, padded_bytes: usize) -> Result<(), MeasureError> {
        let sent = self.endpoint.send(None, self.token, body, padded_bytes);
        match sent {
            // Within a session, this stems from an earlier packet.
            Err(error)
                if self.token != [0; 16] && error.kind() == io::ErrorKind::ConnectionRefused =>
            {
                Ok(())
            }
            sent => sent.map_err(|error| failed(self.remote, error)),
        }
    }
}

fn loss_rate(mbit: f64, bits: f64) -> f64 {
    (LOSS_RATE_SHARE * mbit).min(LOSS_PACKETS_PER_SECOND * bits / 1e6)
}

/// Time left, in whole milliseconds, at least one; `None` if it is over.
fn left(until: Instant) -> Option<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    (!left.is_zero()).then(|| left.max(Duration::from_millis(1)))
}

fn failed(remote: SocketAddr, error: io::Error) -> MeasureError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => MeasureError::NotListening(remote),
        // The last is the error of a route of type blackhole.
        kind @ (io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::InvalidInput) => MeasureError::Unreachable(remote, kind),
        io::ErrorKind::PermissionDenied => MeasureError::Forbidden(remote, error),
        _ => MeasureError::Socket(error),
    }
}
