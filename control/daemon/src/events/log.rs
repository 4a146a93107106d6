//! The newest events, kept in the supervisor's memory and each written to its log once.

use super::damper::{Damper, Passed};
use super::{Happened, Kind, Level};
use recoded_api::v1::{Event, Events};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Events kept: several hours of trouble, in less than a megabyte.
pub const KEPT_MAX: usize = 1024;

/// Limit on routine events among these.
pub const ROUTINE_MAX: usize = 256;

/// Burst of events of all kinds: as many as a node with a hundred flows has when it starts. After
/// that, one per [`BUDGET_PAUSE`].
const BUDGET_MAX: u32 = 256;
const BUDGET_PAUSE: Duration = Duration::from_millis(500);

/// Subjects with a damper of their own. Only forged subjects could exceed it.
const DAMPERS_MAX: usize = 4096;

/// Interval for passing held events.
const FLUSH: Duration = Duration::from_secs(1);

/// Keeps events. Shared between threads.
#[derive(Debug)]
pub struct Log {
    began_ms: u64,
    state: Mutex<EventStore>,
}

#[derive(Debug)]
struct EventStore {
    number: u64,
    kept: VecDeque<Event>,
    routine: VecDeque<Event>,
    /// Dampers by topic, subject and part.
    dampers: BTreeMap<(u8, String, String), Damper>,
    budget: u32,
    /// When the budget grew last.
    filled: Instant,
    flushed: Instant,
}

impl Default for Log {
    fn default() -> Log {
        let now = Instant::now();
        let state = EventStore {
            number: 0,
            kept: VecDeque::new(),
            routine: VecDeque::new(),
            dampers: BTreeMap::new(),
            budget: BUDGET_MAX,
            filled: now,
            flushed: now,
        };
        Log { began_ms: now_ms(), state: Mutex::new(state) }
    }
}

impl Log {
    /// Continues from the log of another supervisor. Impossible entries are dropped.
    pub fn continuing(left: Events) -> Log {
        let log = Log { began_ms: left.began_ms, ..Log::default() };
        {
            let mut state = log.state();
            for event in left.events {
                let kind = serde_json::from_value(event.kind.as_str().into());
                let is_next = (state.number + 1..=left.newest).contains(&event.number);
                if let (Ok(kind), true) = (kind, is_next) {
                    state.number = event.number;
                    state.place(kind, event);
                }
            }
            state.number = left.newest;
        }
        log
    }

    /// Records an event: numbered, logged and kept now, or later if there are too many.
    pub fn note(&self, happened: Happened) {
        let told = self.state().take(happened, now_ms(), Instant::now());
        told.iter().for_each(tell);
    }

    /// Passes held events that are due.
    pub fn flush(&self) {
        let now = Instant::now();
        let told = {
            let mut state = self.state();
            if now.saturating_duration_since(state.flushed) < FLUSH {
                return;
            }
            state.flush(now)
        };
        told.iter().for_each(tell);
    }

    /// Returns the kept events after this number.
    pub fn after(&self, number: u64) -> Events {
        let state = self.state();
        let all = state.kept.iter().chain(&state.routine);
        let mut events: Vec<Event> = all.filter(|event| event.number > number).cloned().collect();
        events.sort_by_key(|event| event.number);
        Events { events, newest: state.number, began_ms: self.began_ms }
    }

    fn state(&self) -> MutexGuard<'_, EventStore> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventStore {
    /// Takes an event in; returns the one to log.
    fn take(&mut self, happened: Happened, at_ms: u64, now: Instant) -> Option<Event> {
        let happened = happened.cleaned();
        let mut key = (happened.kind.topic(), happened.subject.clone(), happened.about.clone());
        if !self.dampers.contains_key(&key) && self.dampers.len() >= DAMPERS_MAX {
            self.dampers.retain(|_, damper| !damper.is_calm(now));
            if self.dampers.len() >= DAMPERS_MAX {
                key = (u8::MAX, String::new(), String::new());
            }
        }
        self.fill(now);
        let damper = self.dampers.entry(key).or_insert_with(|| Damper::new(now));
        damper.take(happened, at_ms, now);
        let passed = damper.due(now, || spend(&mut self.budget))?;
        Some(self.keep(passed))
    }

