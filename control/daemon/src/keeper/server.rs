//! The supervisor's side: the file, the active configuration, the history.

use self::host::TunnelNetwork;
use super::history::{self, History};
use super::{Answer, Ask, By, CONFIRM_SECONDS_MAX, Cause, Coming, Past};
use crate::config::Config;
use crate::config::diff::{Change, diff};
use crate::config::document::Document;
use crate::config::names::Names;
use crate::events::{Happened, Kind, Log};
use crate::keys::Keys;
use crate::lifecycle::{read, written};
use crate::network;
use crate::node;
use recoded_api::v1::Events;
use recoded_runtime::channel::Channel;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Changes named in an event.
const SUMMARY_MAX: usize = 3;

/// Keeps configurations. Shared between threads.
#[derive(Debug)]
pub struct Keeper {
    /// Without symbolic links, so that a draft is in the same directory.
    path: PathBuf,
    /// Its name in messages.
    file: String,
    /// The name of this host in a network, if the command line has one.
    name: Option<String>,
    state: Mutex<KeeperState>,
    /// Locked during disk I/O, so never while a process is watched.
    history: Mutex<History>,
    /// Events of this process and of dataplane processes.
    events: Arc<Log>,
    /// Addresses and routes of the tunnels, if there are tunnels to change.
    network: Option<Arc<TunnelNetwork>>,
}

#[derive(Debug)]
struct KeeperState {
    /// The configuration for the next process.
    in_force: String,
    /// The file as read when it was last applied, or as last written by this process.
    loaded: String,
    /// The file as read since, about to be applied.
    coming: Option<Draft>,
    /// The configuration of this host in the file as it was when that was applied.
    derived: String,
    /// A change that is being written into the file.
    saving: Option<Saved>,
    /// The newest change, if it was written into the file, too.
    saved: Option<Saved>,
    /// Whether the configuration about to be applied is the previous one.
    is_previous: bool,
    /// The change that waits for confirmation.
    pending: Option<Pending>,
    /// The configuration of a process that is being replaced; kept until the next one runs.
    before: Option<String>,
    /// MTUs of interfaces as last seen.
    mtus: BTreeMap<String, u32>,
    /// Addresses of the active host names and interfaces, and of those in the text read since.
    names: Names,
    /// Whether one of them differs from the dataplane process's.
    is_readdressed: bool,
    /// Whether another supervisor is due to take over.
    is_handed_over: bool,
}

/// A file, and the configuration of this host in it.
#[derive(Clone, Debug)]
struct Draft {
    file: String,
    text: String,
}

/// The file before and after a change that was written into it.
#[derive(Clone, Debug)]
struct Saved {
    before: String,
    after: String,
}

#[derive(Clone, Debug)]
struct Pending {
    deadline: Instant,
    /// The configuration to roll back to.
    before: String,
    /// When the rollback began.
    reverting: Option<Instant>,
}

impl KeeperState {
    fn lasting(&self) -> &str {
        self.pending.as_ref().map_or(&self.in_force, |pending| &pending.before)
    }
}

/// Why a request failed.
enum No {
    Refused(String),
    Failed(String),
}

/// Attachments of an answer.
enum Along {
    Nothing,
    Text(String),
    Listener(TcpListener),
}

impl Along {
    fn descriptor(self) -> io::Result<Option<OwnedFd>> {
        match self {
            Along::Nothing => Ok(None),
            Along::Text(text) => written(&text).map(Some),
            Along::Listener(listener) => Ok(Some(listener.into())),
        }
    }
}

/// A change that waits for confirmation.
fn pending(confirm_seconds: Option<u64>, before: String) -> Option<Pending> {
    confirm_seconds.map(|seconds| Pending {
        deadline: Instant::now() + Duration::from_secs(seconds),
        before,
        reverting: None,
    })
}

type Outcome = Result<(Answer, Along), No>;

