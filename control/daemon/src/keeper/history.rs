//! The configurations that were applied: the newest [`ENTRIES_MAX`], in memory and, if there is a
//! state directory, in one file each.
//!
//! Disk is a convenience here. A failure is kept as one sentence, logged once and shown by
//! `recodectl history`; the history in memory continues.

use super::Cause;
use crate::config::document::FILE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Configurations kept: several hours of changes, in at most 16 MiB.
pub const ENTRIES_MAX: usize = 16;

/// A configuration that was applied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its number; numbers only increase.
    pub number: u64,
    /// Time, in seconds since 1970.
    pub at: u64,
    /// Its cause.
    pub cause: Cause,
    /// Its text.
    pub text: String,
}

impl Entry {
    fn file_name(&self) -> String {
        format!("{:010}-{}-{}.toml", self.number, self.at, self.cause.name())
    }

    /// The entry for a file of this name; its text is not read.
    fn of_file(name: &str) -> Option<Entry> {
        let mut parts = name.strip_suffix(".toml")?.splitn(3, '-');
        let number = parts.next().filter(|digits| digits.len() == 10)?.parse().ok()?;
        let at = parts.next()?.parse().ok()?;
        let cause = Cause::of_name(parts.next()?)?;
        let entry = Entry { number, at, cause, text: String::new() };
        (entry.file_name() == name).then_some(entry)
    }
}

/// Applied configurations, oldest first. The last one is active.
#[derive(Debug)]
pub struct History {
    directory: Option<PathBuf>,
    entries: VecDeque<Entry>,
    trouble: String,
}

impl History {
    /// Loads the entries in `directory`, and adds `text`, the daemon's initial configuration.
    pub fn open(directory: Option<PathBuf>, text: &str) -> History {
        let mut history = History { directory, entries: VecDeque::new(), trouble: String::new() };
        let loaded = history.directory.as_deref().map(load).unwrap_or_else(|| Ok(VecDeque::new()));
        match loaded {
            Ok(entries) => history.entries = entries,
            Err(error) => history.note(&error),
        }
        // A restart of the daemon changes nothing.
        if history.entries.back().is_none_or(|last| last.text != text) {
            history.record(Cause::Start, text);
        }
        history
    }

    /// Every entry, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The directory, if there is one.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Why the newest entries are not on disk; empty if they are.
    pub fn trouble(&self) -> &str {
        &self.trouble
    }

    /// Number of the active configuration.
    pub fn number(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.number)
    }

    /// The entry of this number; without one, the last but one.
    pub fn past(&self, number: Option<u64>) -> Option<&Entry> {
        match number {
            Some(number) => self.entries.iter().find(|entry| entry.number == number),
            None => self.entries.iter().rev().nth(1),
        }
    }

    /// Adds the configuration that is now active; returns its number. Does not touch the disk.
    pub fn add(&mut self, cause: Cause, text: &str) -> u64 {
        let number = self.number() + 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let entry = Entry { number, at: since.as_secs(), cause, text: text.to_owned() };
        self.entries.push_back(entry);
        while self.entries.len() > ENTRIES_MAX {
            self.entries.pop_front();
        }
        number
    }

    /// Renumbers the active configuration to `number` and inserts `before`, oldest first, ahead of
    /// it, unless the disk has later entries.
    pub fn continue_at(&mut self, number: u64, before: &[Entry]) {
        let Some(mut last) = self.entries.pop_back() else { return };
        if last.number < number {
            // Its file would be another entry at the next start.
            if let Some(directory) = &self.directory {
                let _ = fs::remove_file(directory.join(last.file_name()));
            }
            last.number = number;
        }
        let known = self.entries.back().map_or(0, |entry| entry.number);
        let is_between = |entry: &&Entry| known < entry.number && entry.number < last.number;
        self.entries.extend(before.iter().filter(is_between).cloned());
        self.entries.push_back(last);
        while self.entries.len() > ENTRIES_MAX {
            self.entries.pop_front();
        }
    }

    /// Brings the disk up to date.
    pub fn write(&mut self) {
        let Some(directory) = self.directory.clone() else { return };
        match store(&directory, &self.entries) {
            Ok(()) => self.trouble.clear(),
            Err(error) => self.note(&error),
        }
    }

    /// Adds an entry and writes it to disk.
    pub fn record(&mut self, cause: Cause, text: &str) -> u64 {
        let number = self.add(cause, text);
        self.write();
        number
    }

    fn note(&mut self, error: &io::Error) {
        let Some(directory) = &self.directory else { return };
        let trouble = format!(
            "{} cannot be used ({error}): make room there and let the daemon write to it, or name \
             another directory with --state; until then the history is in memory only",
            directory.display()
        );
        if self.trouble != trouble {
            tracing::warn!("history: {trouble}");
            self.trouble = trouble;
        }
    }
}

/// Loads the newest entries from a directory, which is created.
fn load(directory: &Path) -> io::Result<VecDeque<Entry>> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut entries = names(directory)?;
    let surplus = entries.len().saturating_sub(ENTRIES_MAX);
    entries.drain(..surplus);
    let mut loaded = VecDeque::new();
    for mut entry in entries {
        let path = directory.join(entry.file_name());
        // Unreadable entries are left out: rolling back to them is impossible.
        match read(&path) {
            Ok(text) => {
                entry.text = text;
                loaded.push_back(entry);
            }
            Err(error) => tracing::warn!(%error, "history: {} is left out", path.display()),
        }
    }
    Ok(loaded)
}

