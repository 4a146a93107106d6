//! State behind the control socket: the active configuration, and the supervisor, which keeps it
//! beyond this process.

use crate::config::diff::{Change, Cost};
use crate::dataplane::Dataplane;
use crate::events;
use crate::keeper::{By, CONFIRM_SECONDS_MAX, Cause, Client, Coming, Text};
use crate::live::{Live, Next, View};
use crate::metrics::Listeners;
use recoded_api::error::ControlError;
use recoded_api::service::{Answer, Backend, SetFuture};
use recoded_api::v1::{
    self, Adopted, Confirmed, Engine, Events, History, HistoryEntry, Reloaded, State, Version,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// An active configuration that the next process starts with.
pub struct ControlService<D> {
    live: Live<D>,
    keeper: Client,
    events: events::Client,
    replaced: Rc<Notify>,
    /// State that metrics are derived from.
    view: Rc<RefCell<View>>,
    /// Listeners for metrics.
    metrics: Rc<Listeners>,
}

impl<D: Dataplane> ControlService<D> {
    /// `replaced` is notified when another process must take over, and `view` follows every change.
    pub fn new(
        live: Live<D>,
        keeper: Client,
        events: events::Client,
        replaced: Rc<Notify>,
        view: Rc<RefCell<View>>,
    ) -> ControlService<D> {
        ControlService { live, keeper, events, replaced, view, metrics: Rc::default() }
    }

    /// Adds the listeners for metrics, which follow every change.
    #[must_use]
    pub fn serving(self, metrics: Rc<Listeners>) -> ControlService<D> {
        ControlService { metrics, ..self }
    }

    fn show(&self) {
        *self.view.borrow_mut() = self.live.view();
    }

    /// Hands a change to the supervisor, for the next process and the history.
    async fn note(&self, cause: Cause) {
        self.show();
        let coming = Coming { cause, confirm_seconds: None, is_same: false, by: By::This };
        let text = self.live.config();
        if let Err(error) = self.keeper.in_force(coming, text.clone(), text).await {
            tracing::warn!(%error, "the change will not outlive this process");
        }
    }

    async fn set_and_save(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
    ) -> Result<Adopted, ControlError> {
        let file = self.keeper.open().await?;
        let edited = self.live.edited(&file, flow, &changes)?;
        self.keeper.prepare(edited).await?;
        let before = self.live.before();
        let adopted = match self.live.set(flow, changes).await {
            Ok(adopted) => adopted,
            Err(error) => {
                self.keeper.discard().await;
                return Err(error);
            }
        };
        if let Err(error) = self.keeper.finish().await {
            self.keeper.discard().await;
            self.live.put_back(before).await?;
            self.show();
            return Err(error);
        }
        self.note(Cause::Set).await;
        Ok(adopted)
    }

    /// Changes a flow until the time for its confirmation has passed.
    async fn set_until(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
        confirm_seconds: u64,
    ) -> Result<Adopted, ControlError> {
        refuse_time(Some(confirm_seconds))?;
        let before = self.live.before();
        let adopted = self.live.set(flow, changes).await?;
        let coming = Coming {
            cause: Cause::Set,
            confirm_seconds: Some(confirm_seconds),
            is_same: false,
            by: By::This,
        };
        let text = self.live.config();
        if let Err(error) = self.keeper.in_force(coming, text.clone(), text).await {
            self.live.put_back(before).await?;
            self.show();
            return Err(error);
        }
        self.show();
        Ok(adopted)
    }

    async fn read_again(
        &mut self,
        is_diff: bool,
        confirm_seconds: Option<u64>,
    ) -> Result<Reloaded, ControlError> {
        refuse_time(confirm_seconds)?;
        let text = self.keeper.read(!is_diff).await?;
        let next = self.live.compare(&text)?;
        if is_diff {
            return Ok(self.outcome(&next, text.number, None));
        }
        self.bring(next, text, Cause::Reload, confirm_seconds).await
    }

    async fn compare_with(&mut self, text: String) -> Result<Reloaded, ControlError> {
        let text = self.keeper.compare(text).await?;
        let next = self.live.compare(&text)?;
        Ok(self.outcome(&next, text.number, None))
    }

    async fn go_back(&mut self, number: Option<u64>) -> Result<Reloaded, ControlError> {
        let text = self.keeper.past(number).await?;
        let next = self.live.compare(&text)?;
        self.bring(next, text, Cause::Undo, None).await
    }

    /// Applies `next`, which users read as `text`.
    async fn bring(
        &mut self,
        next: Next,
        text: Text,
        cause: Cause,
        confirm_seconds: Option<u64>,
    ) -> Result<Reloaded, ControlError> {
        let cost = next.cost();
        let is_same = cost.is_none();
        let confirm_seconds = confirm_seconds.filter(|_| !is_same);
        let by = match cost {
            Some(Cost::Restart) => By::Supervisor,
            Some(Cost::Gap) => By::Process,
            _ => By::This,
        };
        let coming = Coming { cause, confirm_seconds, is_same, by };
        let mut outcome = self.outcome(&next, text.number, confirm_seconds);
        outcome.applied = true;
        outcome.number = match cost {
            Some(Cost::Stop) => return Err(needs_stop(&next.changes)),
            // This process handles packets until the next supervisor ends it.
            Some(Cost::Restart) => {
                self.keeper.in_force(coming, next.to_toml(), text.text).await?.number
            }
            Some(Cost::Gap) => {
                let taken = self.keeper.in_force(coming, next.to_toml(), text.text).await?;
                self.replaced.notify_one();
                taken.number
            }
            _ => {
                let moves_metrics = next.moves_metrics();
                let before = self.live.adopt(next).await?;
                self.show();
                let taken = self.keeper.in_force(coming, self.live.config(), text.text).await;
                match taken {
                    Ok(taken) => {
                        if moves_metrics {
                            self.metrics.replace(taken.metrics);
                        }
                        taken.number
                    }
                    Err(error) => {
                        self.live.put_back(before).await?;
                        self.show();
                        return Err(error);
                    }
                }
            }
        };
        outcome.edition = self.live.edition();
        Ok(outcome)
    }

    fn outcome(&self, next: &Next, number: u64, confirm_seconds: Option<u64>) -> Reloaded {
        Reloaded {
            changes: next.changes.iter().map(shown).collect(),
            applied: false,
            replaces: next.cost().is_some_and(|cost| cost >= Cost::Gap),
            edition: self.live.edition(),
            number,
            confirm_seconds,
        }
    }

    async fn past(&self) -> Result<History, ControlError> {
        let past = self.keeper.history().await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let entry = |(number, at, cause)| HistoryEntry {
            number,
            at,
            age_seconds: now.saturating_sub(at),
            cause,
        };
        Ok(History {
            entries: past.entries.into_iter().map(entry).collect(),
            directory: past.directory,
            trouble: past.trouble,
            confirm_seconds_left: past.confirm_seconds_left,
        })
    }
}

/// Refuses a time for confirmation that is out of range.
fn refuse_time(confirm_seconds: Option<u64>) -> Result<(), ControlError> {
    if confirm_seconds.is_some_and(|seconds| !(1..=CONFIRM_SECONDS_MAX).contains(&seconds)) {
        let reason = format!("a change is confirmed within 1 to {CONFIRM_SECONDS_MAX} seconds");
        return Err(ControlError::Refused { reason });
    }
    Ok(())
}

fn shown(change: &Change) -> v1::Change {
    v1::Change {
        what: change.what.clone(),
        line: change.line.map(|line| u64::try_from(line).unwrap_or(u64::MAX)),
        cost: change.cost.name().into(),
    }
}

fn needs_stop(changes: &[Change]) -> ControlError {
    let changes = changes.iter().filter(|change| change.cost == Cost::Stop);
    let lines: Vec<String> = changes.map(ToString::to_string).collect();
    let reason = format!(
        "{}\na running daemon keeps its control socket: to change `socket`, restart it (systemctl \
         restart recoded); nothing was changed",
        lines.join("\n")
    );
    ControlError::Refused { reason }
}

impl<D: Dataplane> Backend for ControlService<D> {
    fn version(&self) -> Version {
        self.live.version()
    }

    fn state(&self) -> State {
        self.live.state()
    }

    fn config(&self) -> String {
        self.live.config()
    }

    fn set(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(async move {
            let adopted = self.live.set(flow, changes).await?;
            self.note(Cause::Set).await;
            Ok(adopted)
        })
    }

    fn set_for(
        &mut self,
        flow: i64,
        changes: BTreeMap<String, String>,
        confirm_seconds: u64,
    ) -> SetFuture<'_> {
        Box::pin(self.set_until(flow, changes, confirm_seconds))
    }

    fn set_engine(&mut self, mode: &str) -> Answer<'_, Engine> {
        let engine = self.live.set_engine(mode);
        Box::pin(async move {
            let engine = engine?;
            self.note(Cause::Set).await;
            Ok(engine)
        })
    }

    fn save(&mut self, flow: i64, changes: BTreeMap<String, String>) -> SetFuture<'_> {
        Box::pin(self.set_and_save(flow, changes))
    }

    fn reload(&mut self, diff: bool, confirm_seconds: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(self.read_again(diff, confirm_seconds))
    }

    fn compare(&mut self, text: String) -> Answer<'_, Reloaded> {
        Box::pin(self.compare_with(text))
    }

    fn confirm(&mut self) -> Answer<'_, Confirmed> {
        Box::pin(async move { Ok(Confirmed { number: self.keeper.confirm().await? }) })
    }

    fn undo(&mut self, number: Option<u64>) -> Answer<'_, Reloaded> {
        Box::pin(self.go_back(number))
    }

    fn history(&self) -> Answer<'_, History> {
        Box::pin(self.past())
    }

    fn events(&self, after: u64) -> Answer<'_, Events> {
        Box::pin(self.events.since(after))
    }
}
