//! One contender on one line: all that is measured of it.

use std::net::SocketAddr;
use std::time::Duration;

use recoded_netns::probe::{Probe, ProbeOutcome, ProbePlan};
use recoded_netns::stream::{Stream, StreamOutcome};
use recoded_netns::{Bed, BedError, DirectionConfig, LinkConfig, LinkCounters, Loss};

use crate::cores::Ticks;
use crate::error::BenchError;
use crate::line::case::Case;
use crate::line::contender::{Contender, Kind, Running};
use crate::median::median;

/// Time after a rate change that is not counted.
const SETTLE_SECONDS: f64 = 2.0;

/// Port of the stream of others.
const BESIDE_PORT: u16 = 5203;

/// Duration of the datagram measurements; voice takes longer, because it has few datagrams.
const DATAGRAM_TIME: Duration = Duration::from_secs(3);
const VOICE_TIME: Duration = Duration::from_secs(4);

/// TCP payload of a full packet without tunnel.
const SEGMENT_BYTES: f64 = 1448.0;

/// How often the queue is looked at while the rate is low.
const QUEUE_STEP: Duration = Duration::from_millis(20);

/// Largest TCP buffers of the ends on lines that need more than the defaults.
const BUFFER_BYTES: u64 = 64 << 20;

/// One run of a contender on a line.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Sample {
    /// Number of its run.
    pub run: u16,
    /// Seed of the losses.
    pub seed: u64,
    /// Streams, one per congestion control.
    pub streams: Vec<StreamSample>,
    /// 250 datagrams of 200 bytes per second, without other traffic.
    pub idle: Option<Datagrams>,
    /// 100 Mbit/s of 1300 bytes, without other traffic.
    pub load: Option<Datagrams>,
    /// 50 datagrams of 200 bytes per second, without other traffic.
    pub voice: Option<Datagrams>,
}

/// A TCP stream, and the probe that runs alongside.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StreamSample {
    /// Congestion control of its sender.
    pub control: &'static str,
    /// Goodput.
    pub mbit: f64,
    /// Share of the line's capacity; for twins, of both together.
    pub of_limit: f64,
    /// Packets seen by each eastward link per IP packet that the tunnel carried; without tunnel,
    /// per full segment received.
    pub packets_per_symbol: Vec<f64>,
    /// Longest wait in the queue of each link eastward, in milliseconds.
    pub queue_max_ms: Vec<f64>,
    /// Packets that found a full queue, eastward, all links.
    pub queue_drops: u64,
    /// Goodput tenth by tenth of a second, from the start.
    pub tenths_mbit: Vec<f64>,
    /// If the rate falls and rises again: goodput before the fall, from two seconds after it, and
    /// from two seconds after the rise, as shares of the limit at that time.
    pub steps_of_limit: Option<[f64; 3]>,
    /// If the rate falls: median queueing delay at the first link, from two seconds after the fall
    /// to the rise, in milliseconds.
    pub standing_queue_ms: Option<f64>,
    /// Goodput of the competing stream, or of the other twin, in the same time.
    pub beside_mbit: Option<f64>,
    /// Jain's index of the goodput of twins: 1 if both are the same, 0.5 if one has all.
    pub jain: Option<f64>,
    /// The concurrent probe.
    pub probe: Datagrams,
    /// Processor time of daemons or proxies, in seconds per second.
    pub cores: f64,
    /// The same for the links, including kernel work for receiving hosts.
    pub cores_links: f64,
    /// Cores that were not idle, including the emulator, the ends and other programs.
    pub cores_busy: f64,
}

/// Result of a stream of datagrams.
#[derive(Copy, Clone, Debug, serde::Serialize)]
pub struct Datagrams {
    /// Packets sent.
    pub sent: u64,
    /// Packets that the application did not get.
    pub lost: u64,
    /// Lost packets that found the socket buffer full.
    pub overrun: u64,
    /// One-way delay in milliseconds.
    pub p50_ms: f64,
    /// The same.
    pub p99_ms: f64,
    /// The same.
    pub max_ms: f64,
    /// In-order delay: until it and all packets before it have arrived, lost ones left out.
    pub in_order_p99_ms: f64,
    /// Longest interval without an arrival, in milliseconds.
    pub gap_max_ms: f64,
    /// Bytes on the first link per byte of IP that the tunnel carried.
    pub bytes_ratio: Option<f64>,
}

