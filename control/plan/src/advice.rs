//! Recommends a network for several ways, or several receivers, by arithmetic on links that were
//! measured separately.
//!
//! ```text
//!  links, each measured once ──┬── ways: links in their order, and where they lead
//!                              v
//!   choices: what every receiver gets, how late, what the source sends for it,
//!            what is left when a link is cut ──> one of them, and why
//! ```
//!
//! Rates are those of streams in `forecast`; ways that share a link get equal parts of it.
//! Unmeasured bottlenecks, such as an uplink in front of two links that both look fast, are not
//! known here.

mod fill;

use serde::Serialize;

use crate::forecast::{BETTER, Direction, Forecast, Hop, Verdict, codes};
use crate::measured::Measured;
use fill::fill;

/// Most ways.
pub const WAYS_MAX: usize = 64;

/// Most ways to one receiver: the limit of next hops of a flow.
pub const PATHS_MAX: usize = 8;

/// A way from the near end to a receiver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Way {
    /// The receiver at its end.
    pub receiver: String,
    /// Its links by number, from the near end.
    pub links: Vec<usize>,
}

/// Kinds of networks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkKind {
    /// One link, no relay.
    Direct,
    /// One way over relays.
    Line,
    /// Several ways that share the traffic.
    Sum,
    /// Several ways; the first working one carries the traffic.
    Backup,
    /// Several ways that each carry everything.
    Every,
    /// Several receivers; each link carries everything once.
    Tree,
    /// Several receivers, one flow to each.
    Apart,
}

impl NetworkKind {
    /// Name for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NetworkKind::Direct => "direct",
            NetworkKind::Line => "line",
            NetworkKind::Sum => "paths, sum",
            NetworkKind::Backup => "paths, backup",
            NetworkKind::Every => "paths, every",
            NetworkKind::Tree => "tree",
            NetworkKind::Apart => "a flow to each",
        }
    }

    /// The value of `spread` for it, if needed.
    #[must_use]
    pub fn spread(self) -> Option<&'static str> {
        match self {
            NetworkKind::Sum => Some("sum"),
            NetworkKind::Backup => Some("backup"),
            NetworkKind::Every | NetworkKind::Tree => Some("every"),
            NetworkKind::Direct | NetworkKind::Line | NetworkKind::Apart => None,
        }
    }
}

/// A possible network and its benefit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choice {
    /// Its kind.
    pub shape: NetworkKind,
    /// Its ways, by number.
    pub ways: Vec<usize>,
    /// Rate of the slowest receiver, Mbit/s of TCP payload.
    pub mbit: f64,
    /// The same from the far end to the near end, with one receiver.
    pub back_mbit: Option<f64>,
    /// One-way delay to the farthest receiver with the whole network in use, in milliseconds,
    /// without queues and losses.
    pub one_way_ms: f64,
    /// Packets that the source sends per packet that enters.
    pub packets: f64,
    /// Rate of the slowest receiver after the worst failure of a single link.
    pub left_mbit: f64,
}

/// Why a network is recommended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// There is one way.
    OneWay,
    /// There is one way, and plain TCP performs as well on it.
    NotWorthIt,
    /// The ways together carry more.
    Adds,
    /// They do not, but one survives the failure of another.
    Reserve,
    /// They do not, and depend on a common link.
    Shared,
    /// Links that lead to several receivers carry everything once.
    Once,
    /// That does not increase any receiver's rate.
    NothingShared,
}

/// Possible networks, and the recommended one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// All possible networks.
    pub choices: Vec<Choice>,
    /// The recommended one, by number.
    pub recommended: usize,
    /// The reason.
    pub why: Why,
}

/// Invalid ways.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WaysError {
    /// None, or too many.
    #[error("{0} ways: 1 to {WAYS_MAX} are compared")]
    Count(usize),
    /// Too many to one receiver.
    #[error("{0} ways lead to {1}: a flow has at most {PATHS_MAX} next hops")]
    Paths(usize, String),
    /// A way has no link, or a missing one.
    #[error("way {0} names no link that was measured")]
    Links(usize),
    /// A way visits a link twice.
    #[error("way {0} takes a link twice: ways lead in no circle")]
    Circle(usize),
    /// Two are identical.
    #[error("ways {0} and {1} take the same links: name each way once")]
    Twice(usize, usize),
}

/// Links in one direction, with values derived from them.
struct Net {
    hops: Vec<Hop>,
    /// Mbit/s of TCP payload in a stream, and its packets per symbol.
    carried: Vec<(f64, f64)>,
}

