//! Configuration of a bed and its links.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::BedError;

/// Most lossy links in a line: each adds two namespaces and a daemon.
pub const HOPS_MAX: usize = 10;

/// Most links of a network that is not a line.
pub const LINKS_MAX: usize = 512;

/// Default drain time of a full queue. A queue this short keeps the round-trip time of ten hops
/// under half a second when it is full; a shorter one drops the bursts that a generation is sent
/// in.
const QUEUE: Duration = Duration::from_millis(25);

/// Minimum size of such a queue, in full packets, so that slow links still hold a few generations.
const QUEUE_PACKETS_MIN: f64 = 64.0;

/// Bytes of a full packet with its Ethernet header, as the rate counts it.
const PACKET_BYTES: f64 = 1514.0;

/// Maximum one-way delay, jitter and lateness of a link: more than a geostationary satellite's.
const DELAY_MAX: Duration = Duration::from_millis(600);

/// Configuration of a bed.
#[derive(Clone, Debug)]
pub struct BedConfig {
    /// The links: of a line from source to sink, 1 to [`HOPS_MAX`]; otherwise up to [`LINKS_MAX`].
    pub links: Vec<LinkConfig>,
    /// Numbers of the hosts west and east of each link; of a line each and the next one. Every host
    /// from 0 on has a link.
    pub ends: Vec<(usize, usize)>,
    /// Whether hosts know each other's MAC addresses from the start. Otherwise they use ARP, whose
    /// packets are delayed like any other, but not lost.
    pub neighbours_known: bool,
    /// Receive queues of every interface of the hosts: workers that a daemon can have.
    pub queues: usize,
    /// Seed of everything random on timed links. The others draw from the random numbers of Linux.
    pub seed: u64,
}

impl BedConfig {
    /// `hops` links of the same kind, known neighbours, one queue, and a seed that differs from run
    /// to run.
    pub fn uniform(hops: usize, link: LinkConfig) -> BedConfig {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = u64::from(since.subsec_nanos()) ^ since.as_secs() << 30;
        let (links, ends) = (vec![link; hops], line(hops));
        BedConfig { links, ends, neighbours_known: true, queues: 1, seed }
    }

    /// Links between any two hosts, otherwise as a line has it.
    pub fn graph(links: &[(usize, usize, LinkConfig)]) -> BedConfig {
        let ends = links.iter().map(|(west, east, _)| (*west, *east)).collect();
        let links: Vec<LinkConfig> = links.iter().map(|(.., link)| *link).collect();
        let still = LinkConfig::new(Loss::independent(0.0), 1.0);
        BedConfig { links, ends, ..BedConfig::uniform(1, still) }
    }

    /// Whether each host has a link to the next one and no other.
    pub(crate) fn is_line(&self) -> bool {
        self.ends == line(self.links.len())
    }

    /// How many hosts there are.
    pub(crate) fn hosts(&self) -> usize {
        self.ends.iter().map(|(west, east)| west.max(east) + 1).max().unwrap_or(0)
    }

    pub(crate) fn check(&self) -> Result<(), BedError> {
        let (most, rule) = match self.is_line() {
            true => (HOPS_MAX, "it must be 1 to 10"),
            false => (LINKS_MAX, "a network has 1 to 512 links"),
        };
        if !(1..=most).contains(&self.links.len()) {
            let value = self.links.len().to_string();
            return Err(BedError::Parameter { what: "number of hops", value, rule });
        }
        let is_reached = |host: usize| self.ends.iter().any(|(w, e)| *w == host || *e == host);
        let is_whole = self.ends.len() == self.links.len()
            && self.ends.iter().all(|(west, east)| west != east)
            && (0..self.hosts()).all(is_reached);
        if !is_whole {
            return Err(BedError::Parameter {
                what: "ends of links",
                value: format!("{:?}", self.ends),
                rule: "each link has two different hosts, and each host from 0 on a link",
            });
        }
        self.links.iter().try_for_each(LinkConfig::check)
    }
}

/// Ends of the links of a line.
fn line(hops: usize) -> Vec<(usize, usize)> {
    (0..hops).map(|host| (host, host + 1)).collect()
}

/// Configuration of a link, direction by direction.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct LinkConfig {
    /// From source towards sink.
    pub eastward: DirectionConfig,
    /// From sink towards source.
    pub westward: DirectionConfig,
    /// Uses the timed emulator even if no setting needs it, so that one may be set later.
    pub timed: bool,
}

