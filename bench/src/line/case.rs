//! The lines, as a table: adding one is one entry of [`CASES`].

use std::time::Duration;

use recoded_netns::{BedConfig, DirectionConfig, LinkConfig, Loss};

/// Rate of every link in Mbit/s, including Ethernet headers, unless the line sets another.
const RATE_MBIT: f64 = 300.0;

/// Queue of every link.
pub const QUEUE: Duration = Duration::from_millis(25);

/// Minimum ignored time at the start of a stream, and its minimum in round trips.
pub const OMITTED: Duration = Duration::from_secs(2);
pub const OMITTED_ROUND_TRIPS: u32 = 16;

/// Bytes of TCP payload in a full packet of 1514 bytes on a link: by itself, and in a coded packet.
pub const PAYLOAD_PLAIN: f64 = 1448.0;
pub const PAYLOAD_CODED: f64 = 1373.0;
pub const PACKET: f64 = 1514.0;

/// Round trip times rate above which the ends get larger TCP buffers than Linux's defaults, in
/// bytes: those, 6 MB to receive, carry a window of some 4 MB.
const BUFFERED_BYTES: f64 = 3e6;

/// A line of equal links, except for at most one.
#[derive(Copy, Clone, PartialEq, Debug, serde::Serialize)]
pub struct Case {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// Number of links.
    pub hops: usize,
    /// Share of packets that each link loses, in both directions.
    pub loss: f64,
    /// Mean run of lost packets; 1 is independent.
    pub burst: f64,
    /// Rate of each link in Mbit/s, counted with Ethernet headers.
    pub rate_mbit: f64,
    /// One-way delay of each link.
    pub delay_ms: u64,
    /// The loss of the link in the middle, if it is another.
    pub bad_loss: Option<f64>,
    /// Share of packets that arrive 3 ms late.
    pub reorder: f64,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// The rate that the first link falls to for a third of the time.
    pub rate_falls_to: Option<f64>,
    /// Congestion control of a competing stream, which Linux forwards over the same links.
    pub beside: Option<&'static str>,
    /// Whether a second line of hosts shares the links, with the same contender and its own stream.
    pub twins: bool,
    /// Whether a relay's daemon is killed and restarted after half of the time.
    pub relay_killed: bool,
    /// MTU of the link in the middle, if it differs: larger packets are dropped there silently.
    pub middle_mtu: Option<u32>,
    /// Whether datagrams are also measured without a stream: idle, loaded, voice.
    pub datagrams: bool,
    /// Whether it is measured unless lines are named.
    pub default: bool,
}

/// Independent losses, the same on each link, no delay.
const fn line(name: &'static str, hops: usize, loss: f64) -> Case {
    Case {
        name,
        hops,
        loss,
        burst: 1.0,
        rate_mbit: RATE_MBIT,
        delay_ms: 0,
        bad_loss: None,
        reorder: 0.0,
        duplicate: 0.0,
        rate_falls_to: None,
        beside: None,
        twins: false,
        relay_killed: false,
        middle_mtu: None,
        datagrams: false,
        default: false,
    }
}

const fn by_default(case: Case) -> Case {
    Case { default: true, ..case }
}