impl Net {
    fn new(links: &[Measured], direction: Direction) -> Net {
        let hops: Vec<Hop> = links.iter().map(|link| Hop::new(link, direction)).collect();
        let carried = hops.iter().map(codes::stream).collect();
        Net { hops, carried }
    }

    fn trip(&self, way: &Way) -> f64 {
        way.links.iter().map(|link| self.hops[*link].round_trip).sum()
    }

    /// Packets that the source sends per packet that takes a way.
    fn packets(&self, way: &Way) -> f64 {
        self.carried[way.links[0]].1
    }

    /// Rates of several ways that share links.
    fn together(&self, ways: &[&Way]) -> Vec<f64> {
        let rooms: Vec<f64> = self.carried.iter().map(|(mbit, _)| *mbit).collect();
        let links: Vec<&[usize]> = ways.iter().map(|way| way.links.as_slice()).collect();
        let got = fill(&rooms, &links).into_iter().zip(ways);
        got.map(|(mbit, way)| mbit * codes::stream_reached(self.trip(way))).collect()
    }

    /// Rate of a way by itself.
    fn alone(&self, way: &Way) -> f64 {
        self.together(&[way])[0]
    }

    /// Rate of the slowest receiver in a network of these ways.
    fn carries(&self, shape: NetworkKind, ways: &[&Way]) -> f64 {
        let least = |all: &mut dyn Iterator<Item = f64>| all.min_by(f64::total_cmp).unwrap_or(0.0);
        let each = || ways.iter().map(|way| self.alone(way));
        match shape {
            NetworkKind::Sum => self.together(ways).iter().sum(),
            NetworkKind::Backup => each().fold(0.0, f64::max),
            // All links carry everything, once.
            NetworkKind::Direct | NetworkKind::Line | NetworkKind::Every | NetworkKind::Tree => {
                least(&mut each())
            }
            NetworkKind::Apart => least(&mut self.together(ways).into_iter()),
        }
    }

    /// The same after the worst failure of a single link.
    fn left(&self, shape: NetworkKind, ways: &[&Way]) -> f64 {
        let several = matches!(shape, NetworkKind::Sum | NetworkKind::Backup | NetworkKind::Every);
        let links = ways.iter().flat_map(|way| &way.links);
        let without = |link: &usize| {
            let remain = ways.iter().copied().filter(|way| !way.links.contains(link));
            let remain: Vec<&Way> = remain.collect();
            if several && !remain.is_empty() { self.carries(shape, &remain) } else { 0.0 }
        };
        links.map(without).min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// Packets that the source sends per packet that enters.
    fn sent(&self, shape: NetworkKind, ways: &[&Way]) -> f64 {
        let mut each = ways.iter().map(|way| self.packets(way));
        match shape {
            NetworkKind::Direct | NetworkKind::Line | NetworkKind::Apart => each.sum(),
            NetworkKind::Backup => each.next().unwrap_or(0.0),
            NetworkKind::Sum => {
                let got = self.together(ways);
                let all: f64 = got.iter().sum();
                got.iter().zip(each).map(|(mbit, packets)| mbit * packets / all.max(1e-9)).sum()
            }
            NetworkKind::Every | NetworkKind::Tree => {
                let mut first: Vec<usize> = ways.iter().map(|way| way.links[0]).collect();
                first.sort_unstable();
                first.dedup();
                first.iter().map(|link| self.carried[*link].1).sum()
            }
        }
    }

    /// Longest one-way delay with the whole network in use, in milliseconds.
    fn one_way_ms(&self, shape: NetworkKind, ways: &[&Way]) -> f64 {
        let mut each = ways.iter().map(|way| self.trip(way) / 2.0 * 1e3);
        match shape {
            // The earliest copy counts.
            NetworkKind::Every => each.fold(f64::INFINITY, f64::min),
            NetworkKind::Backup => each.next().unwrap_or(0.0),
            _ => each.fold(0.0, f64::max),
        }
    }
}

impl Advice {
    /// Compares the networks that can be built from ways over measured links.
    ///
    /// # Errors
    /// [`WaysError`]: invalid ways.
    pub fn new(links: &[Measured], ways: &[Way]) -> Result<Advice, WaysError> {
        check(links.len(), ways)?;
        let (there, back) = (Net::new(links, Direction::There), Net::new(links, Direction::Back));
        // The best first: the others are its backup.
        let mut order: Vec<usize> = (0..ways.len()).collect();
        order.sort_by(|one, other| there.alone(&ways[*other]).total_cmp(&there.alone(&ways[*one])));
        let is_one = ways.iter().all(|way| way.receiver == ways[0].receiver);
        let choice = |shape: NetworkKind, numbers: Vec<usize>| {
            let taken: Vec<&Way> = numbers.iter().map(|number| &ways[*number]).collect();
            Choice {
                shape,
                mbit: there.carries(shape, &taken),
                back_mbit: is_one.then(|| back.carries(shape, &taken)),
                one_way_ms: there.one_way_ms(shape, &taken),
                packets: there.sent(shape, &taken),
                left_mbit: there.left(shape, &taken),
                ways: numbers,
            }
        };
        if is_one {
            Ok(to_one(&there, ways, &order, choice))
        } else {
            Ok(to_several(ways, &order, choice))
        }
    }