    fn flush(&mut self, now: Instant) -> Vec<Event> {
        self.flushed = now;
        self.fill(now);
        let Self { dampers, budget, .. } = self;
        let due = dampers.values_mut().filter_map(|damper| damper.due(now, || spend(budget)));
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|passed| passed.at_ms);
        due.into_iter().map(|passed| self.keep(passed)).collect()
    }

    fn fill(&mut self, now: Instant) {
        let pauses =
            now.saturating_duration_since(self.filled).as_millis() / BUDGET_PAUSE.as_millis();
        let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
        if pauses > 0 {
            self.budget = self.budget.saturating_add(pauses).min(BUDGET_MAX);
            self.filled = now;
        }
    }

    fn keep(&mut self, passed: Passed) -> Event {
        self.number += 1;
        let Passed { happened, at_ms, left_out } = passed;
        let Happened { kind, subject, about, text } = happened;
        let (level, name) = (kind.level().name().to_owned(), kind.name().to_owned());
        let number = self.number;
        let event = Event { number, at_ms, level, kind: name, subject, about, text, left_out };
        self.place(kind, event.clone());
        event
    }

    fn place(&mut self, kind: Kind, event: Event) {
        let (place, most) = match kind.is_routine() {
            true => (&mut self.routine, ROUTINE_MAX),
            false => (&mut self.kept, KEPT_MAX - ROUTINE_MAX),
        };
        if place.len() == most {
            place.pop_front();
        }
        place.push_back(event);
    }
}

fn spend(budget: &mut u32) -> bool {
    let has_room = *budget > 0;
    *budget = budget.saturating_sub(1);
    has_room
}

