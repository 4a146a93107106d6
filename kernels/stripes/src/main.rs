//! `recoded-stripes`: stored files are protected by Reed-Solomon stripes. The library has the work;
//! here are arguments, progress, texts and exit codes.

#![forbid(unsafe_code)]

mod arguments;
mod package;
mod text;

use std::fs::{File, Permissions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use arguments::{Arguments, Command, Encode, Plan};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use recoded_stripes::{
    Access, Content, Disk, Disks, Error, Layout, Options, Packed, Progress, Set, StagedDisk,
    StoredFile, UNIT_BYTES_DEFAULT, Verdict, encode, extract, extract_folder, is_pending, repair,
    replay, update, verify,
};

/// Exit code of wrong arguments, as of the other programs.
const WRONG_ARGUMENTS: u8 = 2;

/// Exit code of `verify` for damage that can be repaired.
const RECOVERABLE: u8 = 3;

/// Exit code of `verify` for damage that cannot.
const LOST: u8 = 4;

/// The path that means standard input or output.
const STANDARD: &str = "-";

/// Options of every command.
#[derive(Copy, Clone)]
struct Common {
    threads: usize,
    is_quiet: bool,
}

fn main() -> ExitCode {
    let Arguments { command, threads, quiet } = Arguments::parse();
    let common = Common { threads, is_quiet: quiet };
    let done = match command {
        Command::Encode(arguments) => run_encode(&arguments, common),
        Command::Verify { dir } => run_verify(&dir, common),
        Command::Recover { dir, output: None } => run_repair(&dir, common),
        Command::Recover { dir, output: Some(output) } => run_extract(&dir, &output, common),
        Command::Update { dir, at } => run_update(&dir, at, common),
        Command::Info { dir, json } => run_info(&dir, json),
        Command::Plan(arguments) => run_plan(&arguments),
        Command::Print { what, command } => package::print(what, command.as_deref())
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| io_error("write", Path::new("standard output"), error)),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("recoded-stripes: {error}");
            ExitCode::from(if error.is_of_arguments() { WRONG_ARGUMENTS } else { 1 })
        }
    }
}

fn run_encode(arguments: &Encode, common: Common) -> Result<ExitCode, Error> {
    let Encode { input, data, parity, output, unit_kib } = arguments;
    let unit_bytes = usize::from(*unit_kib) << 10;
    let layout = Layout::new((*data).into(), (*parity).into(), unit_bytes)?;
    // The umask reduces it.
    let mode = 0o666;
    let options = Options { layout, content: Content::File, mode, threads: common.threads };
    let failed = |source| io_error("read", input, source);
    if input.as_os_str() == STANDARD {
        return encode_from(io::stdin(), output, &options, bar(None, common));
    }
    let metadata = input.metadata().map_err(failed)?;
    let options = Options { mode: (metadata.permissions().mode() & 0o777) as u16, ..options };
    if metadata.is_dir() {
        let options = Options { content: Content::Folder, ..options };
        let packed = Packed::new(input, output)?;
        return encode_from(packed, output, &options, bar(None, common));
    }
    let bytes = metadata.is_file().then_some(metadata.len());
    let file = File::open(input).map_err(failed)?;
    encode_from(file, output, &options, bar(bytes, common))
}

