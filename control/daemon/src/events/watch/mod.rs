//! Detects changes between two looks at the state, a second apart.
//!
//! Uses the state that clients see, so an event and `recodectl show` agree. Keeps the previous
//! state, and nothing that grows beyond the names in the configuration.

mod drops;
mod flows;
mod rates;

use super::{Happened, Kind};
use drops::Drops;
use rates::Rates;
use recoded_api::v1::{Disagreement, Engine, Link, Neighbour, Session, State, Tunnel, Worker};
use std::collections::BTreeMap;

/// Compares the state with the previous one.
#[derive(Debug, Default)]
pub struct Watcher {
    before: Option<State>,
    drops: Drops,
    rates: Rates,
}

impl Watcher {
    /// Records socket counters of each link, in the order of the links, by receive queue. Call it
    /// before the look at the state of the same moment.
    pub fn note_queues(&mut self, queues: &[Vec<BTreeMap<String, u64>>]) {
        self.drops.note_queues(queues.to_vec());
    }

    /// Returns the changes since the last look; the first look reports links that are down.
    pub fn look(&mut self, state: State) -> Vec<Happened> {
        let mut events = Vec::new();
        for link in &state.links {
            let old = self.before.as_ref().and_then(|it| named(&it.links, &link.name));
            self::link(old, link, &mut events);
            disagreements(old, link, &mut events);
            moves(old, link, &mut events);
            clocks(old, link, &mut events);
        }
        if let Some(before) = &self.before {
            for tunnel in &state.tunnels {
                if let Some(old) = before.tunnels.iter().find(|old| old.name == tunnel.name) {
                    self::tunnel(old, tunnel, &mut events);
                }
            }
            for session in &state.sessions {
                if let Some(old) = before.sessions.iter().find(|old| old.with == session.with) {
                    self::session(old, session, &mut events);
                }
            }
            flows::compare(&before.flows, &state.flows, &mut events);
            engine(&before.engine, &state.engine, &mut events);
            for (old, new) in before.workers.iter().zip(&state.workers) {
                worker(old, new, &mut events);
            }
            self.drops.compare(before, &state, &mut events);
        }
        self.rates.look(&state.flows, &mut events);
        self.before = Some(state);
        events
    }
}

fn named<'a>(links: &'a [Link], name: &str) -> Option<&'a Link> {
    links.iter().find(|link| link.name == name)
}

fn link(old: Option<&Link>, new: &Link, events: &mut Vec<Happened>) {
    let subject = format!("link {}", new.name);
    let Link { interface, mtu, .. } = new;
    let before = old.map_or("up", |old| old.state.as_str());
    if before != new.state {
        events.push(match new.state.as_str() {
            "up" => Happened::new(Kind::LinkUp, &subject, format!("{interface} is up")),
            "waiting" => Happened::new(
                Kind::LinkDown,
                &subject,
                format!("waiting: {}: packets for it are dropped", new.waits),
            ),
            state => Happened::new(Kind::LinkDown, &subject, format!("{interface} is {state}")),
        });
    }
    // An interface that is gone has no MTU.
    if let Some(old) = old.filter(|old| old.mtu != *mtu && old.mtu > 0 && *mtu > 0) {
        let text = format!("MTU {mtu} of {interface}, before {}", old.mtu);
        events.push(Happened::new(Kind::MtuChanged, &subject, text));
    }
}

/// Reports panics, which cost only the worker's open units.
fn worker(old: &Worker, new: &Worker, events: &mut Vec<Happened>) {
    if new.panics > old.panics {
        let text = "it panicked and was restarted: report it, with the preceding lines of the log";
        events.push(Happened::new(Kind::WorkerRenewed, format!("worker {}", new.index), text));
    }
}

/// Parameters that neighbours reject from this node, and this node from them.
fn disagreements(old: Option<&Link>, new: &Link, events: &mut Vec<Happened>) {
    let all = |link: Option<&Link>| {
        let neighbours = link.map_or(&[][..], |link| &link.neighbours);
        let of = |it: &Neighbour| {
            let address = it.address.clone();
            it.disagreements.clone().into_iter().map(move |it| (address.clone(), it))
        };
        neighbours.iter().flat_map(of).collect::<Vec<_>>()
    };
    let (old, now) = (all(old), all(Some(new)));
    let is_in = |all: &[(String, Disagreement)], (address, it): &(String, Disagreement)| {
        let is_same = |other: &Disagreement| {
            (other.flow, &other.reason, other.ours) == (it.flow, &it.reason, it.ours)
        };
        all.iter().any(|(known, other)| known == address && is_same(other))
    };
    let mut push = |kind, (address, it): &(String, Disagreement), text| {
        let event = Happened::new(kind, format!("link {}", new.name), text);
        events.push(event.about(format!("{address} flow {}", it.flow)));
    };
    for it in now.iter().filter(|it| !is_in(&old, it)) {
        let text = format!("{} ({})", it.1.cause, it.1.cure);
        push(Kind::NeighbourDisagrees, it, text);
    }
    for it in old.iter().filter(|it| !is_in(&now, it)) {
        let text =
            format!("{} and this node agree on flow {}, or speak of it no more", it.0, it.1.flow);
        push(Kind::NeighbourAgrees, it, text);
    }
}

