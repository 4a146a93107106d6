//! `recoded-swarm`: a file for many receivers, with network coding. The library has the work; here
//! are arguments, files, texts and exit codes.

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod key_files;
mod package;
mod text;

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arguments::{Arguments, Command, Get, Serve, ServeLimits};
use clap::Parser;
use recoded_swarm::{
    Error, GetOptions, Got, Limits, Manifest, ServeOptions, ServerKeys, Serving, Store, get,
};

/// Exit code of wrong arguments, as of the other programs.
const WRONG_ARGUMENTS: u8 = 2;

/// A host may take one place in this many.
const HOST_SHARE: usize = 16;

/// Places that a host may take in small tables: receivers behind one NAT share an address.
const HOST_PEERS_MIN: usize = 64;

/// Exit code after a second signal, as shells report SIGINT.
const SIGNALLED: i32 = 130;

/// Bytes of headers that a datagram may have in addition to a block and its coding vector.
const HEADERS_BYTES: u32 = 41;

/// Most payload of a UDP datagram that fits every IPv6 path: 1280 less the headers of IPv6 and UDP.
const PAYLOAD_BYTES: u32 = 1232;

/// How often a wait looks at the flag that a signal sets.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let done = match command {
        Command::Serve(arguments) => run_serve(&arguments),
        Command::Get(arguments) => run_get(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Print { what, command } => package::print(what, command.as_deref())
            .map_err(|error| io_error("write", "standard output", error)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recoded-swarm: {error}");
            ExitCode::from(if error.is_of_arguments() { WRONG_ARGUMENTS } else { 1 })
        }
    }
}

/// A flag that SIGINT and SIGTERM set. A second signal exits at once: standard output may block.
fn stop_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let setter = Arc::clone(&flag);
    // Without a handler, a signal ends the program at once.
    let _ = ctrlc::set_handler(move || {
        if setter.swap(true, Ordering::Relaxed) {
            std::process::exit(SIGNALLED);
        }
    });
    flag
}

fn run_serve(arguments: &Serve) -> Result<(), Error> {
    let is_stopping = stop_flag();
    let name = arguments.file.display();
    let content = fs::read(&arguments.file).map_err(|error| io_error("read", name, error))?;
    let source = key_files::source(arguments.source_key.as_deref())?;
    let datagrams = key_files::datagrams(arguments.key.as_deref())?;
    let Serve { blocks, block_bytes, .. } = *arguments;
    let manifest = Manifest::describe(&content, blocks, block_bytes, *source.public())?;
    let datagram_bytes = block_bytes + u32::from(blocks) + HEADERS_BYTES;
    if datagram_bytes > PAYLOAD_BYTES {
        eprintln!("{}", text::long_datagrams(datagram_bytes, PAYLOAD_BYTES));
    }
    let store = Arc::new(Store::complete(manifest, &content));
    drop(content);
    let keys = ServerKeys { source: Some(source), datagrams };
    let options = serve_options(&arguments.listen, &arguments.limits, keys);
    let serving = Serving::start(&store, &options)?;
    print(&text::started(store.manifest(), serving.addresses()));
    let interval = arguments.report.map(|seconds| Duration::from_secs(seconds.into()));
    wait(&serving, &is_stopping, None, interval);
    print(&text::counters(&serving.counters()));
    Ok(())
}

/// Waits for a signal or the end of `time`, and prints counters every `interval`.
fn wait(
    serving: &Serving,
    is_stopping: &AtomicBool,
    time: Option<Duration>,
    interval: Option<Duration>,
) {
    let (start, mut reported_at) = (Instant::now(), Instant::now());
    let is_over = || time.is_some_and(|time| start.elapsed() >= time);
    while !is_stopping.load(Ordering::Relaxed) && !is_over() {
        std::thread::sleep(STOP_INTERVAL);
        if interval.is_some_and(|interval| reported_at.elapsed() >= interval) {
            reported_at = Instant::now();
            print(&text::counters(&serving.counters()));
        }
    }
}

fn serve_options(
    listen: &[std::net::SocketAddr],
    limits: &ServeLimits,
    keys: ServerKeys,
) -> ServeOptions {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ServeOptions {
        listen: listen.to_vec(),
        workers: if limits.workers == 0 { cores } else { limits.workers.into() },
        limits: Limits {
            peers: limits.max_peers as usize,
            peers_per_host: (limits.max_peers as usize / HOST_SHARE).max(HOST_PEERS_MIN),
            rate_bytes: u64::from(limits.rate) * 125,
            burst_bytes: u64::from(limits.burst) << 10,
            segments_ahead: limits.ahead.into(),
        },
        keys,
    }
}

fn run_get(arguments: &Get) -> Result<(), Error> {
    let is_stopping = stop_flag();
    let is_to_file = arguments.out.as_os_str() != "-";
    if is_to_file && arguments.out.symlink_metadata().is_ok() {
        return Err(Error::Exists { name: arguments.out.display().to_string() });
    }
    let key = key_files::datagrams(arguments.key.as_deref())?;
    let serve_keys = ServerKeys { source: None, datagrams: key.clone() };
    let serve = (!arguments.serve.is_empty())
        .then(|| serve_options(&arguments.serve, &arguments.limits, serve_keys));
    let options = GetOptions {
        content: arguments.content,
        peers: arguments.peers.clone(),
        key,
        rate_kbit: arguments.max_rate,
        window: arguments.window.into(),
        serve,
        memory_bytes: arguments.memory << 20,
        patience: Duration::from_secs(arguments.timeout.into()),
    };
    let start = Instant::now();
    let got = if is_to_file {
        get_file(&options, &arguments.out, &is_stopping)?
    } else {
        get(&options, &mut io::stdout().lock(), &is_stopping)?
    };
    eprintln!("{}", text::finished(&got, start.elapsed()));
    if let Some(serving) = &got.serving {
        let time = arguments.linger.map(|seconds| Duration::from_secs(seconds.into()));
        wait(serving, &is_stopping, time, None);
        eprintln!("{}", text::counters(&serving.counters()));
    }
    Ok(())
}

/// The file appears under its name when it is complete and on the disk.
fn get_file(options: &GetOptions, out: &Path, is_stopping: &AtomicBool) -> Result<Got, Error> {
    let failed = |error| io_error("write", out.display(), error);
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let draft = tempfile::Builder::new()
        .prefix(".recoded-swarm-")
        // Less the umask, as of any new file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent);
    let draft = draft.map_err(failed)?;
    let mut writer = BufWriter::with_capacity(1 << 20, draft.as_file());
    let got = get(options, &mut writer, is_stopping)?;
    drop(writer);
    draft.as_file().sync_all().map_err(failed)?;
    draft.persist_noclobber(out).map_err(|error| failed(error.error))?;
    File::open(parent).and_then(|folder| folder.sync_all()).map_err(failed)?;
    Ok(got)
}

fn io_error(action: &'static str, name: impl ToString, source: io::Error) -> Error {
    Error::Io { action, name: name.to_string(), source }
}

/// Prints to standard output, whose reader may have closed it.
fn print(text: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
