//! The supervisor: owns what must outlive the process that sees packets, starts that process, and
//! starts another when it ends or hangs.
//!
//! If it is killed itself, packets flow on; the next supervisor takes over what
//! [`recoded::predecessor`] has on record. On SIGUSR2 it becomes the program that then lies in its
//! place, which takes over likewise.
//!
//! It has the path of the control socket, the XDP programs and their maps, the descriptors of the
//! tunnels, and the configuration in force. It reads no packet and no request of a client; from the
//! dataplane process it takes only what `lifecycle` and `recoded_runtime::Privileged` know.

use crate::{Arguments, EXIT_PANIC, Failure, stop_signal};
use recoded::config::Config;
use recoded::control::socket::claim;
use recoded::keys::Keys;
use recoded::lifecycle::{EXIT_AGAIN, News, Start, read, written};
use recoded::node;
use recoded::predecessor::{Lock, Process, Record};
use recoded_runtime::channel::Channel;
use recoded_runtime::{KillSwitch, Left, Privileged};
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// A process that says nothing for so long hangs: twelve times as long as it says something. A busy
/// host may keep a thread waiting for a second.
const HANG: Duration = Duration::from_secs(3);
/// Until it runs, sockets and cards may take their time.
const START_PATIENCE: Duration = Duration::from_secs(130);
/// Draining takes a second at most.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// A process that ends within this time of its start did not run: the next waits longer.
const STABLE: Duration = Duration::from_secs(10);
/// The first pause after one that did not run, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often the process is looked after.
const LOOK: Duration = Duration::from_millis(100);

/// A check of a configuration takes milliseconds.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

/// Runs the daemon with this configuration until SIGTERM.
pub fn run(arguments: &Arguments, text: String, config: Config) -> Result<(), Failure> {
    leave_all_on_panic();
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let control = control.map_err(Failure::Control)?;
    // From here on a signal waits for us instead of killing us halfway through the start.
    let signals = async { Ok((stop_signal()?, signal(SignalKind::user_defined2())?)) };
    let (stop, replace) = control.block_on(signals).map_err(Failure::Control)?;
    let lock = Lock::take(&config.daemon.socket)?;
    let before = lock.record();
    let file = arguments.config.to_string_lossy().into_owned();
    let (record, config) = in_force(before.as_ref(), &file, text, config);
    let running = before.as_ref().and_then(|before| before.dataplane).filter(|it| it.runs());
    // What is left running answers there until it ends.
    let early = running.is_none().then(|| claim(&config.daemon.socket, false)).transpose()?;
    let left = before.as_ref().map(|before| before.tunnels.clone()).unwrap_or_default();
    let topology = node::topology(&config, Keys::none(&config));
    let privileged = Privileged::open(&topology, &left, || {
        if let Some(process) = running {
            tracing::warn!("taking over from a process that handles packets without a supervisor");
            process.end();
        }
    })?;
    let switched = config.tunnels.iter().filter(|tunnel| tunnel.kill_switch);
    let switched: Vec<String> = switched.map(|tunnel| tunnel.name.clone()).collect();
    let _kill_switch = if switched.is_empty() { None } else { Some(KillSwitch::start(switched)?) };
    let claimed = early.map_or_else(|| claim(&config.daemon.socket, true), Ok);
    let (listener, _claim) = claimed?;
    lock.note(&record);
    let in_force = InForce {
        start: Start { file, mtus: BTreeMap::new(), is_again: before.is_some() },
        record,
        lock: &lock,
    };
    let supervisor = Supervisor {
        log: arguments.log.clone(),
        program: std::env::current_exe().map_err(Failure::Control)?,
        listener,
        privileged: Arc::new(Mutex::new(privileged)),
        interfaces: config.links.iter().map(|link| link.interface.clone()).collect(),
        in_force,
        control,
    };
    let ended = supervisor.run(Box::pin(stop), replace);
    lock.clear();
    ended
}

/// What this process has would go with it, tunnels included. It ends as if it were killed instead:
/// packets flow on, and the next supervisor takes over.
fn leave_all_on_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::exit(EXIT_PANIC.into());
    }));
}

/// What to start with: live changes of the supervisor before this one hold as long as nobody edited
/// the file.
fn in_force(before: Option<&Record>, file: &str, text: String, config: Config) -> (Record, Config) {
    let changed = before.filter(|before| before.file == text && before.text != text);
    let parsed = changed.and_then(|before| Config::parse(file, &before.text, &node::mtu).ok());
    let (in_force, config) = match (changed, parsed) {
        (Some(before), Some((.., config))) => {
            tracing::info!("live changes made before this start are in force");
            (before.text.clone(), config)
        }
        _ => (text.clone(), config),
    };
    let tunnels = config.tunnels.iter().map(|it| (it.name.clone(), (it.address, it.prefix)));
    let record =
        Record { dataplane: None, tunnels: Left::from_iter(tunnels), file: text, text: in_force };
    (record, config)
}

