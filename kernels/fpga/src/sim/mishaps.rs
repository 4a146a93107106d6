//! Faults of a simulated card on request, while another process uses it: for tests of programs with
//! a card.

use std::fs;
use std::path::PathBuf;

/// A file that controls a simulated card. It is polled; without a valid file, the card works
/// correctly.
#[derive(Clone, Debug)]
pub struct Mishaps {
    file: PathBuf,
    /// Calls until the next poll.
    pause: u32,
    current: Mishap,
}

/// Behaviour of a simulated card.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Mishap {
    /// Correct.
    #[default]
    None,
    /// Another program keeps resetting it.
    Reset,
    /// Memory does not respond.
    Stall,
    /// Products are wrong.
    Lie,
    /// Memory refuses the card's reads, descriptors included.
    Refuse,
}

impl Mishaps {
    /// Reads the faults named in `file`, by the words of [`Mishap`] in lower case.
    #[must_use]
    pub const fn in_file(file: PathBuf) -> Self {
        Self { file, pause: 0, current: Mishap::None }
    }

    /// The present fault.
    pub(super) fn next(&mut self) -> Mishap {
        if self.pause == 0 {
            self.pause = CALLS_PER_LOOK;
            let text = fs::read_to_string(&self.file).unwrap_or_default();
            self.current = match text.trim() {
                "reset" => Mishap::Reset,
                "stall" => Mishap::Stall,
                "lie" => Mishap::Lie,
                "refuse" => Mishap::Refuse,
                _ => Mishap::None,
            };
        }
        self.pause -= 1;
        self.current
    }
}

/// A poll takes microseconds, a call between them a millisecond.
const CALLS_PER_LOOK: u32 = 4;
