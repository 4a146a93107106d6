//! Host names: their known addresses, and the reaction when the resolver returns others.

use super::Keeper;
use crate::config::Config;
use crate::config::document::Document;
use crate::config::document::Named;
use crate::config::names::Names;
use crate::events::{Happened, Kind};
use std::time::Duration;

/// Time that a change waits for the resolver.
const PATIENCE: Duration = Duration::from_secs(5);

impl Keeper {
    /// Adds the addresses of the active host names.
    #[must_use]
    pub fn knowing(self, names: Names) -> Keeper {
        self.state().names = names;
        self
    }

    /// Addresses of host names.
    pub fn names(&self) -> Names {
        self.state().names.clone()
    }

    /// Adopts the resolver's results for host names.
    pub fn readdress(&self, found: Names) {
        let ((text, _), known) = (self.in_force(), self.names());
        let found = found.after(&known);
        let parse = |names: &Names| self.check_by(&self.file, &text, names, 0);
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

    /// Whether a neighbour's address changed, which requires another process; true once for each
    /// change.
    pub fn is_readdressed(&self) -> bool {
        std::mem::take(&mut self.state().is_readdressed)
    }

    /// Looks up the host names in a text that was read, for a bounded time.
    pub(super) fn look_up(&self, text: &str) -> Names {
        let known = self.names();
        let parse = |text: &str| Document::parse(&self.file, text);
        // The check refuses text that cannot be parsed.
        let (Ok(wanted), Ok(in_force)) = (parse(text), parse(&self.in_force().0)) else {
            return known;
        };
        let found = Names::look_up(&wanted, &known, PATIENCE);
        // Active names stay until others become active; refused ones are dropped.
        let mut kept = wanted.host_names();
        for name in found.unknown() {
            kept.remove(name);
        }
        kept.extend(in_force.host_names());
        self.state().names = found.clone().after(&known).only(&kept);
        found
    }
}

/// Refuses a configuration with a host name that was not `known` before and does not resolve. A
/// start waits for names, but a change need not replace a working configuration.
pub(super) fn refuse_unknown(config: &Config, known: &Names) -> Result<(), String> {
    let is_new = |named: &&Named| !named.trouble.is_empty() && !known.has(&named.name);
    match config.named.iter().find(is_new) {
        Some(Named { link, name, trouble, .. }) => {
            Err(format!("link {link}: {name}: {trouble}\nnothing was changed"))
        }
        None => Ok(()),
    }
}
