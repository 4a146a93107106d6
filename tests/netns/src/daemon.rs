//! A `recoded` daemon on one host of a bed: start, query, change, kill, restart, stop.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use recoded_api::client::Client;
use recoded_api::v1::State;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{self, Background};
use crate::{AuthPlan, Bed, BedError, LinePlan, Namespace};

/// Timeout until a daemon answers.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Timeout for a daemon to drain and exit.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Environment variable naming the folder with `recoded` and `recodectl`.
pub const BIN_DIR_ENV: &str = "RECODED_BIN_DIR";

/// A daemon that answers on its control socket. Both its processes are killed when it is dropped.
#[derive(Debug)]
pub struct Daemon {
    host: Namespace,
    name: String,
    config: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    environment: Vec<(&'static str, String)>,
    is_unprivileged: bool,
    process: Background,
    /// The process that handles packets when its supervisor was killed.
    left: Option<u32>,
    /// The same while the next supervisor has not ended it: it still answers.
    replaced: Option<u32>,
}

impl Daemon {
    /// Starts the daemon of host `index` with its part of `plan` and waits until it answers.
    ///
    /// # Errors
    /// When the binary is missing or the daemon does not answer; then with the end of its log.
    pub fn start(bed: &Bed, index: usize, plan: &LinePlan) -> Result<Daemon, BedError> {
        Self::start_as(bed, index, plan, |socket| plan.config(index, socket))
    }

    /// As [`Daemon::start`], with a configuration that `text` returns for a control socket.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_with(
        bed: &Bed,
        index: usize,
        text: impl Fn(&str) -> String,
    ) -> Result<Daemon, BedError> {
        Self::start_as(bed, index, &LinePlan::protected(bed.hops()), text)
    }