/// Setup of a measurement.
pub struct Setup<'a> {
    pub case: &'a Case,
    pub contender: &'a Contender,
    /// Seconds of a stream that count.
    pub seconds: u64,
    pub cores: &'a [usize],
}

impl Setup<'_> {
    /// Builds a line, sets the contender up and measures.
    ///
    /// # Errors
    /// [`BenchError`] if a program fails.
    pub fn take(&self, run: u16, seed: u64) -> Result<Sample, BenchError> {
        let mut bed = Bed::build(&self.case.bed(seed)).map_err(BenchError::Bed)?;
        if self.case.needs_buffers() {
            enlarge_buffers(&bed)?;
        }
        if let Some(mtu) = self.case.middle_mtu {
            for side in ["west", "east"] {
                let link = bed.link(self.case.hops / 2 + 1);
                link.ip(&format!("link set {side} mtu {mtu}")).map_err(BenchError::Bed)?;
            }
        }
        let twins = self.case.twins.then(|| bed.build_beside()).transpose();
        let twins = twins.map_err(BenchError::Bed)?;
        let mut line = vec![self.contender.start(&bed)?];
        if let Some(twins) = &twins {
            line.push(self.contender.start(twins)?);
        }
        let streams = self.contender.controls().iter();
        let streams =
            streams.map(|control| self.stream(&mut bed, twins.as_ref(), &mut line, control));
        let mut sample = Sample {
            run,
            seed,
            streams: streams.collect::<Result<_, _>>()?,
            idle: None,
            load: None,
            voice: None,
        };
        // Linux treats datagrams alike with any TCP congestion control.
        let is_other = self.contender.kind != Kind::Plain("cubic") && !self.contender.is_tunnel();
        if self.case.datagrams && !is_other {
            // Wait until the backlog of the stream has drained.
            std::thread::sleep(Duration::from_millis(500) + self.case.round_trip());
            let plan = |payload, rate, time| self.datagrams(&line[0], payload, rate, time);
            let idle = plan(172, 250.0, DATAGRAM_TIME);
            let voice = plan(172, 50.0, VOICE_TIME);
            let load = plan(1300, 100e6 / 8.0 / 1300.0, DATAGRAM_TIME);
            sample.idle = Some(self.measure(&bed, &line, &idle)?);
            sample.voice = Some(self.measure(&bed, &line, &voice)?);
            sample.load = Some(self.measure(&bed, &line, &load)?);
        }
        Ok(sample)
    }

    fn stream(
        &self,
        bed: &mut Bed,
        twins: Option<&Bed>,
        line: &mut [Running],
        control: &'static str,
    ) -> Result<StreamSample, BenchError> {
        let stream = self.connect(bed, &line[0], control)?;
        let beside = match (twins, self.case.beside) {
            (Some(twins), _) => Some(open(twins, &line[1], control)?),
            (None, Some(control)) => Some(open_beside(bed, control)?),
            (None, None) => None,
        };
        stream.wait_until(self.case.omitted());
        let time = Duration::from_secs(self.seconds);
        let plan = self.datagrams(&line[0], 172, 250.0, time);
        bed.reset_sojourns().map_err(BenchError::Bed)?;
        let before = self.readings(bed, line)?;
        let probe = Probe::start(bed.source(), bed.sink(), &plan).map_err(BenchError::Bed)?;
        let mut queue = Vec::new();
        if let Some(rate) = self.case.rate_falls_to {
            queue = self.change_rate(bed, &stream, rate)?;
        }
        if self.case.relay_killed {
            stream.wait_until(self.case.omitted() + time / 2);
            let relay = &mut line[0].daemons[self.case.hops / 2];
            relay.kill();
            relay.spawn_again().map_err(BenchError::Bed)?;
            relay.wait_until_it_answers().map_err(BenchError::Bed)?;
        }
        stream.wait_until(self.case.omitted() + time);
        let mut after = self.readings(bed, line)?;
        let (outcome, beside) = (stream.finish(), beside.map(Stream::finish));
        let probe = probe.finish().map_err(BenchError::Bed)?;
        // A daemon that was killed took its count with it.
        after.processor_seconds = after.processor_seconds.max(before.processor_seconds);
        let standing_queue_ms = (!queue.is_empty()).then(|| median(queue));
        let sample = self.evaluate(control, &outcome, beside.as_ref(), &probe, &before, &after);
        Ok(StreamSample { standing_queue_ms, ..sample })
    }

    /// Opens the stream. Without a tunnel, connections rarely open on a line with high loss. That
    /// is not the subject of the measurement, so the line is lossless until the stream is open.
    fn connect(
        &self,
        bed: &mut Bed,
        running: &Running,
        control: &str,
    ) -> Result<Stream, BenchError> {
        let configs: Vec<LinkConfig> =
            (1..=bed.hops()).map(|number| bed.link_config(number)).collect();
        if !self.contender.is_tunnel() {
            bed.set_loss(Loss::independent(0.0)).map_err(BenchError::Bed)?;
        }
        let stream = open(bed, running, control)?;
        for (number, config) in (1..).zip(configs) {
            bed.set_link(number, config).map_err(BenchError::Bed)?;
        }
        Ok(stream)
    }

    /// Changes the rate of the first link in the second third of the time. Returns the queueing
    /// delay there in milliseconds, from [`SETTLE_SECONDS`] after the fall to the rise.
    fn change_rate(
        &self,
        bed: &mut Bed,
        stream: &Stream,
        rate: f64,
    ) -> Result<Vec<f64>, BenchError> {
        let third = Duration::from_secs_f64(self.seconds as f64 / 3.0);
        let config = bed.link_config(1);
        let slow = |way: DirectionConfig| DirectionConfig { rate_mbit: rate, ..way };
        let (eastward, westward) = (slow(config.eastward), slow(config.westward));
        let (fall, rise) = (self.case.omitted() + third, self.case.omitted() + 2 * third);
        stream.wait_until(fall);
        bed.set_link(1, LinkConfig { eastward, westward, ..config }).map_err(BenchError::Bed)?;
        let mut queue = Vec::new();
        let mut at = fall + Duration::from_secs_f64(SETTLE_SECONDS);
        while at < rise {
            stream.wait_until(at);
            let links = bed.counters().map_err(BenchError::Bed)?;
            queue.push(links[0].eastward.queue.as_secs_f64() * 1e3);
            at += QUEUE_STEP;
        }
        stream.wait_until(rise);
        bed.set_link(1, config).map_err(BenchError::Bed)?;
        Ok(queue)
    }

    fn datagrams(
        &self,
        running: &Running,
        payload_bytes: usize,
        packets_per_second: f64,
        length: Duration,
    ) -> ProbePlan {
        ProbePlan {
            to: SocketAddr::new(running.datagrams, 7000),
            payload_bytes,
            packets_per_second,
            length,
            grace: Duration::from_millis(500) + self.case.round_trip(),
            buffer_bytes: None,
        }
    }

    fn measure(
        &self,
        bed: &Bed,
        line: &[Running],
        plan: &ProbePlan,
    ) -> Result<Datagrams, BenchError> {
        let before = self.readings(bed, line)?;
        let probe = Probe::start(bed.source(), bed.sink(), plan).map_err(BenchError::Bed)?;
        let outcome = probe.finish().map_err(BenchError::Bed)?;
        let after = self.readings(bed, line)?;
        let carried = after.carried.1 - before.carried.1;
        let sent = after.links[0].since(&before.links[0]).eastward.bytes;
        let ratio = sent as f64 / carried as f64;
        let bytes_ratio = (self.contender.is_tunnel() && carried > 0).then_some(ratio);
        Ok(Datagrams { bytes_ratio, ..summary(&outcome) })
    }

    fn readings(&self, bed: &Bed, line: &[Running]) -> Result<Readings, BenchError> {
        let mut carried = (0, 0);
        let mut processor_seconds = 0.0;
        for running in line {
            processor_seconds += running.processor_seconds()?;
            if self.contender.is_tunnel() {
                // Linux counts segments that it has yet to split as one packet.
                let state = running.daemons[0].show().map_err(BenchError::Bed)?;
                let flow = state.flows.first();
                let count = |name| flow.map_or(0, |flow| flow.count(name));
                carried.0 += count("ingress_packets");
                carried.1 += count("ingress_bytes");
            }
        }
        Ok(Readings {
            links: bed.counters().map_err(BenchError::Bed)?,
            carried,
            processor_seconds,
            link_seconds: bed.processor_time().map_err(BenchError::Bed)?.as_secs_f64(),
            ticks: self.cores.iter().map(|core| Ticks::read(&[*core])).collect::<Result<_, _>>()?,
        })
    }

    fn evaluate(
        &self,
        control: &'static str,
        outcome: &StreamOutcome,
        beside: Option<&StreamOutcome>,
        probe: &ProbeOutcome,
        before: &Readings,
        after: &Readings,
    ) -> StreamSample {
        let (start, time) = (self.case.omitted().as_secs_f64(), self.seconds as f64);
        let mbit = outcome.mbit_between(start, start + time);
        let beside_mbit = beside.map(|beside| beside.mbit_between(start, start + time));
        let twin_mbit = beside_mbit.filter(|_| self.case.twins);
        let both_mbit = mbit + twin_mbit.unwrap_or(0.0);
        let limit = self.case.limit_mbit(self.contender.is_tunnel());
        let symbols = if self.contender.is_tunnel() {
            (after.carried.0 - before.carried.0) as f64
        } else {
            both_mbit * 1e6 / 8.0 * time / SEGMENT_BYTES
        };
        let links = after.links.iter().zip(&before.links);
        let links: Vec<_> = links.map(|(after, before)| after.since(before).eastward).collect();
        let busy = after.ticks.iter().zip(&before.ticks);
        let rate = self.case.rate_mbit;
        let steps = |slow: f64| {
            let third = time / 3.0;
            let share = |from: f64, to: f64, limit: f64| {
                outcome.mbit_between(start + from, start + to) / limit
            };
            [
                share(0.0, third, limit),
                share(third + SETTLE_SECONDS, 2.0 * third, limit * slow / rate),
                share(2.0 * third + SETTLE_SECONDS, time, limit),
            ]
        };
        StreamSample {
            control,
            mbit,
            // On lines with a rate drop, the rate is low for a third of the time.
            of_limit: both_mbit / limit * 3.0
                / (2.0 + self.case.rate_falls_to.map_or(1.0, |slow| slow / rate)),
            packets_per_symbol: links.iter().map(|link| link.seen as f64 / symbols).collect(),
            queue_max_ms: links.iter().map(|l| l.sojourn_max.as_secs_f64() * 1e3).collect(),
            queue_drops: links.iter().map(|link| link.queue_drops).sum(),
            tenths_mbit: outcome.bytes.iter().map(|bytes| *bytes as f64 * 8e-5).collect(),
            steps_of_limit: self.case.rate_falls_to.map(steps),
            standing_queue_ms: None,
            beside_mbit,
            jain: twin_mbit.map(|twin| both_mbit.powi(2) / (2.0 * (mbit.powi(2) + twin.powi(2)))),
            probe: summary(probe),
            cores: (after.processor_seconds - before.processor_seconds) / time,
            cores_links: (after.link_seconds - before.link_seconds) / time,
            cores_busy: busy.map(|(after, before)| 1.0 - after.since(before).idle).sum(),
        }
    }
}

