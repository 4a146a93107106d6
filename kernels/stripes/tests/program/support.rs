//! Runs the program, and compares files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use recoded_stripes::shard_name;
use tempfile::TempDir;

/// A folder for one test.
pub struct Place(TempDir);

/// The end of a run.
pub struct Ended {
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard output and error output as text.
    pub text: String,
}

/// Bytes that a seed determines.
pub fn random_bytes(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    SmallRng::seed_from_u64(seed).fill(&mut content[..]);
    content
}

/// The seed of this run, printed.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let given = std::env::var("RECODED_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.as_nanos() as u64));
    eprintln!("RECODED_SEED={seed}");
    seed
}

impl Place {
    /// An empty folder.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("there is room"))
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the program in it.
    pub fn run(&self, arguments: &str) -> Ended {
        self.run_with(arguments, b"")
    }

    /// Runs the program with an input.
    pub fn run_with(&self, arguments: &str, input: &[u8]) -> Ended {
        let mut child = Command::new(env!("CARGO_BIN_EXE_recoded-stripes"))
            .args(arguments.split_whitespace())
            .current_dir(self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("it is a pipe");
        let input = input.to_vec();
        // A program that refuses its input closes the pipe.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
        writer.join().expect("it does not panic");
        let text = String::from_utf8_lossy(&[&stdout[..], b"\n", &stderr].concat()).into_owned();
        assert!(!text.contains("panicked"), "{arguments}: {text}");
        Ended { code: status.code().unwrap_or(-1), out: stdout, text }
    }

    /// Runs the program, which has to succeed.
    pub fn succeed(&self, arguments: &str) -> Ended {
        let ended = self.run(arguments);
        assert_eq!(ended.code, 0, "{arguments}: {}", ended.text);
        ended
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("there is room");
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("it exists")
    }

    /// Encodes bytes in the set `set`, with units of 1 KiB.
    pub fn encode(&self, set: &str, bytes: &[u8], code: [usize; 2]) {
        let [data, parity] = code;
        let arguments = format!("encode - -k {data} -m {parity} --unit-kib 1 -o {set}");
        let ended = self.run_with(&arguments, bytes);
        assert_eq!(ended.code, 0, "{}", ended.text);
    }

    /// Copies the files of a folder to a new one.
    pub fn copy(&self, from: &str, to: &str) {
        std::fs::create_dir(self.path(to)).expect("it is new");
        for entry in self.path(from).read_dir().expect("it exists") {
            let entry = entry.expect("it exists");
            std::fs::copy(entry.path(), self.path(to).join(entry.file_name())).expect("room");
        }
    }

    /// Changes the bytes of a shard.
    pub fn change(&self, set: &str, shard: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let path = shard_path(&self.path(set), shard);
        let mut bytes = std::fs::read(&path).expect("it exists");
        change(&mut bytes);
        std::fs::write(&path, bytes).expect("there is room");
    }

    /// Removes a shard.
    pub fn lose(&self, set: &str, shard: usize) {
        std::fs::remove_file(shard_path(&self.path(set), shard)).expect("it exists");
    }

    /// The content, if it can be recovered.
    pub fn content(&self, set: &str) -> Vec<u8> {
        self.succeed(&format!("recover {set} --output -")).out
    }
}

/// Path of a shard.
pub fn shard_path(set: &Path, shard: usize) -> PathBuf {
    set.join(shard_name(shard))
}