    /// The recommended network.
    #[must_use]
    pub fn best(&self) -> &Choice {
        &self.choices[self.recommended]
    }

    /// The network of this kind, if possible.
    #[must_use]
    pub fn find(&self, shape: NetworkKind) -> Option<&Choice> {
        self.choices.iter().find(|choice| choice.shape == shape)
    }
}

fn to_one(
    net: &Net,
    ways: &[Way],
    order: &[usize],
    choice: impl Fn(NetworkKind, Vec<usize>) -> Choice,
) -> Advice {
    let shape =
        |way: &Way| if way.links.len() == 1 { NetworkKind::Direct } else { NetworkKind::Line };
    let mut choices: Vec<Choice> =
        order.iter().map(|number| choice(shape(&ways[*number]), vec![*number])).collect();
    if ways.len() == 1 {
        let hops: Vec<Hop> = ways[0].links.iter().map(|link| net.hops[*link]).collect();
        let forecast = Forecast::new(Direction::There, &hops);
        let is_none = forecast.is_some_and(|forecast| forecast.verdict == Verdict::No);
        let why = if is_none { Why::NotWorthIt } else { Why::OneWay };
        return Advice { choices, recommended: 0, why };
    }
    let best = choices[0].mbit;
    let first = choices.len();
    let several = [NetworkKind::Sum, NetworkKind::Backup, NetworkKind::Every];
    choices.extend(several.map(|shape| choice(shape, order.to_vec())));
    let (recommended, why) = if choices[first].mbit >= BETTER * best {
        (first, Why::Adds)
    } else if choices[first + 1].left_mbit > 0.0 {
        (first + 1, Why::Reserve)
    } else {
        (0, Why::Shared)
    };
    Advice { choices, recommended, why }
}

/// To each receiver over the best of its ways.
fn to_several(
    ways: &[Way],
    order: &[usize],
    choice: impl Fn(NetworkKind, Vec<usize>) -> Choice,
) -> Advice {
    let mut taken: Vec<usize> = Vec::new();
    for number in order {
        if taken.iter().all(|other| ways[*other].receiver != ways[*number].receiver) {
            taken.push(*number);
        }
    }
    taken.sort_unstable();
    let choices = vec![choice(NetworkKind::Tree, taken.clone()), choice(NetworkKind::Apart, taken)];
    let is_better = choices[0].mbit >= BETTER * choices[1].mbit
        || choices[0].packets * BETTER <= choices[1].packets;
    let (recommended, why) = if is_better { (0, Why::Once) } else { (1, Why::NothingShared) };
    Advice { choices, recommended, why }
}

fn check(links: usize, ways: &[Way]) -> Result<(), WaysError> {
    if !(1..=WAYS_MAX).contains(&ways.len()) {
        return Err(WaysError::Count(ways.len()));
    }
    for (number, way) in ways.iter().enumerate() {
        if way.links.is_empty() || way.links.iter().any(|link| *link >= links) {
            return Err(WaysError::Links(number + 1));
        }
        if (1..way.links.len()).any(|at| way.links[..at].contains(&way.links[at])) {
            return Err(WaysError::Circle(number + 1));
        }
        if let Some(other) = ways[..number].iter().position(|other| other == way) {
            return Err(WaysError::Twice(other + 1, number + 1));
        }
        let paths = ways.iter().filter(|other| other.receiver == way.receiver).count();
        if paths > PATHS_MAX {
            return Err(WaysError::Paths(paths, way.receiver.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
