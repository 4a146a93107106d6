//! Host names: what is known of them, and what becomes of it when the resolver says something else.

use super::Keeper;
use crate::config::Config;
use crate::config::document::Document;
use crate::config::document::Named;
use crate::config::names::Names;
use crate::events::{Happened, Kind};
use std::time::Duration;

/// Time for which a change waits for the resolver.
const PATIENCE: Duration = Duration::from_secs(5);

impl Keeper {
    /// The same, with addresses of the host names in force.
    #[must_use]
    pub fn knowing(self, names: Names) -> Keeper {
        self.state().names = names;
        self
    }

    /// Addresses of host names.
    pub fn names(&self) -> Names {
        self.state().names.clone()
    }

    /// Takes up what the resolver says of host names.
    pub fn readdress(&self, found: Names) {
        let ((text, _), known) = (self.in_force(), self.names());
        let found = found.after(&known);
        let parse = |names: &Names| self.check_by(&self.file, &text, names);
        let (Ok((before, _)), now) = (parse(&known), parse(&found)) else { return };
        let now = match now {
            Ok((now, _)) => now,
            Err(errors) => return tracing::warn!("host names stay what they were: {errors}"),
        };
        let mut is_readdressed = false;
        let moved = before.named.iter().zip(&now.named);
        for (was, is) in moved.filter(|(was, is)| was.address != is.address) {
            is_readdressed = true;
            let before = match was.trouble.is_empty() {
                true => format!("before at {}", was.address),
                false => "before it did not resolve".to_owned(),
            };
            let text = format!(
                "{} is at {} now, {before}: another dataplane process sends there",
                is.name, is.address
            );
            let subject = format!("link {}", is.link);
            self.events.note(Happened::new(Kind::NeighbourMoved, subject, text).about(&is.name));
        }
        if is_readdressed {
            let mut state = self.state();
            (state.names, state.is_readdressed) = (found, true);
        }
    }

    /// Whether another process is wanted, since a neighbour is somewhere else; true once for each
    /// time.
    pub fn is_readdressed(&self) -> bool {
        std::mem::take(&mut self.state().is_readdressed)
    }

    /// Asks for the host names in a text that was read, for a bounded time.
    pub(super) fn look_up(&self, text: &str) -> Names {
        let known = self.names();
        let parse = |text: &str| Document::parse(&self.file, text);
        // What cannot be parsed is refused by the check.
        let (Ok(wanted), Ok(in_force)) = (parse(text), parse(&self.in_force().0)) else {
            return known;
        };
        let found = Names::look_up(&wanted, &known, PATIENCE);
        // Those in force are kept until others are, and those that are refused are forgotten.
        let mut kept = wanted.host_names();
        for name in found.unknown() {
            kept.remove(name);
        }
        kept.extend(in_force.host_names());
        self.state().names = found.clone().after(&known).only(&kept);
        found
    }
}

/// Refuses a configuration with a host name that was not `known` before and does not resolve: a
/// start waits for names, but a change need not replace what works.
pub(super) fn refuse_unknown(config: &Config, known: &Names) -> Result<(), String> {
    let is_new = |named: &&Named| !named.trouble.is_empty() && !known.has(&named.name);
    match config.named.iter().find(is_new) {
        Some(Named { link, name, trouble, .. }) => {
            Err(format!("link {link}: {name}: {trouble}\nnothing was changed"))
        }
        None => Ok(()),
    }
}
