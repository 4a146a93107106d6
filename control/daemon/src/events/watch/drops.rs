//! Detects fault counters that begin to rise.

use crate::events::{Happened, Kind};
use recoded_api::v1::{Link, State};
use recoded_counters::{Counter, Table, flow, link, tunnel, verdict, worker};
use recoded_wire::steer::Verdict;
use std::collections::BTreeMap;

/// Looks without a rise after which another rise is reported again.
pub(super) const CALM: u64 = 60;

/// Prefix of the cure of counters that rise occasionally in normal operation; only many counts in a
/// look are reported.
const HARMLESS: &str = "Nothing";
const HARMLESS_MOST: u64 = 100;

type Counts = BTreeMap<String, u64>;

/// Neighbours of another version that one event names.
const OTHERS_MAX: usize = 8;

/// When counters last rose, by owner.
#[derive(Debug, Default)]
pub struct Drops {
    looks: u64,
    rose: BTreeMap<(String, &'static str), u64>,
    /// Socket counters at the last two looks, by link and receive queue.
    queues: [Vec<Vec<Counts>>; 2],
}

impl Drops {
    /// Records socket counters, by link and receive queue.
    pub fn note_queues(&mut self, queues: Vec<Vec<Counts>>) {
        self.queues.swap(0, 1);
        self.queues[1] = queues;
    }

    /// Reports counters that begin to rise.
    pub fn compare(&mut self, before: &State, now: &State, events: &mut Vec<Happened>) {
        self.looks += 1;
        let looks = self.looks;
        self.rose.retain(|_, last| looks - *last <= CALM);
        self.rise("packets", worker::TABLE, &before.drops, &now.drops, events);
        let begin = events.len();
        self.rise("packets", verdict::TABLE, &before.verdicts, &now.verdicts, events);
        let is_named = |event: &&mut Happened| event.about == Verdict::DropNotNeighbour.name();
        events[begin..].iter_mut().filter(is_named).for_each(|event| event.text += &senders(now));
        let is_other = |event: &&mut Happened| event.about == Verdict::DropVersion.name();
        let others = others(before, now);
        events[begin..].iter_mut().filter(is_other).for_each(|event| event.text += &others);
        for (index, new) in now.links.iter().enumerate() {
            if let Some(old) = before.links.iter().find(|old| old.name == new.name) {
                let subject = format!("link {}", new.name);
                let begin = events.len();
                self.rise(&subject, link::TABLE, &old.faults, &new.faults, events);
                for event in &mut events[begin..] {
                    event.text += &self.place(index, &new.interface, &event.about);
                }
            }
        }
        for new in &now.tunnels {
            if let Some(old) = before.tunnels.iter().find(|old| old.name == new.name) {
                let subject = format!("tunnel {}", new.name);
                self.rise(&subject, tunnel::TABLE, &old.faults, &new.faults, events);
            }
        }
        let flows: BTreeMap<u64, &Counts> =
            before.flows.iter().map(|flow| (flow.id, &flow.counters)).collect();
        for new in &now.flows {
            if let Some(old) = flows.get(&new.id) {
                let subject = format!("flow {}", new.id);
                self.rise(&subject, flow::TABLE, old, &new.counters, events);
            }
        }
    }

    /// Names the receive queues of a link whose counter rose; empty if it is not a socket counter.
    fn place(&self, link: usize, interface: &str, counter: &str) -> String {
        let [old, new] = self.queues.each_ref().map(|queues| queues.get(link));
        let (Some(old), Some(new)) = (old, new) else { return String::new() };
        let rose = |(old, new): (&Counts, &Counts)| new.get(counter) > old.get(counter);
        let queues = old.iter().zip(new).enumerate().filter(|(_, it)| rose(*it));
        let queues: Vec<String> = queues.map(|(queue, _)| queue.to_string()).collect();
        match &queues[..] {
            [] => String::new(),
            [queue] => format!(" on queue {queue} of {interface}"),
            queues => format!(" on queues {} of {interface}", queues.join(", ")),
        }
    }

    fn rise(
        &mut self,
        subject: &str,
        table: Table,
        old: &Counts,
        new: &Counts,
        events: &mut Vec<Happened>,
    ) {
        if old == new {
            return;
        }
        for counter in table.counters().filter(|counter| counter.is_fault()) {
            let of = |counts: &Counts| counts.get(counter.name).copied().unwrap_or(0);
            let risen = of(new).saturating_sub(of(old));
            if risen == 0 || counter.cure.starts_with(HARMLESS) && risen < HARMLESS_MOST {
                continue;
            }
            if self.rose.insert((subject.to_owned(), counter.name), self.looks).is_none() {
                events.push(begins(subject, counter, risen));
            }
        }
    }
}

/// Source addresses whose packets were dropped because they are no neighbour's.
fn senders(now: &State) -> String {
    let links = now.links.iter().filter(|link| !link.not_neighbours.is_empty());
    let links = links.map(|link| format!("{} on {}", link.not_neighbours.join(", "), link.name));
    let links: Vec<String> = links.collect();
    if links.is_empty() { String::new() } else { format!(", from {}", links.join("; ")) }
}

/// Neighbours whose packets of another version of the protocol are among those.
fn others(before: &State, now: &State) -> String {
    let count = |state: &State, link: &Link, address: &str| {
        let links = state.links.iter().filter(|it| it.name == link.name);
        let mut all = links.flat_map(|it| &it.neighbours).filter(|it| it.address == address);
        all.next().map_or(0, |it| it.other_protocol_packets)
    };
    let of = |link: &Link| {
        let risen = link
            .neighbours
            .iter()
            .filter(|it| it.other_protocol_packets > count(before, link, &it.address));
        let words = risen.filter_map(|it| it.other_protocol_words(&it.address, now.protocol));
        words.map(|[cause, cure]| format!("; {cause} ({cure})")).collect::<Vec<_>>()
    };
    now.links.iter().flat_map(of).take(OTHERS_MAX).collect()
}

fn begins(subject: &str, counter: &Counter, risen: u64) -> Happened {
    let meaning = counter.meaning.split_whitespace().collect::<Vec<_>>().join(" ");
    let meaning = meaning.trim_end_matches('.');
    let text = format!("{} begins to rise, {risen} in a second ({meaning})", counter.name);
    Happened::new(Kind::DropsRising, subject, text).about(counter.name)
}
