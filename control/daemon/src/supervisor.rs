//! The supervisor: owns everything that must outlive the process that sees packets, starts that
//! process, and replaces it when it ends or hangs.
//!
//! If the supervisor is killed, packets keep flowing; the next supervisor takes over the state on
//! record ([`recoded::predecessor`]). On SIGUSR2 it executes the program then installed at its
//! path, which takes over likewise.
//!
//! It owns the path of the control socket, the XDP programs and their maps, the descriptors of the
//! tunnels, and the active configuration. It reads neither packets nor client requests; from the
//! dataplane process it accepts only the messages of `lifecycle` and `recoded_runtime::Privileged`.

use crate::asks::Asks;
use crate::health::{Health, hear, is_starved, lock, notify};
use crate::memory::{self, Memory};
use crate::resolver::Resolver;
use crate::signals::Signals;
use crate::standby::{Standby, Waiting};
use crate::successor::{become_anew, inherited};
use crate::termination::{End, end, kill, kill_set_back, leave};
use crate::{Arguments, EXIT_PANIC, Failure, stop_signal};
use recoded::check;
use recoded::config::Config;
use recoded::config::names::Names;
use recoded::control::socket::claim;
use recoded::events::{self, Happened, Kind};
use recoded::keeper::{Handover, Keeper, TunnelNetwork};
use recoded::keys::Keys;
use recoded::lifecycle::{EXIT_AGAIN, Start, written};
use recoded::node;
use recoded::predecessor::{Killed, Lock, Process, Record};
use recoded_runtime::channel::Channel;
use recoded_runtime::{HopConfig, Inherited, Privileged, StartError, TunnelQueues, Ways};
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// A process that ends within this time of its start counts as failed: the next waits longer.
const STABLE: Duration = Duration::from_secs(10);
/// First pause after a failed process, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time limit for a process to roll back an unconfirmed change. After that it is killed, and the
/// next one starts with the previous configuration.
const REVERT_PATIENCE: Duration = Duration::from_secs(15);
/// Interval for checking the process.
const LOOK: Duration = Duration::from_millis(100);

/// A check of a configuration takes milliseconds.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

/// The file, and the configuration of this host in it: the same, unless the file is a network.
pub struct Own {
    /// The file.
    pub file: String,
    /// The configuration.
    pub text: String,
}

/// Runs the daemon with this configuration until SIGTERM.
pub fn run(arguments: &Arguments, own: Own, config: Config, names: Names) -> Result<(), Failure> {
    leave_all_on_panic();
    memory::protect_supervisor();
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let control = control.map_err(Failure::Control)?;
    // From here on a signal waits for this process instead of interrupting the start.
    let signals = async { Ok((stop_signal()?, Signals::listen()?)) };
    let (stop, signals) = control.block_on(signals).map_err(Failure::Control)?;
    let lock = Lock::take(&config.daemon.socket)?;
    let before = lock.record();
    let file = arguments.config().to_string_lossy().into_owned();
    let derived = own.text.clone();
    let (record, config) = in_force(before.as_ref(), &file, own, config, names);
    let running = before.as_ref().and_then(|before| before.dataplane).filter(|it| it.runs());
    // A process left running serves the socket until it ends.
    let early = running.is_none().then(|| claim(&config.daemon.socket, false)).transpose()?;
    let mut standby = Standby::new(&arguments.log, &file);
    if running.is_some() && check::may_use_xdp(&config) {
        let _inside = control.enter();
        standby.prepare_now(&config);
    }
    let program = std::env::current_exe().map_err(Failure::Control)?;
    let handover = before.as_ref().and_then(|before| before.handover.clone());
    let inherited = inherited();
    let queues = inherited.tunnels.clone();
    let opened = open(&config, inherited, before.as_ref(), running);
    let privileged = match (opened, &handover, &before) {
        (Ok(privileged), ..) => privileged.remembering(ways(&config, arguments)),
        (Err(error), Some(handover), Some(before)) => {
            tracing::error!("{error}: rolled back to the previous configuration");
            control.block_on(standby.end());
            let text = handover.before.clone();
            lock.note(&Record { text, handover: None, ..before.clone() });
            return Err(Failure::Spawn(become_anew(&program, arguments, &queues)));
        }
        (Err(error), ..) => return Err(error.into()),
    };
    let claimed = early.map_or_else(|| claim(&config.daemon.socket, true), Ok);
    let (listener, _claim) = claimed?;
    lock.note(&record);
    let network = TunnelNetwork::start(&config, privileged.addresses(), &arguments.log)?;
    let host = network.clone();
    let keeper = keeper(arguments, &record, network.clone()).continuing(lock.events());
    let keeper = started(keeper.named(arguments.name.clone(), derived), handover.as_ref());
    let supervisor = Supervisor {
        arguments,
        standby,
        asks: Asks::new(config.daemon.socket.clone()),
        resolver: Resolver::new(config.daemon.socket.clone()),
        in_force: InForce { keeper, record, lock: &lock, network, is_ended: false },
        signals,
        program,
        listener,
        queues,
        privileged: Arc::new(Mutex::new(privileged)),
        interfaces: config.links.iter().map(|link| link.interface.clone()).collect(),
        has_followed: handover.is_some(),
        memory: Memory::here(),
        start: Start {
            file,
            mtus: BTreeMap::new(),
            names: Names::default(),
            is_again: before.is_some(),
            is_trial: false,
        },
        control,
    };
    let ended = supervisor.run(Box::pin(stop));
    host.splits.end();
    host.routes.end();
    lock.clear();
    ended
}

