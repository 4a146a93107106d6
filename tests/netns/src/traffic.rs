//! Real traffic: iperf3 for UDP, nginx and curl for a download, and a paced UDP sender.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{self, Background};
use crate::{BedError, Namespace};

/// Port of iperf3.
pub const IPERF_PORT: u16 = 5201;

/// Port of the web server.
pub const WEB_PORT: u16 = 80;

/// Socket buffer of a measuring program: 50 ms at some hundred Mbit/s.
const SOCKET_BUFFER_BYTES: u64 = 4 << 20;

/// Timeout until a server listens.
const LISTEN_PATIENCE: Duration = Duration::from_secs(5);

/// A UDP stream to measure.
#[derive(Clone, Debug)]
pub struct UdpLoad {
    /// Address of the server.
    pub to: IpAddr,
    /// Bytes of UDP payload per packet.
    pub payload_bytes: usize,
    /// Rate of UDP payload in Mbit/s.
    pub mbit: f64,
    /// Measured time.
    pub seconds: u64,
}

/// Result of a UDP stream.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct UdpOutcome {
    /// Packets sent.
    pub packets: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Of these, packets that arrived but found the receiver's socket buffer full.
    pub overrun: u64,
    /// Smoothed variation of the delay (RFC 3550), in milliseconds.
    pub jitter_millis: f64,
}

impl UdpOutcome {
    /// Share of packets that arrived.
    pub fn delivered(&self) -> f64 {
        if self.packets == 0 {
            return 0.0;
        }
        1.0 - self.lost as f64 / self.packets as f64
    }
}

/// A running iperf3 measurement: server at the receiver, client at the sender.
#[derive(Debug)]
pub struct Iperf {
    client: Background,
    server: Background,
    receiver: Namespace,
    output: PathBuf,
    overruns_before: u64,
    patience: Duration,
}

impl Iperf {
    /// Starts server and client, with their output in `folder`.
    ///
    /// # Errors
    /// When iperf3 cannot be started or its server does not listen.
    pub fn start(
        sender: &Namespace,
        receiver: &Namespace,
        load: &UdpLoad,
        folder: &Path,
    ) -> Result<Iperf, BedError> {
        let port = IPERF_PORT.to_string();
        // An iperf3 process that waits for a core loses packets in its socket buffer, or sends a
        // burst that overflows the first queue. Neither belongs in the measurement.
        let mut command = receiver.command("nice");
        command.args(["-n", "-20", "iperf3", "-s", "-1", "-p", &port]);
        let server = Background::start(&mut command, &folder.join("iperf3-server.log"))?;
        wait_for_listener(receiver, IPERF_PORT)?;
        let overruns_before = socket_overruns(receiver)?;
        let output = folder.join("iperf3-client.json");
        // Background appends.
        let _ = fs::remove_file(&output);
        let mut command = sender.command("nice");
        command.args(["-n", "-20", "iperf3", "-w", &socket_buffer_bytes().to_string()]);
        command.args(["-c", &load.to.to_string(), "-p", &port, "-u", "-J"]);
        command.args(["-l", &load.payload_bytes.to_string()]);
        command.args(["-b", &format!("{:.0}", load.mbit * 1e6)]);
        command.args(["-t", &load.seconds.to_string()]);
        let client = Background::start(&mut command, &output)?;
        let patience = Duration::from_secs(load.seconds + 30);
        let receiver = receiver.clone();
        Ok(Iperf { client, server, receiver, output, overruns_before, patience })
    }

    /// Waits for the end and returns the server's counts.
    ///
    /// # Errors
    /// When the measurement failed or takes far longer than it should.
    pub fn finish(mut self) -> Result<UdpOutcome, BedError> {
        let ended = self.client.wait(self.patience);
        self.server.kill();
        let text = fs::read_to_string(&self.output).map_err(BedError::file(&self.output))?;
        let unreadable = |detail: String| BedError::Output { program: "iperf3".into(), detail };
        if ended.is_none() {
            return Err(unreadable(format!("no end after {} s", self.patience.as_secs())));
        }
        // Warnings, for example about packet sizes, precede the JSON.
        let start = text.find('{').unwrap_or(0);
        let json: serde_json::Value = serde_json::from_str(&text[start..])
            .map_err(|error| unreadable(format!("{error} in {}", process::tail(&text))))?;
        if let Some(error) = json["error"].as_str() {
            return Err(unreadable(error.to_owned()));
        }
        let sum = &json["end"]["sum"];
        let (Some(packets), Some(lost)) = (sum["packets"].as_u64(), sum["lost_packets"].as_i64())
        else {
            return Err(unreadable(format!("no totals in {}", process::tail(&text))));
        };
        Ok(UdpOutcome {
            packets,
            // Reordering can make it negative temporarily.
            lost: u64::try_from(lost).unwrap_or(0),
            overrun: socket_overruns(&self.receiver)? - self.overruns_before,
            jitter_millis: sum["jitter_ms"].as_f64().unwrap_or(0.0),
        })
    }
}