    /// As [`Daemon::start_with`], otherwise as `plan` has it.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_as(
        bed: &Bed,
        index: usize,
        plan: &LinePlan,
        text: impl Fn(&str) -> String,
    ) -> Result<Daemon, BedError> {
        let name = format!("h{index}");
        let place = |end: &str| bed.directory().join(format!("{name}.{end}"));
        let (config, socket, log) = (place("toml"), place("sock"), place("log"));
        fs::write(&config, text(&socket.to_string_lossy())).map_err(BedError::file(&config))?;
        if let Some(auth) = &plan.auth {
            let key = PathBuf::from(AuthPlan::key_file(&socket.to_string_lossy()));
            fs::write(&key, auth.private(index)).map_err(BedError::file(&key))?;
            let private = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&key, private).map_err(BedError::file(&key))?;
        }
        let is_unprivileged = plan.unprivileged.contains(&index);
        if is_unprivileged {
            give_way(bed.directory(), &config.with_extension("sock.key"))?;
        }
        let host = bed.hosts()[index].clone();
        let environment = plan.environment.clone();
        let process = spawn(&host, &config, &log, &environment, is_unprivileged)?;
        let mut daemon = Daemon {
            host,
            name,
            config,
            socket,
            log,
            environment,
            is_unprivileged,
            process,
            left: None,
            replaced: None,
        };
        daemon.wait_until_it_answers()?;
        Ok(daemon)
    }

    /// Starts the daemons of every host at once and waits until all answer, and until those with
    /// keys have sessions.
    ///
    /// # Errors
    /// As [`Daemon::start`], and if a session is not established.
    pub fn start_line(bed: &Bed, plan: &LinePlan) -> Result<Vec<Daemon>, BedError> {
        let daemons: Result<Vec<Daemon>, BedError> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..=bed.hops())
                .map(|index| scope.spawn(move || Daemon::start(bed, index, plan)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        let daemons = daemons?;
        for daemon in &daemons {
            daemon.wait_until_it_has_sessions()?;
        }
        Ok(daemons)
    }

    /// Waits until it has sessions with all nodes whose keys it knows.
    ///
    /// # Errors
    /// If it does not answer, or a session is not established.
    pub fn wait_until_it_has_sessions(&self) -> Result<(), BedError> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let sessions = self.show()?.sessions;
            let missing = sessions.iter().find(|session| session.age_seconds.is_none());
            let Some(missing) = missing else { return Ok(()) };
            if Instant::now() > deadline {
                return Err(BedError::DaemonSilent {
                    host: self.name.clone(),
                    seconds: START_PATIENCE.as_secs(),
                    log: format!("no session with {}: {}", missing.with, missing.refusal),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Host name: `h0` and so on.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id of the supervisor.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Process id of the dataplane process.
    ///
    /// # Errors
    /// If there is none at the moment.
    pub fn dataplane_pid(&self) -> Result<u32, BedError> {
        if let Some(left) = self.left {
            return Ok(left);
        }
        self.children().first().copied().ok_or_else(|| BedError::Output {
            program: "proc(5)".into(),
            detail: format!("{} has no dataplane process", self.name),
        })
    }

    /// Child processes of the supervisor, oldest first: the active dataplane process and the
    /// standby. None when the supervisor is gone.
    pub fn children(&self) -> Vec<u32> {
        process::children(self.pid())
    }

    /// Sends a signal to the dataplane process.
    ///
    /// # Errors
    /// If there is none at the moment.
    pub fn signal_dataplane(&self, signal: Signal) -> Result<(), BedError> {
        let pid = self.dataplane_pid()?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let sent = pid.map_or(Ok(()), |pid| kill_process(pid, signal));
        sent.map_err(|error| BedError::Output {
            program: "kill(2)".into(),
            detail: error.to_string(),
        })
    }

    /// Its configuration file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Its control socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its state.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn show(&self) -> Result<State, BedError> {
        self.client()?.state().map_err(BedError::Control)
    }

    /// Changes one parameter of a flow while traffic runs.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub fn set(&self, flow: u32, key: &str, value: &str) -> Result<(), BedError> {
        let changes = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        self.client()?.set(flow.into(), &changes).map_err(BedError::Control)?;
        Ok(())
    }

    fn client(&self) -> Result<Client, BedError> {
        Client::connect(&self.socket).map_err(BedError::Control)
    }

    /// A `recodectl` command line for this daemon.
    pub fn control(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary("recodectl"));
        command.arg("--socket").arg(&self.socket).args(arguments);
        command
    }

    /// SIGKILL of both processes, and of one that is being replaced.
    pub fn kill(&mut self) {
        let dataplane = self.dataplane_pid().ok();
        self.process.kill();
        self.left = None;
        dataplane.into_iter().chain(self.replaced.take()).for_each(process::end);
    }

    /// SIGKILL of the supervisor; the process that handles packets is left.
    pub fn kill_supervisor(&mut self) {
        self.left = self.dataplane_pid().ok();
        self.process.kill();
    }

    /// Sends a signal to the supervisor.
    ///
    /// # Errors
    /// If it has exited.
    pub fn signal(&self, signal: Signal) -> Result<(), BedError> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let sent = pid.map_or(Ok(()), |pid| kill_process(pid, signal));
        sent.map_err(|error| BedError::Output {
            program: "kill(2)".into(),
            detail: error.to_string(),
        })
    }

    /// Kills it and starts it again with the same configuration; does not wait for an answer.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_again(&mut self) -> Result<(), BedError> {
        self.kill();
        self.start_supervisor()
    }

    /// Starts a supervisor with the same configuration while a dataplane process is still running.
    /// Does not wait for an answer.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_supervisor(&mut self) -> Result<(), BedError> {
        let Daemon { host, config, log, environment, is_unprivileged, .. } = &*self;
        self.process = spawn(host, config, log, environment, *is_unprivileged)?;
        self.replaced = self.left.take();
        Ok(())
    }

    /// Waits until it answers, and no longer a process that the supervisor before it had left.
    ///
    /// # Errors
    /// When it ends or stays silent; then with the end of its log.
    pub fn wait_until_it_answers(&mut self) -> Result<(), BedError> {
        let deadline = Instant::now() + START_PATIENCE;
        while self.process.is_running() && Instant::now() < deadline {
            self.replaced = self.replaced.filter(|pid| process::runs(*pid));
            if self.replaced.is_none() && self.socket.exists() && self.show().is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(BedError::DaemonSilent {
            host: self.name.clone(),
            seconds: START_PATIENCE.as_secs(),
            log: process::tail(&self.log()),
        })
    }

    /// SIGTERM; returns whether it ended in time with exit code 0.
    pub fn stop(&mut self) -> bool {
        self.process.terminate(STOP_PATIENCE)
    }

    /// Lets it outlive this process.
    pub fn leave(mut self) {
        std::mem::take(&mut self.process).leave();
    }

    /// Processor time that its two processes have used so far.
    ///
    /// # Errors
    /// If the process has exited.
    pub fn processor_time(&self) -> Result<Duration, BedError> {
        let dataplane = process::processor_time(self.dataplane_pid()?)?;
        Ok(dataplane + process::processor_time(self.pid())?)
    }

    /// Resident memory of the dataplane process, in KiB.
    ///
    /// # Errors
    /// If the process has exited.
    pub fn resident_kib(&self) -> Result<u64, BedError> {
        let path = PathBuf::from(format!("/proc/{}/status", self.dataplane_pid()?));
        let status = fs::read_to_string(&path).map_err(BedError::file(&path))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let value = line.and_then(|line| line.split_whitespace().next());
        value.and_then(|value| value.parse().ok()).ok_or_else(|| BedError::Output {
            program: "proc(5)".into(),
            detail: "no VmRSS".into(),
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Path of `recoded` or `recodectl`: in the folder that [`BIN_DIR_ENV`] names, or next to the
/// running program, where cargo put it, or otherwise on the shell's path.
pub fn binary(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os(BIN_DIR_ENV) {
        return PathBuf::from(folder).join(name);
    }
    let own = std::env::current_exe().unwrap_or_default();
    // A test binary is one folder deeper, in `deps`.
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

/// Lets an unprivileged user create a control socket in the folder and read the key, if there is
/// one.
fn give_way(directory: &Path, key: &Path) -> Result<(), BedError> {
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory, open).map_err(BedError::file(directory))?;
    if key.exists() {
        chown(key, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).map_err(BedError::file(key))?;
    }
    Ok(())
}

/// A user that owns nothing.
const UNPRIVILEGED: u32 = 65534;

fn spawn(
    host: &Namespace,
    config: &Path,
    log: &Path,
    environment: &[(&'static str, String)],
    is_unprivileged: bool,
) -> Result<Background, BedError> {
    // A forwarding box does little else; here it shares cores with the rest of the machine.
    let mut command = host.command("nice");
    command.args(["-n", "-15"]);
    if is_unprivileged {
        let user = UNPRIVILEGED.to_string();
        command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
    }
    command.arg(binary("recoded")).arg("--config").arg(config);
    // A backtrace would push the reason out of the log's end, which errors quote.
    command.env_remove("RUST_BACKTRACE");
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Background::start(&mut command, log)
}
