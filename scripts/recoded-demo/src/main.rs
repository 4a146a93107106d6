//! `recoded-demo`: one command that demonstrates recoding. See `options.rs` for its options,
//! `findings.rs` for its criteria.

#![forbid(unsafe_code)]

mod options;
mod progress;

mod calibration;
mod networks;
mod plain;
mod probe;
mod protected;

mod findings;
mod load;
mod plot;
mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use recoded_api::v1::State;
use recoded_netns::traffic::{WebServer, interface_drops, write_random_file};
use recoded_netns::{Bed, BedConfig, BedError, Daemon, Loss, sweep};

use findings::{Findings, Link, Loads, Machine, Mode, Plain, Recoded};
use load::{Load, Meter};
use options::{Code, DemoOptions, DemoTopology};
use progress::Progress;
use protected::TUNNEL;

/// Smallest file that is downloaded.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// File size if losses are bursty, which slows generations down.
const FILE_BYTES_BURSTS: u64 = 64 << 20;

/// Maximum file size, so that memory and temporary folders do not fill up.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Goodput assumed for the file size, as a share of the link rate.
const GOODPUT_SHARE: f64 = 0.5;

/// Steps that the user sees.
const STEPS: usize = 9;

/// One more where the rate of the links is to be found.
const STEPS_WITH_CALIBRATION: usize = 1 + STEPS;

