//! The loss programs of one link: loads `ebpf/link.bpf.o` once per direction, sets its parameters
//! and reads its counters.

use aya::maps::{Array, MapData, MapError, PerCpuArray};
use aya::programs::tc::{NlOptions, TcAttachOptions};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, include_bytes_aligned};

use crate::BedError;
use crate::namespace::Namespace;

/// Loss of one direction of a link.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Loss {
    /// Share of packets lost, 0 to 0.9.
    pub share: f64,
    /// Mean run of consecutive losses (Gilbert-Elliott, everything lost in the bad state). Values
    /// up to `1 / (1 - share)`, the mean run of independent losses, mean independent losses.
    pub burst_mean: f64,
}

impl Loss {
    /// Independent losses.
    pub fn independent(share: f64) -> Loss {
        Loss { share, burst_mean: 1.0 }
    }

    /// Refuses values that no chain can have.
    pub(crate) fn check(&self) -> Result<(), BedError> {
        if !(0.0..=0.9).contains(&self.share) {
            return Err(BedError::Parameter {
                what: "loss share",
                value: self.share.to_string(),
                rule: "it must be 0 to 0.9",
            });
        }
        if !(1.0..=1000.0).contains(&self.burst_mean) {
            return Err(BedError::Parameter {
                what: "mean burst",
                value: self.burst_mean.to_string(),
                rule: "it must be 1 to 1000 packets",
            });
        }
        if self.is_bursty() && self.share / (1.0 - self.share) > self.burst_mean {
            return Err(BedError::Parameter {
                what: "mean burst",
                value: self.burst_mean.to_string(),
                rule: "it is too short for this loss",
            });
        }
        Ok(())
    }

    /// Whether losses depend on each other.
    pub fn is_bursty(&self) -> bool {
        self.burst_mean > 1.0 / (1.0 - self.share)
    }

    /// Parameters as the program reads them: good to bad, bad to good, loss in the bad state, loss
    /// in the good state, interface to send to.
    fn parameters(&self, out_interface: u32) -> [u32; 5] {
        if !self.is_bursty() {
            return [0, 0, 0, scaled(self.share), out_interface];
        }
        let bad_to_good = 1.0 / self.burst_mean;
        let good_to_bad = self.share * bad_to_good / (1.0 - self.share);
        [scaled(good_to_bad), scaled(bad_to_good), u32::MAX, 0, out_interface]
    }
}

/// What one direction of a link did.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct DirectionCounters {
    /// IP packets that entered.
    pub seen: u64,
    /// Of these, dropped by the loss program.
    pub dropped: u64,
    /// Of these, dropped right after another.
    pub dropped_after_drop: u64,
    /// Packets that entered as several merged into one: loss was then not per packet.
    pub merged: u64,
}

impl DirectionCounters {
    /// Share of packets dropped.
    pub fn loss(&self) -> f64 {
        if self.seen == 0 { 0.0 } else { self.dropped as f64 / self.seen as f64 }
    }

    /// Mean run of consecutive drops.
    pub fn burst_mean(&self) -> f64 {
        let runs = self.dropped - self.dropped_after_drop;
        if runs == 0 { 0.0 } else { self.dropped as f64 / runs as f64 }
    }

    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &DirectionCounters) -> DirectionCounters {
        DirectionCounters {
            seen: self.seen - earlier.seen,
            dropped: self.dropped - earlier.dropped,
            dropped_after_drop: self.dropped_after_drop - earlier.dropped_after_drop,
            merged: self.merged - earlier.merged,
        }
    }
}

/// What both directions of a link did.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct LinkCounters {
    /// From source towards sink.
    pub eastward: DirectionCounters,
    /// From sink towards source.
    pub westward: DirectionCounters,
}

/// The two loss programs of a link.
#[derive(Debug)]
pub(crate) struct Emulator {
    eastward: Direction,
    westward: Direction,
}

impl Emulator {
    /// Attaches a program at the ingress of `west` and of `east`, which must have a clsact qdisc.
    pub fn attach(namespace: &Namespace, loss: Loss) -> Result<Emulator, BedError> {
        namespace.inside(|| {
            Ok(Emulator {
                eastward: Direction::attach(namespace.name(), "west", "east", loss)?,
                westward: Direction::attach(namespace.name(), "east", "west", loss)?,
            })
        })?
    }

    pub fn set_loss(&mut self, loss: Loss) -> Result<(), BedError> {
        self.eastward.set_loss(loss)?;
        self.westward.set_loss(loss)
    }

    pub fn counters(&self) -> Result<LinkCounters, BedError> {
        Ok(LinkCounters {
            eastward: self.eastward.counters()?,
            westward: self.westward.counters()?,
        })
    }
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
        let object = include_bytes_aligned!("../../../ebpf/link.bpf.o");
        let mut ebpf = Ebpf::load(object).map_err(|error| failed(describe(&error)))?;
        let map = |map: Option<aya::maps::Map>| {
            map.ok_or_else(|| failed("the object lacks a map".into()))
        };
        let parameters = map(ebpf.take_map("LINK"))?;
        let counters = map(ebpf.take_map("COUNTERS"))?;
        // Any socket of this namespace can be asked.
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
        // Detaching would run in whatever namespace the dropping thread is in and could hit another
        // interface of that number. The filter goes with its namespace instead.
        std::mem::forget(link);
        Ok(direction)
    }

    fn set_loss(&mut self, loss: Loss) -> Result<(), BedError> {
        let value = loss.parameters(self.out_interface);
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

/// A probability as the program reads it: scaled by 2^32, `u32::MAX` meaning always.
fn scaled(probability: f64) -> u32 {
    (probability.clamp(0.0, 1.0) * 4_294_967_296.0).min(f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_independent_loss_keep_the_chain_in_the_good_state() {
        assert_eq!(Loss::independent(0.25).parameters(7), [0, 0, 0, 1 << 30, 7]);
        assert_eq!(Loss::independent(0.0).parameters(7), [0, 0, 0, 0, 7]);
    }

    #[test]
    fn parameters_of_bursty_loss_have_the_asked_share_and_run() {
        let [good_to_bad, bad_to_good, loss_bad, loss_good, _] =
            Loss { share: 0.1, burst_mean: 8.0 }.parameters(7);
        let (p, r) = (f64::from(good_to_bad), f64::from(bad_to_good));
        assert!((p / (p + r) - 0.1).abs() < 1e-6);
        assert!((4_294_967_296.0 / r - 8.0).abs() < 1e-6);
        assert_eq!((loss_bad, loss_good), (u32::MAX, 0));
    }

    #[test]
    fn check_refuses_what_no_chain_can_do() {
        assert!(Loss { share: 0.1, burst_mean: 8.0 }.check().is_ok());
        assert!(Loss { share: 0.95, burst_mean: 1.0 }.check().is_err());
        assert!(Loss { share: f64::NAN, burst_mean: 1.0 }.check().is_err());
        assert!(Loss { share: 0.1, burst_mean: 0.5 }.check().is_err());
    }
}
