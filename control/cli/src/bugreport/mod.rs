//! `recodectl bugreport`: everything that remote support needs, in one archive.
//!
//! ```text
//!  host, commands, daemon -> ArchiveFile (bounded) -> redact -> tar.gz, mode 0600
//! ```
//!
//! No part may contain a key: `redact` removes anything that looks like one, wherever it occurs.
//! Missing data is replaced by the reason, so the command works without a daemon, without root and
//! without systemd.

mod host;
mod redact;

use crate::Failure;
use crate::{doctor, json};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Zoned;
use recoded_api::client::{Client, ClientError};
use redact::redact;
use serde::Serialize;
use std::fs::{OpenOptions, remove_file};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest part: room for the state of hundreds of flows.
const PART_BYTES_MAX: usize = 4 << 20;

/// Observation time of `doctor`.
const DOCTOR_SECONDS: u64 = 2;

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum BugreportError {
    /// It exists, or cannot be created.
    #[error("cannot write {path} ({source}): name another file with --out")]
    Write {
        /// The archive.
        path: PathBuf,
        /// The error from Linux.
        source: io::Error,
    },
}

/// One file of the archive.
pub struct ArchiveFile {
    name: &'static str,
    /// Description for readers.
    what: &'static str,
    text: String,
    /// Why it is incomplete; empty if it is complete.
    trouble: String,
}

impl ArchiveFile {
    /// From the content, or the reason why there is none.
    fn new(name: &'static str, what: &'static str, got: Result<String, String>) -> ArchiveFile {
        let (text, trouble) = match got {
            Ok(text) => (text, String::new()),
            Err(trouble) => (String::new(), trouble),
        };
        ArchiveFile { name, what, text, trouble }.bounded()
    }

    fn bounded(mut self) -> ArchiveFile {
        self.text = redact(&self.text);
        self.trouble = redact(&self.trouble);
        if self.text.len() > PART_BYTES_MAX {
            let end = self.text.floor_char_boundary(PART_BYTES_MAX);
            self.text.truncate(end);
            self.trouble = format!("cut off after {PART_BYTES_MAX} bytes");
        }
        self
    }
}

/// Summary of the archive.
#[derive(Serialize)]
pub struct ArchiveSummary {
    file: String,
    bytes: u64,
    parts: Vec<Shown>,
}

#[derive(Serialize)]
struct Shown {
    name: &'static str,
    what: &'static str,
    bytes: usize,
    trouble: String,
}

/// Collects and writes everything.
///
/// # Errors
/// The archive cannot be written. Missing data is not an error.
pub fn write(socket: &Path, out: Option<&Path>) -> Result<ArchiveSummary, Failure> {
    let now = Zoned::now();
    let named = format!("recoded-bugreport-{}.tar.gz", now.strftime("%Y%m%d-%H%M%S"));
    let path = out.map_or_else(|| PathBuf::from(named), Path::to_owned);
    let failed = |source| BugreportError::Write { path: path.clone(), source };
    // First, so that a failure costs no collection time.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(failed)?;
    let mut parts = vec![versions(socket)];
    parts.extend(host::parts());
    parts.extend(daemon(socket));
    parts.insert(0, contents(&parts, &now));
    let written = archive(&file, &parts, &now).and_then(|()| Ok(file.metadata()?.len()));
    let bytes = written.map_err(|error| {
        let _ = remove_file(&path);
        failed(error)
    })?;
    let shown = parts.into_iter().map(|part| {
        let ArchiveFile { name, what, text, trouble } = part;
        Shown { name, what, bytes: text.len(), trouble }
    });
    Ok(ArchiveSummary { file: path.display().to_string(), bytes, parts: shown.collect() })
}

