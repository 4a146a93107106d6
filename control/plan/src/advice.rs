//! Which network to build where there are several ways, or several receivers: arithmetic on links
//! that were measured one by one.
//!
//! ```text
//!  links, each measured once ──┬── ways: links in their order, and where they lead
//!                              v
//!   choices: what every receiver gets, how late, what the source sends for it,
//!            what is left when a link is cut ──> one of them, and why
//! ```
//!
//! Rates are those of streams by `forecast`, where ways share a link in equal parts of it. What is
//! not measured, such as an uplink in front of two links that both look fast, is not known here.

mod fill;

use serde::Serialize;

use crate::forecast::{BETTER, Direction, Forecast, Hop, Verdict, codes};
use crate::measured::Measured;
use fill::fill;

/// Most ways.
pub const WAYS_MAX: usize = 64;

/// Most of them to one receiver: a flow has so many next hops.
pub const PATHS_MAX: usize = 8;

/// A way from the near end to a receiver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Way {
    /// Who is at its end.
    pub receiver: String,
    /// Its links by number, from the near end on.
    pub links: Vec<usize>,
}

/// A network that could be built.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// One link, no relay.
    Direct,
    /// One way over relays.
    Line,
    /// Several ways that share the traffic.
    Sum,
    /// Several ways, of which the first that answers is used.
    Backup,
    /// Several ways that all carry everything.
    Every,
    /// Several receivers; each link carries everything once.
    Tree,
    /// Several receivers, a flow to each.
    Apart,
}

impl Shape {
    /// For tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shape::Direct => "direct",
            Shape::Line => "line",
            Shape::Sum => "paths, sum",
            Shape::Backup => "paths, backup",
            Shape::Every => "paths, every",
            Shape::Tree => "tree",
            Shape::Apart => "a flow to each",
        }
    }

    /// The value of `spread` that makes it, where it needs one.
    #[must_use]
    pub fn spread(self) -> Option<&'static str> {
        match self {
            Shape::Sum => Some("sum"),
            Shape::Backup => Some("backup"),
            Shape::Every | Shape::Tree => Some("every"),
            Shape::Direct | Shape::Line | Shape::Apart => None,
        }
    }
}

/// What a network brings.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choice {
    /// Which.
    pub shape: Shape,
    /// Ways that it takes, by number.
    pub ways: Vec<usize>,
    /// What the receiver that gets least gets, Mbit/s of TCP payload.
    pub mbit: f64,
    /// The same from the far end to the near end, where there is one receiver.
    pub back_mbit: Option<f64>,
    /// To the receiver that waits longest when all of it is used, milliseconds one way, without
    /// queues and losses.
    pub one_way_ms: f64,
    /// Packets that the source sends for each one that enters.
    pub packets: f64,
    /// What is left to the receiver that gets least when the link is cut whose loss costs most.
    pub left_mbit: f64,
}

/// Why a network is recommended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// There is one way.
    OneWay,
    /// There is one way, and plain TCP does as well on it.
    NotWorthIt,
    /// The ways carry more together.
    Adds,
    /// They do not, but one goes on when another is cut.
    Reserve,
    /// They do not, and share a link without which nothing is left.
    Shared,
    /// Links that lead to several receivers carry everything once.
    Once,
    /// No receiver gets more by that.
    NothingShared,
}

/// What could be built, and what should be.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// All that could be.
    pub choices: Vec<Choice>,
    /// Which of them, by number.
    pub recommended: usize,
    /// Why.
    pub why: Why,
}

/// Ways that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WaysError {
    /// None, or too many.
    #[error("{0} ways: 1 to {WAYS_MAX} are compared")]
    Count(usize),
    /// To one receiver.
    #[error("{0} ways lead to {1}: a flow has at most {PATHS_MAX} next hops")]
    Paths(usize, String),
    /// One has no link, or one that is not there.
    #[error("way {0} names no link that was measured")]
    Links(usize),
    /// One comes to a link again.
    #[error("way {0} takes a link twice: ways lead in no circle")]
    Circle(usize),
    /// Two are the same.
    #[error("ways {0} and {1} take the same links: name each way once")]
    Twice(usize, usize),
}

/// Links in one direction, with what follows from them.
struct Net {
    hops: Vec<Hop>,
    /// Mbit/s of TCP payload in a stream, and its packets for each.
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

    /// Packets that the source sends for each one that takes a way.
    fn packets(&self, way: &Way) -> f64 {
        self.carried[way.links[0]].1
    }

    /// What each of several ways gets that share links.
    fn together(&self, ways: &[&Way]) -> Vec<f64> {
        let rooms: Vec<f64> = self.carried.iter().map(|(mbit, _)| *mbit).collect();
        let links: Vec<&[usize]> = ways.iter().map(|way| way.links.as_slice()).collect();
        let got = fill(&rooms, &links).into_iter().zip(ways);
        got.map(|(mbit, way)| mbit * codes::stream_reached(self.trip(way))).collect()
    }