fn encode_from(
    reader: impl Read + Send,
    output: &Path,
    options: &Options,
    bar: ProgressBar,
) -> Result<ExitCode, Error> {
    let staged = StagedDisk::new(output, options.mode)?;
    let header = encode(&staged, reader, options, &|bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    print(&text::encoded(&header, output));
    Ok(ExitCode::SUCCESS)
}

/// Opens a folder of shards for this process alone, and completes an interrupted update.
fn open(dir: &Path) -> Result<Disk, Error> {
    let disk = Disk::open(dir, Access::Write)?;
    if replay(&disk)? {
        eprintln!("recoded-stripes: an interrupted update has been completed");
    }
    Ok(disk)
}

fn run_verify(dir: &Path, common: Common) -> Result<ExitCode, Error> {
    let disk = open(dir)?;
    let set = Set::scan(&disk)?;
    let bar = bar(Some(set.header.layout.total_bytes()), common);
    let report = verify(&set, common.threads, &|bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    print(&text::report(&report));
    Ok(match report.verdict() {
        Verdict::Healthy => ExitCode::SUCCESS,
        Verdict::Recoverable => ExitCode::from(RECOVERABLE),
        Verdict::Lost => ExitCode::from(LOST),
    })
}

fn run_repair(dir: &Path, common: Common) -> Result<ExitCode, Error> {
    let disk = open(dir)?;
    let set = Set::scan(&disk)?;
    // Everything is read to find damage, and again to rebuild it.
    let bar = bar(Some(set.header.layout.total_bytes() * 2), common);
    let report = verify(&set, common.threads, &|bytes| bar.inc(bytes))?;
    let rebuilt = repair(&disk, &set, &report, common.threads, &|bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    print(&text::rebuilt(&rebuilt));
    Ok(ExitCode::SUCCESS)
}

fn run_extract(dir: &Path, output: &Path, common: Common) -> Result<ExitCode, Error> {
    let disk = open(dir)?;
    let set = Set::scan(&disk)?;
    let bar = bar(Some(set.header.layout.total_bytes()), common);
    let progress = |bytes| bar.inc(bytes);
    if output.as_os_str() == STANDARD {
        extract(&set, io::stdout(), common.threads, &progress)?;
    } else if set.header.content == Content::Folder {
        let write = |pipe| extract(&set, pipe, common.threads, &progress);
        extract_folder(output, set.header.mode, write)?;
    } else {
        extract_file(&set, output, common.threads, &progress)?;
    }
    bar.finish_and_clear();
    Ok(ExitCode::SUCCESS)
}

/// The file appears under its name when it is durable.
fn extract_file(
    set: &Set<File>,
    output: &Path,
    threads: usize,
    progress: Progress<'_>,
) -> Result<(), Error> {
    if output.symlink_metadata().is_ok() {
        return Err(Error::Exists { path: output.into() });
    }
    let failed = |source| io_error("write", output, source);
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let draft = tempfile::Builder::new()
        .prefix(".recoded-stripes-")
        .permissions(Permissions::from_mode(set.header.mode.into()))
        .tempfile_in(parent)
        .map_err(failed)?;
    extract(set, Output { file: draft.as_file(), bytes: 0 }, threads, progress)?;
    draft.as_file().sync_all().map_err(failed)?;
    draft.persist_noclobber(output).map_err(|error| failed(error.error))?;
    File::open(parent).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// A file that is written to the disk while more is computed.
struct Output<'a> {
    file: &'a File,
    bytes: u64,
}

/// Bytes that are sent to the disk at once.
const SYNC_BYTES: u64 = 16 << 20;

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(self.bytes, bytes)?;
        let block = self.bytes / SYNC_BYTES;
        self.bytes += bytes.len() as u64;
        if self.bytes / SYNC_BYTES > block {
            self.file.begin_sync(block * SYNC_BYTES, SYNC_BYTES);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run_update(dir: &Path, at: u64, common: Common) -> Result<ExitCode, Error> {
    let disk = open(dir)?;
    let set = Set::scan(&disk)?;
    let bar = bar(None, common);
    let bytes = update(&disk, &set, at, io::stdin(), &|bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    print(&format!("{bytes} bytes replaced at offset {at}"));
    Ok(ExitCode::SUCCESS)
}

fn run_info(dir: &Path, json: bool) -> Result<ExitCode, Error> {
    let disk = Disk::open(dir, Access::Read)?;
    let info = text::Info { is_update_pending: is_pending(&disk)?, set: Set::scan(&disk)? };
    print(&if json { info.json() } else { info.lines() });
    Ok(ExitCode::SUCCESS)
}

fn run_plan(arguments: &Plan) -> Result<ExitCode, Error> {
    let Plan { data, parity, json, .. } = *arguments;
    let layout = Layout::new(data.into(), parity.into(), UNIT_BYTES_DEFAULT)?;
    let disks = Disks {
        data: layout.data(),
        parity: layout.parity(),
        failure_hours: arguments.mttf_hours,
        repair_hours: arguments.repair_hours,
        bytes: arguments.disk_gb * 1e9,
        bits_per_error: arguments.bits_per_error,
    };
    print(&if json { text::plan_json(&disks) } else { text::plan(&disks) });
    Ok(ExitCode::SUCCESS)
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { action, name: path.display().to_string(), source }
}

/// Prints to standard output, whose reader may have closed it.
fn print(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Progress on a terminal, without a total if the length is unknown.
fn bar(bytes: Option<u64>, common: Common) -> ProgressBar {
    if common.is_quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = match bytes {
        Some(_) => "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        None => "{bytes}, {bytes_per_sec}",
    };
    let bar = bytes.map_or_else(ProgressBar::no_length, ProgressBar::new);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
