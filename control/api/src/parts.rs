//! A state in several replies, none of them long.
//!
//! zlink's buffer grows by 256 bytes at a time, and each time the reply is serialised from the
//! start: its cost grows with the square of its length. A hundred flows are 290 kB.
//!
//! ```text
//!  whole ─> all but flows, sessions, configuration | 4 flows | 4 flows | .. | sessions | text ..
//!           └──────────────────── lists and texts are put together ─────────────────────────┘
//! ```

use crate::v1::State;

/// Flows of a part: some 3 kB each.
const FLOWS: usize = 4;

/// Sessions of a part: some 200 bytes each.
const SESSIONS: usize = 64;

/// Bytes of the configuration in a part.
const CONFIG_BYTES: usize = 8 << 10;

/// Takes a state apart. Never empty.
#[must_use]
pub fn parts(mut state: State) -> Vec<State> {
    let flows = std::mem::take(&mut state.flows);
    let sessions = std::mem::take(&mut state.sessions);
    let config = std::mem::take(&mut state.config);
    let mut parts = vec![state];
    let flows = flows.chunks(FLOWS);
    parts.extend(flows.map(|flows| State { flows: flows.to_vec(), ..State::default() }));
    let sessions = sessions.chunks(SESSIONS);
    parts
        .extend(sessions.map(|sessions| State { sessions: sessions.to_vec(), ..State::default() }));
    let mut rest = config.as_str();
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(CONFIG_BYTES));
        parts.push(State { config: part.to_owned(), ..State::default() });
        rest = after;
    }
    parts
}

/// Puts the next part behind those before it.
pub fn join(whole: &mut State, part: State) {
    whole.flows.extend(part.flows);
    whole.sessions.extend(part.sessions);
    whole.config.push_str(&part.config);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Engine, Flow, Link, Session};

    fn state(flows: usize, sessions: usize, config: &str) -> State {
        State {
            version: "1".into(),
            edition: 3,
            links: vec![Link::default(); 2],
            flows: (0..flows).map(|id| Flow { id: id as u64, ..Flow::default() }).collect(),
            sessions: (0..sessions)
                .map(|id| Session { with: id.to_string(), ..Session::default() })
                .collect(),
            engine: Engine { offered: 4, ..Engine::default() },
            config: config.into(),
            ..State::default()
        }
    }

    #[test]
    fn parts_are_the_whole_again_whatever_its_length() {
        let text = "ä\n".repeat(20_000);
        for flows in [0, 1, 3, 4, 5, 100] {
            for (sessions, config) in [(0, ""), (64, "a"), (200, text.as_str())] {
                let state = state(flows, sessions, config);
                let mut parts = parts(state.clone()).into_iter();
                let mut whole = parts.next().expect("one at least");
                for part in parts {
                    assert!(part.flows.len() <= FLOWS && part.config.len() <= CONFIG_BYTES);
                    join(&mut whole, part);
                }
                assert_eq!(whole, state);
            }
        }
    }
}
