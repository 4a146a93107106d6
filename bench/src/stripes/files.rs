//! Whole programs on a file: `recoded-stripes` and par2, compared with the copy rate of memory and
//! the write rate of the disk in the same round.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::median::median;
use crate::stripes::grid::{Part, rounded};

/// The code of these rows: the headline of Gibraltar's paper.
pub const DATA: usize = 10;
pub const PARITY: usize = 4;

/// Memory that par2 may use, in MB: the bound of `recoded-stripes`.
const PAR2_MEMORY_MB: usize = 256;

/// Free space that is needed, over the file: the file, par2's copy and its repaired copy, parity,
/// and a tenth for other programs.
const SPACE: f64 = 3.9;

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes that are copied in memory at once: beyond caches.
const COPY_BYTES: usize = 64 << 20;

/// How often a program's memory is read.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Settings.
pub struct Setting<'a> {
    /// Folder for all files, on the disk to be measured.
    pub folder: &'a Path,
    /// `recoded-stripes`.
    pub program: &'a Path,
    /// Bytes of the file.
    pub bytes: u64,
    pub rounds: usize,
    pub seed: u64,
}

/// Results of all rounds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Files {
    pub bytes: u64,
    pub k: usize,
    pub m: usize,
    /// GB/s: copies in memory, and writes to the disk until they are durable. Medians.
    pub copy: f64,
    pub disk: f64,
    pub rows: Vec<FileRow>,
    /// Programs that are not installed or failed.
    pub left_out: Vec<String>,
}

/// A program's times for one part.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileRow {
    pub part: Part,
    pub who: String,
    /// GB/s of the file, until results are durable. Median.
    pub rate: f64,
    /// Median over the rounds of this rate over the lower one of memory and disk, for the bytes
    /// that the program writes.
    pub of_limit: f64,
    /// Most memory of all rounds.
    pub peak_mib: f64,
    /// Seconds.
    pub samples: Vec<f64>,
}

/// Time and memory of a finished program.
struct Used {
    seconds: f64,
    peak_bytes: u64,
}

/// Rates of a round, in bytes per second.
struct Limits {
    copy: f64,
    disk: f64,
}

impl Limits {
    /// Seconds for a file if `written` bytes are written.
    fn seconds(&self, bytes: u64, written: f64) -> f64 {
        (bytes as f64 / self.copy).max(written / self.disk)
    }
}

/// The samples of one program and part.
struct Samples {
    part: Part,
    who: &'static str,
    used: Vec<Used>,
    of_limit: Vec<f64>,
}

/// Runs all rounds in a folder of its own, which is removed afterwards.
///
/// # Errors
/// [`BenchError::Os`], [`BenchError::Space`], [`BenchError::Command`], [`BenchError::Differs`]: a
/// file differs after its recovery.
pub fn measure(setting: &Setting<'_>) -> Result<Files, BenchError> {
    let needed = (setting.bytes as f64 * SPACE) as u64;
    let disk = rustix::fs::statvfs(setting.folder).map_err(BenchError::os("asking for space"))?;
    let free = disk.f_bavail * disk.f_frsize;
    if free < needed {
        return Err(BenchError::Space { folder: setting.folder.into(), needed, free });
    }
    let folder = setting.folder.join(format!("bench-stripes-{}", std::process::id()));
    fs::create_dir(&folder).map_err(BenchError::os(format!("creating {}", folder.display())))?;
    let place = Place { folder };
    place.write_file(setting)?;
    let mut samples = Vec::new();
    let mut left_out = Vec::new();
    let (mut copies, mut disks) = (Vec::new(), Vec::new());
    for _ in 0..setting.rounds {
        let limits = Limits { copy: copy_rate(setting.bytes), disk: place.disk_rate(setting)? };
        place.ours(setting, &limits, &mut samples)?;
        if left_out.is_empty() {
            left_out.extend(place.par2(setting, &limits, &mut samples)?);
        }
        copies.push(limits.copy);
        disks.push(limits.disk);
    }
    Ok(Files {
        bytes: setting.bytes,
        k: DATA,
        m: PARITY,
        copy: rounded(median(copies) / 1e9),
        disk: rounded(median(disks) / 1e9),
        rows: samples.iter().map(|it: &Samples| it.row(setting.bytes)).collect(),
        left_out,
    })
}

