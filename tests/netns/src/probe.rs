//! A stream of numbered, timestamped datagrams: the delay of each, and the lost ones.
//!
//! Sender and receiver are threads of this process, so both read one clock. The time of arrival is
//! Linux's timestamp, so scheduling delay of the receiving thread is not counted.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::traffic::socket_overruns;
use crate::{BedError, Namespace};

/// Number and time of sending.
const STAMP_BYTES: usize = 16;

/// Largest payload.
const PAYLOAD_BYTES_MAX: usize = 2048;

/// How often the receiver checks whether it may end.
const PATIENCE: Duration = Duration::from_millis(50);

/// Allowed lateness of a timer: less than the packet interval of any load.
const TIMER_SLACK_NANOS: u32 = 5_000;

/// The priority of iperf3 in a bed.
const NICE: i32 = -20;

/// The stream.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// Destination address; the receiver binds to it.
    pub to: SocketAddr,
    /// UDP payload per packet, 16 to 2048 bytes.
    pub payload_bytes: usize,
    /// Packets per second.
    pub packets_per_second: f64,
    /// How long the sender runs.
    pub length: Duration,
    /// How long the receiver waits after the last packet.
    pub grace: Duration,
    /// Buffer of the receiving socket. `None` is Linux's default, which any program gets and which
    /// drops packets of a large burst.
    pub buffer_bytes: Option<usize>,
}

/// A stream that is being sent.
#[derive(Debug)]
pub struct Probe {
    sender: JoinHandle<u64>,
    receivers: Vec<Receiving>,
}

/// One receiver of it.
#[derive(Debug)]
struct Receiving {
    thread: JoinHandle<Arrivals>,
    host: Namespace,
    overruns_before: u64,
}

/// Result of a stream.
#[derive(Clone, Debug, Default)]
pub struct ProbeOutcome {
    /// Packets that Linux took from the sender.
    pub sent: u64,
    /// Packets received, each counted once.
    pub came: u64,
    /// Of the lost packets, those that arrived but found a full socket buffer: of all sockets of
    /// the receiving host.
    pub overrun: u64,
    /// Packets received more than once.
    pub duplicates: u64,
    /// Packets received after a later one.
    pub overtaken: u64,
    /// Delay of the first copy of each packet, ascending, in milliseconds.
    pub delays_millis: Vec<f64>,
    /// In-order delay of each of these, ascending, in milliseconds: until it and all packets before
    /// it have arrived. Packets that never arrive are left out.
    pub in_order_millis: Vec<f64>,
    /// Arrival times of these, in milliseconds since the start, in order of arrival.
    pub arrivals_millis: Vec<f64>,
}

#[derive(Debug, Default)]
struct Arrivals {
    began: u64,
    /// Send and arrival time of each packet, by number.
    stamps: Vec<Option<(u64, u64)>>,
    last: Option<u64>,
    outcome: ProbeOutcome,
}

impl ProbeOutcome {
    /// Packets lost.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.came)
    }

    /// Share of packets lost.
    pub fn loss(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost() as f64 / self.sent as f64 }
    }

    /// Packets per second received from `from` to `to`, both in milliseconds since the start.
    pub fn rate_between(&self, from: f64, to: f64) -> f64 {
        let came = self.arrivals_millis.iter().filter(|at| (from..to).contains(*at)).count();
        came as f64 * 1e3 / (to - from)
    }

    /// Longest time between two arrivals in milliseconds; 0 with fewer than two.
    pub fn longest_gap_millis(&self) -> f64 {
        let gaps = self.arrivals_millis.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.fold(0.0, f64::max)
    }

    /// The delay that a share of the packets does not exceed, in milliseconds; not a number if none
    /// arrived.
    pub fn quantile_millis(&self, share: f64) -> f64 {
        quantile(&self.delays_millis, share)
    }

    /// The same for the in-order delay.
    pub fn in_order_quantile_millis(&self, share: f64) -> f64 {
        quantile(&self.in_order_millis, share)
    }

    /// Mean delay in milliseconds without the longest tenth, which on a shared machine are packets
    /// delayed by scheduling; not a number if none arrived.
    pub fn trimmed_mean_millis(&self) -> f64 {
        let kept = &self.delays_millis[..self.delays_millis.len() * 9 / 10];
        kept.iter().sum::<f64>() / kept.len() as f64
    }
}