/// Packets that found the queue of an interface full, because its reader was too slow.
///
/// # Errors
/// If there is no such interface.
pub fn interface_drops(host: &Namespace, interface: &str) -> Result<u64, BedError> {
    let text = host.run("ip", &format!("-json -statistics link show {interface}"))?;
    let json: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| BedError::Output { program: "ip".into(), detail: error.to_string() })?;
    Ok(json[0]["stats64"]["tx"]["dropped"].as_u64().unwrap_or(0))
}

/// nginx serving the files of one folder on [`WEB_PORT`].
#[derive(Debug)]
pub struct WebServer {
    process: Background,
}

impl WebServer {
    /// Starts nginx on `host`, serving `folder`, and waits until it listens.
    ///
    /// # Errors
    /// When nginx is missing or does not listen.
    pub fn start(host: &Namespace, folder: &Path) -> Result<WebServer, BedError> {
        let config = folder.join("nginx.conf");
        let place = folder.display();
        // `user root`, because the folder belongs to the user who runs the bed and only that user
        // can read it.
        let text = format!(
            "user root; worker_processes 1; daemon off; pid {place}/nginx.pid; error_log stderr;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; sendfile on;\n\
               client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;\n\
               fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi;\n\
               scgi_temp_path {place}/scgi;\n\
               server {{ listen {WEB_PORT}; root {place}; }} }}\n"
        );
        fs::write(&config, text).map_err(BedError::file(&config))?;
        let mut command = host.command("nginx");
        command.arg("-c").arg(&config);
        let process = Background::start(&mut command, &folder.join("nginx.log"))?;
        wait_for_listener(host, WEB_PORT)?;
        Ok(WebServer { process })
    }

    /// Lets it outlive this process.
    pub fn leave(self) {
        self.process.leave();
    }
}

/// A download that has ended, by itself or by its time limit.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Download {
    /// Bytes of the body received.
    pub bytes: u64,
    /// From the start of the connection to the end.
    pub seconds: f64,
    /// Whether the whole body arrived.
    pub complete: bool,
}

impl Download {
    /// Goodput in Mbit/s.
    pub fn mbit(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8e-6 / self.seconds } else { 0.0 }
    }
}

/// A running curl.
#[derive(Debug)]
pub struct Fetch {
    process: Background,
    report: PathBuf,
    file: PathBuf,
    started: Instant,
    limit: Duration,
}

impl Fetch {
    /// Starts to download `name` from the web server at `from` into `file`, for at most `limit`.
    ///
    /// # Errors
    /// When curl cannot be started.
    pub fn start(
        host: &Namespace,
        from: IpAddr,
        name: &str,
        file: &Path,
        limit: Duration,
    ) -> Result<Fetch, BedError> {
        let report = file.with_extension("curl");
        let _ = fs::remove_file(&report);
        let _ = fs::remove_file(file);
        let mut command = host.command("curl");
        command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time"]);
        command.arg(limit.as_secs_f64().to_string()).arg("--output").arg(file);
        command.args(["--write-out", "\n%{size_download} %{time_total}\n"]);
        command.arg(format!("http://{}/{name}", SocketAddr::new(from, WEB_PORT)));
        let process = Background::start(&mut command, &report)?;
        Ok(Fetch { process, report, file: file.to_owned(), started: Instant::now(), limit })
    }

