//! State of this host that is available without a daemon.

use super::{ArchiveFile, PART_BYTES_MAX};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time for a command.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

/// Period of the log.
const LOG_SINCE: &str = "-30min";
const LOG_LINES: &str = "3000";

/// Linux settings that are known to break the daemon.
const SETTINGS: [&str; 7] = [
    "kernel/osrelease",
    "kernel/unprivileged_bpf_disabled",
    "net/core/bpf_jit_enable",
    "net/core/default_qdisc",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv6/conf/all/forwarding",
];

/// All parts.
pub fn parts() -> Vec<ArchiveFile> {
    let log = ["-u", "recoded", "--since", LOG_SINCE, "-n", LOG_LINES, "--no-pager"];
    vec![
        ArchiveFile::new("host.txt", "kernel, distribution, CPU, memory, limits", Ok(host())),
        ArchiveFile::new(
            "links.txt",
            "interfaces and XDP programs",
            run("ip", &["-d", "-s", "link"]),
        ),
        ArchiveFile::new("addresses.txt", "addresses", run("ip", &["addr"])),
        ArchiveFile::new("routes.txt", "routes", routes()),
        ArchiveFile::new("bpf.txt", "programs on interfaces", run("bpftool", &["net"])),
        ArchiveFile::new("drivers.txt", "drivers and queues of interfaces", Ok(drivers())),
        ArchiveFile::new("log.txt", "log of the last half hour", run("journalctl", &log)),
    ]
}

fn host() -> String {
    let name = rustix::system::uname();
    let mut text = format!(
        "{} {} {} {}\n",
        name.sysname().to_string_lossy(),
        name.release().to_string_lossy(),
        name.version().to_string_lossy(),
        name.machine().to_string_lossy()
    );
    let mut add = |title: &str, body: &str| text.push_str(&format!("\n{title}\n{body}\n"));
    add("/etc/os-release", &read("/etc/os-release"));
    let cpus = read("/proc/cpuinfo");
    let first: Vec<&str> = cpus.lines().take_while(|line| !line.is_empty()).collect();
    let number = cpus.lines().filter(|line| line.starts_with("processor")).count();
    add(&format!("/proc/cpuinfo, the first of {number}"), &first.join("\n"));
    let memory = read("/proc/meminfo");
    add("/proc/meminfo", &memory.lines().take(5).collect::<Vec<_>>().join("\n"));
    add("/proc/loadavg", read("/proc/loadavg").trim_end());
    add("/proc/self/limits", read("/proc/self/limits").trim_end());
    let settings = SETTINGS.map(|name| {
        let path = format!("/proc/sys/{name}");
        format!("{name} {}", read(&path).trim_end())
    });
    add("/proc/sys", &settings.join("\n"));
    text
}

fn routes() -> Result<String, String> {
    let four = run("ip", &["route", "show", "table", "all"])?;
    let six = run("ip", &["-6", "route", "show", "table", "all"])?;
    let rules = run("ip", &["rule"])?;
    Ok(format!("{four}\n{six}\n{rules}"))
}

fn drivers() -> String {
    let mut text = String::new();
    let mut names: Vec<_> = std::fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    names.sort();
    for path in names {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let driver = std::fs::read_link(path.join("device/driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).unwrap_or_default();
        let of = |file: &str| read(&path.join(file).to_string_lossy()).trim_end().to_owned();
        let queues = std::fs::read_dir(path.join("queues")).map_or(0, Iterator::count);
        text.push_str(&format!(
            "{name}: driver {}, state {}, MTU {}, speed {} Mbit/s, queues {queues}\n",
            driver.to_string_lossy(),
            of("operstate"),
            of("mtu"),
            of("speed")
        ));
    }
    text
}

/// Reads a small file, or returns why that failed.
fn read(path: &str) -> String {
    let mut text = Vec::new();
    let got = File::open(path)
        .and_then(|file| file.take(PART_BYTES_MAX as u64 / 8).read_to_end(&mut text));
    match got {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => format!("({error})"),
    }
}

/// The output of a command, including errors, if it ends in time.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    // Excess output stays in the pipe, which ends the command.
    let collect = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let pipe = pipe.map(|pipe| pipe.take(PART_BYTES_MAX as u64));
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = collect(child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let error = collect(child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    // Its children may still hold the pipes, so the threads are not joined.
    let Some(status) = status else {
        return Err(format!("{program} did not end within {} s", PATIENCE.as_secs()));
    };
    let (out, error) = (out.join().unwrap_or_default(), error.join().unwrap_or_default());
    match status.success() {
        true => Ok(out + &error),
        false => Err(format!("{program}: {status}: {}", error.trim())),
    }
}