/// Opens a stream that a contender carries.
fn open(bed: &Bed, running: &Running, control: &str) -> Result<Stream, BenchError> {
    let (source, sink) = (bed.source(), bed.sink());
    Stream::start(source, running.to, sink, running.listen, control).map_err(BenchError::Bed)
}

/// Opens the stream of others, which Linux forwards.
fn open_beside(bed: &Bed, control: &str) -> Result<Stream, BenchError> {
    let to = SocketAddr::new(bed.sink_address(), BESIDE_PORT);
    Stream::start(bed.source(), to, bed.sink(), to, control).map_err(BenchError::Bed)
}

/// Counters at one time.
struct Readings {
    links: Vec<LinkCounters>,
    /// IP packets and bytes that entered the tunnel.
    carried: (u64, u64),
    processor_seconds: f64,
    link_seconds: f64,
    ticks: Vec<Ticks>,
}

/// Summarises a probe.
pub fn summary(outcome: &ProbeOutcome) -> Datagrams {
    Datagrams {
        sent: outcome.sent,
        lost: outcome.lost(),
        overrun: outcome.overrun,
        p50_ms: outcome.quantile_millis(0.5),
        p99_ms: outcome.quantile_millis(0.99),
        max_ms: outcome.quantile_millis(1.0),
        in_order_p99_ms: outcome.in_order_quantile_millis(0.99),
        gap_max_ms: outcome.longest_gap_millis(),
        bytes_ratio: None,
    }
}

/// Gives all hosts TCP buffers that fill the line, up to [`BUFFER_BYTES`].
fn enlarge_buffers(bed: &Bed) -> Result<(), BenchError> {
    for host in bed.hosts() {
        for (name, middle) in [("tcp_rmem", 131_072), ("tcp_wmem", 16_384)] {
            let value = format!("4096 {middle} {BUFFER_BYTES}");
            host.sysctl(&format!("net.ipv4.{name}"), &value)
                .map_err(|error: BedError| BenchError::Bed(error))?;
        }
    }
    Ok(())
}