/// The keeper of a daemon that starts, which may have to confirm a handover.
fn started(keeper: Keeper, handover: Option<&Handover>) -> Arc<Keeper> {
    let keeper = Arc::new(match handover {
        Some(handover) => keeper.following(handover),
        None => keeper,
    });
    let text = format!("recoded {} starts", env!("CARGO_PKG_VERSION"));
    keeper.events().note(Happened::new(Kind::DaemonStarted, "daemon", text));
    keeper
}

/// Creates the keeper of configurations from the record.
fn keeper(arguments: &Arguments, record: &Record, network: Arc<TunnelNetwork>) -> Keeper {
    let Record { file, text, names, .. } = record;
    let keeper = Keeper::new(arguments.config(), file, text, arguments.state.clone());
    keeper.knowing(names.clone()).networking(network)
}

/// Attaches and creates the interfaces of `config` while another process handles packets.
fn open(
    config: &Config,
    inherited: Inherited,
    before: Option<&Record>,
    running: Option<Process>,
) -> Result<Privileged, StartError> {
    let left = Record::left(before, running.is_some().then(|| config.tunnel_addresses()));
    let topology = node::topology(config, Keys::none(config));
    let may_leave = !inherited.tunnels.is_empty();
    Privileged::open(&topology, &left, inherited, || {
        if running.is_some() {
            tracing::info!("the dataplane process of the supervisor before is ended");
        }
        // Packets that it does not read from its tunnels are not lost.
        let killed = running.and_then(|it| if may_leave { it.leave() } else { it.kill() });
        || killed.into_iter().for_each(Killed::wait)
    })
}

/// Persistent state of one-way paths.
fn ways(config: &Config, arguments: &Arguments) -> Ways {
    let file = arguments.state.as_ref().map(|folder| folder.join("one-way.json"));
    if file.is_none() && config.has_one_way() {
        tracing::warn!(
            "one_way without a folder to remember in (--state): after a restart of this process \
             what was recorded before may be taken again"
        );
    }
    Ways::open(file)
}

/// A panic would release this process's resources, tunnels included. It ends as if killed instead:
/// packets keep flowing, and the next supervisor takes over.
fn leave_all_on_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::exit(EXIT_PANIC.into());
    }));
}

/// The configuration to start with: live changes under the previous supervisor hold as long as the
/// file was not edited.
fn in_force(
    before: Option<&Record>,
    file: &str,
    own: Own,
    config: Config,
    names: Names,
) -> (Record, Config) {
    let Own { file: written, text } = own;
    let changed = before.filter(|before| before.file == written && before.text != text);
    let parse = |text: &str| Config::parse_on(file, text, &node::mtu, Some(&names)).ok();
    let parsed = changed.and_then(|before| parse(&before.text));
    let (in_force, config) = match (changed, parsed) {
        (Some(before), Some((.., config))) => {
            tracing::info!("live changes made before this start are applied");
            (before.text.clone(), config)
        }
        _ => (text, config),
    };
    let tunnels = config.tunnel_addresses();
    let record =
        Record { dataplane: None, tunnels, file: written, text: in_force, names, handover: None };
    (record, config)
}