impl Keeper {
    /// Keeps a file with the text `loaded`, for a daemon that starts with `in_force`; `directory`
    /// holds the history.
    pub fn new(path: &Path, loaded: &str, in_force: &str, directory: Option<PathBuf>) -> Keeper {
        let state = KeeperState {
            in_force: in_force.to_owned(),
            loaded: loaded.to_owned(),
            coming: None,
            derived: in_force.to_owned(),
            saving: None,
            saved: None,
            is_previous: false,
            pending: None,
            before: None,
            mtus: BTreeMap::new(),
            names: Names::default(),
            is_readdressed: false,
            is_handed_over: false,
        };
        Keeper {
            path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            file: path.to_string_lossy().into_owned(),
            name: None,
            state: Mutex::new(state),
            history: Mutex::new(History::open(directory, in_force)),
            events: Arc::default(),
            network: None,
        }
    }

    /// Also reads files of networks, where `name` is this host; `derived` is its part in the file
    /// as read.
    #[must_use]
    pub fn named(self, name: Option<String>, derived: String) -> Keeper {
        self.state().derived = derived;
        Keeper { name, ..self }
    }

    /// Also takes over the events of the supervisor before a handover.
    #[must_use]
    pub fn continuing(mut self, left: Option<Events>) -> Keeper {
        self.events = Arc::new(left.map(Log::continuing).unwrap_or_default());
        self
    }

    /// The active configuration, parsed; it was checked before.
    pub fn config(&self) -> Option<Config> {
        let (text, _) = self.in_force();
        self.check(&self.file, &text).ok().map(|(config, _)| config)
    }

    /// The events; the log outlives a dataplane process.
    pub fn events(&self) -> Arc<Log> {
        self.events.clone()
    }

    fn note(&self, kind: Kind, text: String) {
        self.events.note(Happened::new(kind, "configuration", text));
    }

    /// The text for the next process, and the MTUs of interfaces as last seen.
    pub fn in_force(&self) -> (String, BTreeMap<String, u32>) {
        let state = self.state();
        (state.in_force.clone(), state.mtus.clone())
    }

    /// State for a daemon that follows this one: the file as read, and the active configuration
    /// without any unconfirmed change.
    pub fn lasting(&self) -> (String, String) {
        let state = self.state();
        (state.loaded.clone(), state.lasting().to_owned())
    }

    /// Whether it differs from this.
    pub fn differs(&self, loaded: &str, in_force: &str, names: &Names) -> bool {
        let state = self.state();
        state.loaded != loaded || state.lasting() != in_force || state.names != *names
    }

    /// Records the MTU of an interface.
    pub fn note_mtu(&self, interface: &str, mtu: u32) {
        self.state().mtus.insert(interface.to_owned(), mtu);
    }

    /// Whether no process has run yet with the active configuration, although one ran with another.
    pub fn is_trial(&self) -> bool {
        self.state().before.is_some()
    }

    /// Records that a process runs with the active configuration.
    pub fn runs(&self) {
        self.state().before = None;
    }

    /// No process ran with the active configuration: rolls back to the previous one, if any.
    pub fn failed(&self) -> bool {
        let mut state = self.state();
        let Some(before) = state.before.take() else { return false };
        state.in_force = before.clone();
        state.pending = None;
        drop(state);
        let number = self.history().add(Cause::Failed, &before);
        let text = format!(
            "no dataplane process starts with the new configuration: rolled back to the previous \
             one, as number {number}"
        );
        self.note(Kind::ConfigUndone, text);
        true
    }

    /// Whether an unconfirmed change is due for rollback; true once for each change.
    pub fn is_overdue(&self) -> bool {
        let mut state = self.state();
        let Some(pending) = &mut state.pending else { return false };
        let is_due = pending.deadline <= Instant::now() && pending.reverting.is_none();
        if is_due {
            pending.reverting = Some(Instant::now());
        }
        is_due
    }

    /// Whether a requested rollback has taken longer than `patience`.
    pub fn is_stuck(&self, patience: Duration) -> bool {
        let begun = self.state().pending.as_ref().and_then(|pending| pending.reverting);
        begun.is_some_and(|begun| begun.elapsed() > patience)
    }

