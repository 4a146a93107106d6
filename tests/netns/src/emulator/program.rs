//! An untimed link, entirely inside Linux: a loss program per direction (`ebpf/link.bpf.o`, whose
//! parameters and counters are accessed here), followed by a token bucket.
//!
//! A packet that enters meets the loss program at clsact ingress, is redirected to the other side
//! if it survives, and leaves through the bucket. Packets pass veth as ordinary Linux buffers (the
//! redirect ends in `dev_queue_xmit`, not in `ndo_xdp_xmit`), so the peers need neither XDP nor GRO
//! for it.

use aya::maps::{Array, MapData, MapError, PerCpuArray};
use aya::programs::tc::{NlOptions, TcAttachOptions};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, include_bytes_aligned};

use crate::BedError;
use crate::config::{DirectionConfig, LinkConfig, Loss};
use crate::counters::{DirectionCounters, LinkCounters};
use crate::namespace::Namespace;

/// Token bucket depth: large enough that a timer late by a millisecond costs no rate at 300 Mbit/s,
/// small enough that a burst through it does not look like a faster link.
const BUCKET_BYTES: f64 = 40_000.0;

/// The two loss programs and the two buckets of a link.
#[derive(Debug)]
pub(crate) struct Programs {
    namespace: Namespace,
    eastward: Direction,
    westward: Direction,
}

impl Programs {
    /// Attaches programs and buckets to both sides, `west` and `east`.
    pub fn attach(namespace: &Namespace, config: &LinkConfig) -> Result<Programs, BedError> {
        for side in ["west", "east"] {
            namespace.run("tc", &format!("qdisc add dev {side} clsact"))?;
        }
        shape(namespace, "add", config)?;
        let (east, west) = (config.eastward.loss, config.westward.loss);
        namespace.inside(|| {
            Ok(Programs {
                namespace: namespace.clone(),
                eastward: Direction::attach(namespace.name(), "west", "east", east)?,
                westward: Direction::attach(namespace.name(), "east", "west", west)?,
            })
        })?
    }

    pub fn set(&mut self, before: &LinkConfig, config: &LinkConfig) -> Result<(), BedError> {
        self.eastward.set_loss(config.eastward.loss)?;
        self.westward.set_loss(config.westward.loss)?;
        let rates = |config: &LinkConfig| {
            [config.eastward, config.westward].map(|way| (way.rate_mbit, way.queue))
        };
        if rates(before) != rates(config) {
            shape(&self.namespace, "change", config)?;
        }
        Ok(())
    }

    pub fn counters(&self) -> Result<LinkCounters, BedError> {
        Ok(LinkCounters {
            eastward: self.eastward.counters()?,
            westward: self.westward.counters()?,
        })
    }

    /// Packets that found a bucket's queue full, both directions.
    pub fn queue_drops(&self) -> Result<u64, BedError> {
        let text = self.namespace.run("tc", "-s -j qdisc show")?;
        let queues: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
            BedError::Output { program: "tc".into(), detail: error.to_string() }
        })?;
        let shapers = queues.as_array().into_iter().flatten();
        let shapers = shapers.filter(|queue| queue["kind"] == "tbf");
        Ok(shapers.filter_map(|queue| queue["drops"].as_u64()).sum())
    }
}

/// Adds or changes the rate limit of both sides.
fn shape(namespace: &Namespace, verb: &str, config: &LinkConfig) -> Result<(), BedError> {
    for (side, direction) in [("east", &config.eastward), ("west", &config.westward)] {
        namespace.run("tc", &format!("qdisc {verb} dev {side} {}", shaper(direction)))?;
    }
    Ok(())
}

/// Arguments for `tc` that limit the rate of an interface.
fn shaper(direction: &DirectionConfig) -> String {
    let bytes_per_second = direction.rate_mbit * 1e6 / 8.0;
    let queue = bytes_per_second * direction.queue.as_secs_f64();
    let bucket = BUCKET_BYTES.max(bytes_per_second * 1e-3);
    // `limit` is the whole room: the queue and the bucket.
    format!(
        "root tbf rate {:.0}bit burst {bucket:.0} limit {:.0}",
        direction.rate_mbit * 1e6,
        queue + bucket
    )
}

struct Direction {
    /// Namespace and interface, for messages.
    place: String,
    out_interface: u32,
    parameters: Array<MapData, [u32; 5]>,
    counters: PerCpuArray<MapData, u64>,
}

