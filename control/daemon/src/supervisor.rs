//! The supervisor: owns what must outlive the process that sees packets, starts that process, and
//! starts another when it ends or hangs.
//!
//! It has the path of the control socket, the XDP programs and their maps, the descriptors of the
//! tunnels, and the configuration in force. It reads no packet and no request of a client; from the
//! dataplane process it takes only what `lifecycle` and `recoded_runtime::Privileged` know.

use crate::{Arguments, Failure, stop_signal};
use recoded::config::Config;
use recoded::control::socket::claim;
use recoded::keys::Keys;
use recoded::lifecycle::{EXIT_AGAIN, News, Start, read, written};
use recoded::node;
use recoded_runtime::Privileged;
use recoded_runtime::channel::Channel;
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

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

/// Runs the daemon with this configuration until SIGTERM.
pub fn run(arguments: &Arguments, text: String, config: &Config) -> Result<(), Failure> {
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let control = control.map_err(Failure::Control)?;
    // From here on a signal waits for us instead of killing us halfway through the start.
    let stop = control.block_on(async { stop_signal() }).map_err(Failure::Control)?;
    let (listener, _claim) = claim(&config.daemon.socket)?;
    let privileged =
        Arc::new(Mutex::new(Privileged::open(&node::topology(config, Keys::none(config)))?));
    let file = arguments.config().to_string_lossy().into_owned();
    let supervisor = Supervisor {
        log: arguments.log.clone(),
        listener,
        privileged,
        interfaces: config.links.iter().map(|link| link.interface.clone()).collect(),
        start: Start { file, mtus: BTreeMap::new(), is_again: false },
        text,
        control,
    };
    supervisor.run(Box::pin(stop))
}

struct Supervisor {
    log: String,
    listener: UnixListener,
    privileged: Arc<Mutex<Privileged>>,
    interfaces: Vec<String>,
    start: Start,
    /// The configuration in force.
    text: String,
    /// Waits for signals and for the end of processes. What talks to Linux in between has an
    /// executor of its own, and one cannot run inside another.
    control: tokio::runtime::Runtime,
}

/// How a dataplane process ended.
enum End {
    /// It was told to.
    Stopped,
    /// By itself, or killed by us since it hung.
    Ended(ExitStatus),
}

impl Supervisor {
    fn run(mut self, mut stop: Pin<Box<impl Future<Output = ()>>>) -> Result<(), Failure> {
        let mut pause = Duration::ZERO;
        loop {
            let begun = Instant::now();
            let (end, health) = self.supervise(&mut stop)?;
            let ran = begun.elapsed();
            if let Some(text) = lock(&health).configuration.take() {
                self.keep(text);
            }
            let status = match end {
                End::Stopped => return Ok(()),
                End::Ended(status) if status.success() => return Ok(()),
                End::Ended(status) => status,
            };
            // What keeps the first one from starting is for the operator, who reads its message.
            if !self.start.is_again && !lock(&health).is_started {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return Err(Failure::Dataplane { status, code });
            }
            self.start.is_again = true;
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

    /// The configuration that the next process starts with.
    fn keep(&mut self, text: String) {
        let mtus = &self.start.mtus;
        let mtu = |name: &str| node::mtu(name).or_else(|| mtus.get(name).copied());
        match Config::parse(&self.start.file, &text, &mtu) {
            Ok(_) => self.text = text,
            Err(errors) => tracing::error!(
                "what the dataplane process called its configuration is none, the one before it \
                 stays: {errors}"
            ),
        }
    }

    /// Starts a dataplane process and looks after it until it has ended.
    fn supervise(
        &mut self,
        stop: &mut Pin<Box<impl Future<Output = ()>>>,
    ) -> Result<(End, Arc<Mutex<Health>>), Failure> {
        for interface in &self.interfaces {
            if let Some(mtu) = node::mtu(interface) {
                self.start.mtus.insert(interface.clone(), mtu);
            }
        }
        let (mut child, threads, health) = self.spawn().map_err(Failure::Spawn)?;
        let end =
            self.control.block_on(watch(&mut child, &health, stop)).map_err(Failure::Spawn)?;
        // They end with the last descriptor of the process that they listen to.
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the supervisor had failed");
            }
        }
        Ok((end, health))
    }

    fn spawn(&self) -> io::Result<Spawned> {
        let (ours, theirs) = Channel::pair()?;
        let (server, client) = Channel::pair()?;
        let inside = self.control.enter();
        let child = Command::new("/proc/self/exe")
            .arg("--dataplane")
            .args(["--log", &self.log, "--config", &self.start.file])
            .env_remove("NOTIFY_SOCKET")
            .stdin(OwnedFd::from(theirs))
            .kill_on_drop(true)
            .spawn()?;
        drop(inside);
        let text = written(&self.text)?;
        ours.send(&self.start, &[text.as_fd(), self.listener.as_fd(), client.as_fd()])?;
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

/// A dataplane process, the threads that listen to it, and what they heard.
type Spawned = (Child, [JoinHandle<()>; 2], Arc<Mutex<Health>>);

/// What is known of a dataplane process.
struct Health {
    is_started: bool,
    /// When it was last heard of.
    heard: Instant,
    configuration: Option<String>,
}

impl Health {
    fn new() -> Health {
        Health { is_started: false, heard: Instant::now(), configuration: None }
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

/// Waits for the end of a dataplane process, brought about by `stop` or a hang if need be.
async fn watch(
    child: &mut Child,
    health: &Mutex<Health>,
    stop: &mut Pin<Box<impl Future<Output = ()>>>,
) -> io::Result<End> {
    let mut is_ready = false;
    loop {
        tokio::select! {
            biased;
            ended = child.wait() => return ended.map(End::Ended),
            () = &mut *stop => return end(child).await,
            () = tokio::time::sleep(LOOK) => {}
        }
        let (started, hangs) = {
            let health = lock(health);
            (health.is_started, health.hangs())
        };
        if hangs {
            tracing::error!("the dataplane process hangs: it is killed");
            child.kill().await?;
        } else if started && !is_ready {
            notify(&NotifyState::Ready);
            is_ready = true;
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
