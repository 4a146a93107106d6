//! Files with keys, in hexadecimal.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use recoded_swarm::{ContentId, DatagramKey, Error, KeyPair, unpredictable};

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// The key of the source: of a file that is created if it is missing, or a new one.
pub(crate) fn source(path: Option<&Path>) -> Result<KeyPair, Error> {
    let Some(path) = path else { return unpredictable().map(KeyPair::new) };
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Ok(mut file) => {
            let key = write(&mut file, path);
            if key.is_err() {
                // An incomplete key would stop the next start.
                let _ = fs::remove_file(path);
            }
            key.map(KeyPair::new)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(path).map(KeyPair::new),
        Err(error) => Err(io_error("create", path, error)),
    }
}

/// Writes a new key.
fn write(file: &mut File, path: &Path) -> Result<[u8; KEY_BYTES], Error> {
    let key = unpredictable()?;
    // A content id is 32 bytes in hexadecimal, too.
    let written = writeln!(file, "{}", ContentId(key)).and_then(|()| file.sync_all());
    written.map_err(|error| io_error("write", path, error))?;
    Ok(key)
}

/// The pre-shared key of a file, if there is one.
pub(crate) fn datagrams(path: Option<&Path>) -> Result<Option<DatagramKey>, Error> {
    path.map(|path| read(path).map(|key| DatagramKey::new(&key))).transpose()
}

fn read(path: &Path) -> Result<[u8; KEY_BYTES], Error> {
    let bytes = fs::read(path).map_err(|error| io_error("read", path, error))?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
    let wrong = |_| Error::KeyFile { name: path.display().to_string(), bytes: KEY_BYTES };
    text.parse().map(|ContentId(key)| key).map_err(wrong)
}

fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { action, name: path.display().to_string(), source }
}