struct Supervisor<'a> {
    arguments: &'a Arguments,
    standby: Standby,
    asks: Asks,
    resolver: Resolver,
    in_force: InForce<'a>,
    signals: Signals,
    /// Path of this program at its start.
    program: PathBuf,
    listener: UnixListener,
    /// Queues of all tunnels.
    queues: Arc<TunnelQueues>,
    privileged: Arc<Mutex<Privileged>>,
    interfaces: Vec<String>,
    /// Whether it took over with a configuration that the previous supervisor had read.
    has_followed: bool,
    memory: Memory,
    start: Start,
    /// Waits for signals and for processes to end. Linux calls in between use another executor, and
    /// executors cannot be nested.
    control: tokio::runtime::Runtime,
}

/// The active configuration and its predecessors, and the record for the next supervisor.
struct InForce<'a> {
    keeper: Arc<Keeper>,
    record: Record,
    lock: &'a Lock,
    /// Current addresses and routes of the tunnels.
    network: Arc<TunnelNetwork>,
    /// Whether the process was ended so that another adopts new addresses.
    is_ended: bool,
}

/// Events in the life of a dataplane process.
enum Event {
    /// It ended.
    End(End),
    /// Another program must take over.
    Replace,
    /// Another supervisor must take over with this configuration.
    HandOver(String, Handover),
    /// A standby process must be prepared.
    Prepare,
}

/// Tasks while a process runs.
struct Duties<'a, 'b> {
    signals: &'a mut Signals,
    asks: &'a Asks,
    resolver: &'a mut Resolver,
    in_force: &'a mut InForce<'b>,
    /// `None` if no link has AF_XDP sockets: there is nothing to prepare then.
    standby: Option<&'a mut Standby>,
}

