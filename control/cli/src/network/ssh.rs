//! Commands on other hosts with the system's `ssh`: all at once, each bounded in time and output.
//!
//! It uses the operator's own `ssh`, so that configuration, agents and jump hosts work; it never
//! prompts (`BatchMode`). The remote shell runs a POSIX script.

use super::NetworkFailure;
use recoded_network::Node;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Concurrent hosts: each takes a process, and in a list of hundreds the rest waits.
const AT_ONCE: usize = 64;

/// Output read per host at most: the state of a daemon with a thousand flows.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// Longest time to connect, in seconds.
const CONNECT_SECONDS_MAX: u64 = 10;

/// Exit code of `ssh` without a connection.
const NO_CONNECTION: i32 = 255;

/// Directories of `recoded`; the path of users other than root lacks some of them.
const PATHS: &str = "PATH=\"$PATH:/usr/local/sbin:/usr/sbin:/sbin\"; export PATH; ";

/// Why a host did not answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{cause}: {cure}")]
pub struct NoAnswer {
    /// The cause.
    pub cause: String,
    /// The fix.
    pub cure: String,
}

/// Result of a script.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub text: String,
    /// Its standard error.
    pub complaint: String,
}

impl Answer {
    /// The last line on standard error, or on standard output.
    pub fn last_words(&self) -> String {
        let last =
            |text: &str| text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned);
        let words = last(&self.complaint).or_else(|| last(&self.text));
        words.unwrap_or_else(|| format!("exit code {}", self.code))
    }
}

/// Access to hosts.
#[derive(Clone, Debug)]
pub struct Ssh {
    words: Vec<String>,
    pub(super) patience: Duration,
}

/// Work for one host.
pub struct Job {
    /// The host, as ssh accepts it.
    pub host: String,
    /// Whether it uses sudo.
    pub sudo: bool,
    /// A script for a POSIX shell.
    pub script: String,
    /// Standard input of the script.
    pub input: String,
}

impl Job {
    /// A job of a node.
    pub fn new(node: &Node, script: String, input: &str) -> Job {
        Job { host: node.host.clone(), sudo: node.sudo, script, input: input.to_owned() }
    }
}

impl Ssh {
    /// Connects to hosts with `program`, which may have arguments.
    ///
    /// # Errors
    /// `program` is not valid shell syntax.
    pub fn new(program: &str, seconds: u64) -> Result<Ssh, NetworkFailure> {
        let words = shlex::split(program).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| NetworkFailure::Program(program.to_owned()))?;
        Ok(Ssh { words, patience: Duration::from_secs(seconds) })
    }

    /// Runs all jobs concurrently; answers are in the order of jobs.
    ///
    /// # Errors
    /// This process cannot create its runtime.
    pub fn on_each(&self, jobs: Vec<Job>) -> Result<Vec<Result<Answer, NoAnswer>>, NetworkFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(NetworkFailure::Local)?;
        let count = jobs.len();
        let answers = runtime.block_on(async {
            let turns = Arc::new(Semaphore::new(AT_ONCE));
            let mut running = JoinSet::new();
            for (index, job) in jobs.into_iter().enumerate() {
                let (ssh, turns) = (self.clone(), turns.clone());
                running.spawn(async move {
                    let _turn = turns.acquire_owned().await;
                    (index, ssh.ask(&job).await)
                });
            }
            running.join_all().await
        });
        let lost = NoAnswer { cause: "it was not asked".into(), cure: "report this".into() };
        let mut ordered = vec![Err(lost); count];
        for (index, answer) in answers {
            ordered[index] = answer;
        }
        Ok(ordered)
    }

    async fn ask(&self, job: &Job) -> Result<Answer, NoAnswer> {
        match tokio::time::timeout(self.patience, self.converse(job)).await {
            Ok(answer) => answer,
            Err(_) => Err(NoAnswer {
                cause: format!("no answer within {} s", self.patience.as_secs()),
                cure: format!("see whether `ssh {}` works; --patience waits longer", job.host),
            }),
        }
    }

    async fn converse(&self, job: &Job) -> Result<Answer, NoAnswer> {
        let script = format!("{PATHS}{}", job.script);
        // Neither contains a NUL byte, the only character that cannot be quoted.
        let quoted = shlex::try_quote(&script).unwrap_or_default().into_owned();
        let sudo = if job.sudo { "sudo -n " } else { "" };
        let connect = self.patience.as_secs().clamp(1, CONNECT_SECONDS_MAX);
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .args(["-T", "-o", "BatchMode=yes", "-o", &format!("ConnectTimeout={connect}")])
            .args(["--", &job.host, &format!("{sudo}sh -c {quoted}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let program = &self.words[0];
        let failed = |error: std::io::Error| NoAnswer {
            cause: format!("cannot run {program} ({error})"),
            cure: "install an SSH client, or name one with --ssh".into(),
        };
        let mut child = command.spawn().map_err(failed)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A host that does not read its input reports its own error.
                let _ = stdin.write_all(job.input.as_bytes()).await;
            }
        };
        let (_, out, err, status) = tokio::join!(write, read(stdout), read(stderr), child.wait());
        let status = status.map_err(failed)?;
        if out.len() as u64 >= ANSWER_BYTES_MAX || err.len() as u64 >= ANSWER_BYTES_MAX {
            return Err(NoAnswer {
                cause: format!("it sent more than {ANSWER_BYTES_MAX} bytes"),
                cure: format!("see what `ssh {} true` prints: it should be nothing", job.host),
            });
        }
        let (text, complaint) = (printable(&out), printable(&err));
        match status.code() {
            Some(NO_CONNECTION) | None => Err(no_connection(&complaint, &job.host)),
            Some(code) => Ok(Answer { code, text, complaint }),
        }
    }
}

async fn read(from: Option<impl tokio::io::AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // Output before an error is kept.
        let _ = from.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    bytes
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    // Remote text must not move the cursor.
    text.chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect()
}

/// Derives from its message why ssh has no connection.
fn no_connection(complaint: &str, host: &str) -> NoAnswer {
    let cures = [
        (
            "Permission denied",
            format!("let your key in there (`ssh-copy-id {host}`), or unlock it (`ssh-add`)"),
        ),
        (
            "IDENTIFICATION HAS CHANGED",
            "find out why its host key is another one before anything else".into(),
        ),
        (
            "Host key verification",
            format!("connect once by hand (`ssh {host}`) and compare its host key"),
        ),
        ("Could not resolve", "correct ssh of this box in the file, or the name service".into()),
        ("refused", "start sshd there, or write its port in ~/.ssh/config".into()),
        ("timed out", "see whether the box runs and its SSH port can be reached from here".into()),
        (
            "o route to host",
            "see whether the box runs and its SSH port can be reached from here".into(),
        ),
    ];
    let said = complaint.lines().rev().find(|line| !line.trim().is_empty());
    let cause = said.unwrap_or("ssh ended without a word").trim().to_owned();
    let cure = cures.into_iter().find(|(words, _)| complaint.contains(words));
    let cure = cure.map_or_else(|| format!("see what `ssh {host} true` says"), |(_, cure)| cure);
    NoAnswer { cause, cure }
}