impl LinkConfig {
    /// A link without delay, the same in both directions.
    pub fn new(loss: Loss, rate_mbit: f64) -> LinkConfig {
        LinkConfig::both(DirectionConfig::new(loss, rate_mbit))
    }

    /// A link that is the same in both directions.
    pub fn both(direction: DirectionConfig) -> LinkConfig {
        LinkConfig { eastward: direction, westward: direction, timed: false }
    }

    /// Whether this link needs the emulator with time, which runs in user space.
    pub fn is_timed(&self) -> bool {
        self.timed || self.eastward.needs_time() || self.westward.needs_time()
    }

    /// The same link with another loss in both directions.
    pub fn with_loss(self, loss: Loss) -> LinkConfig {
        LinkConfig {
            eastward: DirectionConfig { loss, ..self.eastward },
            westward: DirectionConfig { loss, ..self.westward },
            ..self
        }
    }

    pub(crate) fn check(&self) -> Result<(), BedError> {
        self.eastward.check()?;
        self.westward.check()
    }
}

/// Configuration of one direction of a link. A packet meets, in this order: queue, rate, loss,
/// duplication, delay with jitter and reordering. (Untimed links apply loss first.)
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct DirectionConfig {
    /// Rate in Mbit/s, counted with Ethernet headers.
    pub rate_mbit: f64,
    /// Maximum queueing delay; a packet that would wait longer is dropped.
    pub queue: Duration,
    /// Which packets are lost.
    pub loss: Loss,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// One-way delay, 0 to 600 ms.
    pub delay: Duration,
    /// Extra delay per packet, uniform from 0 to this, but without reordering: packets close
    /// together all take the delay of the latest.
    pub jitter: Duration,
    /// Share of packets that are delayed, so that others overtake them.
    pub reorder: f64,
    /// Delay of those packets.
    pub reorder_by: Duration,
}

impl DirectionConfig {
    /// Loss and rate only, with a queue of 25 ms, or of 64 full packets if that is longer.
    pub fn new(loss: Loss, rate_mbit: f64) -> DirectionConfig {
        // Rates out of range are refused later, with their own message.
        let least = QUEUE_PACKETS_MIN * PACKET_BYTES * 8e-6 / rate_mbit;
        let least = Duration::try_from_secs_f64(least).unwrap_or(QUEUE);
        DirectionConfig {
            rate_mbit,
            queue: QUEUE.max(least),
            loss,
            duplicate: 0.0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: 0.0,
            reorder_by: Duration::ZERO,
        }
    }

    fn needs_time(&self) -> bool {
        let times = self.delay + self.jitter;
        times > Duration::ZERO || self.reorder > 0.0 || self.duplicate > 0.0
    }

    fn check(&self) -> Result<(), BedError> {
        let refuse = |what, value: String, rule| Err(BedError::Parameter { what, value, rule });
        if !(1.0..=10_000.0).contains(&self.rate_mbit) {
            let rule = "it must be 1 to 10000 Mbit/s";
            return refuse("link rate", self.rate_mbit.to_string(), rule);
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(2)).contains(&self.queue) {
            return refuse("link queue", format!("{:?}", self.queue), "it must be 1 ms to 2 s");
        }
        for (what, time) in
            [("delay", self.delay), ("jitter", self.jitter), ("lateness", self.reorder_by)]
        {
            if time > DELAY_MAX {
                return refuse(what, format!("{time:?}"), "it must be at most 600 ms");
            }
        }
        for (what, share) in [("reordering", self.reorder), ("duplication", self.duplicate)] {
            if !(0.0..=0.9).contains(&share) {
                return refuse(what, share.to_string(), "it must be 0 to 0.9");
            }
        }
        self.loss.check()
    }
}

/// Loss of one direction of a link.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Loss {
    /// Share of packets lost, 0 to 0.9, or 1.
    pub share: f64,
    /// Mean run of consecutive losses (Gilbert-Elliott, everything lost in the bad state). Values
    /// up to `1 / (1 - share)`, the mean run of independent losses, mean independent losses.
    pub burst_mean: f64,
}