impl Supervisor<'_> {
    fn run(mut self, mut stop: Pin<Box<impl Future<Output = ()>>>) -> Result<(), Failure> {
        let mut pause = Duration::ZERO;
        loop {
            let (begun, ended_before) = (Instant::now(), self.memory.ended());
            let (end, health) = self.supervise(&mut stop)?;
            let ran = begun.elapsed();
            let is_set_back = matches!(end, End::SetBack(_));
            let (status, cause) = match end {
                End::Stopped => return Ok(()),
                End::Ended(status) if status.success() => return Ok(()),
                End::SetBack(status) => (status, Some(memory::SET_BACK.to_owned())),
                // Linux may have been ending one that seemed to hang.
                End::Ended(status) | End::Killed(status) => {
                    (status, self.memory.cause(status, ended_before))
                }
            };
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            let keeper = self.in_force.keeper.clone();
            let is_failed = !is_set_back && lock(&health).started.is_none();
            let is_unfit = is_failed && keeper.failed();
            let is_back = keeper.take_back() || is_unfit;
            self.in_force.look();
            if is_back && self.has_followed {
                // Links and tunnels are those of the previous configuration.
                self.hand_over(keeper.in_force().0, None);
            }
            // A first start that fails is reported to the operator.
            if !self.start.is_again && is_failed {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return Err(Failure::Dataplane { status, code, cause });
            }
            self.start.is_again = true;
            let is_ended = std::mem::take(&mut self.in_force.is_ended);
            let is_asked = is_ended || status.code() == Some(EXIT_AGAIN.into());
            pause = match pause {
                _ if ran >= STABLE || is_asked && pause.is_zero() => Duration::ZERO,
                Duration::ZERO if lock(&health).started.is_some() => PAUSE_FIRST / 2,
                before => (2 * before).clamp(PAUSE_FIRST, PAUSE_MAX),
            };
            // The first failure after a long run restarts at once.
            let wait = if pause <= PAUSE_FIRST / 2 { Duration::ZERO } else { pause };
            if !is_asked {
                let text = format!(
                    "the dataplane process ended ({status}) after {} ms{cause}; another starts in \
                     {} ms, tunnels and XDP programs stay",
                    ran.as_millis(),
                    wait.as_millis()
                );
                let keeper = &self.in_force.keeper;
                keeper.events().note(Happened::new(Kind::ProcessEnded, "process", text));
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
            self.renew();
        }
    }

    /// Prepares for the next process: the neighbours and tunnels of the active configuration, on
    /// links as they were at the start.
    fn renew(&mut self) {
        // The active configuration was checked before.
        let Some(config) = self.in_force.keeper.config() else { return };
        lock(&self.privileged).renew(self.neighbours(&config), node::tunnels(&config));
        self.in_force.network.follow(&config);
        self.in_force.look();
    }

    fn neighbours(&self, config: &Config) -> Vec<HopConfig> {
        let hops = config.hops.iter().filter_map(|hop| {
            let interface = &config.links[hop.link].interface;
            let link = self.interfaces.iter().position(|known| known == interface)?;
            let (roams, path) = (config.roams(hop), config.path(hop));
            Some(HopConfig { link, address: hop.address, key: None, roams, path })
        });
        hops.collect()
    }

    /// Starts a dataplane process and watches it until it has ended.
    fn supervise(
        &mut self,
        stop: &mut Pin<Box<impl Future<Output = ()>>>,
    ) -> Result<(End, Arc<Mutex<Health>>), Failure> {
        for interface in &self.interfaces {
            if let Some(mtu) = node::mtu(interface) {
                self.start.mtus.insert(interface.clone(), mtu);
                self.in_force.keeper.note_mtu(interface, mtu);
            }
        }
        // While the process runs, the thread that serves it holds them.
        let has_frames = lock(&self.privileged).has_programs();
        let (mut child, threads, health) = self.spawn().map_err(Failure::Spawn)?;
        let end = loop {
            let Supervisor { signals, asks, resolver, in_force, .. } = self;
            let standby = has_frames.then_some(&mut self.standby);
            let duties = Duties { signals, asks, resolver, in_force, standby };
            let watched = watch(&mut child, &health, stop, duties);
            match self.control.block_on(watched).map_err(Failure::Spawn)? {
                Event::End(end) => break end,
                Event::Replace => {
                    self.in_force.look();
                    self.replace();
                }
                Event::HandOver(text, handover) => self.hand_over(text, Some(handover)),
                Event::Prepare => {
                    // The active configuration was checked before.
                    let config = self.in_force.keeper.config();
                    let _inside = self.control.enter();
                    config.iter().for_each(|config| self.standby.prepare(config));
                }
            }
        };
        // They end with the last descriptor of the process that they serve.
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the supervisor had failed");
            }
        }
        Ok((end, health))
    }

    /// Executes the program now at this one's path, if it accepts the configuration. The dataplane
    /// process handles packets until the new program ends it.
    fn replace(&mut self) {
        let file = &self.start.file;
        let check = async {
            let mut check = Command::new(&self.program);
            check
                .args(["--check", "--offline", "--config", file])
                .stdin(Stdio::null())
                .kill_on_drop(true);
            tokio::time::timeout(CHECK_PATIENCE, check.output()).await
        };
        let reason = match self.control.block_on(check) {
            Ok(Ok(output)) if output.status.success() => {
                tracing::info!("{} takes over", self.program.display());
                self.control.block_on(self.standby.end());
                self.in_force.network.splits.end();
                self.in_force.lock.leave(&self.in_force.keeper.events().after(0));
                become_anew(&self.program, self.arguments, &self.queues).to_string()
            }
            Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not end".to_owned(),
        };
        tracing::error!("{} cannot take over, this one stays: {reason}", self.program.display());
    }

    /// Becomes a supervisor with another configuration. If that fails, this one continues with the
    /// previous configuration.
    fn hand_over(&mut self, text: String, handover: Option<Handover>) {
        self.in_force.look();
        self.in_force.record.text = text;
        self.in_force.record.handover = handover;
        self.in_force.lock.note(&self.in_force.record);
        self.replace();
        self.in_force.record.handover = None;
        self.in_force.keeper.failed();
        self.in_force.look();
    }

    fn spawn(&mut self) -> io::Result<Spawned> {
        let (server, client) = Channel::pair()?;
        let (keeping, kept) = Channel::pair()?;
        let (hearing_events, telling) = Channel::pair()?;
        let inside = self.control.enter();
        let (child, ours): Waiting = self.standby.take()?;
        drop(inside);
        // Recorded before the process can outlive this one.
        self.in_force.note(child.id().and_then(Process::find));
        let keeper = self.in_force.keeper.clone();
        self.start.names = keeper.names();
        self.start.is_trial = keeper.is_trial();
        let text = written(&keeper.in_force().0)?;
        let given =
            [text.as_fd(), self.listener.as_fd(), client.as_fd(), kept.as_fd(), telling.as_fd()];
        ours.send(&self.start, &given)?;
        drop((client, kept, telling));
        let health = Arc::new(Mutex::new(Health::new()));
        let (privileged, heard) = (self.privileged.clone(), health.clone());
        let pid = child.id().unwrap_or_default();
        let serving = std::thread::Builder::new().name("recoded-priv".into()).spawn(move || {
            if let Err(error) = lock(&privileged).serve(&server) {
                tracing::warn!(%error, "a dataplane process was not understood");
            }
        })?;
        // Not joined, since it may wait for a disk.
        std::thread::Builder::new().name("recoded-keep".into()).spawn(move || {
            if let Err(error) = keeper.serve(&keeping) {
                tracing::warn!(%error, "a dataplane process was not understood");
            }
        })?;
        let log = self.in_force.keeper.events();
        std::thread::Builder::new().name("recoded-event".into()).spawn(move || {
            if let Err(error) = events::serve(&log, &hearing_events) {
                tracing::warn!(%error, "a dataplane process was not understood");
            }
        })?;
        let hearing = std::thread::Builder::new().name("recoded-hear".into()).spawn(move || {
            if let Err(error) = hear(&ours, pid, &heard) {
                tracing::warn!(%error, "a dataplane process was not understood");
            }
        })?;
        Ok((child, [serving, hearing], health))
    }
}