impl Probe {
    /// Starts to send from `sender` to `receiver`.
    ///
    /// # Errors
    /// When the sockets cannot be opened.
    pub fn start(
        sender: &Namespace,
        receiver: &Namespace,
        plan: &ProbePlan,
    ) -> Result<Probe, BedError> {
        Probe::start_to(sender, &[receiver], plan)
    }

    /// Starts to send one stream to receivers that share the address.
    ///
    /// # Errors
    /// When the sockets cannot be opened.
    pub fn start_to(
        sender: &Namespace,
        receivers: &[&Namespace],
        plan: &ProbePlan,
    ) -> Result<Probe, BedError> {
        let any: SocketAddr =
            if plan.to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let outgoing = sender.udp_socket(any)?;
        outgoing.connect(plan.to).map_err(BedError::system("probe"))?;
        let end = Instant::now() + plan.length + plan.grace;
        let receivers = receivers.iter().map(|host| Receiving::start(host, plan, end));
        let receivers = receivers.collect::<Result<_, _>>()?;
        let plan = plan.clone();
        let sender = std::thread::spawn(move || send(&outgoing, &plan));
        Ok(Probe { sender, receivers })
    }

    /// Waits until the planned end; returns the results of the first receiver.
    ///
    /// # Errors
    /// If Linux does not report how many packets found a full buffer.
    pub fn finish(self) -> Result<ProbeOutcome, BedError> {
        Ok(self.finish_all()?.into_iter().next().unwrap_or_default())
    }

    /// The same for all receivers.
    ///
    /// # Errors
    /// As [`Probe::finish`].
    pub fn finish_all(self) -> Result<Vec<ProbeOutcome>, BedError> {
        let sent = self.sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.receivers.into_iter().map(|receiver| receiver.finish(sent)).collect()
    }
}

impl Receiving {
    fn start(host: &Namespace, plan: &ProbePlan, end: Instant) -> Result<Receiving, BedError> {
        let incoming = host.udp_socket(plan.to)?;
        incoming.set_read_timeout(Some(PATIENCE)).map_err(BedError::system("probe"))?;
        setsockopt(&incoming, sockopt::ReceiveTimestampns, &true)
            .map_err(|error| BedError::system("probe")(error.into()))?;
        if let Some(bytes) = plan.buffer_bytes {
            setsockopt(&incoming, sockopt::RcvBufForce, &bytes)
                .map_err(|error| BedError::system("probe")(error.into()))?;
        }
        let packets = (plan.length.as_secs_f64() * plan.packets_per_second).ceil() as usize;
        let (host, overruns_before) = (host.clone(), socket_overruns(host)?);
        let thread = std::thread::spawn(move || receive(&incoming, packets, end));
        Ok(Receiving { thread, host, overruns_before })
    }

    fn finish(self, sent: u64) -> Result<ProbeOutcome, BedError> {
        let arrivals = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let overrun = socket_overruns(&self.host)? - self.overruns_before;
        let in_order_millis = arrivals.in_order_millis();
        let mut outcome = ProbeOutcome { sent, overrun, in_order_millis, ..arrivals.outcome };
        outcome.delays_millis.sort_by(f64::total_cmp);
        outcome.in_order_millis.sort_by(f64::total_cmp);
        Ok(outcome)
    }
}

fn send(socket: &UdpSocket, plan: &ProbePlan) -> u64 {
    be_prompt();
    let mut payload = vec![0x5a; plan.payload_bytes.clamp(STAMP_BYTES, PAYLOAD_BYTES_MAX)];
    let packets = (plan.length.as_secs_f64() * plan.packets_per_second).ceil() as u64;
    let started = Instant::now();
    let mut taken = 0;
    for number in 0..packets {
        let due = Duration::from_secs_f64(number as f64 / plan.packets_per_second);
        let early = due.saturating_sub(started.elapsed());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        payload[..8].copy_from_slice(&number.to_be_bytes());
        payload[8..STAMP_BYTES].copy_from_slice(&wall_nanos().to_be_bytes());
        taken += u64::from(socket.send(&payload).is_ok());
    }
    taken
}