    /// Bytes that have arrived so far.
    pub fn bytes(&self) -> u64 {
        fs::metadata(&self.file).map_or(0, |data| data.len())
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Waits for the end, at most until the limit.
    ///
    /// # Errors
    /// When curl ended without a report, or not at all.
    pub fn finish(mut self) -> Result<Download, BedError> {
        let patience = (self.limit + Duration::from_secs(5)).saturating_sub(self.started.elapsed());
        let ended = self.process.wait(patience);
        let text = fs::read_to_string(&self.report).map_err(BedError::file(&self.report))?;
        let report = text.lines().rev().find(|line| !line.is_empty()).unwrap_or_default();
        let mut words = report.split(' ');
        let bytes = words.next().and_then(|word| word.parse().ok());
        let seconds = words.next().and_then(|word| word.parse().ok());
        match (ended, bytes, seconds) {
            (Some(complete), Some(bytes), Some(seconds)) => {
                Ok(Download { bytes, seconds, complete })
            }
            _ => Err(BedError::Output { program: "curl".into(), detail: process::tail(&text) }),
        }
    }
}

/// Writes a file of random bytes.
///
/// # Errors
/// When it cannot be written.
pub fn write_random_file(path: &Path, bytes: u64) -> Result<(), BedError> {
    let source = Path::new("/dev/urandom");
    let mut random = File::open(source).map_err(BedError::file(source))?.take(bytes);
    let mut file = File::create(path).map_err(BedError::file(path))?;
    std::io::copy(&mut random, &mut file).map_err(BedError::file(path))?;
    Ok(())
}

/// SHA-256 of a file in hexadecimal, by `sha256sum`.
///
/// # Errors
/// When the file cannot be read.
pub fn sha256(path: &Path) -> Result<String, BedError> {
    let output = process::run(Command::new("sha256sum").arg("--binary").arg(path))?;
    Ok(output.split(' ').next().unwrap_or_default().trim_start_matches('\\').to_owned())
}

/// Sends `packets` UDP packets of `payload_bytes` at an even pace; returns how many Linux accepted.
///
/// # Errors
/// When the socket cannot be opened.
pub fn send_paced(
    sender: &Namespace,
    to: SocketAddr,
    payload_bytes: usize,
    packets: u64,
    packets_per_second: f64,
) -> Result<u64, BedError> {
    let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let socket = sender.udp_socket(SocketAddr::new(any, 0))?;
    let mut payload = vec![0x5a; payload_bytes];
    let started = Instant::now();
    let mut taken = 0;
    for number in 0..packets {
        let due = Duration::from_secs_f64(number as f64 / packets_per_second);
        // Linux wakes the thread late rather than early; overdue packets then follow back to back.
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        let stamp = number.to_be_bytes();
        let length = stamp.len().min(payload.len());
        payload[..length].copy_from_slice(&stamp[..length]);
        // The caller counts refused packets (no buffers, an earlier ICMP error) as the difference.
        taken += u64::from(socket.send_to(&payload, to).is_ok());
    }
    Ok(taken)
}

/// Waits until a process on `host` listens on a TCP port.
///
/// # Errors
/// If none does in time.
pub fn wait_for_listener(host: &Namespace, port: u16) -> Result<(), BedError> {
    let deadline = Instant::now() + LISTEN_PATIENCE;
    while Instant::now() < deadline {
        if listens(&read_net(host, "tcp")?, port) || listens(&read_net(host, "tcp6")?, port) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(BedError::Output {
        program: format!("the server on {}", host.name()),
        detail: format!("nothing listens on port {port}"),
    })
}

/// The largest socket buffer that Linux grants without privileges; iperf3 exits if it gets less
/// than it requested.
fn socket_buffer_bytes() -> u64 {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
        text.trim().parse().unwrap_or(SOCKET_BUFFER_BYTES)
    };
    read("rmem_max").min(read("wmem_max")).min(SOCKET_BUFFER_BYTES)
}

/// Datagrams that arrived on `host` but found a full socket buffer.
pub(crate) fn socket_overruns(host: &Namespace) -> Result<u64, BedError> {
    let text = read_net(host, "snmp")?;
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let column = names.split(' ').position(|name| name == "RcvbufErrors");
    let value = column.and_then(|column| values.split(' ').nth(column));
    Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
}

/// Whether a table like `/proc/net/tcp` has a listening socket on `port`.
fn listens(table: &str, port: u16) -> bool {
    let local = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.nth(1).is_some_and(|address| address.ends_with(&local)) && words.nth(1) == Some("0A")
    })
}

/// A file of `/proc/net` in the namespace; empty if it does not exist (for example without IPv6).
fn read_net(host: &Namespace, name: &str) -> Result<String, BedError> {
    // Not /proc/net, which always shows the namespace of the process, not the thread's.
    host.inside(|| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listens_finds_a_listening_port_only() {
        let table = "  sl  local_address rem_address   st\n\
                     0: 00000000:1451 00000000:0000 0A 0\n\
                     1: 0100007F:0050 0100007F:1234 01 0\n";
        assert!(listens(table, 5201));
        assert!(!listens(table, 80));
        assert!(!listens(table, 0x51));
    }

    #[test]
    fn goodput_of_a_megabyte_in_two_seconds_is_four_megabit() {
        let download = Download { bytes: 1_000_000, seconds: 2.0, complete: true };
        assert!((download.mbit() - 4.0).abs() < 1e-9);
        let nothing = Download { bytes: 0, seconds: 0.0, complete: false };
        assert_eq!(nothing.mbit(), 0.0);
    }
}