struct Supervisor<'a> {
    log: String,
    /// Where this program was when it started.
    program: PathBuf,
    listener: UnixListener,
    privileged: Arc<Mutex<Privileged>>,
    interfaces: Vec<String>,
    in_force: InForce<'a>,
    /// Waits for signals and for the end of processes. What talks to Linux in between has an
    /// executor of its own, and one cannot run inside another.
    control: tokio::runtime::Runtime,
}

/// What the next dataplane process starts with, on record for the next supervisor.
struct InForce<'a> {
    start: Start,
    record: Record,
    lock: &'a Lock,
}

/// How a dataplane process ended.
enum End {
    /// It was told to.
    Stopped,
    /// By itself, or killed by us since it hung.
    Ended(ExitStatus),
}

/// What is to be done about a dataplane process.
enum Event {
    /// It ended.
    End(End),
    /// It changed its configuration.
    Changed(String),
    /// Another program is to take over.
    Replace,
}

impl Supervisor<'_> {
    fn run(
        mut self,
        mut stop: Pin<Box<impl Future<Output = ()>>>,
        mut replace: Signals,
    ) -> Result<(), Failure> {
        let mut pause = Duration::ZERO;
        loop {
            let begun = Instant::now();
            let (end, health) = self.supervise(&mut stop, &mut replace)?;
            let ran = begun.elapsed();
            if let Some(text) = lock(&health).configuration.take() {
                self.in_force.keep(text);
            }
            let status = match end {
                End::Stopped => return Ok(()),
                End::Ended(status) if status.success() => return Ok(()),
                End::Ended(status) => status,
            };
            // What keeps the first one from starting is for the operator, who reads its message.
            if !self.in_force.start.is_again && !lock(&health).is_started {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return Err(Failure::Dataplane { status, code });
            }
            self.in_force.start.is_again = true;
            let is_asked = status.code() == Some(EXIT_AGAIN.into());
            pause = match pause {
                _ if ran >= STABLE || is_asked && pause.is_zero() => Duration::ZERO,
                Duration::ZERO if lock(&health).is_started => PAUSE_FIRST / 2,
                before => (2 * before).clamp(PAUSE_FIRST, PAUSE_MAX),
            };
            // The first after a long time starts at once.
            let wait = if pause <= PAUSE_FIRST / 2 { Duration::ZERO } else { pause };
            if !is_asked {
                tracing::error!(
                    "the dataplane process ended ({status}) after {} ms; another starts in {} ms, \
                     tunnels and XDP programs stay",
                    ran.as_millis(),
                    wait.as_millis()
                );
            }
            let is_stopped = self.control.block_on(async {
                tokio::select! {
                    () = &mut stop => true,
                    () = tokio::time::sleep(wait) => false,
                }
            });
            if is_stopped {
                return Ok(());
            }
            lock(&self.privileged).renew();
        }
    }

    /// Starts a dataplane process and looks after it until it has ended.
    fn supervise(
        &mut self,
        stop: &mut Pin<Box<impl Future<Output = ()>>>,
        replace: &mut Signals,
    ) -> Result<(End, Arc<Mutex<Health>>), Failure> {
        for interface in &self.interfaces {
            if let Some(mtu) = node::mtu(interface) {
                self.in_force.start.mtus.insert(interface.clone(), mtu);
            }
        }
        let (mut child, threads, health) = self.spawn().map_err(Failure::Spawn)?;
        let end = loop {
            let watched = self.control.block_on(watch(&mut child, &health, stop, replace));
            match watched.map_err(Failure::Spawn)? {
                Event::End(end) => break end,
                Event::Changed(text) => self.in_force.keep(text),
                Event::Replace => self.replace(),
            }
        };
        // They end with the last descriptor of the process that they listen to.
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the supervisor had failed");
            }
        }
        Ok((end, health))
    }

    /// Becomes the program that lies where this one did, if that takes the configuration. The
    /// dataplane process handles packets until the new program ends it.
    fn replace(&self) {
        let file = &self.in_force.start.file;
        let check = async {
            let mut check = Command::new(&self.program);
            check.args(["--check", "--config", file]).stdin(Stdio::null()).kill_on_drop(true);
            tokio::time::timeout(CHECK_PATIENCE, check.output()).await
        };
        let reason = match self.control.block_on(check) {
            Ok(Ok(output)) if output.status.success() => {
                tracing::info!("SIGUSR2: {} takes over", self.program.display());
                let mut command = std::process::Command::new(&self.program);
                command.args(["--log", &self.log, "--config", file]).exec().to_string()
            }
            Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not end".to_owned(),
        };
        tracing::error!("{} cannot take over, this one stays: {reason}", self.program.display());
    }

    fn spawn(&mut self) -> io::Result<Spawned> {
        let (ours, theirs) = Channel::pair()?;
        let (server, client) = Channel::pair()?;
        let inside = self.control.enter();
        let child = Command::new("/proc/self/exe")
            .arg("--dataplane")
            .args(["--log", &self.log, "--config", &self.in_force.start.file])
            .env_remove("NOTIFY_SOCKET")
            .stdin(OwnedFd::from(theirs))
            .kill_on_drop(true)
            .spawn()?;
        drop(inside);
        // Before it can live on without us.
        self.in_force.note(child.id().and_then(Process::find));
        let text = written(&self.in_force.record.text)?;
        ours.send(&self.in_force.start, &[text.as_fd(), self.listener.as_fd(), client.as_fd()])?;
        drop(client);
        let health = Arc::new(Mutex::new(Health::new()));
        let (privileged, heard) = (self.privileged.clone(), health.clone());
        let serving = std::thread::Builder::new().name("recoded-priv".into()).spawn(move || {
            if let Err(error) = lock(&privileged).serve(&server) {
                tracing::warn!(%error, "a dataplane process was not understood");
            }
        })?;
        let hearing = std::thread::Builder::new().name("recoded-hear".into()).spawn(move || {
            if let Err(error) = hear(&ours, &heard) {
                tracing::warn!(%error, "a dataplane process was not understood");
            }
        })?;
        Ok((child, [serving, hearing], health))
    }
}

