//! Renders the state as seen by clients to text for Prometheus (OpenMetrics 1.0).
//!
//! Counters come from the tables of `dataplane/counters`, measured values from the gauges.

use super::gauges::GAUGES;
use super::labels::{Labels, flow, link, splits, tunnel, worker};
use super::names::{Form, GROUPS, Group, Of, is_gauge, value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use recoded_api::v1::{State, Worker};
use recoded_counters::Counter;
use std::collections::BTreeMap;
use std::fmt;

/// The metrics of a daemon in this state.
///
/// # Errors
///
/// None in practice: writing to memory cannot fail.
pub fn text(state: State) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(state)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// A state that is read once.
#[derive(Debug)]
struct Snapshot(State);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Snapshot(state) = self;
        for group in GROUPS {
            counters(&mut encoder, &group, state)?;
        }
        for gauge in GAUGES {
            let meaning = format!("{}.", gauge.meaning);
            let mut metric =
                encoder.encode_descriptor(gauge.name, &meaning, None, MetricType::Gauge)?;
            (gauge.read)(state, &mut |labels, value| {
                metric.encode_family(&labels)?.encode_gauge(&value)
            })?;
        }
        Ok(())
    }
}

fn counters(encoder: &mut DescriptorEncoder<'_>, group: &Group, state: &State) -> fmt::Result {
    let owners = owners(group.of, state);
    if let Form::All(name, label) = group.form {
        let meaning = format!("Packets or jobs of {}, by {label}.", group.table.owner);
        let mut metric = encoder.encode_descriptor(name, &meaning, None, MetricType::Counter)?;
        for (labels, counts) in &owners {
            for counter in group.table.counters() {
                let Some(count) = find(counts, counter) else { continue };
                let mut labels = labels.clone();
                labels.push((label, counter.name.to_owned()));
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        return Ok(());
    }
    for counter in group.table.counters() {
        let kind = if is_gauge(counter) { MetricType::Gauge } else { MetricType::Counter };
        let name = group.name(counter);
        let mut metric = encoder.encode_descriptor(&name, counter.meaning, None, kind)?;
        for (labels, counts) in &owners {
            let Some(count) = find(counts, counter) else { continue };
            let value = value(counter, count);
            let mut metric = metric.encode_family(labels)?;
            match kind {
                MetricType::Gauge => metric.encode_gauge(&value)?,
                _ => metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
            }
        }
    }
    Ok(())
}

/// Counts by name.
enum Counts<'a> {
    /// As in the API.
    All(&'a BTreeMap<String, u64>),
    /// Faults separate from the others.
    Parted([&'a BTreeMap<String, u64>; 2]),
    /// A worker's.
    Worker(&'a Worker),
}

fn find(counts: &Counts<'_>, counter: &Counter) -> Option<u64> {
    match counts {
        Counts::All(counts) => counts.get(counter.name).copied(),
        Counts::Parted(parts) => parts.iter().find_map(|part| part.get(counter.name)).copied(),
        Counts::Worker(worker) => match counter.name {
            "received" => Some(worker.received),
            "forwarded" => Some(worker.forwarded),
            "consumed" => Some(worker.consumed),
            "handed_over" => Some(worker.handed_over),
            "panics" => Some(worker.panics),
            _ => None,
        },
    }
}

/// Owners of such counters, with the labels that distinguish them.
fn owners(of: Of, state: &State) -> Vec<(Labels, Counts<'_>)> {
    let node = |counts| vec![(Labels::new(), Counts::All(counts))];
    match of {
        Of::Flow => {
            let flows = state.flows.iter();
            flows.map(|it| (flow(it), Counts::All(&it.counters))).collect()
        }
        Of::Link => {
            let links = state.links.iter();
            links.map(|it| (link(it), Counts::Parted([&it.counters, &it.faults]))).collect()
        }
        Of::Tunnel => {
            let tunnels = state.tunnels.iter();
            tunnels.map(|it| (tunnel(it), Counts::Parted([&it.counters, &it.faults]))).collect()
        }
        Of::Split => {
            splits(state).map(|(at, it)| (at, Counts::Parted([&it.counters, &it.faults]))).collect()
        }
        Of::Worker => {
            let workers = state.workers.iter();
            workers.map(|it| (worker(it), Counts::Worker(it))).collect()
        }
        Of::Drops => node(&state.drops),
        Of::Xdp => node(&state.verdicts),
        Of::Engine => node(&state.engine.counters),
        Of::Declined => node(&state.engine.declined),
        Of::Redone => node(&state.engine.redone),
    }
}