fn archive(file: &std::fs::File, parts: &[ArchiveFile], now: &Zoned) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let mtime = u64::try_from(now.timestamp().as_second()).unwrap_or(0);
    for part in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(part.text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(mtime);
        let name = format!("recoded-bugreport/{}", part.name);
        archive.append_data(&mut header, name, part.text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// Formats the summary as text.
pub fn text(report: &ArchiveSummary) -> String {
    let mut text = format!("{} ({} bytes):\n", report.file, report.bytes);
    for Shown { name, what, bytes, trouble } in &report.parts {
        let line = match trouble.is_empty() {
            true => format!("  {name:<16}{bytes:>9} bytes  {what}\n"),
            false if *bytes == 0 => format!("  {name:<16}              -  {what}: {trouble}\n"),
            false => format!("  {name:<16}{bytes:>9} bytes  {what}; {trouble}\n"),
        };
        text.push_str(&line);
    }
    text + "Keys were taken out. Addresses, names of interfaces and the log are in it:\nread it \
            before you send it.\n"
}

/// The archive's table of contents.
fn contents(parts: &[ArchiveFile], now: &Zoned) -> ArchiveFile {
    let mut text = format!(
        "Written by recodectl {} at {}.\n\n",
        env!("CARGO_PKG_VERSION"),
        now.strftime("%Y-%m-%d %H:%M:%S %z")
    );
    for ArchiveFile { name, what, text: body, trouble } in parts {
        let trouble = if trouble.is_empty() { String::new() } else { format!("; {trouble}") };
        text.push_str(&format!("{name}: {what}, {} bytes{trouble}\n", body.len()));
    }
    text.push_str(
        "\nWhat looks like a key was replaced by [key N], where N is the same for the same key, and \
         what has a name such as private_key or password by [removed]. File names of keys stay.\n",
    );
    ArchiveFile::new("README.txt", "what is in it", Ok(text))
}

fn versions(socket: &Path) -> ArchiveFile {
    let mut text = format!("recodectl {}\n", env!("CARGO_PKG_VERSION"));
    let asked = Client::connect(socket).and_then(|mut client| client.version());
    let trouble = match asked {
        Ok(daemon) => {
            text.push_str(&format!(
                "recoded {} ({}, field arithmetic by {}, edition {})\n",
                daemon.version, daemon.interface, daemon.kernel, daemon.edition
            ));
            String::new()
        }
        Err(error) => error.to_string(),
    };
    text.push_str(&format!("control socket {}\n", socket.display()));
    let what = "versions of recodectl and of the daemon";
    ArchiveFile { name: "versions.txt", what, text, trouble }.bounded()
}

/// The daemon's replies. A failed request costs only its own part.
fn daemon(socket: &Path) -> Vec<ArchiveFile> {
    let say = |error: ClientError| error.to_string();
    let connect = || Client::connect(socket).map_err(say);
    let state = connect().and_then(|mut client| client.state().map_err(say));
    let config = state.as_ref().map(|state| state.config.clone()).map_err(Clone::clone);
    let state = state.and_then(|mut state| {
        // Lines in a JSON string are harder to redact.
        state.config = "in recoded.toml".into();
        json::pretty(&state).map_err(|error| error.to_string())
    });
    let events = connect().and_then(|mut client| client.events(0).map_err(say));
    let events = events.and_then(|it| json::pretty(&it).map_err(|error| error.to_string()));
    let history = connect().and_then(|mut client| client.history().map_err(say));
    let history = history.and_then(|it| json::pretty(&it).map_err(|error| error.to_string()));
    let found = doctor::examine(socket, DOCTOR_SECONDS);
    let found = found.map(|found| doctor::text(&found)).map_err(|error| error.to_string());
    vec![
        ArchiveFile::new("state.json", "recodectl --json show", state),
        ArchiveFile::new("recoded.toml", "the active configuration", config),
        ArchiveFile::new("events.json", "recodectl --json events", events),
        ArchiveFile::new("history.json", "recodectl --json history", history),
        ArchiveFile::new("doctor.txt", "recodectl doctor", found),
    ]
}