/// All lines.
pub const CASES: &[Case] = &[
    by_default(line("1hop-10%", 1, 0.10)),
    by_default(Case { datagrams: true, ..line("4hops-10%", 4, 0.10) }),
    line("6hops-5%", 6, 0.05),
    line("6hops-10%", 6, 0.10),
    by_default(line("6hops-20%", 6, 0.20)),
    line("10hops-10%", 10, 0.10),
    line("10hops-20%", 10, 0.20),
    by_default(Case { delay_ms: 10, datagrams: true, ..line("4hops-10%-10ms", 4, 0.10) }),
    Case { delay_ms: 50, datagrams: true, ..line("4hops-10%-50ms", 4, 0.10) },
    by_default(Case { delay_ms: 50, ..line("3hops-3%-50ms", 3, 0.03) }),
    by_default(Case { delay_ms: 270, ..line("1hop-2%-270ms", 1, 0.02) }),
    by_default(Case { burst: 8.0, ..line("4hops-10%-bursts8", 4, 0.10) }),
    // A third of the rate: two cores are enough for all packets of these lines.
    Case { rate_mbit: 100.0, ..line("10hops-10%-100mbit", 10, 0.10) },
    Case { rate_mbit: 100.0, ..line("10hops-20%-100mbit", 10, 0.20) },
    Case { rate_mbit: 100.0, delay_ms: 10, ..line("4hops-10%-10ms-100mbit", 4, 0.10) },
    // No loss: measures the delay that the hosts of a line add.
    Case { datagrams: true, ..line("4hops-clean", 4, 0.0) },
    // No loss on these: measures TCP itself under such delays and rate drops.
    Case { delay_ms: 50, ..line("3hops-clean-50ms", 3, 0.0) },
    Case { delay_ms: 270, ..line("1hop-clean-270ms", 1, 0.0) },
    Case { rate_falls_to: Some(50.0), delay_ms: 5, ..line("2hops-clean-rate-falls-5ms", 2, 0.0) },
    Case { burst: 5.0, delay_ms: 5, ..line("3hops-17%-bursts5-5ms", 3, 0.17) },
    Case { bad_loss: Some(0.20), delay_ms: 5, ..line("5hops-one-of-20%-5ms", 5, 0.01) },
    Case { bad_loss: Some(0.30), ..line("3hops-one-of-30%", 3, 0.01) },
    Case { reorder: 0.05, duplicate: 0.01, delay_ms: 5, ..line("2hops-reordered-5ms", 2, 0.01) },
    Case { beside: Some("cubic"), delay_ms: 10, ..line("1hop-beside-cubic-10ms", 1, 0.0) },
    Case { beside: Some("bbr"), delay_ms: 10, ..line("1hop-beside-bbr-10ms", 1, 0.0) },
    by_default(Case { twins: true, delay_ms: 10, ..line("1hop-twins-10ms", 1, 0.0) }),
    Case { relay_killed: true, delay_ms: 5, ..line("2hops-relay-killed-5ms", 2, 0.05) },
    Case { middle_mtu: Some(1400), ..line("2hops-mtu1400", 2, 0.01) },
    by_default(Case {
        rate_falls_to: Some(50.0),
        delay_ms: 5,
        ..line("2hops-rate-falls-5ms", 2, 0.01)
    }),
];

impl Case {
    /// The case of a name.
    pub fn named(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
    }

    /// The bed for it.
    pub fn bed(&self, seed: u64) -> BedConfig {
        let link = |loss: f64| {
            let loss = Loss { share: loss, burst_mean: self.burst };
            let late = if self.reorder > 0.0 { Duration::from_millis(3) } else { Duration::ZERO };
            let direction = DirectionConfig {
                queue: QUEUE,
                delay: Duration::from_millis(self.delay_ms),
                reorder: self.reorder,
                reorder_by: late,
                duplicate: self.duplicate,
                ..DirectionConfig::new(loss, self.rate_mbit)
            };
            // All timed: lost packets have spent airtime on every line, all senders can fill
            // queues, and the queue of each link is known.
            LinkConfig { timed: true, ..LinkConfig::both(direction) }
        };
        let mut config = BedConfig { seed, ..BedConfig::uniform(self.hops, link(self.loss)) };
        if let Some(loss) = self.bad_loss {
            config.links[self.hops / 2] = link(loss);
        }
        config
    }

    /// The TCP payload that the links can carry in Mbit/s: by themselves, or through a tunnel.
    pub fn limit_mbit(&self, is_tunnel: bool) -> f64 {
        let payload = if is_tunnel { PAYLOAD_CODED } else { PAYLOAD_PLAIN };
        let loss = self.bad_loss.unwrap_or(0.0).max(self.loss);
        self.rate_mbit * (1.0 - loss) * payload / PACKET
    }

    /// Round trip without queues.
    pub fn round_trip(&self) -> Duration {
        Duration::from_millis(2 * self.hops as u64 * self.delay_ms)
    }

    /// Ignored at the start of a stream: start-up takes some round trips.
    pub fn omitted(&self) -> Duration {
        OMITTED.max(OMITTED_ROUND_TRIPS * self.round_trip())
    }

    /// Whether the ends need larger TCP buffers than Linux's defaults to fill the line.
    pub fn needs_buffers(&self) -> bool {
        self.round_trip().as_secs_f64() * self.rate_mbit * 1e6 / 8.0 > BUFFERED_BYTES
    }
}
