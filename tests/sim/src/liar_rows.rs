//! What a liar on one of two paths costs: each lie, for each way to use both paths.

use std::fmt;

use recoded_pipeline::params::{FlowCode, Nanos, Spread};

use crate::code::Code;
use crate::liar::{Liar, Lie};
use crate::link::{Link, Rate};
use crate::scenario::{Hop, Scenario};
use crate::trace::Step;
use crate::traffic::Traffic;
use crate::violation::Violation;

const MILLI: Nanos = 1_000_000;

/// The nodes of [`Scenario::beside_liar`]: the liar's path comes first, as the preferred one.
const LIAR_PATHS: [(usize, usize); 4] = [(0, 1), (1, 3), (0, 2), (2, 3)];
const HONEST_PATH: [(usize, usize); 2] = [(0, 1), (1, 2)];

/// One-way delay of each link of the liar's path, and of the honest one.
const LIAR_DELAY: Nanos = 5 * MILLI;
const HONEST_DELAY: Nanos = 10 * MILLI;

/// Loss of each link.
const LOSS: f64 = 0.02;

/// Packets, one each millisecond: two fifths of the rate of the honest path.
const PACKETS: u32 = 6000;

/// Frames of each worker: blocks hold more of them than generations.
const FRAMES: usize = 32_768;

/// When the liar begins, and when the traffic ends.
const LIES_FROM: Nanos = 1000 * MILLI;
const TRAFFIC_END: Nanos = PACKETS as Nanos * MILLI;

/// Time until the path of a liar is judged, with a margin. Packets that enter later are promised.
const JUDGED_NANOS: Nanos = 1500 * MILLI;

/// A lie, and the packets that arrive in spite of it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct LiarRow {
    /// Seed of both runs.
    pub seed: u64,
    /// The code of the flow.
    pub code: Code,
    /// How it uses both paths.
    pub spread: Spread,
    /// The lie.
    pub lie: Lie,
    /// Packets that entered and were delivered while the liar lied, as a share of those over the
    /// honest path alone.
    pub share: f64,
    /// Packets that were never delivered, of those that entered from a second and a half after the
    /// first lie on. Until then, the source judges the path.
    pub missing: u64,
    /// Delay that one packet in a hundred exceeds.
    pub late_nanos: Nanos,
}

impl LiarRow {
    /// Packets of [`LiarRow::missing`] that may miss: trials of the liar's path.
    pub const MISSING_MAX: u64 = 10;

    /// Codes and ways to use both paths.
    pub const CASES: &[(Code, Spread)] = &[
        (Code::Stream, Spread::Every),
        (Code::Rlnc, Spread::Every),
        #[cfg(feature = "bats")]
        (Code::Bats, Spread::Every),
        (Code::Stream, Spread::Sum),
        (Code::Stream, Spread::Backup),
    ];

    /// Runs every lie for every case.
    ///
    /// # Errors
    /// The first violated invariant, with the row that violated it.
    pub fn all(seed: u64) -> Result<Vec<LiarRow>, (String, Violation)> {
        let cases = LiarRow::CASES.iter().map(|case| LiarRow::of_case(seed, case.0, case.1));
        Ok(cases.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Runs every lie for one of [`LiarRow::CASES`], once over the honest path alone and once with
    /// the liar.
    ///
    /// # Errors
    /// The first violated invariant, with the row that violated it.
    pub fn of_case(
        seed: u64,
        code: Code,
        spread: Spread,
    ) -> Result<Vec<LiarRow>, (String, Violation)> {
        let alone = Scenario::honest_path(seed, code);
        let named = |violation| (format!("honest path, {code:?}, seed {seed}"), violation);
        let honest = Delivered::of(&alone).map_err(named)?.during;
        let row = |lie: Lie| {
            let beside = Scenario::beside_liar(seed, code, spread, lie);
            let name = format!("{code:?}, {spread:?}, {}, seed {seed}", lie.name());
            let Delivered { during, missing, late_nanos } =
                Delivered::of(&beside).map_err(|violation| (name, violation))?;
            let share = during as f64 / honest.max(1) as f64;
            Ok(LiarRow { seed, code, spread, lie, share, missing, late_nanos })
        };
        Lie::ALL.into_iter().map(row).collect()
    }

    /// Names of code, way and lie.
    #[must_use]
    pub fn names(&self) -> [&'static str; 3] {
        let code = match self.code {
            Code::Rlnc => "rlnc",
            #[cfg(feature = "bats")]
            Code::Bats => "bats",
            Code::Stream => "stream",
        };
        let spread = match self.spread {
            Spread::Every => "every",
            Spread::Sum => "sum",
            Spread::Backup => "failover",
        };
        [code, spread, self.lie.name()]
    }
}

impl fmt::Display for LiarRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [code, spread, lie] = self.names();
        let LiarRow { share, missing, late_nanos, .. } = self;
        let late = *late_nanos as f64 / 1e6;
        write!(f, "{code:<7} {spread:<9} {lie:<32} {share:>6.3} {missing:>8} {late:>9.1} ms")
    }
}

