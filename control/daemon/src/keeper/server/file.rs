//! The file: read, compared with the applied configuration, and written.

use super::{Along, Answer, Draft, Keeper, No, Outcome, Saved, names};
use crate::keeper::history;
use crate::network;
use std::fs::File;
use std::io;

impl Keeper {
    /// Whether the file, unless it was edited since, has other interfaces for this host than when
    /// it was applied: routes or addresses changed.
    pub fn is_moved(&self) -> bool {
        let (loaded, derived) = {
            let state = self.state();
            (state.loaded.clone(), state.derived.clone())
        };
        let is_known = |text: &String| network::is_network(text) && *text == loaded;
        let Ok(text) = history::read(&self.path) else { return false };
        let own = is_known(&text).then(|| network::own(&self.file, &text, self.name.as_deref()));
        own.is_some_and(|own| own.is_ok_and(|own| own != derived))
    }

    /// The file, checked; `changes` states whether it is to be applied.
    pub(super) fn read(&self, changes: bool) -> Outcome {
        if changes {
            self.refuse_pending()?;
        }
        let file = self.read_file()?;
        let (answer, text) = self.read_text(&file)?;
        if changes {
            self.state().coming = Some(Draft { file, text: text.clone() });
        }
        Ok((answer, Along::Text(text)))
    }

    /// Refuses a change while another one waits for confirmation.
    pub(super) fn refuse_pending(&self) -> Result<(), No> {
        if self.state().pending.is_none() {
            return Ok(());
        }
        let reason = "the last change waits to be confirmed: recodectl confirm keeps it, recodectl \
                      undo takes it back; nothing was changed";
        Err(No::Refused(reason.into()))
    }

    /// A text, checked as the file.
    pub(super) fn compare(&self, text: &str) -> Outcome {
        let (answer, text) = self.read_text(text)?;
        Ok((answer, Along::Text(text)))
    }

    /// The configuration of this host in the text of a file, checked.
    fn read_text(&self, file: &str) -> Result<(Answer, String), No> {
        let text = network::own(&self.file, file, self.name.as_deref())
            .map_err(|error| No::Refused(format!("{error}\nnothing was changed")))?;
        let known = self.names();
        let names = self.look_up(&text);
        let (config, mtus) = self
            .check_by(&self.file, &text, &names, 0)
            .map_err(|errors| No::Refused(format!("{errors}\nnothing was changed")))?;
        names::refuse_unknown(&config, &known).map_err(No::Refused)?;
        Ok((self.text(mtus, names, network::is_network(file)), text))
    }

    pub(super) fn read_file(&self) -> Result<String, No> {
        history::read(&self.path).map_err(|error| {
            No::Refused(format!("cannot read {} ({error}): nothing was changed", self.file))
        })
    }

    /// The file, if it still equals what was applied.
    pub(super) fn unchanged(&self) -> Result<String, No> {
        let text = self.read_file()?;
        if network::is_network(&text) {
            return Err(No::Refused(format!(
                "{} is the same on all boxes, so a change of one box is not saved in it: write the \
                 key into the [[path]] there, on every box, or leave --save out; nothing was changed",
                self.file
            )));
        }
        if text == self.state().loaded {
            return Ok(text);
        }
        Err(No::Refused(format!(
            "{} was changed since the daemon read it: recodectl reload --diff shows how, recodectl \
             reload takes it over; nothing was changed",
            self.file
        )))
    }

    pub(super) fn prepare(&self, text: &str) -> Outcome {
        let before = self.unchanged()?;
        let draft = Draft { file: text.to_owned(), text: text.to_owned() };
        let parse = |text: &str| self.check(&self.file, text).map_err(No::Refused);
        let ((before, _), (after, _)) = (parse(&before)?, parse(text)?);
        self.refuse_others(&before, &after, text, true)?;
        let like = File::open(&self.path).map_err(|error| self.not_written(&error))?;
        history::write_draft(&self.path, text, Some(&like))
            .map_err(|error| self.not_written(&error))?;
        self.state().coming = Some(draft);
        Ok((self.done(), Along::Nothing))
    }

    pub(super) fn finish(&self) -> Outcome {
        self.unchanged()?;
        history::finish_draft(&self.path).map_err(|error| self.not_written(&error))?;
        let mut state = self.state();
        if let Some(Draft { file, text }) = state.coming.take() {
            let before = std::mem::replace(&mut state.loaded, file.clone());
            state.saving = Some(Saved { before, after: file });
            state.derived = text;
        }
        drop(state);
        tracing::info!("{} was written", self.file);
        Ok((self.done(), Along::Nothing))
    }

    fn not_written(&self, error: &io::Error) -> No {
        No::Failed(format!(
            "cannot write {} ({error}): make room there and let the daemon write to its folder; \
             nothing was changed",
            self.path.display()
        ))
    }

    /// Writes the file as it was before a change that was saved and is now undone, unless it was
    /// edited since. Another undo writes it again.
    pub(super) fn unsave(&self) {
        let Some(Saved { before, after }) = self.state().saved.take() else { return };
        let is_ours = history::read(&self.path).is_ok_and(|text| text == after);
        if !is_ours {
            return tracing::warn!("{} was changed since: undo leaves it as it is", self.file);
        }
        let like = File::open(&self.path).ok();
        let written = history::write_draft(&self.path, &before, like.as_ref())
            .and_then(|()| history::finish_draft(&self.path));
        if let Err(error) = written {
            return tracing::warn!("{} keeps the change that is undone: {error}", self.file);
        }
        tracing::info!("{} was written", self.file);
        let mut state = self.state();
        (state.loaded, state.derived) = (before.clone(), before.clone());
        state.saved = Some(Saved { before: after, after: before });
    }
}
