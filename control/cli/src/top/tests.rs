//! The screen for a fixed state, and key bindings.
//!
//! Golden files are in `tests/golden`; `RECODED_BLESS=1 cargo test -p recodectl` rewrites them.

use super::app::{App, PollResult, Sort};
use super::view::draw;
use crate::fixed;
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Size;
use recoded_api::v1::{Flow, State};
use std::path::Path;

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

/// After a minute of varying rates.
fn app() -> App {
    let mut app = App { clock: "07:45:12".into(), zone: Some(TimeZone::UTC), ..App::default() };
    for second in 0..60_u32 {
        let mut state = fixed::state();
        for flow in state.flows.iter_mut().filter(|flow| flow.goodput_mbit.is_some()) {
            flow.goodput_mbit = Some(f64::from(second % 20) * 3.4);
        }
        app.see(PollResult::State(Box::new(state), None));
    }
    app.see(PollResult::State(Box::new(fixed::state()), Some(fixed::events().events)));
    app
}

fn screen(app: &mut App, size: Size) -> String {
    let Size { width, height } = size;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, app)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let rows = (0..height).map(|y| {
        let row: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        row.trim_end().to_owned() + "\n"
    });
    rows.collect()
}

fn assert_golden(file: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("RECODED_BLESS").is_some() {
        std::fs::write(&path, shown).expect("write");
    }
    let expected = std::fs::read_to_string(&path).expect("the golden file");
    assert_eq!(shown, expected, "{file}");
}

const SMALL: Size = Size::new(80, 24);

#[test]
fn screens_of_80_by_24_are_golden() {
    let mut app = app();
    assert_golden("top.txt", &screen(&mut app, SMALL));
    app.press(key(KeyCode::End));
    assert_golden("top-next-hops.txt", &screen(&mut app, SMALL));
    app.press(key(KeyCode::Enter));
    assert_golden("top-flow.txt", &screen(&mut app, SMALL));
    app.press(key(KeyCode::Esc));
    app.press(key(KeyCode::Char('?')));
    assert_golden("top-help.txt", &screen(&mut app, SMALL));
}

#[test]
fn daemon_that_goes_away_is_said_and_what_was_stays() {
    let mut app = App::default();
    app.see(PollResult::Nothing("no daemon answers at /run/x".into()));
    let shown = screen(&mut app, SMALL);
    assert!(shown.contains("NO ANSWER: no daemon answers at /run/x"), "{shown}");
    let mut app = self::app();
    app.see(PollResult::Nothing("no daemon answers at /run/x".into()));
    let shown = screen(&mut app, SMALL);
    assert!(shown.contains("NO ANSWER; last state below"), "{shown}");
    assert!(shown.contains("4294967295") || shown.contains("61.2"), "{shown}");
    app.see(PollResult::State(Box::new(fixed::state()), None));
    assert!(!screen(&mut app, SMALL).contains("NO ANSWER"));
}

#[test]
fn keys_choose_sort_pause_drill_help_and_quit() {
    let mut app = app();
    assert_eq!(app.chosen, Some(1));
    app.press(key(KeyCode::Down));
    assert_eq!(app.chosen, Some(4_294_967_295));
    app.press(key(KeyCode::PageUp));
    app.press(key(KeyCode::Up));
    assert_eq!(app.chosen, Some(1), "there is nothing above");
    app.press(key(KeyCode::Char('s')));
    assert_eq!(app.sort, Sort::Rate);
    app.press(key(KeyCode::Char('s')));
    app.press(key(KeyCode::Char('s')));
    let states: Vec<_> = app.flows().iter().map(|flow| flow.state.clone()).collect();
    let word = |word: &str| Some(word.to_owned());
    assert_eq!(states, ["down", "up", "up", "idle", "idle"].map(word));
    assert_eq!(app.chosen, Some(1), "the same flow stays chosen");

    app.press(key(KeyCode::Char('p')));
    let mut other = fixed::state();
    other.flows.truncate(1);
    app.see(PollResult::State(Box::new(other.clone()), None));
    assert_eq!(app.flows().len(), 5, "paused");
    app.press(key(KeyCode::Char('p')));
    app.see(PollResult::State(Box::new(other), None));
    assert_eq!(app.flows().len(), 1);

    app.press(key(KeyCode::Enter));
    assert!(app.is_drilled);
    app.press(key(KeyCode::Esc));
    assert!(!app.is_drilled && !app.is_over);
    app.press(key(KeyCode::Char('?')));
    app.press(key(KeyCode::Char('x')));
    assert!(!app.is_helping && !app.is_over);
    app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(app.is_over);
    let mut again = self::app();
    again.press(key(KeyCode::Char('q')));
    assert!(again.is_over);
}

#[test]
fn flow_that_is_gone_is_no_longer_chosen_and_none_is_no_panic() {
    let mut app = app();
    app.press(key(KeyCode::End));
    app.press(key(KeyCode::Enter));
    app.see(PollResult::State(Box::new(State { flows: vec![], ..fixed::state() }), None));
    assert!(app.chosen.is_none() && !app.is_drilled);
    let all = [KeyCode::Up, KeyCode::Down, KeyCode::Enter, KeyCode::End, KeyCode::Home];
    for code in all {
        app.press(key(code));
        screen(&mut app, SMALL);
    }
}

/// For any reply of a daemon, and any size of the terminal.
#[test]
fn strange_states_and_sizes_are_drawn_without_a_panic() {
    let odd = Flow {
        id: u64::MAX,
        role: "\u{1b}[2J".repeat(50),
        state: Some("down\n".into()),
        goodput_mbit: Some(f64::NAN),
        wire_mbit: Some(-1e300),
        overhead_theory: Some(f64::INFINITY),
        neighbours: vec![Default::default(); 40],
        ..Flow::default()
    };
    let mut state = fixed::state();
    state.flows.extend((0..200).map(|id| Flow { id: 100 + id, ..odd.clone() }));
    let mut app = App { zone: Some(TimeZone::UTC), ..App::default() };
    for _ in 0..3 {
        app.see(PollResult::State(Box::new(state.clone()), Some(fixed::events().events)));
    }
    for (width, height) in [(1, 1), (40, 10), (41, 11), (80, 24), (300, 100), (80, 3)] {
        for code in [KeyCode::End, KeyCode::Enter, KeyCode::Char('?'), KeyCode::Char('?')] {
            app.press(key(code));
            let shown = screen(&mut app, Size::new(width, height));
            assert!(!shown.contains('\u{1b}'), "{shown}");
        }
    }
}