    /// Rolls back an unconfirmed change when its time has passed, while no process runs.
    pub fn take_back(&self) -> bool {
        let mut state = self.state();
        let is_due = |pending: &mut Pending| pending.deadline <= Instant::now();
        let Some(pending) = state.pending.take_if(is_due) else { return false };
        state.in_force = pending.before.clone();
        state.before = None;
        drop(state);
        let number = self.history().add(Cause::Unconfirmed, &pending.before);
        let text = format!(
            "the change was not confirmed: rolled back to the previous configuration, as number \
             {number}"
        );
        self.note(Kind::ConfigUndone, text);
        true
    }

    fn state(&self) -> MutexGuard<'_, KeeperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a dataplane process until it hangs up.
    ///
    /// # Errors
    /// The message was not a request, or Linux refused to carry messages.
    pub fn serve(&self, channel: &Channel) -> io::Result<()> {
        // Changes made while no process ran.
        self.history().write();
        while let Some((ask, fds)) = channel.receive::<Ask>()? {
            let changes = matches!(ask, Ask::InForce(_));
            let (answer, along) = match self.answer(&ask, fds) {
                Ok(answer) => answer,
                Err(No::Refused(reason)) => (Answer::Refused, Along::Text(reason)),
                Err(No::Failed(reason)) => (Answer::Failed, Along::Text(reason)),
            };
            let file = along.descriptor()?;
            let fds: Vec<_> = file.iter().map(AsFd::as_fd).collect();
            match channel.send(&answer, &fds) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                sent => sent?,
            }
            if changes {
                self.history().write();
            }
        }
        Ok(())
    }

    fn answer(&self, ask: &Ask, fds: Vec<OwnedFd>) -> Outcome {
        let texts = fds.into_iter().map(read).collect::<io::Result<Vec<String>>>();
        let texts = texts.map_err(|error| No::Failed(format!("no text came along ({error})")))?;
        match (ask, &texts[..]) {
            (Ask::Read { changes }, _) => self.read(*changes),
            (Ask::Compare, [text]) => self.compare(text),
            (Ask::Past { number }, _) => self.past(*number),
            (Ask::InForce(coming), [text, shown]) => self.take(*coming, text, shown),
            (Ask::Confirm, _) => self.confirm(),
            (Ask::History, _) => Ok((Answer::History(self.report()), Along::Nothing)),
            (Ask::Splits, _) => Ok((self.splits(), Along::Nothing)),
            (Ask::Open, _) => {
                let text = self.unchanged()?;
                Ok((self.text(BTreeMap::new(), self.names(), false), Along::Text(text)))
            }
            (Ask::Prepare, [text]) => self.prepare(text),
            (Ask::Finish, _) => self.finish(),
            (Ask::Discard, _) => {
                let _ = std::fs::remove_file(history::draft(&self.path));
                self.state().coming = None;
                Ok((self.done(), Along::Nothing))
            }
            _ => Err(No::Failed("texts are missing".into())),
        }
    }

    fn done(&self) -> Answer {
        Answer::Done { number: self.history().number() }
    }

    fn text(&self, mtus: BTreeMap<String, u32>, names: Names, is_derived: bool) -> Answer {
        let number = self.history().number();
        Answer::Text { number, file: self.file.clone(), mtus, names, is_derived }
    }

    /// Parses a text, and reads the MTUs of the interfaces that it names.
    fn check(&self, file: &str, text: &str) -> Result<(Config, BTreeMap<String, u32>), String> {
        self.check_by(file, text, &self.names(), 0)
    }

    /// The same with these names, and with at least this `memory`, in bytes, if none is written.
    fn check_by(
        &self,
        file: &str,
        text: &str,
        names: &Names,
        memory: u64,
    ) -> Result<(Config, BTreeMap<String, u32>), String> {
        let known = self.state().mtus.clone();
        let mtu = |name: &str| node::mtu(name).or_else(|| known.get(name).copied());
        let checked = Config::parse_on(file, text, &mtu, Some(names));
        let kept = checked
            .and_then(|(document, mtus, config)| config.keeping_memory(&document, &mtus, memory));
        let config = kept.map_err(|errors| errors.to_string())?;
        let links = config.links.iter();
        let mtus = links.filter_map(|link| Some((link.interface.clone(), mtu(&link.interface)?)));
        let mtus = mtus.collect();
        Ok((config, mtus))
    }

    fn past(&self, number: Option<u64>) -> Outcome {
        let pending = self.state().pending.clone().filter(|_| number.is_none());
        let is_rollback = pending.is_some();
        let text = match pending {
            Some(pending) => pending.before,
            None => {
                let history = self.history();
                let known: Vec<String> =
                    history.entries().map(|entry| entry.number.to_string()).collect();
                let entry = history.past(number).ok_or_else(|| {
                    No::Refused(match number {
                        Some(number) => {
                            format!(
                                "there is no configuration {number}: there is {}",
                                known.join(", ")
                            )
                        }
                        None => "there is no previous configuration".into(),
                    })
                })?;
                entry.text.clone()
            }
        };
        let names = self.look_up(&text);
        let (config, mtus) = self.check_by("history", &text, &names, 0).map_err(|errors| {
            No::Refused(format!("what was before is no longer right: {errors}"))
        })?;
        if !is_rollback {
            self.refuse_downgrade(&config)?;
        }
        let mut state = self.state();
        state.coming = Some(Draft { file: text.clone(), text: text.clone() });
        state.is_previous = number.is_none();
        let is_derived = network::is_network(&state.loaded);
        drop(state);
        Ok((self.text(mtus, names, is_derived), Along::Text(text)))
    }

    fn take(&self, coming: Coming, text: &str, shown: &str) -> Outcome {
        let Coming { mut cause, confirm_seconds, is_same, by } = coming;
        if confirm_seconds.is_some_and(|seconds| !(1..=CONFIRM_SECONDS_MAX).contains(&seconds)) {
            let reason = format!("confirm within 1 to {CONFIRM_SECONDS_MAX} seconds");
            return Err(No::Refused(reason));
        }
        if cause == Cause::Set && confirm_seconds.is_some() {
            self.refuse_pending()?;
        }
        let config = self.trusted(cause, text)?;
        if by != By::This {
            Keys::read(&config)
                .map_err(|error| No::Refused(format!("{error}; nothing was changed")))?;
        }
        let now = self.config();
        if by == By::Supervisor || by == By::Process && handover::adds_tunnel(&config, now.as_ref())
        {
            handover::fits(&config, now.as_ref()).map_err(No::Refused)?;
        }
        let along = if by == By::This { self.fit_host(&config)? } else { Along::Nothing };
        let changes = self.summary(&config, text);
        // Another supervisor determines everything afresh, including MTUs of interfaces.
        let text = if by == By::Supervisor { shown } else { text };
        let mut state = self.state();
        let before = std::mem::replace(&mut state.in_force, text.to_owned());
        if by != By::This {
            state.before = Some(before.clone());
        }
        match cause {
            Cause::Reload => {
                let same = || Draft { file: shown.to_owned(), text: shown.to_owned() };
                let Draft { file, text } = state.coming.take().unwrap_or_else(same);
                (state.loaded, state.derived) = (file, text);
                state.pending = pending(confirm_seconds, before);
            }
            Cause::Set if confirm_seconds.is_some() => {
                state.pending = pending(confirm_seconds, before);
            }
            Cause::Undo => {
                state.coming = None;
                let pending = state.pending.take();
                if pending.is_some_and(|pending| pending.reverting.is_some()) {
                    cause = Cause::Unconfirmed;
                }
            }
            _ => {}
        }
        let unsaves = cause == Cause::Undo && std::mem::take(&mut state.is_previous);
        if !unsaves {
            state.saved = state.saving.take();
        }
        drop(state);
        if unsaves {
            self.unsave();
        }
        let mut history = self.history();
        let number = if is_same { history.number() } else { history.add(cause, shown) };
        drop(history);
        // The other supervisor may start from here on, so the history must be complete.
        self.state().is_handed_over = by == By::Supervisor;
        let text = format!("number {number} is active ({}){changes}", cause.name());
        match cause {
            _ if is_same => tracing::info!("configuration: {text}"),
            Cause::Undo | Cause::Unconfirmed => self.note(Kind::ConfigUndone, text),
            _ => self.note(Kind::ConfigApplied, text),
        }
        Ok((Answer::Done { number }, along))
    }

    /// The first changes that a configuration makes, in words.
    fn summary(&self, config: &Config, text: &str) -> String {
        let (in_force, _) = self.in_force();
        let document = Document::parse(&self.file, text).ok();
        let before = self.check(&self.file, &in_force).ok();
        let (Some(document), Some((before, _))) = (document, before) else {
            return String::new();
        };
        let changes = diff(&before, config, &document);
        let shown: Vec<&str> =
            changes.iter().take(SUMMARY_MAX).map(|change| change.what.as_str()).collect();
        let more = match changes.len().saturating_sub(SUMMARY_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join("; ")) }
    }

    /// Checks a text from the dataplane process. It must match a text that the supervisor read, or
    /// differ only in what `set` may change, so that an attacker in that process cannot apply
    /// another configuration.
    fn trusted(&self, cause: Cause, text: &str) -> Result<Config, No> {
        let base = match cause {
            Cause::Set => Some(self.state().in_force.clone()),
            _ => self.state().coming.as_ref().map(|draft| draft.text.clone()),
        };
        let base = base.ok_or_else(|| No::Failed("nothing was read before".into()))?;
        // A process keeps its budget.
        let memory = self.config().map_or(0, |config| config.daemon.memory);
        let parse = |text: &str| {
            let checked = self.check_by("active configuration", text, &self.names(), memory);
            checked.map_err(|errors| {
                No::Failed(format!("the dataplane process sent no configuration: {errors}"))
            })
        };
        let ((before, _), (config, _)) = (parse(&base)?, parse(text)?);
        self.refuse_others(&before, &config, text, cause == Cause::Set)?;
        Ok(config)
    }

    /// Refuses changes that neither `set` may make nor follow from the MTU of an interface.
    fn refuse_others(
        &self,
        before: &Config,
        after: &Config,
        text: &str,
        is_set: bool,
    ) -> Result<(), No> {
        let document = Document::parse(&self.file, text);
        let document = document.map_err(|errors| No::Failed(errors.to_string()))?;
        let changes = diff(before, after, &document);
        let is_allowed = |change: &Change| change.is_mtu() || is_set && change.is_settable();
        match changes.iter().find(|change| !is_allowed(change)) {
            Some(change) => {
                Err(No::Failed(format!("the dataplane process may not change this: {change}")))
            }
            None => Ok(()),
        }
    }

    fn confirm(&self) -> Outcome {
        if self.state().pending.take().is_none() {
            return Err(No::Refused("nothing waits to be confirmed".into()));
        }
        let number = self.history().number();
        let text = format!("the change is confirmed: number {number} stays active");
        self.note(Kind::ConfigConfirmed, text);
        Ok((self.done(), Along::Nothing))
    }

    fn report(&self) -> Past {
        let left = |it: &Pending| it.deadline.saturating_duration_since(Instant::now()).as_secs();
        let left = self.state().pending.as_ref().map(left);
        let history = self.history();
        let entries = history.entries();
        Past {
            entries: entries
                .map(|entry| (entry.number, entry.at, entry.cause.name().to_owned()))
                .collect(),
            directory: history.directory().map(|path| path.display().to_string()),
            trouble: history.trouble().to_owned(),
            confirm_seconds_left: left,
        }
    }
}

mod downgrade;

mod file;

pub(super) mod host;

pub mod handover;

mod names;

#[cfg(test)]
mod tests;