fn receive(socket: &UdpSocket, packets: usize, end: Instant) -> Arrivals {
    be_prompt();
    let (began, stamps) = (wall_nanos(), vec![None; packets]);
    let mut arrivals = Arrivals { began, stamps, ..Arrivals::default() };
    arrivals.outcome.delays_millis.reserve(packets);
    arrivals.outcome.arrivals_millis.reserve(packets);
    let mut buffer = [0; PAYLOAD_BYTES_MAX];
    let mut control = nix::cmsg_space!(TimeSpec);
    while Instant::now() < end && arrivals.outcome.came < packets as u64 {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::empty();
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags);
        // An error is a time without packets.
        let Ok(message) = message else { continue };
        let stamp = message.cmsgs().ok().and_then(|mut messages| {
            messages.find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
                _ => None,
            })
        });
        let (bytes, at) = (message.bytes, stamp.map_or_else(wall_nanos, nanos));
        arrivals.note(&buffer[..bytes], at);
    }
    arrivals
}

impl Arrivals {
    fn note(&mut self, payload: &[u8], at: u64) {
        let word = |start: usize| {
            let bytes = payload.get(start..start + 8)?;
            bytes.try_into().ok().map(u64::from_be_bytes)
        };
        let (Some(number), Some(sent)) = (word(0), word(8)) else { return };
        let Some(stamps) = self.stamps.get_mut(number as usize) else { return };
        if stamps.is_some() {
            self.outcome.duplicates += 1;
            return;
        }
        *stamps = Some((sent, at));
        self.outcome.came += 1;
        self.outcome.overtaken += u64::from(self.last.is_some_and(|last| number < last));
        self.last = self.last.max(Some(number));
        self.outcome.arrivals_millis.push(at.saturating_sub(self.began) as f64 / 1e6);
        self.outcome.delays_millis.push(at.saturating_sub(sent) as f64 / 1e6);
    }

    fn in_order_millis(&self) -> Vec<f64> {
        let came = self.stamps.iter().flatten();
        let waits = came.scan(0, |latest, (sent, at)| {
            *latest = (*at).max(*latest);
            Some(latest.saturating_sub(*sent) as f64 / 1e6)
        });
        waits.collect()
    }
}

/// The value that a share of `ascending` does not exceed.
fn quantile(ascending: &[f64], share: f64) -> f64 {
    let last = ascending.len().saturating_sub(1);
    let index = (share * last as f64).round() as usize;
    ascending.get(index).copied().unwrap_or(f64::NAN)
}

/// Lets the calling thread wake in time, before programs that do not measure. Without this
/// privilege, packets are sent a little less evenly.
fn be_prompt() {
    let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS.into());
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// Time since 1970, the clock of Linux's packet timestamps.
fn wall_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanos)
}

fn nanos(time: Duration) -> u64 {
    // Enough until 2554.
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_delay_lasts_until_all_before_have_arrived_and_lost_packets_do_not_count() {
        const MILLI: u64 = 1_000_000;
        let mut arrivals = Arrivals { stamps: vec![None; 5], ..Arrivals::default() };
        // One packet per millisecond; number 1 takes 9 ms, number 3 is lost.
        for (number, delay) in [(0, 2), (2, 2), (4, 2), (1, 9)] {
            let sent = number * MILLI;
            let payload = [number.to_be_bytes(), sent.to_be_bytes()].concat();
            arrivals.note(&payload, sent + delay * MILLI);
        }
        assert_eq!(arrivals.in_order_millis(), [2.0, 9.0, 8.0, 6.0]);
        assert_eq!(arrivals.outcome.delays_millis, [2.0, 2.0, 2.0, 9.0]);
        assert_eq!(arrivals.outcome.overtaken, 1);
    }
}