impl Samples {
    fn row(&self, bytes: u64) -> FileRow {
        let rates = self.used.iter().map(|used| bytes as f64 / used.seconds / 1e9);
        let peak = self.used.iter().map(|used| used.peak_bytes).max().unwrap_or_default();
        FileRow {
            part: self.part,
            who: self.who.into(),
            rate: rounded(median(rates)),
            of_limit: rounded(median(self.of_limit.clone())),
            peak_mib: rounded(peak as f64 / (1 << 20) as f64),
            samples: self.used.iter().map(|used| rounded(used.seconds)).collect(),
        }
    }
}

fn add(samples: &mut Vec<Samples>, part: Part, who: &'static str, used: Used, limit: f64) {
    let of_limit = limit / used.seconds;
    match samples.iter_mut().find(|it| it.part == part && it.who == who) {
        Some(found) => {
            found.used.push(used);
            found.of_limit.push(of_limit);
        }
        None => samples.push(Samples { part, who, used: vec![used], of_limit: vec![of_limit] }),
    }
}

/// The folder of the files; removed when dropped.
struct Place {
    folder: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file, random.
    fn write_file(&self, setting: &Setting<'_>) -> Result<(), BenchError> {
        let mut random = SmallRng::seed_from_u64(setting.seed);
        let mut chunk = vec![0; CHUNK_BYTES];
        let file = File::create(self.path("file"));
        let write = |mut file: File| {
            let mut left = setting.bytes;
            while left > 0 {
                let bytes = left.min(CHUNK_BYTES as u64) as usize;
                random.fill_bytes(&mut chunk[..bytes]);
                file.write_all(&chunk[..bytes])?;
                left -= bytes as u64;
            }
            file.sync_all()
        };
        file.and_then(write).map_err(BenchError::os("writing the file"))
    }

    /// Bytes per second of writing what `encode` writes, until it is durable.
    fn disk_rate(&self, setting: &Setting<'_>) -> Result<f64, BenchError> {
        let bytes = stored_bytes(setting.bytes);
        let path = self.path("disk");
        let chunk = vec![0x5A; CHUNK_BYTES];
        let start = Instant::now();
        let write = |mut file: File| {
            for _ in 0..(bytes as usize).div_ceil(CHUNK_BYTES) {
                file.write_all(&chunk)?;
            }
            file.sync_all()
        };
        File::create(&path).and_then(write).map_err(BenchError::os("writing to the disk"))?;
        let seconds = start.elapsed().as_secs_f64();
        self.remove("disk")?;
        Ok(bytes / seconds)
    }

    fn ours(
        &self,
        setting: &Setting<'_>,
        limits: &Limits,
        samples: &mut Vec<Samples>,
    ) -> Result<(), BenchError> {
        let program = || {
            let mut command = Command::new(setting.program);
            command.current_dir(&self.folder);
            command
        };
        let (k, m) = (DATA.to_string(), PARITY.to_string());
        let encode = ["encode", "file", "-k", &k, "-m", &m, "-o", "set"];
        let used = run(program().args(encode))?;
        let limit = limits.seconds(setting.bytes, stored_bytes(setting.bytes));
        add(samples, Part::Encode, OURS, used, limit);
        for shard in 0..PARITY {
            self.remove(&format!("set/shard-{shard:03}.stripes"))?;
        }
        let used = run(program().args(["recover", "set", "-o", "recovered"]))?;
        add(
            samples,
            Part::Recover,
            OURS,
            used,
            limits.seconds(setting.bytes, setting.bytes as f64),
        );
        self.compare("recovered")?;
        self.remove("recovered")?;
        fs::remove_dir_all(self.path("set")).map_err(BenchError::os("removing the shards"))
    }

    /// Returns why par2 is left out.
    fn par2(
        &self,
        setting: &Setting<'_>,
        limits: &Limits,
        samples: &mut Vec<Samples>,
    ) -> Result<Option<String>, BenchError> {
        let par2 = |arguments: &[&str]| {
            let memory = format!("-m{PAR2_MEMORY_MB}");
            let mut command = Command::new("par2");
            command.current_dir(&self.folder).arg(arguments[0]).args(["-q", "-q", &memory]);
            command.args(&arguments[1..]);
            command
        };
        if Command::new("par2").arg("-V").stdout(Stdio::null()).status().is_err() {
            return Ok(Some("par2 is not installed; `apt install par2` installs it".into()));
        }
        fs::copy(self.path("file"), self.path("copy")).map_err(BenchError::os("copying"))?;
        let (blocks, parity) = (format!("-b{DATA}"), format!("-c{PARITY}"));
        let mut used = run(&mut par2(&["create", &blocks, &parity, "set.par2", "copy"]))?;
        used.seconds += self.sync("set")?;
        let written = setting.bytes as f64 * PARITY as f64 / DATA as f64;
        add(samples, Part::Encode, PAR2, used, limits.seconds(setting.bytes, written));
        self.damage(setting.bytes)?;
        let mut used = run(&mut par2(&["repair", "set.par2"]))?;
        used.seconds += self.sync("copy")?;
        add(
            samples,
            Part::Recover,
            PAR2,
            used,
            limits.seconds(setting.bytes, setting.bytes as f64),
        );
        self.compare("copy")?;
        for name in self.names()?.iter().filter(|name| *name != "file") {
            self.remove(name)?;
        }
        Ok(None)
    }