    /// What a way carries by itself.
    fn alone(&self, way: &Way) -> f64 {
        self.together(&[way])[0]
    }

    /// What the receiver that gets least gets of a network of these ways.
    fn carries(&self, shape: Shape, ways: &[&Way]) -> f64 {
        let least = |all: &mut dyn Iterator<Item = f64>| all.min_by(f64::total_cmp).unwrap_or(0.0);
        let each = || ways.iter().map(|way| self.alone(way));
        match shape {
            Shape::Sum => self.together(ways).iter().sum(),
            Shape::Backup => each().fold(0.0, f64::max),
            // All links carry everything, once.
            Shape::Direct | Shape::Line | Shape::Every | Shape::Tree => least(&mut each()),
            Shape::Apart => least(&mut self.together(ways).into_iter()),
        }
    }

    /// The same when the link is cut whose loss costs most.
    fn left(&self, shape: Shape, ways: &[&Way]) -> f64 {
        let several = matches!(shape, Shape::Sum | Shape::Backup | Shape::Every);
        let links = ways.iter().flat_map(|way| &way.links);
        let without = |link: &usize| {
            let remain = ways.iter().copied().filter(|way| !way.links.contains(link));
            let remain: Vec<&Way> = remain.collect();
            if several && !remain.is_empty() { self.carries(shape, &remain) } else { 0.0 }
        };
        links.map(without).min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// Packets that the source sends for each one that enters.
    fn sent(&self, shape: Shape, ways: &[&Way]) -> f64 {
        let mut each = ways.iter().map(|way| self.packets(way));
        match shape {
            Shape::Direct | Shape::Line | Shape::Apart => each.sum(),
            Shape::Backup => each.next().unwrap_or(0.0),
            Shape::Sum => {
                let got = self.together(ways);
                let all: f64 = got.iter().sum();
                got.iter().zip(each).map(|(mbit, packets)| mbit * packets / all.max(1e-9)).sum()
            }
            Shape::Every | Shape::Tree => {
                let mut first: Vec<usize> = ways.iter().map(|way| way.links[0]).collect();
                first.sort_unstable();
                first.dedup();
                first.iter().map(|link| self.carried[*link].1).sum()
            }
        }
    }

    /// Longest one-way delay when all of it is used, milliseconds.
    fn one_way_ms(&self, shape: Shape, ways: &[&Way]) -> f64 {
        let mut each = ways.iter().map(|way| self.trip(way) / 2.0 * 1e3);
        match shape {
            // The copy that comes first counts.
            Shape::Every => each.fold(f64::INFINITY, f64::min),
            Shape::Backup => each.next().unwrap_or(0.0),
            _ => each.fold(0.0, f64::max),
        }
    }
}

impl Advice {
    /// Compares what could be built of ways over measured links.
    ///
    /// # Errors
    /// [`WaysError`]: ways that cannot be.
    pub fn new(links: &[Measured], ways: &[Way]) -> Result<Advice, WaysError> {
        check(links.len(), ways)?;
        let (there, back) = (Net::new(links, Direction::There), Net::new(links, Direction::Back));
        // The best first: it is the one that a backup is for.
        let mut order: Vec<usize> = (0..ways.len()).collect();
        order.sort_by(|one, other| there.alone(&ways[*other]).total_cmp(&there.alone(&ways[*one])));
        let is_one = ways.iter().all(|way| way.receiver == ways[0].receiver);
        let choice = |shape: Shape, numbers: Vec<usize>| {
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

    /// The one to build.
    #[must_use]
    pub fn best(&self) -> &Choice {
        &self.choices[self.recommended]
    }

    /// One that is not recommended.
    #[must_use]
    pub fn find(&self, shape: Shape) -> Option<&Choice> {
        self.choices.iter().find(|choice| choice.shape == shape)
    }
}

fn to_one(
    net: &Net,
    ways: &[Way],
    order: &[usize],
    choice: impl Fn(Shape, Vec<usize>) -> Choice,
) -> Advice {
    let shape = |way: &Way| if way.links.len() == 1 { Shape::Direct } else { Shape::Line };
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
    let several = [Shape::Sum, Shape::Backup, Shape::Every];
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

/// To each receiver by the best of its ways.
fn to_several(
    ways: &[Way],
    order: &[usize],
    choice: impl Fn(Shape, Vec<usize>) -> Choice,
) -> Advice {
    let mut taken: Vec<usize> = Vec::new();
    for number in order {
        if taken.iter().all(|other| ways[*other].receiver != ways[*number].receiver) {
            taken.push(*number);
        }
    }
    taken.sort_unstable();
    let choices = vec![choice(Shape::Tree, taken.clone()), choice(Shape::Apart, taken)];
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