impl Direction {
    /// Must run inside the link's namespace.
    fn attach(namespace: &str, from: &str, to: &str, loss: Loss) -> Result<Direction, BedError> {
        let place = format!("{from} of {namespace}");
        let failed = |detail: String| BedError::Emulator { place: place.clone(), detail };
        let object = include_bytes_aligned!("../../../../ebpf/link.bpf.o");
        let mut ebpf = Ebpf::load(object).map_err(|error| failed(describe(&error)))?;
        let map = |map: Option<aya::maps::Map>| {
            map.ok_or_else(|| failed("the object lacks a map".into()))
        };
        let parameters = map(ebpf.take_map("LINK"))?;
        let counters = map(ebpf.take_map("COUNTERS"))?;
        // Any socket of this namespace can query it.
        let socket =
            std::net::UdpSocket::bind(("0.0.0.0", 0)).map_err(|error| failed(error.to_string()))?;
        let mut direction = Direction {
            place: place.clone(),
            out_interface: rustix::net::netdevice::name_to_index(&socket, to)
                .map_err(|error| failed(format!("{to}: {error}")))?,
            parameters: parameters.try_into().map_err(|e: MapError| failed(describe(&e)))?,
            counters: counters.try_into().map_err(|e: MapError| failed(describe(&e)))?,
        };
        direction.set_loss(loss)?;
        let program: &mut SchedClassifier = ebpf
            .program_mut("link")
            .ok_or_else(|| failed("the object lacks the program `link`".into()))?
            .try_into()
            .map_err(|error| failed(describe(&error)))?;
        program.load().map_err(|error| failed(describe(&error)))?;
        // A filter, not a TCX link: it works on every kernel since 4.5 and outlives this process.
        let options = TcAttachOptions::Netlink(NlOptions::default());
        let link = program
            .attach_with_options(from, TcAttachType::Ingress, options)
            .and_then(|id| program.take_link(id))
            .map_err(|error| failed(describe(&error)))?;
        // Detaching would run in the namespace of the dropping thread and could hit another
        // interface with that number. The filter is removed with its namespace instead.
        std::mem::forget(link);
        Ok(direction)
    }

    fn set_loss(&mut self, loss: Loss) -> Result<(), BedError> {
        let value = parameters(loss, self.out_interface);
        self.parameters.set(0, value, 0).map_err(|error| self.failed(&error))
    }

    fn counters(&self) -> Result<DirectionCounters, BedError> {
        let total = |index: u32| {
            let values = self.counters.get(&index, 0).map_err(|error| self.failed(&error))?;
            Ok(values.iter().sum::<u64>())
        };
        Ok(DirectionCounters {
            seen: total(0)?,
            dropped: total(1)?,
            dropped_after_drop: total(2)?,
            merged: total(3)?,
            ..DirectionCounters::default()
        })
    }

    fn failed(&self, error: &MapError) -> BedError {
        BedError::Emulator { place: self.place.clone(), detail: describe(error) }
    }
}

impl std::fmt::Debug for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direction").field("place", &self.place).finish_non_exhaustive()
    }
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// A loss in the program's format: good to bad, bad to good, loss in the bad state, loss in the
/// good state, interface to send to.
fn parameters(loss: Loss, out_interface: u32) -> [u32; 5] {
    let chain = loss.chain();
    let [to_bad, to_good] = [chain.good_to_bad, chain.bad_to_good].map(scaled);
    [to_bad, to_good, scaled(chain.loss_bad), scaled(chain.loss_good), out_interface]
}

/// A probability in the program's format: scaled by 2^32, `u32::MAX` meaning always.
fn scaled(probability: f64) -> u32 {
    (probability.clamp(0.0, 1.0) * 4_294_967_296.0).min(f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_scaled_and_always_is_the_largest() {
        assert_eq!(parameters(Loss::independent(0.25), 7), [0, 0, 0, 1 << 30, 7]);
        assert_eq!(parameters(Loss::independent(0.0), 7), [0, 0, 0, 0, 7]);
        let [good_to_bad, bad_to_good, loss_bad, loss_good, _] =
            parameters(Loss { share: 0.1, burst_mean: 8.0 }, 7);
        let (p, r) = (f64::from(good_to_bad), f64::from(bad_to_good));
        assert!((p / (p + r) - 0.1).abs() < 1e-6);
        assert!((4_294_967_296.0 / r - 8.0).abs() < 1e-6);
        assert_eq!((loss_bad, loss_good), (u32::MAX, 0));
    }
}