    /// Overwrites as many blocks of par2's as can be recovered.
    fn damage(&self, bytes: u64) -> Result<(), BenchError> {
        // Blocks are multiples of four bytes.
        let block = bytes.div_ceil(DATA as u64).next_multiple_of(4);
        let chunk = vec![0; CHUNK_BYTES];
        let write = |file: File| {
            let mut at = 0;
            while at < PARITY as u64 * block {
                let length = (PARITY as u64 * block - at).min(CHUNK_BYTES as u64);
                file.write_all_at(&chunk[..length as usize], at)?;
                at += length;
            }
            file.sync_all()
        };
        let file = OpenOptions::new().write(true).open(self.path("copy"));
        file.and_then(write).map_err(BenchError::os("damaging the file"))
    }

    /// Seconds until all files whose names begin so are durable.
    fn sync(&self, start: &str) -> Result<f64, BenchError> {
        let begin = Instant::now();
        for name in self.names()?.iter().filter(|name| name.starts_with(start)) {
            let synced = File::open(self.path(name)).and_then(|file| file.sync_all());
            synced.map_err(BenchError::os(format!("flushing {name}")))?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    fn names(&self) -> Result<Vec<String>, BenchError> {
        let list = |folder: fs::ReadDir| {
            folder.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        };
        let names: io::Result<Vec<String>> = fs::read_dir(&self.folder).and_then(list);
        names.map_err(BenchError::os("listing files"))
    }

    /// Fails if a file differs from the original.
    fn compare(&self, name: &str) -> Result<(), BenchError> {
        let is_equal = || {
            let (mut one, mut other) =
                (File::open(self.path("file"))?, File::open(self.path(name))?);
            if one.metadata()?.len() != other.metadata()?.len() {
                return Ok(false);
            }
            let (mut a, mut b) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
            loop {
                let bytes = one.read(&mut a)?;
                other.read_exact(&mut b[..bytes])?;
                if a[..bytes] != b[..bytes] {
                    return Ok(false);
                }
                if bytes == 0 {
                    return Ok(true);
                }
            }
        };
        match is_equal().map_err(BenchError::os::<io::Error>("comparing files"))? {
            true => Ok(()),
            false => Err(BenchError::Differs { name: name.into() }),
        }
    }

    fn remove(&self, name: &str) -> Result<(), BenchError> {
        fs::remove_file(self.path(name)).map_err(BenchError::os(format!("removing {name}")))
    }
}

/// Names in results.
pub const OURS: &str = "recoded-stripes";
pub const PAR2: &str = "par2";

fn stored_bytes(bytes: u64) -> f64 {
    bytes as f64 * (DATA + PARITY) as f64 / DATA as f64
}

/// Bytes per second of copies in memory.
fn copy_rate(bytes: u64) -> f64 {
    let length = COPY_BYTES.min(bytes as usize).max(1);
    let (source, mut target) = (vec![1_u8; length], vec![2_u8; length]);
    let start = Instant::now();
    let times = (bytes as usize).div_ceil(length);
    for _ in 0..times {
        target.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&mut target);
    }
    (times * length) as f64 / start.elapsed().as_secs_f64()
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<Used, BenchError> {
    let text = format!("{command:?}");
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().map_err(BenchError::os(format!("starting {text}")))?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak_bytes = 0;
    loop {
        // It only grows, and is gone when the program has ended.
        peak_bytes = peak(&status).unwrap_or_default().max(peak_bytes);
        let ended = child.try_wait().map_err(BenchError::os(format!("waiting for {text}")))?;
        match ended {
            Some(status) if status.success() => break,
            Some(status) => {
                return Err(BenchError::Command { command: text, output: status.to_string() });
            }
            None => thread::sleep(POLL_INTERVAL),
        }
    }
    Ok(Used { seconds: start.elapsed().as_secs_f64(), peak_bytes })
}

/// Most memory that a process had so far, in bytes.
fn peak(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
