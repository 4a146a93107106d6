//! Three members of a real etcd on loopback, each a process.

use super::{PATIENCE, until};
use recoded_agent::source::{Etcd, Http};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

/// A member.
pub struct Member {
    pub url: String,
    arguments: Vec<String>,
    child: Option<Child>,
    log: std::path::PathBuf,
}

impl Member {
    fn start(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).expect("log");
        let errors = log.try_clone().expect("log");
        let mut etcd = Command::new("etcd");
        etcd.args(&self.arguments).stdin(Stdio::null()).stdout(log).stderr(errors);
        self.child = Some(etcd.spawn().expect("etcd was found before"));
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    /// Its process id.
    pub fn process(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Its memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        super::memory_bytes(self.pid().as_raw_nonzero().get())
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("it ended");
        }
    }

    /// It stops answering, but keeps its connections, as during a network partition.
    pub fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).expect("stopped");
    }

    pub fn thaw(&self) {
        kill_process(self.pid(), Signal::CONT).expect("it continues");
    }

    fn status(&self) -> Option<serde_json::Value> {
        let http = Http::with(std::slice::from_ref(&self.url), None, None).expect("a client");
        let url = format!("{}/v3/maintenance/status", self.url);
        let mut answer = http.post(&url, "{}", std::time::Duration::from_secs(2)).ok()?;
        serde_json::from_slice(&answer.body_mut().read_to_vec().ok()?).ok()
    }

    pub fn answers(&self) -> bool {
        self.status().is_some()
    }

    pub fn is_leader(&self) -> bool {
        self.status().is_some_and(|status| status["leader"] == status["header"]["member_id"])
    }
}

/// The members, which end with this.
pub struct Cluster {
    pub members: Vec<Member>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// `count` members, with a leader; `None` if etcd is not installed.
    pub fn start(count: usize) -> Option<Cluster> {
        if let Err(error) = Command::new("etcd").arg("--version").output() {
            super::skipped(&format!("etcd: {error}; install the package etcd-server"));
            return None;
        }
        let folder = tempfile::tempdir().expect("folder");
        // All are open at once, so that they differ; another program could still take one before
        // they are used.
        let open = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let ports: Vec<[TcpListener; 2]> = (0..count).map(|_| [open(), open()]).collect();
        let urls = ports.iter().map(|pair| {
            let port = |open: &TcpListener| open.local_addr().expect("address").port();
            [0, 1].map(|index| format!("http://127.0.0.1:{}", port(&pair[index])))
        });
        let urls: Vec<[String; 2]> = urls.collect();
        drop(ports);
        let initial: Vec<String> =
            urls.iter().enumerate().map(|(index, [_, peer])| format!("n{index}={peer}")).collect();
        let initial = initial.join(",");
        let members = urls.into_iter().enumerate().map(|(index, [client, peer])| {
            let name = format!("n{index}");
            let data = folder.path().join(&name).display().to_string();
            let arguments = [
                ["--name", &name],
                ["--data-dir", &data],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", &peer],
                ["--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &initial],
                ["--initial-cluster-state", "new"],
            ];
            let arguments = arguments.concat().into_iter().map(str::to_owned).collect();
            let log = folder.path().join(format!("{name}.log"));
            Member { url: client, arguments, child: None, log }
        });
        let mut cluster = Cluster { members: members.collect(), _folder: folder };
        for member in &mut cluster.members {
            member.start();
        }
        until("the members agree", || cluster.client().put("ready", b"yes").is_ok());
        Some(cluster)
    }

    pub fn restart(&mut self, index: usize) {
        self.members[index].start();
    }

    /// A line for the settings.
    pub fn source(&self) -> String {
        let urls: Vec<String> =
            self.members.iter().map(|member| format!("\"{}\"", member.url)).collect();
        format!("etcd = [{}]", urls.join(", "))
    }

    pub fn client(&self) -> Etcd {
        let urls: Vec<String> = self.members.iter().map(|member| member.url.clone()).collect();
        Etcd::new(Http::with(&urls, None, None).expect("a client"), urls)
    }

    /// Writes it to a quorum.
    pub fn put(&self, node: &str, bytes: &[u8]) {
        let mut client = self.client();
        let key = format!("/recoded/{node}");
        until("a quorum takes it", || client.put(&key, bytes).is_ok());
    }

    pub fn leader(&self) -> usize {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(index) = self.members.iter().position(Member::is_leader) {
                return index;
            }
            assert!(std::time::Instant::now() < deadline, "there is no leader");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.kill();
        }
    }
}
