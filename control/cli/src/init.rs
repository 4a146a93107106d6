//! `recodectl init`: makes the key of this box and the first file of a network, and adds the lines
//! of other boxes.
//!
//! ```text
//!  --name, --address, or questions -> line of this box --+
//!  --with: lines that init printed on other boxes -------+-> file, checked like the daemon's
//! ```

use crate::atomic_file::replace;
use crate::crypto_keys;
use clap::Args;
use ipnet::IpNet;
use recoded::config::document::FILE_BYTES_MAX;
use recoded_network::{
    BoxEntry, EntryError, Fault, NetworkError, NetworkErrors, box_with_key, free_tunnel, with_boxes,
};
use recoded_secure::{KeyError, PrivateKey, PublicKey, key_file};
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where daemons look for the key of a box whose line names none.
pub const KEY_FILE: &str = "/etc/recoded/private.key";

/// What a box says of itself.
#[derive(Args, Debug)]
pub struct InitOptions {
    /// Name of this box; by default its host name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Address or host name where other boxes find this one; without it they find it when it sends,
    /// as behind address translation
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Address of this box in the tunnel; by default the first free one, from 10.99.0.1/24 on
    #[arg(long, value_name = "ADDRESS/LENGTH")]
    tunnel: Option<IpNet>,
    /// Line of another box, as init printed it there; may be repeated
    #[arg(long, value_name = "LINE")]
    with: Vec<String>,
    /// The file
    #[arg(long, value_name = "FILE", default_value = "/etc/recoded/recoded.toml")]
    config: PathBuf,
    /// The private key of this box, created unless it exists
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    key: PathBuf,
}

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A file cannot be read.
    #[error("cannot read {path} ({source}): run this as root, or name another file")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path} ({source}): run this as root, or name another file")]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file has another form.
    #[error(
        "{0} is the configuration of one box, without [boxes]: name another file with --config"
    )]
    OneBox(PathBuf),
    /// The key of this box is in the file under another name.
    #[error(
        "{path} has the key of this box as {known}: leave --name out, or correct the name there"
    )]
    Renamed {
        /// The file.
        path: PathBuf,
        /// The name there.
        known: String,
    },
    /// The private key is none.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No new key.
    #[error(transparent)]
    NewKey(#[from] crypto_keys::KeysError),
    /// A line, or the file.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Neighbours that cannot find each other.
    #[error(
        "neither {0} nor {1} has an address: repeat init with --address on the one that others can \
         reach; nothing was written to the file"
    )]
    NoAddress(String, String),
    /// The file would have mistakes.
    #[error("{0}\nnothing was written to the file")]
    Network(#[from] NetworkErrors),
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Initialised {
    /// The file.
    file: String,
    /// Name of this box.
    name: String,
    /// The line of this box.
    line: String,
    /// The file of the private key.
    private_key: String,
    /// Whether that was created.
    is_key_new: bool,
    /// Whether a daemon can start with the file.
    is_complete: bool,
    /// Boxes in the file.
    boxes: usize,
}

/// Writes the file.
///
/// # Errors
/// [`InitError`]: nothing was written to it.
pub fn run(options: &InitOptions) -> Result<Initialised, InitError> {
    let InitOptions { config, key: key_path, .. } = options;
    let text = read(config)?;
    let table = text.parse::<toml::Table>();
    let table = table.map_err(|error| EntryError::Syntax(error.message().replace('\n', ", ")))?;
    // A file without settings, as the package has it, is replaced.
    let text = if table.is_empty() { String::new() } else { text };
    if !table.is_empty() && !table.contains_key("boxes") {
        return Err(InitError::OneBox(config.clone()));
    }
    let text = with_boxes(&text, &options.with)?;
    let (key, is_key_new) = key(key_path)?;
    let (name, line) = match (box_with_key(&text, &key)?, &options.name) {
        (Some((known, _)), Some(name)) if known != *name => {
            return Err(InitError::Renamed { path: config.clone(), known });
        }
        (Some(known), _) => known,
        (None, _) => {
            let entry = this_box(options, &text, key)?;
            (entry.name.clone(), entry.to_string())
        }
    };
    let text = with_boxes(&text, std::slice::from_ref(&line))?;
    let file = config.display().to_string();
    let is_complete = match recoded::network::parse(&file, &text) {
        Ok(_) => true,
        // A single box waits for the next one, and more than two for the paths between them.
        Err(mut errors) => {
            errors.errors.retain(|it| !lacks_path(&it.fault));
            if let [NetworkError { fault: Fault::NoPlace { one, other }, .. }] = &errors.errors[..]
            {
                return Err(InitError::NoAddress(one.clone(), other.clone()));
            }
            if !errors.errors.is_empty() {
                return Err(errors.into());
            }
            false
        }
    };
    write(config, &text)?;
    let boxes = text.parse::<toml::Table>().ok();
    let boxes = boxes.and_then(|table| Some(table.get("boxes")?.as_table()?.len()));
    Ok(Initialised {
        file,
        name,
        line,
        private_key: key_path.display().to_string(),
        is_key_new,
        is_complete,
        boxes: boxes.unwrap_or(0),
    })
}

fn lacks_path(fault: &Fault) -> bool {
    matches!(fault, Fault::Missing { key: "path", .. } | Fault::NoPath)
}

/// The line of this box, by options, or by questions on a terminal.
fn this_box(options: &InitOptions, text: &str, key: PublicKey) -> Result<BoxEntry, InitError> {
    let is_asked = options.name.is_none() && io::stdin().is_terminal();
    let host = host_name();
    let name = match (&options.name, is_asked) {
        (Some(name), _) => name.clone(),
        (None, true) => {
            ask(&format!("name of this box [{host}]: ")).filter(|it| !it.is_empty()).unwrap_or(host)
        }
        (None, false) => host,
    };
    let at = match (&options.address, is_asked) {
        (Some(at), _) => Some(at.clone()),
        (None, true) => ask("address where other boxes find it [none, it calls them]: "),
        (None, false) => None,
    };
    let tunnel = Some(options.tunnel.map_or_else(|| free_tunnel(text), Ok)?);
    let private_key = written_key(&options.key);
    Ok(BoxEntry { name, at: at.filter(|at| !at.is_empty()), key, tunnel, private_key })
}

/// Asks a question on stderr; none at the end of input.
fn ask(question: &str) -> Option<String> {
    let mut answer = String::new();
    eprint!("{question}");
    io::stderr().flush().ok()?;
    io::stdin().lock().read_line(&mut answer).ok()?;
    Some(answer.trim().to_owned())
}

/// The first label of the host name, in letters that a box's name may have.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let label = name.split('.').next().unwrap_or_default().trim_start_matches('-');
    let plain = |it: char| if it.is_ascii_alphanumeric() || it == '_' { it } else { '-' };
    label.chars().take(32).map(plain).collect()
}