/// A Gilbert-Elliott chain: probabilities per packet.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Chain {
    pub good_to_bad: f64,
    pub bad_to_good: f64,
    /// Loss in the bad state.
    pub loss_bad: f64,
    /// Loss in the good state.
    pub loss_good: f64,
}

impl Loss {
    /// Everything: the link is cut.
    pub const ALL: Loss = Loss { share: 1.0, burst_mean: 1.0 };

    /// Independent losses.
    pub fn independent(share: f64) -> Loss {
        Loss { share, burst_mean: 1.0 }
    }

    /// Refuses values that no chain can have.
    pub(crate) fn check(&self) -> Result<(), BedError> {
        if !(0.0..=0.9).contains(&self.share) && *self != Loss::ALL {
            return Err(BedError::Parameter {
                what: "loss share",
                value: self.share.to_string(),
                rule: "it must be 0 to 0.9, or 1 for a link that is cut",
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

    /// The chain that loses so.
    pub(crate) fn chain(&self) -> Chain {
        if !self.is_bursty() {
            return Chain {
                good_to_bad: 0.0,
                bad_to_good: 0.0,
                loss_bad: 0.0,
                loss_good: self.share,
            };
        }
        let bad_to_good = 1.0 / self.burst_mean;
        let good_to_bad = self.share * bad_to_good / (1.0 - self.share);
        Chain { good_to_bad, bad_to_good, loss_bad: 1.0, loss_good: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_of_independent_loss_stays_in_the_good_state() {
        let chain = Loss::independent(0.25).chain();
        assert_eq!((chain.good_to_bad, chain.loss_good), (0.0, 0.25));
    }

    #[test]
    fn chain_of_bursty_loss_has_the_asked_share_and_run() {
        let chain = Loss { share: 0.1, burst_mean: 8.0 }.chain();
        let (p, r) = (chain.good_to_bad, chain.bad_to_good);
        assert!((p / (p + r) - 0.1).abs() < 1e-12);
        assert!((1.0 / r - 8.0).abs() < 1e-12);
        assert_eq!((chain.loss_bad, chain.loss_good), (1.0, 0.0));
    }

    #[test]
    fn check_refuses_what_no_link_can_do() {
        assert!(Loss { share: 0.1, burst_mean: 8.0 }.check().is_ok());
        assert!(Loss { share: 0.95, burst_mean: 1.0 }.check().is_err());
        assert!(Loss { share: f64::NAN, burst_mean: 1.0 }.check().is_err());
        assert!(Loss { share: 0.1, burst_mean: 0.5 }.check().is_err());
        let fine = DirectionConfig::new(Loss::independent(0.1), 100.0);
        assert!(fine.check().is_ok());
        assert!(DirectionConfig { rate_mbit: 0.0, ..fine }.check().is_err());
        assert!(DirectionConfig { delay: Duration::from_secs(1), ..fine }.check().is_err());
        assert!(DirectionConfig { reorder: 1.0, ..fine }.check().is_err());
        assert!(DirectionConfig { queue: Duration::ZERO, ..fine }.check().is_err());
    }

    #[test]
    fn check_refuses_networks_with_hosts_that_nothing_reaches() {
        let link = LinkConfig::new(Loss::independent(0.1), 100.0);
        let check = |ends: &[(usize, usize)]| {
            let links: Vec<_> = ends.iter().map(|(west, east)| (*west, *east, link)).collect();
            BedConfig::graph(&links).check().is_ok()
        };
        assert!(check(&[(0, 1), (0, 2), (2, 1)]));
        assert!(!check(&[(0, 1), (0, 3)]), "no host 2");
        assert!(!check(&[(0, 1), (1, 1)]), "a link to itself");
        assert!(!check(&[(0, 1); LINKS_MAX + 1]), "too many");
        assert!(!check(&[]));
        assert!(BedConfig::uniform(10, link).check().is_ok());
        assert!(BedConfig::uniform(11, link).check().is_err());
    }

    #[test]
    fn queue_of_a_slow_link_holds_some_packets() {
        let slow = DirectionConfig::new(Loss::independent(0.0), 2.0);
        assert!((slow.queue.as_secs_f64() - 64.0 * 1514.0 * 8.0 / 2e6).abs() < 1e-9);
        let fast = DirectionConfig::new(Loss::independent(0.0), 300.0);
        assert_eq!(fast.queue, Duration::from_millis(25));
    }
}