impl InForce<'_> {
    /// Updates the record.
    fn look(&mut self) {
        let Record { file, text, names, .. } = &self.record;
        let tunnels = self.network.addresses.now();
        let is_readdressed = tunnels != self.record.tunnels;
        if self.keeper.differs(file, text, names) || is_readdressed || self.lock.is_due() {
            self.record.tunnels = tunnels;
            (self.record.file, self.record.text) = self.keeper.lasting();
            self.record.names = self.keeper.names();
            self.lock.note(&self.record);
        }
    }

    fn note(&mut self, dataplane: Option<Process>) {
        self.record.dataplane = dataplane;
        self.lock.note(&self.record);
    }
}

/// A dataplane process, the threads that serve it, and its health.
type Spawned = (Child, [JoinHandle<()>; 2], Arc<Mutex<Health>>);

/// Watches a dataplane process until an event needs action; kills it if it hangs.
async fn watch(
    child: &mut Child,
    health: &Mutex<Health>,
    stop: &mut Pin<Box<impl Future<Output = ()>>>,
    duties: Duties<'_, '_>,
) -> io::Result<Event> {
    let Duties { signals, asks, resolver, in_force, mut standby } = duties;
    loop {
        tokio::select! {
            biased;
            ended = child.wait() => return ended.map(|status| Event::End(End::Ended(status))),
            () = &mut *stop => return end(child).await.map(Event::End),
            () = signals.generation.changed() => return kill_set_back(child).await.map(Event::End),
            _ = signals.replace.recv() => return Ok(Event::Replace),
            Some(()) = signals.hangup.recv() => {
                tracing::info!("SIGHUP: the configuration is read again");
                asks.reload();
            }
            () = tokio::time::sleep(LOOK) => {}
        }
        let (is_first, hangs, running) = {
            let mut health = lock(health);
            let is_first = health.started.is_some() && !health.is_told;
            health.is_told |= is_first;
            (
                is_first,
                health.hangs(Instant::now()),
                health.started.map(|started| started.elapsed()),
            )
        };
        if let Some((text, handover)) = in_force.keeper.handover() {
            return Ok(Event::HandOver(text, handover));
        }
        in_force.look();
        in_force.network.splits.look();
        in_force.keeper.events().flush();
        if in_force.keeper.is_overdue() {
            tracing::warn!("the change was not confirmed in time: it is taken back");
            asks.undo();
        }
        resolver.look(&in_force.keeper);
        if standby.as_mut().is_some_and(|standby| standby.is_due(running)) {
            return Ok(Event::Prepare);
        }
        let hangs =
            hangs && !(is_starved(child.id().unwrap_or_default()) && lock(health).excuses());
        if hangs {
            tracing::error!("the dataplane process hangs: it is killed");
            return kill(child).await.map(Event::End);
        } else if in_force.keeper.is_stuck(REVERT_PATIENCE) {
            tracing::error!("the change is not taken back: the dataplane process is killed");
            return kill(child).await.map(Event::End);
        } else if is_first {
            notify(&NotifyState::Ready);
            let text = format!("dataplane process {} runs", child.id().unwrap_or_default());
            let started = Happened::new(Kind::ProcessStarted, "process", text);
            in_force.keeper.events().note(started);
            in_force.keeper.runs();
        } else if in_force.keeper.is_readdressed() {
            in_force.is_ended = true;
            return leave(child).await.map(Event::End);
        } else {
            notify(&NotifyState::Watchdog);
        }
    }
}