/// Writes the event to the log once.
fn tell(event: &Event) {
    let Event { kind, subject, text, left_out, .. } = event;
    let more = match left_out {
        0 => String::new(),
        number => format!(" ({number} events about this were left out before)"),
    };
    match event.level.as_str() {
        level if level == Level::Error.name() => tracing::error!(kind, "{subject}: {text}{more}"),
        level if level == Level::Warning.name() => tracing::warn!(kind, "{subject}: {text}{more}"),
        _ => tracing::info!(kind, "{subject}: {text}{more}"),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn state() -> EventStore {
        Log::default().state.into_inner().unwrap()
    }

    fn flap(number: usize) -> Happened {
        let kind = if number.is_multiple_of(2) { Kind::LinkDown } else { Kind::LinkUp };
        Happened::new(kind, "link east", format!("{number}"))
    }

    #[test]
    fn flapping_link_is_told_a_few_times_and_its_last_state_always() {
        let (mut state, begun) = (state(), Instant::now());
        let mut told = Vec::new();
        for second in 0..3600 {
            let now = begun + Duration::from_secs(second);
            told.extend(state.take(flap(second as usize), second, now));
            told.extend(state.flush(now));
        }
        // After 0 to 4 s, then 14, 34, 74 and so on, finally every 600.
        assert_eq!(told.len(), 15);
        let burst: Vec<&str> = told[..5].iter().map(|event| event.text.as_str()).collect();
        assert_eq!(burst, ["0", "1", "2", "3", "4"], "the first ones come at once");
        let hour = begun + 60 * MINUTE;
        told.extend((0..20).flat_map(|minute| state.flush(hour + minute * MINUTE)));
        assert_eq!(told.last().map(|event| event.text.as_str()), Some("3599"));
        let left_out: u64 = told.iter().map(|event| event.left_out).sum();
        assert_eq!(told.len() as u64 + left_out, 3600, "each is reported or counted");
        let later = hour + 60 * MINUTE;
        assert!(
            state.take(flap(0), 0, later).is_some(),
            "after a calm hour it is reported at once"
        );
    }

    #[test]
    fn one_that_flaps_does_not_hide_another() {
        let (mut state, now) = (state(), Instant::now());
        (0..100).for_each(|number| drop(state.take(flap(number), 0, now)));
        let other = Happened::new(Kind::LinkDown, "link west", "down");
        assert!(state.take(other, 0, now).is_some());
        let hop = Happened::new(Kind::NextHopSilent, "flow 1", "silent").about("east:10.0.0.2");
        assert!(state.take(hop.clone(), 0, now).is_some());
        assert!(state.take(hop.about("east:10.0.0.3"), 0, now).is_some());
    }

    #[test]
    fn memory_and_log_are_bounded_whatever_is_told() {
        let (mut state, now) = (state(), Instant::now());
        let long = "\u{1b}[2J\n\"€".repeat(10_000);
        let mut told = 0;
        for number in 0..20_000 {
            let happened = Happened::new(Kind::DropsRising, format!("{number} {long}"), &long[..]);
            told += usize::from(state.take(happened.about(&long[..]), 0, now).is_some());
        }
        assert_eq!(told, BUDGET_MAX as usize);
        assert!(state.dampers.len() <= DAMPERS_MAX + 1);
        let later = |minutes| now + minutes * MINUTE;
        let flushed = (1..=60).map(|minute| state.flush(later(minute)).len());
        assert!(flushed.sum::<usize>() <= 60 * 120 + BUDGET_MAX as usize);
        assert_eq!(state.kept.len(), KEPT_MAX - ROUTINE_MAX);
        let event = state.kept.back().unwrap();
        assert!(event.text.len() <= 256 && event.subject.len() <= 96 && event.about.len() <= 96);
        assert!(!event.text.contains(char::is_control), "{event:?}");
    }

    #[test]
    fn events_that_happen_all_the_time_do_not_push_out_others_and_numbers_only_go_up() {
        let log = Log::default();
        log.note(Happened::new(Kind::LinkDown, "link east", "down"));
        let now = Instant::now();
        for number in 0..2_000_u32 {
            let rekeyed = Happened::new(Kind::SessionRekeyed, format!("flow {number}"), "keys");
            drop(log.state().take(rekeyed, 1, now + number * BUDGET_PAUSE));
        }
        let events = log.after(0);
        assert_eq!((events.newest, events.events.len()), (2_001, 1 + ROUTINE_MAX));
        assert_eq!((events.events[0].number, events.events[0].kind.as_str()), (1, "link_down"));
        assert!(events.events.is_sorted_by(|one, next| one.number < next.number));
        assert_eq!(log.after(2_000).events.len(), 1);
        assert_eq!(log.after(u64::MAX).events, []);
        assert!(events.began_ms > 0);
    }

    #[test]
    fn log_of_the_next_supervisor_goes_on_where_the_one_before_ended() {
        let log = Log::default();
        log.note(Happened::new(Kind::LinkDown, "link east", "down"));
        log.note(Happened::new(Kind::SessionRekeyed, "flow 1", "keys"));
        let left = log.after(0);
        let next = Log::continuing(left.clone());
        assert_eq!(next.after(0), left);
        next.note(Happened::new(Kind::LinkUp, "link east", "up"));
        let events = next.after(1).events;
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        assert_eq!((numbers, next.after(0).began_ms), (vec![2, 3], left.began_ms));
    }

    #[test]
    fn what_was_left_is_bounded_and_in_order_whatever_it_says() {
        let event = |number, kind: &str| Event { number, kind: kind.into(), ..Event::default() };
        let numbers = [3, 3, 1, 9, 4, u64::MAX, 7].map(|number| event(number, "link_up"));
        let left = Events { events: numbers.into(), newest: 9, began_ms: 1 };
        let kept: Vec<u64> =
            Log::continuing(left).after(0).events.iter().map(|it| it.number).collect();
        assert_eq!(kept, [3, 9]);
        let many = (1..5_000).map(|number| event(number, "link_up")).collect();
        let log = Log::continuing(Events { events: many, newest: 6_000, began_ms: 1 });
        assert_eq!(log.after(0).events.len(), KEPT_MAX - ROUTINE_MAX);
        log.note(Happened::new(Kind::LinkUp, "link east", "up"));
        assert_eq!(log.after(6_000).events[0].number, 6_001);
        let other = Events { events: vec![event(1, "no_kind")], newest: 1, began_ms: 1 };
        assert_eq!(Log::continuing(other).after(0).events, []);
    }
}