/// Tolerated clock difference in seconds, as in `recodectl doctor`.
const CLOCK_SECONDS: u64 = 30;

/// Neighbours whose clock differs from this node's.
fn clocks(old: Option<&Link>, new: &Link, events: &mut Vec<Happened>) {
    let differs = |it: &Neighbour| it.clock_ahead_seconds.unsigned_abs() > CLOCK_SECONDS;
    for now in &new.neighbours {
        let was = old.and_then(|old| old.neighbours.iter().find(|it| it.address == now.address));
        let Neighbour { address, clock_ahead_seconds: ahead, .. } = now;
        let (kind, text) = match (was.is_some_and(differs), differs(now)) {
            (false, true) => {
                let how = if *ahead > 0 { "ahead of" } else { "behind" };
                let seconds = ahead.unsigned_abs();
                let text = format!(
                    "the clock of {address} is {seconds} s {how} this node's (set the wrong one, \
                     for example by NTP)"
                );
                (Kind::NeighbourDisagrees, text)
            }
            (true, false) => {
                (Kind::NeighbourAgrees, format!("the clock of {address} agrees with this node's"))
            }
            _ => continue,
        };
        let event = Happened::new(kind, format!("link {}", new.name), text);
        events.push(event.about(format!("{address} clock")));
    }
}

/// Neighbours that roam and have moved.
fn moves(old: Option<&Link>, new: &Link, events: &mut Vec<Happened>) {
    for now in &new.neighbours {
        let was = old.and_then(|old| old.neighbours.iter().find(|it| it.address == now.address));
        let was = was.map_or("", |was| was.endpoint.as_str());
        if was == now.endpoint {
            continue;
        }
        let text = match now.endpoint.as_str() {
            "" => format!("{} is where it is configured again", now.address),
            endpoint => format!("{} is at {endpoint} now", now.address),
        };
        let subject = format!("link {}", new.name);
        events.push(Happened::new(Kind::NeighbourMoved, subject, text).about(&now.address));
    }
}

fn tunnel(old: &Tunnel, new: &Tunnel, events: &mut Vec<Happened>) {
    let subject = format!("tunnel {}", new.name);
    if old.state != new.state {
        events.push(match new.state.as_str() {
            "present" => Happened::new(Kind::TunnelUp, &subject, "it has a carrier"),
            "no-carrier" => Happened::new(
                Kind::TunnelDown,
                &subject,
                "it has no carrier, since no next hop of its flow answers",
            ),
            state => Happened::new(Kind::TunnelDown, &subject, format!("it is {state}")),
        });
    }
    let Tunnel { mtu, mtu_configured, .. } = new;
    if old.mtu == *mtu {
        return;
    }
    events.push(if mtu < mtu_configured {
        let text =
            format!("MTU {mtu} instead of {mtu_configured}: its path carries no larger packets");
        Happened::new(Kind::MtuSmaller, subject, text)
    } else {
        Happened::new(Kind::MtuNormal, subject, format!("MTU {mtu}, as configured"))
    });
}

fn session(old: &Session, new: &Session, events: &mut Vec<Happened>) {
    let push = |kind, text: &str, events: &mut Vec<Happened>| {
        events.push(Happened::new(kind, format!("session with {}", new.with), text));
    };
    match (old.age_seconds.is_some(), new.age_seconds.is_some()) {
        (false, true) => push(Kind::SessionUp, "keys are agreed on", events),
        (true, false) => push(Kind::SessionDown, "there are no keys any more", events),
        (true, true) if new.handshakes > old.handshakes && !new.one_way => {
            push(Kind::SessionRekeyed, "other keys are agreed on", events);
        }
        _ => {}
    }
    if new.refused > old.refused {
        let text = format!("a handshake was refused: {}", new.refusal);
        push(Kind::SessionRefused, &text, events);
    }
}

fn engine(old: &Engine, new: &Engine, events: &mut Vec<Happened>) {
    if old.up == new.up {
        return;
    }
    events.push(if new.up {
        Happened::new(Kind::EngineUp, "engine", format!("the card ({}) is in use", new.device))
    } else {
        let text = format!("no card is in use: {}", new.reason);
        Happened::new(Kind::EngineDown, "engine", text)
    });
}

#[cfg(test)]
mod tests;