/// What was delivered in a run.
struct Delivered {
    during: u64,
    missing: u64,
    late_nanos: Nanos,
}

impl Delivered {
    fn of(scenario: &Scenario) -> Result<Delivered, Violation> {
        let mut during = 0;
        let mut network = |now: Nanos, step: &Step<'_>| {
            let is_delivered = matches!(step, Step::Delivered { .. });
            during += u64::from(is_delivered && (LIES_FROM..TRAFFIC_END).contains(&now));
        };
        let outcome = crate::run_watched(scenario, &mut network)?;
        let late_nanos = outcome.delays.quantile(0.99);
        Ok(Delivered { during, missing: outcome.missing, late_nanos })
    }
}

impl Scenario {
    /// Six seconds of traffic over two paths of two links of 20 Mbit/s and 2 % loss, with all keys.
    /// The relay of one of them lies from the second second on. The honest path has room for all.
    #[must_use]
    pub fn beside_liar(seed: u64, code: Code, spread: Spread, lie: Lie) -> Scenario {
        let mut scenario = Scenario::graph(seed, &LIAR_PATHS, Link::CLEAN);
        scenario.nodes[0].spread = spread;
        let liar = Liar { node: 1, lie, from: LIES_FROM };
        let mut scenario = scenario.with_keys_and_load(code).with_liar(liar);
        scenario.hops[..2].fill(link(LIAR_DELAY));
        // Rows report what is missing.
        scenario.promise.missing_max = u64::from(PACKETS);
        scenario
    }

    /// The honest path of [`Scenario::beside_liar`] alone, under the same traffic.
    #[must_use]
    pub fn honest_path(seed: u64, code: Code) -> Scenario {
        Scenario::graph(seed, &HONEST_PATH, Link::CLEAN).with_keys_and_load(code)
    }

    /// Adds a liar, and promises what enters once its path is judged.
    pub(crate) fn with_liar(mut self, liar: Liar) -> Scenario {
        self.promise.delivered = Some(liar.from + JUDGED_NANOS..Nanos::MAX);
        self.promise.missing_max = LiarRow::MISSING_MAX;
        self.liars = vec![liar];
        self
    }

    /// Six seconds of traffic of 8 Mbit/s, with all keys, over links of 20 Mbit/s.
    pub(crate) fn with_keys_and_load(self, code: Code) -> Scenario {
        let mut scenario = self.coded(code).with(|node| {
            (node.sealed, node.tagged) = (true, true);
            node.symbol_bytes = match node.code {
                FlowCode::Stream(_) => 1200,
                _ => 300,
            };
            // A block of ten packets.
            node.flush_timeout_nanos = 10 * MILLI;
        });
        scenario.hops.fill(link(HONEST_DELAY));
        scenario.hop_tags = true;
        scenario.frames = FRAMES;
        scenario.traffic = Traffic {
            packets: PACKETS,
            alone: (0, 0),
            bytes: 900..=1100,
            interval_nanos: MILLI,
            alone_nanos: MILLI,
            burst: 1,
            pauses: None,
            flows: 4,
        };
        scenario
    }
}

fn link(delay_nanos: Nanos) -> Hop {
    let rate = Some(Rate { bits_per_second: 20_000_000, queue_packets: 64 });
    Hop::both(Link { delay_nanos, rate, ..Link::lossy(LOSS) })
}