/// The path of a private key as a line of a box has it; none if it is the default one.
pub fn written_key(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Some(path.display().to_string()).filter(|path| path != KEY_FILE)
}

/// The public key of this box, and whether it was made now.
///
/// # Errors
/// [`InitError`].
pub fn key(path: &Path) -> Result<(PublicKey, bool), InitError> {
    let failed = |source| InitError::Write { path: path.to_owned(), source };
    let is_new = !path.exists();
    if is_new {
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(failed)?;
        let text = crypto_keys::private()?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    }
    Ok((key_file::read::<PrivateKey>(path)?.public(), is_new))
}

/// The file; empty if there is none.
///
/// # Errors
/// [`InitError::Read`].
pub fn read(path: &Path) -> Result<String, InitError> {
    let failed = |source| InitError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed(error)),
    };
    Ok(text)
}

/// Creates the folder of a file unless it exists.
///
/// # Errors
/// [`InitError::Write`].
pub fn folder_of(path: &Path) -> Result<(), InitError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::create_dir_all(folder.unwrap_or(Path::new(".")))
        .map_err(|source| InitError::Write { path: path.to_owned(), source })
}

fn write(path: &Path, text: &str) -> Result<(), InitError> {
    folder_of(path)?;
    replace(path, text).map_err(|source| InitError::Write { path: path.to_owned(), source })
}

/// Formats the result as text.
pub fn text(done: &Initialised) -> String {
    let Initialised { file, name, line, private_key, is_key_new, is_complete, boxes } = done;
    let made = if *is_key_new { "made" } else { "found" };
    let others = match boxes {
        0 | 1 => "the only box so far".to_owned(),
        boxes => format!("one of {boxes} boxes"),
    };
    let mut text = format!("{file}: this is box {name}, {others}; {made} {private_key}\n");
    text += &match (is_complete, boxes) {
        (true, _) => "this file is complete: systemctl enable --now recoded\n".to_owned(),
        (false, 1) => "next, on the other box, with its own name and address:\n".to_owned(),
        (false, _) => format!(
            "write [[path]] with via = [...] into {file}, and copy that to all boxes; the line of \
             this box:\n"
        ),
    };
    text += &match is_complete {
        true => "on the other box, unless its file has this one:\n".to_owned(),
        false => String::new(),
    };
    text + &format!("recodectl init --with '{line}'\n")
}
