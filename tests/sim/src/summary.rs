//! Human-readable scenarios and outcomes.

use std::fmt;

use recoded_pipeline::params::Nanos;
use recoded_pipeline::report::{DropReason, FlowCounters};

use crate::code;
use crate::delay::Delays;
use crate::liar::Liar;
use crate::link::Link;
use crate::run_report::RunReport;
use crate::scenario::{Change, Scenario, Threads};
use crate::traffic::Pauses;

/// Shows a scenario.
pub struct Described<'a>(pub &'a Scenario);

/// Shows the outcome of a scenario.
pub struct Summary<'a>(pub &'a Scenario, pub &'a RunReport);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Described(scenario) = self;
        let (source, relay) = (&scenario.nodes[0], &scenario.nodes[1]);
        let traffic = &scenario.traffic;
        writeln!(
            f,
            "seed {}: {}, {} packets of {} to {} bytes, {} every {}",
            scenario.seed,
            shape(scenario),
            traffic.packets,
            traffic.bytes.start(),
            traffic.bytes.end(),
            traffic.burst,
            Time(traffic.interval_nanos),
        )?;
        write!(f, "{}", code::Described(&source.code))?;
        writeln!(
            f,
            " of {} x {} bytes over GF({}), redundancy {:?}, at most {:.2}, {:?} recoding, repair {}",
            source.generation_size,
            source.symbol_bytes,
            source.field,
            source.redundancy,
            source.redundancy_max,
            relay.recoding,
            if source.repair { "on" } else { "off" },
        )?;
        writeln!(
            f,
            "tables of {} generations, {} frames; flush {}, generation {}, hold {}, poll {}",
            source.generations,
            scenario.frames,
            Time(source.flush_timeout_nanos),
            Time(relay.generation_timeout_nanos),
            Time(relay.hold_timeout_nanos),
            Time(scenario.poll_nanos),
        )?;
        let Threads { nanos_max, busy, refused, queue_packets } = scenario.threads;
        writeln!(
            f,
            "{} shards{}{}{}{}, {} inner flows, workers {:?}; stages within {}, {:.0} % busy, {:.0} % refused; {queue_packets} packets handed over wait",
            source.shards,
            if source.sealed { ", sealed" } else { "" },
            match (source.tagged, relay.tagged) {
                (false, _) => "",
                (true, false) => ", tagged",
                (true, true) => ", tagged, verified by relays",
            },
            if source.strict { " by sixteen columns" } else { "" },
            if scenario.hop_tags { ", hops with keys" } else { "" },
            traffic.flows,
            scenario.workers,
            Time(nanos_max),
            100.0 * busy,
            100.0 * refused,
        )?;
        let first = scenario.hops[0].down;
        writeln!(f, "every link, but for losses: {}", Properties(&first))?;
        self.write_changes(f)?;
        self.write_troubles(f)?;
        match &scenario.promise.delivered {
            Some(time) => writeln!(
                f,
                "promised: all that enters from {} until {}",
                Time(time.start),
                Time(time.end)
            ),
            None if scenario.promise.intact => writeln!(f, "promised: integrity and order"),
            None if scenario.promise.genuine => writeln!(f, "promised: integrity"),
            None => writeln!(f, "promised: nothing"),
        }
    }
}

/// The number of hops of a line, or all links of a graph.
fn shape(scenario: &Scenario) -> String {
    let is_line = scenario.edges.iter().enumerate().all(|(hop, edge)| *edge == (hop, hop + 1));
    if is_line {
        return format!("{} hops", scenario.hops.len());
    }
    let links = scenario.edges.iter().map(|(from, to)| format!("{from}-{to}"));
    let spread = scenario.nodes[0].spread;
    format!("links {}, spread {spread:?}", links.collect::<Vec<_>>().join(" "))
}