fn main() -> ExitCode {
    let options = DemoOptions::parse();
    let result = prepare(&options).and_then(|go_on| match options.topology {
        _ if !go_on => Ok(true),
        DemoTopology::Line => run(&options),
        _ => run_network(&options),
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("recoded-demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Checks and clean-up before anything is built; returns whether to continue.
fn prepare(options: &DemoOptions) -> Result<bool, BedError> {
    options.check()?;
    if !rustix::process::geteuid().is_root() {
        return Err(BedError::Parameter {
            what: "user",
            value: "not root".into(),
            rule: "namespaces and XDP need root: use sudo scripts/demo",
        });
    }
    sweep::clean_up_on_signal()?;
    for prefix in sweep::sweep(options.clean) {
        eprintln!("removed what an earlier run left: {prefix}");
    }
    Ok(!options.clean)
}

fn run(options: &DemoOptions) -> Result<bool, BedError> {
    let started = Instant::now();
    let (mut progress, options) = match options.rate {
        Some(_) => (Progress::new(STEPS), options.clone()),
        None => {
            let mut progress = Progress::new(STEPS_WITH_CALIBRATION);
            let title = "Measure how much of this line this machine carries";
            let options = progress.step(title, |_| calibration::scale(options))?;
            (progress, options)
        }
    };
    let options = &options;
    let loss = Loss { share: options.loss_share(), burst_mean: options.burst };
    let mut bed = progress.step("Build the line", |_| {
        let bed = build(options)?;
        let seed =
            if options.is_timed() { format!(", seed {}", bed.seed()) } else { String::new() };
        let text = format!("{} namespaces, named {}-*{seed}", 2 * bed.hops() + 1, bed.prefix());
        Ok::<_, BedError>((bed, text))
    })?;
    let mut guests = Guests { daemons: Vec::new(), server: None };
    let measured = measure(&mut bed, &mut guests, options, loss, &mut progress);
    if options.keep {
        leave_up(bed, guests)?;
    } else {
        stop(guests.daemons);
        drop(guests.server);
        drop(bed);
    }
    let mut findings = measured?;
    findings.elapsed_seconds = started.elapsed().as_secs_f64();
    findings.judge(options);
    print!("{}", table::Table(&findings));
    save(options, &findings)?;
    Ok(findings.ok)
}

/// As [`run`], for a network that is not a line.
fn run_network(options: &DemoOptions) -> Result<bool, BedError> {
    let found = networks::run(options)?;
    print!("{}", found.text());
    write(&options.json, &json(&found)?)?;
    println!("  saved {}", options.json.display());
    Ok(found.ok)
}

/// Programs that stay up after the measurements with `--keep`.
struct Guests {
    daemons: Vec<Daemon>,
    server: Option<WebServer>,
}

fn measure(
    bed: &mut Bed,
    guests: &mut Guests,
    options: &DemoOptions,
    loss: Loss,
    progress: &mut Progress,
) -> Result<Findings, BedError> {
    let file = bed.directory().join("file");
    guests.server = progress.step("Serve a file of random bytes", |_| {
        let bytes = file_bytes(options);
        write_random_file(&file, bytes)?;
        let server = WebServer::start(bed.source(), bed.directory())?;
        Ok::<_, BedError>((Some(server), format!("{:.0} MB by nginx on h0", bytes as f64 / 1e6)))
    })?;
    let (plain, plain_udp) = measure_plain(bed, options, loss, progress)?;
    let plan = protected::plan(options);
    guests.daemons = progress.step("Start a daemon on every host", |_| {
        let daemons = Daemon::start_line(bed, &plan)?;
        let text = format!("{} answer", daemons.len());
        Ok::<_, BedError>((daemons, text))
    })?;
    let mut load = Loads { plain_udp, ..Loads::default() };
    let (recoded, links) =
        measure_recoded(bed, &guests.daemons, &file, options, progress, &mut load)?;
    let hosts = states(&guests.daemons)?;
    Ok(Findings {
        hops: options.hop_count(),
        loss: options.loss_share(),
        burst: options.burst,
        delay_ms: options.delay,
        jitter_ms: options.jitter,
        reorder: options.reorder / 100.0,
        rate_mbit: options.rate_mbit(),
        code: options.chosen().name(),
        is_automatic: options.code == Code::Auto,
        field: options.field_order().order(),
        batch: options.generation_size(),
        block: (options.chosen() == Code::Bats).then_some(options.block),
        adaptive: (options.chosen() == Code::Bats).then_some(!options.not_adaptive),
        plain,
        recoded,
        links,
        modes: hosts.iter().flat_map(|(host, state)| modes(host, state)).collect(),
        drops: hosts.iter().map(|(host, state)| (host.clone(), state.drops.clone())).collect(),
        hosts,
        criteria: Vec::new(),
        load,
        machine: machine(),
        elapsed_seconds: 0.0,
        ok: false,
    })
}

fn build(options: &DemoOptions) -> Result<Bed, BedError> {
    let uniform = BedConfig::uniform(options.hop_count(), options.link());
    Bed::build(&BedConfig { neighbours_known: false, ..uniform })
}

fn file_bytes(options: &DemoOptions) -> u64 {
    if options.burst > 1.0 {
        return FILE_BYTES_BURSTS;
    }
    let seconds = options.seconds as f64;
    let bytes = GOODPUT_SHARE * options.rate_mbit() * 1e6 / 8.0 * seconds;
    (bytes as u64).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX)
}

fn measure_plain(
    bed: &mut Bed,
    options: &DemoOptions,
    loss: Loss,
    progress: &mut Progress,
) -> Result<(Plain, Load), BedError> {
    let theory = (1.0 - loss.share).powi(i32::from(options.hops));
    let (udp, overflows, load) = progress.step("Linux forwarding: iperf3 UDP", |_| {
        let (queued, meter) = (bed.queue_drops()?, Meter::start(&[]));
        let udp = plain::udp(bed, loss, options.rate_mbit(), options.seconds)?;
        let overflows = bed.queue_drops()? - queued + udp.overrun;
        let text = format!("{:.4} delivered, {theory:.4} in theory", udp.delivered());
        Ok::<_, BedError>(((udp, overflows, meter.stop()), text))
    })?;
    let tcp = progress.step("Linux forwarding: curl, for a fixed time", |note| {
        let tcp = plain::download(bed, "file", options.seconds, note)?;
        let text = format!("{:.3} Mbit/s with {}", tcp.mbit(), bed.congestion_control()?);
        Ok::<_, BedError>((tcp, text))
    })?;
    let bbr = progress.step("Linux forwarding: the same with BBR", |note| {
        let mbit = plain::download_with(bed, "bbr", "file", options.seconds, note)?;
        let text = mbit.map_or_else(
            || "this kernel has no BBR for namespaces".into(),
            |mbit| format!("{mbit:.3} Mbit/s"),
        );
        Ok::<_, BedError>((mbit, text))
    })?;
    let plain = Plain {
        tcp_bbr_mbps: bbr,
        delivered: udp.delivered(),
        theory,
        packets: udp.packets,
        overflows,
        tcp_mbps: tcp.mbit(),
        tcp_bytes: tcp.bytes,
        tcp_complete: tcp.complete,
        congestion_control: bed.congestion_control()?,
    };
    Ok((plain, load))
}

fn measure_recoded(
    bed: &Bed,
    daemons: &[Daemon],
    file: &Path,
    options: &DemoOptions,
    progress: &mut Progress,
    load: &mut Loads,
) -> Result<(Recoded, Vec<Link>), BedError> {
    let tcp = progress.step("Recoded: curl of the whole file", |note| {
        let meter = Meter::start(daemons);
        let tcp = protected::download(bed, daemons, file, options.rate_mbit(), note)?;
        load.recoded_tcp = meter.stop();
        let hash = if tcp.sha256_ok { "SHA-256 right" } else { "SHA-256 WRONG" };
        let text = format!("{:.1} Mbit/s, {hash}", tcp.download.mbit());
        Ok::<_, BedError>((tcp, text))
    })?;
    let (udp, overflows, at_ends) = progress.step("Recoded: iperf3 UDP", |_| {
        let tunnel = || tunnel_drops(bed, &daemons[0]);
        let (links_before, before) = (bed.queue_drops()?, tunnel()?);
        let meter = Meter::start(daemons);
        let udp = protected::udp(bed, daemons, options.rate_mbit(), options.seconds, tcp.overhead)?;
        load.recoded_udp = meter.stop();
        let at_ends = tunnel()? - before + udp.findings.overrun;
        let overflows = bed.queue_drops()? - links_before + at_ends;
        let text = format!("{} of {} packets lost", udp.findings.lost, udp.findings.packets);
        Ok::<_, BedError>(((udp, overflows, at_ends), text))
    })?;
    let probe = progress.step("Recoded: rank after each hop", |_| {
        let probe = probe::run(bed, daemons, options)?;
        let units = if options.chosen() == Code::Bats { "batches" } else { "generations" };
        let text = match options.chosen() {
            Code::Stream => {
                format!("{} packets", probe.generations * u64::from(options.batch))
            }
            _ => format!("{} {units}", probe.generations),
        };
        Ok::<_, BedError>((probe, text))
    })?;
    let rank_theory = probe::theory(options);
    let sink = daemons[options.hop_count()].show()?;
    let at_sink = protected::flow(&sink, protected::DATA_FLOW)?;
    let millis = |micros: f64| micros / 1e3;
    let links = probe.links.iter().map(|link| Link {
        packets: link.eastward.seen,
        loss: link.eastward.loss(),
        burst_mean: link.eastward.burst_mean(),
    });
    let recoded = Recoded {
        delivered: udp.findings.delivered(),
        rank_ratio: probe.rank_ratio,
        overhead_theory: probe::overhead(options),
        rank_theory,
        rank_generations: probe.generations,
        residual_loss: 1.0 - udp.findings.delivered(),
        packets: udp.findings.packets,
        overflows,
        overflows_at_ends: at_ends,
        offered_mbit: udp.offered_mbit,
        capacity_mbit: udp.capacity_mbit,
        tcp_mbps: tcp.download.mbit(),
        tcp_bytes: tcp.download.bytes,
        tcp_seconds: tcp.download.seconds,
        tcp_complete: tcp.download.complete,
        sha256_ok: tcp.sha256_ok,
        overhead: udp.overhead,
        tcp_overhead: tcp.overhead,
        decode_delay_mean_ms: at_sink.decode_delay_mean_us.map(millis),
        decode_delay_max_ms: at_sink.decode_delay_max_us.map(millis),
        core_shares: udp.core_shares,
        kernel: daemons[0].show()?.kernel,
    };
    Ok((recoded, links.collect()))
}

/// Packets dropped in front of the tunnel: in Linux's queue, or in the daemon's.
fn tunnel_drops(bed: &Bed, source: &Daemon) -> Result<u64, BedError> {
    let state = source.show()?;
    let tunnel = state.tunnels.iter().find(|tunnel| tunnel.name == TUNNEL.name);
    let queue = ["queue_full", "queue_delay"].iter().filter_map(|name| {
        let tunnel = tunnel?;
        tunnel.counters.get(*name).or(tunnel.faults.get(*name)).copied()
    });
    Ok(queue.sum::<u64>() + interface_drops(bed.source(), TUNNEL.name)?)
}

/// Final states of the daemons, without their configurations.
fn states(daemons: &[Daemon]) -> Result<BTreeMap<String, State>, BedError> {
    let states = daemons.iter().map(|daemon| {
        let state = State { config: String::new(), ..daemon.show()? };
        Ok((daemon.name().to_owned(), state))
    });
    states.collect()
}

/// How a host's daemon uses its interfaces.
fn modes<'a>(host: &'a str, state: &'a State) -> impl Iterator<Item = Mode> + 'a {
    state.links.iter().map(|link| Mode {
        host: host.to_owned(),
        interface: link.interface.clone(),
        xdp: link.xdp_mode.clone(),
        socket: link.socket_mode.clone(),
        reason: link.reason.clone(),
    })
}

/// Ends the daemons in their own way, all at once.
fn stop(daemons: Vec<Daemon>) {
    std::thread::scope(|scope| {
        for mut daemon in daemons {
            scope.spawn(move || {
                if !daemon.stop() {
                    eprintln!("{} did not end by itself; its log ends:", daemon.name());
                    eprintln!("{}", recoded_netns::process::tail(&daemon.log()));
                }
            });
        }
    });
}

fn leave_up(mut bed: Bed, guests: Guests) -> Result<(), BedError> {
    bed.keep()?;
    let (prefix, folder) = (bed.prefix(), bed.directory().display());
    println!("\n  Left up. Configurations, sockets and logs are in {folder}. For example:");
    println!(
        "    sudo ip netns exec {} curl -o /dev/null http://{}/file",
        bed.sink().name(),
        TUNNEL.source_address()
    );
    println!("    sudo target/release/recodectl --socket {folder}/h1.sock show");
    println!("    sudo ip netns exec {prefix}-x1 tc -s qdisc show");
    println!("  To remove everything: sudo scripts/demo --clean");
    guests.server.into_iter().for_each(WebServer::leave);
    guests.daemons.into_iter().for_each(Daemon::leave);
    Ok(())
}

fn save(options: &DemoOptions, findings: &Findings) -> Result<(), BedError> {
    let plot = options.plot_path();
    write(&options.json, &json(findings)?)?;
    write(&plot, &plot::svg(findings))?;
    println!("  saved {} and {}", options.json.display(), plot.display());
    Ok(())
}

fn json(found: &impl serde::Serialize) -> Result<String, BedError> {
    bench_json::to_string(found).map_err(|error| BedError::Output {
        program: "recoded-demo".into(),
        detail: error.to_string(),
    })
}

/// Writes a file and the folders above it.
fn write(path: &Path, text: &str) -> Result<(), BedError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(BedError::file(folder))?;
    }
    std::fs::write(path, text).map_err(BedError::file(path))
}

fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    Machine {
        processor: model.to_owned(),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        linux: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        unix_time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
    }
}
