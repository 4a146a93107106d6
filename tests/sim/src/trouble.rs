//! Faults that a seed adds to the generated network: flows that go idle, nodes that stop, forged
//! packets. They use a random stream of their own, so that networks without faults do not change.

use recoded_pipeline::params::Nanos;
use recoded_wire::header::PacketType;

use crate::attack::{Attack, Forgery, Knowledge};
use crate::code::Code;
use crate::random::{Random, Stream};
use crate::scenario::{Change, Scenario};
use crate::traffic::{Pauses, Traffic};

/// Share of a link's packets that is forged if delivery is promised and nothing authenticates
/// packets: an attacker who forges more can do harm.
const SHARE_PROMISED: f64 = 0.01;

/// Fewer packets than this are no attack.
const PACKETS_MIN: u32 = 4;

const MILLI: Nanos = 1_000_000;

pub(crate) struct Trouble(Random);

impl Trouble {
    pub(crate) fn new(seed: u64) -> Trouble {
        Trouble(Random::new(seed, Stream::Trouble))
    }

    /// Lets a flow go idle for seconds, one to three times.
    pub(crate) fn pause(&mut self, traffic: &mut Traffic) {
        if !self.0.chance(0.3) {
            return;
        }
        let bursts = (traffic.packets / traffic.burst).max(1);
        traffic.pauses = Some(Pauses {
            every_bursts: bursts.div_ceil(self.0.among(2..=4) as u32),
            nanos: self.0.among(500 * MILLI..=6000 * MILLI),
        });
    }

    /// Stops a node for a while. Promised packets enter only when the effects have settled.
    pub(crate) fn stop(&mut self, scenario: &mut Scenario) {
        if !self.0.chance(0.15) {
            return;
        }
        let node = self.0.size(0..=scenario.hops.len());
        let at = self.0.among(0..=scenario.traffic.end() / 2);
        let nanos = self.0.among(10 * MILLI..=4000 * MILLI);
        scenario.changes.push((at, Change::Stop { node, nanos }));
        scenario.changes.sort_by_key(|(at, _)| *at);
        let settled = scenario.settle_nanos().max(2 * scenario.traffic.interval_nanos);
        if let Some(promised) = &mut scenario.promise.delivered {
            promised.start = promised.start.max(at + nanos + settled);
            promised.end = promised.end.max(promised.start);
        }
    }

    /// Lets the queues of nodes be chosen by another hash, up to twice.
    pub(crate) fn rehash(&mut self, scenario: &mut Scenario) {
        for _ in 0..self.0.pick(&[0, 0, 1, 2]) {
            let node = self.0.size(0..=scenario.hops.len());
            let at = self.0.among(0..=scenario.traffic.end());
            scenario.changes.push((at, Change::Rehash { node }));
        }
        scenario.changes.sort_by_key(|(at, _)| *at);
    }

    /// Forges packets: blindly and few where delivery is promised.
    pub(crate) fn attack(&mut self, scenario: &mut Scenario, code: Code, is_bounded: bool) {
        if !self.0.chance(0.4) {
            return;
        }
        let (share, knowledge) = match is_bounded && !scenario.hop_tags {
            true => (SHARE_PROMISED, Knowledge::Blind),
            false => (
                self.0.pick(&[0.01, 0.1, 0.5]),
                self.0.pick(&[Knowledge::Blind, Knowledge::Informed, Knowledge::Informed]),
            ),
        };
        let forgeries = match self.0.chance(0.5) {
            true => Forgery::ALL.to_vec(),
            false => vec![self.0.pick(&Forgery::ALL)],
        };
        let types = [PacketType::Generation, PacketType::Bats, PacketType::Stream];
        let packet_type = match self.0.chance(0.8) {
            true => code.packet_type(),
            false => self.0.pick(&types),
        };
        let packets = packets(scenario, share);
        let hops = scenario.hops.len();
        let targets = match self.0.chance(0.5) {
            true => 0..hops,
            false => {
                let hop = self.0.size(0..=hops - 1);
                hop..hop + 1
            }
        };
        let during = 0..scenario.traffic.end() + 500 * MILLI;
        let each = targets.flat_map(|hop| [(hop, false), (hop, true)]);
        scenario.attacks = each
            .map(|(hop, is_up)| Attack {
                hop,
                is_up,
                during: during.clone(),
                packets,
                forgeries: forgeries.clone(),
                packet_type,
                knowledge,
            })
            .collect();
        // Without authentication, a sufficiently good forgery is delivered.
        scenario.promise.intact &= scenario.hop_tags;
    }
}

/// Number of forged packets on one link: a share of the minimum number of packets that it carries.
fn packets(scenario: &Scenario, share: f64) -> u32 {
    let Traffic { packets, bytes, .. } = &scenario.traffic;
    let symbols = (bytes.start() + bytes.end()) / 2 / scenario.nodes[0].symbol_bytes + 1;
    ((share * f64::from(*packets) * symbols as f64).ceil() as u32).max(PACKETS_MIN)
}
