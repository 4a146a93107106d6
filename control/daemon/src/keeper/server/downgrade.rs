//! Old configurations that authenticate less than the active one.

use super::{Keeper, No};
use crate::config::Config;
use crate::config::auth::{Auth, word};

impl Keeper {
    /// Refuses an old configuration that authenticates less than the active one: the dataplane
    /// process requests it, and may be in the hands of an attacker. An unconfirmed change is rolled
    /// back all the same, since the file asked for it.
    pub(super) fn refuse_downgrade(&self, past: &Config) -> Result<(), No> {
        let active = self.config().map_or(Auth::Full, |config| config.daemon.auth);
        let auth = past.daemon.auth;
        if auth <= active {
            return Ok(());
        }
        Err(No::Refused(format!(
            "that configuration has auth = \"{}\", which authenticates less than the active one\n\
             fix: put it into {} and run recodectl reload; nothing was changed",
            word(auth),
            self.file
        )))
    }
}
