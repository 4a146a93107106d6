//! What goes wrong with a simulated card on request, while another process uses it: for tests of
//! programs that have one.

use std::fs;
use std::path::PathBuf;

/// A file that tells a simulated card how to behave. It is looked at again and again; a file that
/// is not there, or says something else, makes the card work as it should.
#[derive(Clone, Debug)]
pub struct Mishaps {
    file: PathBuf,
    /// Calls until the next look.
    pause: u32,
    current: Mishap,
}

/// How a simulated card behaves.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Mishap {
    /// As it should.
    #[default]
    None,
    /// Somebody else resets it, again and again.
    Reset,
    /// Memory answers nothing.
    Stall,
    /// Products are wrong.
    Lie,
    /// Memory refuses what the card reads, descriptors included.
    Refuse,
}

impl Mishaps {
    /// Those that `file` names, by the words of [`Mishap`] in lower case.
    #[must_use]
    pub const fn in_file(file: PathBuf) -> Self {
        Self { file, pause: 0, current: Mishap::None }
    }

    /// What is to happen now.
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

/// A look takes microseconds, a call between them a millisecond.
const CALLS_PER_LOOK: u32 = 4;
