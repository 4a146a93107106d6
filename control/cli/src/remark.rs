//! A sentence about a part of a box: its cause and fix.

use crate::box_names::BoxNames;
use crate::table::sentence;

/// A sentence, before it is wrapped.
pub struct Remark {
    /// The part.
    pub label: String,
    /// The sentence.
    pub words: String,
}

impl Remark {
    /// A sentence about a part.
    pub fn new(label: &str, words: &str) -> Remark {
        Remark { label: label.to_owned(), words: words.to_owned() }
    }

    /// As wrapped lines.
    pub fn text(&self) -> String {
        sentence(&self.label, &self.words)
    }

    /// The same with names in front of addresses.
    pub fn named(&self, names: &BoxNames) -> String {
        sentence(&names.in_text(&self.label), &names.in_text(&self.words))
    }
}