impl InForce<'_> {
    /// The configuration that the next process starts with.
    fn keep(&mut self, text: String) {
        let mtus = &self.start.mtus;
        let mtu = |name: &str| node::mtu(name).or_else(|| mtus.get(name).copied());
        match Config::parse(&self.start.file, &text, &mtu) {
            Ok(_) => {
                self.record.text = text;
                self.lock.note(&self.record);
            }
            Err(errors) => tracing::error!(
                "what the dataplane process called its configuration is none, the one before it \
                 stays: {errors}"
            ),
        }
    }

    fn note(&mut self, dataplane: Option<Process>) {
        self.record.dataplane = dataplane;
        self.lock.note(&self.record);
    }
}

/// A dataplane process, the threads that listen to it, and what they heard.
type Spawned = (Child, [JoinHandle<()>; 2], Arc<Mutex<Health>>);

/// What is known of a dataplane process.
struct Health {
    is_started: bool,
    /// Whether the service manager knows that it started.
    is_told: bool,
    /// When it was last heard of.
    heard: Instant,
    configuration: Option<String>,
}

impl Health {
    fn new() -> Health {
        Health { is_started: false, is_told: false, heard: Instant::now(), configuration: None }
    }

    fn hangs(&self) -> bool {
        self.heard.elapsed() > if self.is_started { HANG } else { START_PATIENCE }
    }
}

/// Notes what a dataplane process says until it hangs up.
fn hear(channel: &Channel, health: &Mutex<Health>) -> io::Result<()> {
    while let Some((news, fds)) = channel.receive::<News>()? {
        let text = match (news, <[OwnedFd; 1]>::try_from(fds)) {
            (News::Configuration, Ok([file])) => Some(read(file)?),
            _ => None,
        };
        let mut health = lock(health);
        health.heard = Instant::now();
        health.is_started |= news == News::Started;
        health.configuration = text.or(health.configuration.take());
    }
    Ok(())
}

/// Looks after a dataplane process until something is to be done about it; kills it if it hangs.
async fn watch(
    child: &mut Child,
    health: &Mutex<Health>,
    stop: &mut Pin<Box<impl Future<Output = ()>>>,
    replace: &mut Signals,
) -> io::Result<Event> {
    loop {
        tokio::select! {
            biased;
            ended = child.wait() => return ended.map(|status| Event::End(End::Ended(status))),
            () = &mut *stop => return end(child).await.map(Event::End),
            _ = replace.recv() => return Ok(Event::Replace),
            () = tokio::time::sleep(LOOK) => {}
        }
        let (is_first, hangs, changed) = {
            let mut health = lock(health);
            let is_first = health.is_started && !health.is_told;
            health.is_told |= is_first;
            (is_first, health.hangs(), health.configuration.take())
        };
        if let Some(text) = changed {
            return Ok(Event::Changed(text));
        }
        if hangs {
            tracing::error!("the dataplane process hangs: it is killed");
            child.kill().await?;
        } else if is_first {
            notify(&NotifyState::Ready);
        } else {
            notify(&NotifyState::Watchdog);
        }
    }
}

/// Has the process drain and end.
async fn end(child: &mut Child) -> io::Result<End> {
    notify(&NotifyState::Stopping);
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // Its end was not waited for yet, so the number is still its own.
        let _ = kill_process(pid, Signal::TERM);
    }
    match tokio::time::timeout(STOP_PATIENCE, child.wait()).await {
        Ok(ended) => {
            let status = ended?;
            if let Some(signal) = status.signal() {
                tracing::error!(signal, "the dataplane process was killed while it drained");
            }
        }
        Err(_) => {
            tracing::error!("the dataplane process does not stop: it is killed");
            child.kill().await?;
        }
    }
    Ok(End::Stopped)
}

/// Tells systemd, if it asked to be told.
fn notify(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::debug!(%error, "systemd was not told");
    }
}

/// A thread that panicked has published what it did until then.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
