//! State of the live view, and key bindings. Draws nothing, reads no clock.

use crate::activity::reword;
use jiff::tz::TimeZone;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use recoded_api::v1::{Event, Flow, State};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

/// Samples of a flow: two minutes, as wide as a large terminal.
const SAMPLES_MAX: usize = 120;

/// Events kept for the panel.
const EVENTS_MAX: usize = 256;

/// Result of a poll.
pub enum PollResult {
    /// The state, and new events if the daemon supports them.
    State(Box<State>, Option<Vec<Event>>),
    /// Why there is none.
    Nothing(String),
}

/// Sort order of flows.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    /// As in the configuration.
    #[default]
    Configured,
    /// The fastest first.
    Rate,
    /// The highest loss first.
    Loss,
    /// Flows that are down first, then quiet ones.
    State,
}

impl Sort {
    /// Name on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Configured => "as configured",
            Sort::Rate => "by rate",
            Sort::Loss => "by loss",
            Sort::State => "by state",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Configured => Sort::Rate,
            Sort::Rate => Sort::Loss,
            Sort::Loss => Sort::State,
            Sort::State => Sort::Configured,
        }
    }

    fn compare(self, one: &Flow, other: &Flow) -> Ordering {
        let more = |one: f64, other: f64| other.total_cmp(&one);
        match self {
            Sort::Configured => Ordering::Equal,
            Sort::Rate => more(rate(one).unwrap_or(-1.0), rate(other).unwrap_or(-1.0)),
            Sort::Loss => more(loss(one).unwrap_or(-1.0), loss(other).unwrap_or(-1.0)),
            Sort::State => badness(one).cmp(&badness(other)),
        }
    }
}

/// State of the screen.
#[derive(Default)]
pub struct App {
    /// The newest state.
    pub state: Option<State>,
    /// Why there is no newer one.
    pub trouble: Option<String>,
    /// The newest events, oldest first.
    pub events: VecDeque<Event>,
    /// Rates of flows, one sample per poll.
    pub rates: BTreeMap<u64, VecDeque<Option<f64>>>,
    /// Id of the chosen flow.
    pub chosen: Option<u64>,
    /// First row of the table that is shown.
    pub offset: usize,
    /// Sort order of flows.
    pub sort: Sort,
    /// Whether updates are hidden.
    pub is_paused: bool,
    /// Whether the chosen flow fills the screen.
    pub is_drilled: bool,
    /// Whether the help is open.
    pub is_helping: bool,
    /// Whether to quit.
    pub is_over: bool,
    /// Time of day, as displayed.
    pub clock: String,
    /// Time zone of events; `None` for the system's.
    pub zone: Option<TimeZone>,
}

impl App {
    /// Adds the result of a poll.
    pub fn see(&mut self, seen: PollResult) {
        let (state, events) = match seen {
            PollResult::State(state, events) => (state, events),
            PollResult::Nothing(trouble) => {
                // The displayed state stays, marked as old.
                self.trouble = Some(trouble);
                return;
            }
        };
        self.trouble = None;
        // Events are delivered once, so a pause must not lose them.
        self.events.extend(events.into_iter().flatten());
        let surplus = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..surplus);
        if self.is_paused {
            return;
        }
        let mut before = std::mem::take(&mut self.rates);
        for flow in &state.flows {
            let mut samples = before.remove(&flow.id).unwrap_or_default();
            if samples.len() == SAMPLES_MAX {
                samples.pop_front();
            }
            samples.push_back(rate(flow));
            self.rates.insert(flow.id, samples);
        }
        let is_there = |id| state.flows.iter().any(|flow| flow.id == id);
        if !self.chosen.is_some_and(is_there) {
            self.chosen = state.flows.first().map(|flow| flow.id);
            self.is_drilled = false;
        }
        let mut state = *state;
        reword(&mut state);
        self.state = Some(state);
    }

    /// The flows, in the order of the screen.
    pub fn flows(&self) -> Vec<&Flow> {
        let mut flows: Vec<&Flow> = self.state.iter().flat_map(|state| &state.flows).collect();
        flows.sort_by(|one, other| self.sort.compare(one, other));
        flows
    }

    /// The chosen flow, and its row.
    pub fn chosen(&self) -> Option<(usize, &Flow)> {
        let flows = self.flows().into_iter().enumerate();
        flows.into_iter().find(|(_, flow)| Some(flow.id) == self.chosen)
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyEvent) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if self.is_helping && key.code != KeyCode::Char('q') && !is_control {
            self.is_helping = false;
            return;
        }
        match key.code {
            KeyCode::Char('c') if is_control => self.is_over = true,
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?' | 'h') => self.is_helping = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-10),
            KeyCode::PageDown => self.move_by(10),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            KeyCode::Enter => self.is_drilled = !self.is_drilled && self.chosen.is_some(),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.is_drilled = false,
            KeyCode::Right => self.is_drilled = self.chosen.is_some(),
            _ => {}
        }
    }

    fn move_by(&mut self, rows: isize) {
        let flows = self.flows();
        let now = flows.iter().position(|flow| Some(flow.id) == self.chosen).unwrap_or(0);
        let row = now.saturating_add_signed(rows).min(flows.len().saturating_sub(1));
        self.chosen = flows.get(row).map(|flow| flow.id);
    }
}

/// Rate of a flow: IP packets at its ends, sent packets at a relay.
pub fn rate(flow: &Flow) -> Option<f64> {
    flow.goodput_mbit.or(flow.wire_mbit)
}

/// The highest known loss of a hop.
pub fn loss(flow: &Flow) -> Option<f64> {
    let hops = flow.hops.iter().map(|hop| hop.loss);
    hops.chain(flow.neighbours.iter().filter_map(|hop| hop.loss)).reduce(f64::max)
}

fn badness(flow: &Flow) -> u8 {
    match flow.state.as_deref() {
        Some("down") => 0,
        Some("waiting") => 1,
        Some("quiet") => 2,
        Some("up") => 3,
        _ => 4,
    }
}