impl Described<'_> {
    fn write_changes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Described(scenario) = self;
        for (at, change) in &scenario.changes {
            write!(f, "at {}: ", Time(*at))?;
            match change {
                Change::Params { node, params } => writeln!(
                    f,
                    "node {node} changes to {} of {} x {} bytes over GF({}), {:?} recoding",
                    code::Described(&params.code),
                    params.generation_size,
                    params.symbol_bytes,
                    params.field,
                    params.recoding
                )?,
                Change::Rehash { node } => writeln!(f, "queues of node {node} change")?,
                Change::Restart { node } => writeln!(f, "node {node} restarts")?,
                Change::Stop { node, nanos } => {
                    writeln!(f, "node {node} stops for {}", Time(*nanos))?;
                }
                Change::Link { hop, link } => {
                    writeln!(f, "link {} loses {:.1} %", hop + 1, 100.0 * link.down.loss.loss)?;
                }
            }
        }
        Ok(())
    }

    fn write_troubles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Described(scenario) = self;
        if let Some(Pauses { every_bursts, nanos }) = scenario.traffic.pauses {
            writeln!(f, "a pause of {} after every {every_bursts} bursts", Time(nanos))?;
        }
        // Those of all links are alike.
        for attack in scenario.attacks.iter().take(1) {
            writeln!(
                f,
                "{} attacks like this: {:?} attacker of link {}, {}: {} packets from {} to {}, {:?} {:?}",
                scenario.attacks.len(),
                attack.knowledge,
                attack.hop + 1,
                if attack.is_up { "up" } else { "down" },
                attack.packets,
                Time(attack.during.start),
                Time(attack.during.end),
                attack.packet_type,
                attack.forgeries,
            )?;
        }
        for Liar { node, lie, from } in &scenario.liars {
            writeln!(f, "from {} on, node {node} {}", Time(*from), lie.name())?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary(scenario, outcome) = self;
        writeln!(
            f,
            "\n hop    model   lost  burst  overflow  twice  altered       rank   theory  generations  delay p50        p99"
        )?;
        let ranks = outcome.ranks(scenario);
        for (hop, ((down, _), rank)) in outcome.links.iter().zip(ranks).enumerate() {
            let share = |count: u64| 100.0 * count as f64 / down.offered.max(1) as f64;
            let loss = scenario.hops[hop].down.loss;
            write!(
                f,
                "{:>4} {:>6.2} % {:>4.1} % {:>6.1} {:>9} {:>6} {:>8}",
                hop + 1,
                100.0 * loss.loss,
                share(down.lost),
                loss.burst_mean,
                down.overflowed,
                down.duplicated,
                down.corrupted
            )?;
            match rank {
                Some(rank) => write!(
                    f,
                    "     {:>6.4}   {:>6.4} {:>12}",
                    rank.mean, rank.expected, rank.generations
                )?,
                None => write!(f, "     {:>6}   {:>6} {:>12}", "-", "-", 0)?,
            }
            let delays = &down.delays;
            let (half, most) = (delays.quantile(0.5), delays.quantile(0.99));
            writeln!(f, " {:>10} {:>10}", Time(half), Time(most))?;
        }
        self.write_nodes(f)?;
        let Times(line) = Times::of(&outcome.delays);
        writeln!(
            f,
            "\ndelivered {} of {} packets ({} missing, {} again, {} foreign), {:.3} packets per symbol, delay {line}",
            outcome.delivered,
            scenario.traffic.packets,
            outcome.missing,
            outcome.repeated,
            outcome.foreign,
            outcome.overhead(),
        )?;
        writeln!(
            f,
            "{} events until {}, hash {:016x}",
            outcome.events,
            Time(outcome.ended_nanos),
            outcome.hash
        )
    }
}

impl Summary<'_> {
    fn write_nodes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary(_, outcome) = self;
        writeln!(
            f,
            "\nnode  generations  complete   failed  evicted  repairs   histogram of ranks (rank:count), drops"
        )?;
        for (node, report) in outcome.reports.iter().enumerate() {
            let mut counters = FlowCounters::default();
            for flow in &report.flows {
                if counters.rank_histogram.is_empty() {
                    counters.rank_histogram = vec![0; flow.counters.rank_histogram.len()];
                }
                counters += &flow.counters;
            }
            write!(
                f,
                "{node:>4} {:>12} {:>9} {:>8} {:>8} {:>8}  ",
                counters.generations,
                counters.generations_complete,
                counters.generations_failed,
                counters.generations_evicted,
                counters.repairs
            )?;
            for (rank, count) in counters.rank_histogram.iter().enumerate() {
                if *count > 0 {
                    write!(f, " {rank}:{count}")?;
                }
            }
            for reason in DropReason::ALL {
                let count = report.packets.dropped[reason as usize];
                if count > 0 {
                    write!(f, ", {} {count}", reason.name())?;
                }
            }
            if outcome.starved[node] > 0 {
                write!(f, ", no frame on arrival {}", outcome.starved[node])?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Quantiles in one line.
struct Times(String);

impl Times {
    fn of(delays: &Delays) -> Times {
        let at = |quantile| Time(delays.quantile(quantile));
        Times(format!("p50 {}, p99 {}, longest {}", at(0.5), at(0.99), Time(delays.longest())))
    }
}

/// Properties of a link other than loss.
struct Properties<'a>(&'a Link);

impl fmt::Display for Properties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.0;
        write!(f, "delay {} + {}", Time(link.delay_nanos), Time(link.jitter_nanos))?;
        f.write_str(if link.keeps_order { " in order" } else { " in any order" })?;
        write!(f, ", {:.0} % twice", 100.0 * link.duplication)?;
        write!(f, ", {:.0} % altered", 100.0 * link.corruption)?;
        write!(f, ", payload of {:.0} % altered", 100.0 * link.pollution)?;
        match link.rate {
            Some(rate) => write!(
                f,
                ", {:.2} Mbit/s with a queue of {}",
                rate.bits_per_second as f64 / 1e6,
                rate.queue_packets
            ),
            None => f.write_str(", any rate"),
        }
    }
}

/// Nanoseconds with a unit to match.
pub(crate) struct Time(pub Nanos);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            nanos @ 0..1000 => format!("{nanos} ns"),
            nanos @ 1000..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
            nanos @ 1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
            nanos => format!("{:.3} s", nanos as f64 / 1e9),
        };
        f.pad(&text)
    }
}