/// Entries from file names, without texts, in order.
fn names(directory: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in fs::read_dir(directory)? {
        entries.extend(file?.file_name().to_str().and_then(Entry::of_file));
    }
    entries.sort_by_key(|entry| entry.number);
    Ok(entries)
}

/// Writes the missing entries to a directory, and removes those that are too old.
fn store(directory: &Path, entries: &VecDeque<Entry>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    for entry in entries {
        let path = directory.join(entry.file_name());
        if !path.exists() {
            write_whole(&path, &entry.text, None)?;
        }
    }
    let oldest = entries.front().map_or(0, |entry| entry.number);
    for old in names(directory)?.into_iter().filter(|entry| entry.number < oldest) {
        fs::remove_file(directory.join(old.file_name()))?;
    }
    Ok(())
}

/// Reads a file of at most the size of a configuration.
///
/// # Errors
/// It cannot be read, is too long, or is not text.
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(text)
}

/// Path of a file's draft, before it is renamed.
pub fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Writes a draft of `path`, synced to disk, with the permissions of `like`.
///
/// # Errors
/// Linux refuses; there is no draft then.
pub fn write_draft(path: &Path, text: &str, like: Option<&File>) -> io::Result<()> {
    let draft = draft(path);
    let write = || {
        // A draft left by an interrupted write.
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        if let Some(like) = like {
            keep_owner(&file, like)?;
        }
        file.sync_all()
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

/// Replaces the file with its draft.
///
/// # Errors
/// Linux refuses; the file is unchanged.
pub fn finish_draft(path: &Path) -> io::Result<()> {
    fs::rename(draft(path), path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn write_whole(path: &Path, text: &str, like: Option<&File>) -> io::Result<()> {
    write_draft(path, text, like)?;
    finish_draft(path)
}

/// Copies mode and owner of another file; the owner only if permitted.
fn keep_owner(file: &File, like: &File) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let known = like.metadata()?;
    if std::os::unix::fs::fchown(file, Some(known.uid()), Some(known.gid())).is_err() {
        tracing::debug!("the owner of the file changes");
    }
    file.set_permissions(known.permissions())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(history: &History) -> Vec<&str> {
        history.entries().map(|entry| entry.text.as_str()).collect()
    }

    #[test]
    fn history_is_bounded_survives_a_restart_and_leaves_out_what_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("state");
        let mut history = History::open(Some(directory.clone()), "0");
        for text in 1..=40 {
            history.record(Cause::Set, &text.to_string());
        }
        let expected: Vec<String> = (25..=40).map(|text| text.to_string()).collect();
        assert_eq!(texts(&history), expected);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), ENTRIES_MAX);
        assert_eq!(history.past(None).unwrap().text, "39");
        assert_eq!(history.past(Some(30)).unwrap().text, "29");
        assert_eq!(history.past(Some(1)), None);

        let again = History::open(Some(directory.clone()), "40");
        assert_eq!(texts(&again), expected, "the same text is no change");
        fs::write(directory.join("0000000099-x-set.toml"), "garbage").unwrap();
        fs::write(directory.join("0000000041-7-start.toml"), [0xff]).unwrap();
        let again = History::open(Some(directory), "other");
        assert_eq!((again.number(), again.entries().count()), (42, ENTRIES_MAX));
        assert_eq!(again.trouble(), "");
    }

    /// Without a directory, nothing else remembers the history before another supervisor took over.
    #[test]
    fn history_that_continues_has_what_was_before_once_in_its_place() {
        let entry =
            |number, text: &str| Entry { number, at: 1, cause: Cause::Set, text: text.into() };
        let past = [entry(5, "five"), entry(6, "six")];
        let mut history = History::open(None, "seven");
        history.continue_at(7, &past);
        assert_eq!(texts(&history), ["five", "six", "seven"]);
        assert_eq!((history.number(), history.past(None)), (7, Some(&past[1])));
        assert_eq!(history.add(Cause::Undo, "six"), 8);

        let folder = tempfile::tempdir().unwrap();
        let directory = Some(folder.path().to_owned());
        let mut history = History::open(directory.clone(), "five");
        history.continue_at(5, &[]);
        history.write();
        let mut history = History::open(directory.clone(), "seven");
        assert_eq!(history.number(), 6, "the disk knows no more");
        history.continue_at(7, &past);
        history.write();
        for _ in 0..2 {
            let mut again = History::open(directory.clone(), "seven");
            again.continue_at(7, &past);
            assert_eq!(texts(&again), ["five", "six", "seven"]);
            let numbers: Vec<u64> = again.entries().map(|entry| entry.number).collect();
            assert_eq!(numbers, [5, 6, 7]);
            again.write();
        }
        let mut later = History::open(directory, "nine");
        later.continue_at(7, &past);
        assert_eq!(texts(&later), ["five", "six", "seven", "nine"]);
    }

    #[test]
    fn disk_that_cannot_be_written_costs_the_disk_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let mut history = History::open(Some(file.join("state")), "a");
        history.record(Cause::Reload, "b");
        assert_eq!(texts(&history), ["a", "b"]);
        let said = "name another directory with --state; until then the history is in memory only";
        assert!(history.trouble().ends_with(said), "{}", history.trouble());
        fs::remove_file(&file).unwrap();
        history.write();
        assert_eq!(history.trouble(), "", "it is written once that works");
        assert_eq!(fs::read_dir(file.join("state")).unwrap().count(), 2);
    }

    #[test]
    fn draft_takes_the_place_of_a_file_with_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write_draft(&path, "new", Some(&File::open(&path).unwrap())).unwrap();
        assert_eq!(read(&path).unwrap(), "old", "nothing is half written");
        finish_draft(&path).unwrap();
        assert_eq!(read(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
