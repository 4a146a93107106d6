//! One seed in fifty: a relay with all keys lies on one of two paths.

use recoded_pipeline::params::Nanos;

use crate::graph::path_edges;
use crate::liar::{Liar, Lie};
use crate::liar_rows::LiarRow;
use crate::link::{Link, Rate};
use crate::random::{Random, Stream};
use crate::scenario::{Hop, Scenario};

/// One seed in this many draws a liar. Such a run takes ten times as long as another.
const ONE_IN: u64 = 50;

const MILLI: Nanos = 1_000_000;

/// Most loss of each link. Over three of them a tenth is lost, at a load of half the rate.
const LOSS_MAX: f64 = 0.03;

impl Scenario {
    /// Whether [`Scenario::from_seed`] draws a liar.
    #[must_use]
    pub fn draws_liar(seed: u64) -> bool {
        drawn(seed).is_some()
    }
}

/// The stream of a seed that draws a liar.
fn drawn(seed: u64) -> Option<Random> {
    let mut random = Random::new(seed, Stream::Liar);
    (random.among(1..=ONE_IN) == 1).then_some(random)
}

/// Draws the scenario of a seed, if it has a liar: any code, any way to use both paths, any lie.
/// Either path has room for all packets.
pub(crate) fn draw(seed: u64) -> Option<Scenario> {
    let mut random = drawn(seed)?;
    let (code, spread) = random.pick(LiarRow::CASES);
    let lengths = [random.size(2..=3), random.size(2..=3)];
    let relays = lengths[0] + lengths[1] - 2;
    let liar = Liar {
        node: random.size(1..=relays),
        lie: random.pick(&Lie::ALL),
        from: random.among(500 * MILLI..=1500 * MILLI),
    };
    let mut scenario = Scenario::graph(seed, &path_edges(&lengths), Link::CLEAN);
    scenario.nodes[0].spread = spread;
    let mut scenario = scenario.with_keys_and_load(code).with_liar(liar);
    scenario.hops.fill_with(|| link(&mut random));
    Some(scenario)
}

fn link(random: &mut Random) -> Hop {
    Hop::both(Link {
        delay_nanos: random.pick(&[MILLI / 2, 2 * MILLI, 5 * MILLI, 10 * MILLI]),
        rate: Some(Rate { bits_per_second: 20_000_000, queue_packets: 64 }),
        ..Link::lossy(random.between(0.0, LOSS_MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_draw_every_lie_on_every_path_and_promise_delivery() {
        let (mut liars, mut lies, mut nodes) = (0, BTreeSet::new(), BTreeSet::new());
        for scenario in (0..10_000).filter_map(draw) {
            let [Liar { node, lie, from }] = scenario.liars[..] else { panic!("one liar") };
            let sink = scenario.nodes.len() - 1;
            assert!((1..sink).contains(&node), "{node} of {sink}");
            let promised = scenario.promise.delivered.clone().expect("delivery is promised");
            assert!(promised.start > from && promised.start < scenario.traffic.end());
            assert!(scenario.hop_tags && scenario.nodes.iter().all(|node| node.sealed));
            liars += 1;
            lies.insert(lie.name());
            nodes.insert((node, sink));
        }
        assert!((150..250).contains(&liars), "{liars}");
        assert_eq!((lies.len(), nodes.len()), (Lie::ALL.len(), 2 + 3 + 4), "{nodes:?}");
    }
}
