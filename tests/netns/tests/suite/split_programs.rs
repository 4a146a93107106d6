//! Programs that people use, over TCP connections that `recoded-split` ends at both edges of a
//! lossy line: downloads by HTTP/1.1 and HTTP/2, and ssh.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common;
use crate::split::{Line, v4};
use recoded_netns::Loss;
use recoded_netns::process::{self, Background};
use recoded_netns::traffic::{Fetch, WebServer, sha256, wait_for_listener, write_random_file};

const RATE_MBIT: f64 = 100.0;

/// Seconds that a program may take.
const LIMIT: Duration = Duration::from_secs(60);

const HTTP2_PORT: u16 = 8082;
const SSH_PORT: u16 = 2222;

/// Files that are fetched at once over one connection.
const STREAMS: usize = 8;

/// The line with losses in each hop, and its connections split.
fn line() -> Line {
    let mut line = Line::start(common::bed(3, Loss::independent(0.1), RATE_MBIT));
    line.split_both();
    line
}

#[test]
fn file_behind_a_lossy_line_arrives_whole_through_split_connections() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = line();
    let file = line.bed.directory().join("file");
    write_random_file(&file, 24 << 20).unwrap();
    let _server = WebServer::start(&line.hosts[1].0, line.bed.directory()).unwrap();
    let copy = line.bed.directory().join("copy");
    let fetch = Fetch::start(&line.hosts[0].0, v4(1).into(), "file", &copy, LIMIT).unwrap();
    let download = fetch.finish().unwrap();
    println!("{download:?}, {:.1} Mbit/s", download.mbit());
    assert!(download.complete, "{download:?}: {}", line.logs());
    assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap());
}

/// nginx, for HTTP/2 over TLS.
fn http2_server(line: &Line) -> Background {
    let folder = line.bed.directory();
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=test", "-keyout"]);
    openssl.arg(folder.join("tls.key")).arg("-out").arg(folder.join("tls.pem"));
    process::run(&mut openssl).unwrap();
    let place = folder.display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {place}/{kind};"))
        .concat();
    let config = folder.join("http2.conf");
    let text = format!(
        "user root; worker_processes 1; daemon off; pid {place}/http2.pid; error_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; {paths} server {{ listen {HTTP2_PORT} ssl http2; root {place};\n\
         ssl_certificate {place}/tls.pem; ssl_certificate_key {place}/tls.key; }} }}\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = line.hosts[1].0.command("nginx");
    command.arg("-c").arg(&config);
    let server = Background::start(&mut command, &folder.join("http2.log")).unwrap();
    wait_for_listener(&line.hosts[1].0, HTTP2_PORT).unwrap();
    server
}

#[test]
fn files_by_http2_share_one_split_connection() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = line();
    let folder = line.bed.directory();
    for stream in 0..STREAMS {
        write_random_file(&folder.join(format!("file{stream}")), 1 << 20).unwrap();
    }
    let _server = http2_server(&line);
    let mut curl = line.hosts[0].0.command("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*", "--http2", "--insecure"]);
    curl.args(["--parallel", "--max-time", &LIMIT.as_secs().to_string()]);
    curl.args(["--write-out", "%{http_version} %{num_connects}\\n", "--output"]);
    curl.arg(folder.join("copy#1"));
    curl.arg(format!("https://{}:{HTTP2_PORT}/file[0-{}]", v4(1), STREAMS - 1));
    let told = process::run(&mut curl).unwrap();
    println!("{told}");
    assert_eq!(told.lines().filter(|line| line.starts_with("2 ")).count(), STREAMS, "{told}");
    assert_eq!(told.lines().filter(|line| line.ends_with(" 1")).count(), 1, "{told}");
    for stream in 0..STREAMS {
        let [file, copy] = ["file", "copy"].map(|name| folder.join(format!("{name}{stream}")));
        assert_eq!(sha256(&file).unwrap(), sha256(&copy).unwrap(), "{}", line.logs());
    }
}

/// A server of ssh behind the far edge, and a key for it.
struct Ssh {
    _server: Background,
    key: PathBuf,
}

impl Ssh {
    fn start(line: &Line) -> Ssh {
        let folder = line.bed.directory();
        let [key, host_key, config] =
            ["key", "host_key", "sshd_config"].map(|name| folder.join(name));
        for file in [&key, &host_key] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file);
            process::run(&mut command).unwrap();
        }
        let place = folder.display();
        let text = format!(
            "HostKey {place}/host_key\nAuthorizedKeysFile {place}/key.pub\nPidFile none\n\
             UsePAM no\nStrictModes no\nPermitRootLogin yes\nPort {SSH_PORT}\n"
        );
        fs::write(&config, text).unwrap();
        // Its folder for privilege separation, which the unit of the package makes elsewhere.
        fs::create_dir_all("/run/sshd").unwrap();
        let mut command = line.hosts[1].0.command("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f"]).arg(&config);
        let server = Background::start(&mut command, &folder.join("sshd.log")).unwrap();
        wait_for_listener(&line.hosts[1].0, SSH_PORT).unwrap();
        Ssh { _server: server, key }
    }

    /// Runs a command at the far host, with a file as its input.
    fn run(&self, line: &Line, input: &Path, remote: &str) -> Output {
        let mut ssh = line.hosts[0].0.command("ssh");
        ssh.args(["-F", "none", "-p", &SSH_PORT.to_string(), "-i"]).arg(&self.key);
        for option in ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]
        {
            ssh.args(["-o", option]);
        }
        ssh.args(["-o", &format!("ConnectTimeout={}", LIMIT.as_secs())]);
        ssh.arg(format!("root@{}", v4(1))).arg(remote);
        let output = ssh.stdin(Stdio::from(fs::File::open(input).unwrap())).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{remote}: {said} {}", line.logs());
        output
    }
}

#[test]
fn ssh_carries_files_both_ways_through_split_connections() {
    let Some(_turn) = common::daemons_beside() else { return };
    let line = line();
    let ssh = Ssh::start(&line);
    let file = line.bed.directory().join("file");
    write_random_file(&file, 4 << 20).unwrap();
    let there = ssh.run(&line, &file, "sha256sum");
    let sum = sha256(&file).unwrap();
    assert!(String::from_utf8_lossy(&there.stdout).starts_with(&sum), "{}", line.logs());
    let back = ssh.run(&line, Path::new("/dev/null"), &format!("cat {}", file.display()));
    assert!(back.stdout == fs::read(&file).unwrap(), "{} bytes", back.stdout.len());
    // The far host sees the address of the near one.
    let told = ssh.run(&line, Path::new("/dev/null"), "echo $SSH_CONNECTION");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.starts_with(&format!("{} ", v4(0))), "{told}");
}
