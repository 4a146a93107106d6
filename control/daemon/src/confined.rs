//! The dataplane process: receives its resources from the supervisor, opens its sockets, drops all
//! privileges, and only then reads packets and serves the control socket.

use crate::memory;
use crate::{EXIT_PANIC, Failure, farewell, stop_signal};
use recoded::accelerator::Accelerator;
use recoded::config::auth::{self, Auth};
use recoded::config::{Config, EngineChoice, Sandbox};
use recoded::control::bounded;
use recoded::control_service::ControlService;
use recoded::dataplane::{Dataplane, Observation};
use recoded::events::{self, Watcher};
use recoded::keeper;
use recoded::keys::Keys;
use recoded::lifecycle::{BEAT_INTERVAL, Frames, Looked, News, Start, read};
use recoded::live::{EDITION_FIRST, Live, View};
use recoded::metrics::{self, Listeners};
use recoded::node::{self, Node};
use recoded::rates::{self, Rates};
use recoded::sandbox::{self, Extent, User};
use recoded_api::service::Service;
use recoded_runtime::channel::Channel;
use recoded_runtime::{Client, Reserve, Resources, frame_size};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// Time for a reply to reach its client before another process takes over.
const LAST_WORD: Duration = Duration::from_millis(20);

/// Poll interval and time limit while waiting for received packets to leave: responsive workers
/// report within 0.2 s.
const LEAVE_LOOK: Duration = Duration::from_millis(1);
const LEAVE_MAX: Duration = Duration::from_millis(250);

/// Time limit of the supervisor's look at threads: it looks twice, a tenth of a second apart.
const LOOK_PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Longest silence of a worker on an overloaded machine.
const STARVED_MAX: Duration = Duration::from_secs(24);

/// Waits for the supervisor's orders, and then runs until SIGTERM.
pub fn run() -> Result<(), Failure> {
    let _ = rustix::thread::set_name(c"recoded-dp");
    end_on_panic();
    let channel = rustix::stdio::stdin().try_clone_to_owned().map_err(no_supervisor)?;
    let channel = Channel::from(channel);
    // If memory runs out meanwhile, this process is killed before all active ones.
    let expendable = Expendable::begin();
    let reserve = stand_by(&channel).map_err(no_supervisor)?;
    match begin(&channel).map_err(no_supervisor)? {
        Some(given) => {
            expendable.end();
            run_with(&channel, given, reserve)
        }
        None => {
            tracing::debug!("this process stood by, and was not needed");
            Ok(())
        }
    }
}

/// Runs with the resources from the supervisor.
fn run_with(channel: &Channel, given: Given, reserve: Reserve) -> Result<(), Failure> {
    let mut parts = Parts::new();
    let (start, text, listener, (client, keeper, events)) = given;
    let mtu = |name: &str| node::mtu(name).or_else(|| start.mtus.get(name).copied());
    let (document, mtus, config) = Config::parse_on(&start.file, &text, &mtu, Some(&start.names))?;
    let is_confined = config.daemon.sandbox == Sandbox::On;
    if is_confined {
        sandbox::forbid_core_dumps()?;
    }
    let keys = Keys::read(&config)?;
    parts.end("configuration and keys");

    let control = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let control = control.map_err(Failure::Control)?;
    let signals = async { Ok((stop_signal()?, signal(SignalKind::user_defined1())?)) };
    let (stop, leave) = control.block_on(signals).map_err(Failure::Control)?;
    let topology = node::topology(&config, keys);
    let mut resources = Resources::join(&topology, client, !start.is_trial, reserve)?;
    let measured = Rc::new(Listeners::new(listen(&config, start.is_again)?));
    parts.end("frames and sockets");
    let accelerator = Accelerator::new(config.daemon.engine, config.daemon.fpga.clone());
    let accelerator = match is_confined {
        true => confine(&config, &mut resources, accelerator)?,
        false => accelerator,
    };
    if !is_confined {
        tracing::warn!("sandbox: off: the process that sees packets keeps its privileges");
    }
    parts.end("accelerator and sandbox");
    let node = Node::start_on(resources, &config, config.snapshot(EDITION_FIRST), accelerator)?;
    let node = Rc::new(node);
    parts.end("threads");
    parts.log();
    announce(&config, &node.observe(), &config.daemon.socket);
    let live = Live::new(document, mtus, config, node.clone());
    let (replaced, rates) = (Rc::new(Notify::new()), live.rates());
    let view = Rc::new(RefCell::new(live.view()));
    let (replacing, viewed) = (replaced.clone(), view.clone());
    let kept = ControlService::new(live, keeper.clone(), events.clone(), replacing, viewed);
    let kept = kept.serving(measured.clone());
    channel.send(&News::Started, &[]).map_err(no_supervisor)?;
    let ended = control.block_on(async {
        let service = Service::new(Box::new(kept));
        tokio::select! {
            () = stop => Ok(()),
            ended = beat(&node, channel) => Err(ended),
            ended = give_way(&node, &replaced, leave) => Err(ended),
            () = sample(&node, &rates, &view, &events) => Ok(()),
            () = ask_splits(&node, &view, &keeper) => Ok(()),
            () = metrics::serve(&measured, || view.borrow().state(&*node)) => Ok(()),
            served = bounded::serve(listener, service) => Err(Failure::Serve(match served {
                Ok(()) => "it stopped listening".into(),
                Err(error) => error.to_string(),
            })),
        }
    });
    match &ended {
        // Draining would wait for the stuck thread, or use keys that another copy uses.
        Err(failure @ (Failure::Unhealthy | Failure::SetBack)) => {
            tracing::error!("{failure}");
            std::process::exit(failure.exit_code().into());
        }
        // Neighbours repair the gap, so it must be short.
        Err(failure @ Failure::Replaced) => {
            node.end_workers();
            tracing::info!("{failure}");
            std::process::exit(failure.exit_code().into());
        }
        _ => {}
    }
    // The service was dropped with its future, so this is the last owner.
    if let Some(node) = Rc::into_inner(node) {
        farewell(&node.stop());
    }
    ended
}

/// Whether Linux kills this process first if memory runs out.
struct Expendable {
    /// The score of an active process, if the score could be changed.
    active: Option<i32>,
}

impl Expendable {
    fn begin() -> Expendable {
        let active = memory::dataplane_score();
        let changed = fs::write(memory::SCORE_FILE, "1000");
        Expendable { active: active.filter(|_| changed.is_ok()) }
    }

    fn end(self) {
        let Some(active) = self.active else { return };
        if let Err(error) = fs::write(memory::SCORE_FILE, active.to_string()) {
            tracing::warn!(%error, "Linux ends this process first where memory ends");
        }
    }
}

/// Duration of each part of a start; packets wait meanwhile.
struct Parts {
    begun: Instant,
    ended: Instant,
    told: String,
}

impl Parts {
    fn new() -> Parts {
        let now = Instant::now();
        Parts { begun: now, ended: now, told: String::new() }
    }

    /// Ends a part.
    fn end(&mut self, what: &str) {
        let took = self.ended.elapsed();
        self.ended += took;
        let between = if self.told.is_empty() { "" } else { ", " };
        self.told += &format!("{between}{what} {:.1}", took.as_secs_f64() * 1e3);
    }

    fn log(&self) {
        let all = (self.ended - self.begun).as_secs_f64() * 1e3;
        tracing::info!("started in {all:.1} ms: {}", self.told);
    }
}

/// Ends the process if a thread other than a worker panics. A panicked worker is restarted. Any
/// other thread leaves queues without a reader, and its state may be corrupt; another process
/// replaces all of it within a tenth of a second.
fn end_on_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        if !recoded_runtime::is_panic_caught() {
            std::process::exit(EXIT_PANIC.into());
        }
    }));
}

fn no_supervisor<E: Into<io::Error>>(error: E) -> Failure {
    Failure::NoSupervisor(error.into())
}

/// The supervisor's clients: privileged operations, configurations, and events.
type Clients = (Client, keeper::Client, events::Client);

/// Maps the frames that the supervisor requests, and reports it.
fn stand_by(channel: &Channel) -> io::Result<Reserve> {
    let (Frames { workers, per_worker, mtu }, _) = channel.receive()?.unwrap_or_default();
    if workers == 0 {
        return Ok(Reserve::default());
    }
    let reserve = Reserve::map(workers, per_worker, frame_size(mtu)).unwrap_or_else(|error| {
        // It takes over without them.
        tracing::warn!(%error, "the standby process has no frames yet");
        Reserve::default()
    });
    channel.send(&News::Ready, &[])?;
    Ok(reserve)
}

/// The first order, the configuration's text, the control socket's listener, and the clients.
type Given = (Start, String, UnixListener, Clients);

/// Receives the supervisor's resources; `None` if the supervisor has ended without sending any.
fn begin(channel: &Channel) -> io::Result<Option<Given>> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let Some((start, fds)) = channel.receive::<Start>()? else { return Ok(None) };
    let [text, listener, client, keeper, events] = <[_; 5]>::try_from(fds).map_err(|_| broken())?;
    let listener = UnixListener::from(listener);
    let clients = (
        Client::new(Channel::from(client)),
        keeper::Client::new(Channel::from(keeper)),
        events::Client::new(Channel::from(events)),
    );
    Ok(Some((start, read(text)?, listener, clients)))
}

/// Opens the listener for metrics. A port in use keeps the first process from starting; for later
/// processes, packets take precedence.
fn listen(config: &Config, is_again: bool) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = config.daemon.metrics else { return Ok(None) };
    match metrics::listen(address) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if is_again => {
            tracing::error!("{error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Drops privileges. Returns the accelerator as it can be opened afterwards.
fn confine(
    config: &Config,
    resources: &mut Resources,
    accelerator: Accelerator,
) -> Result<Accelerator, Failure> {
    let has_card = config.daemon.engine != EngineChoice::Cpu && accelerator.has_card();
    let (extent, accelerator) = match has_card {
        true => (Extent::Privileges, accelerator),
        false => (Extent::All, accelerator.shut_out()),
    };
    // A card's driver opens files that belong to root.
    let user = match (extent, &config.daemon.user) {
        (Extent::Privileges, None) => None,
        (_, written) => User::find(written.as_deref())?,
    };
    let held = sandbox::enter(extent, user.as_ref())?;
    tracing::info!("sandbox: {held}");
    resources.seal();
    Ok(accelerator)
}

/// Reports health to the supervisor as long as it lasts. Without a supervisor packets keep flowing
/// until the next supervisor ends this process.
async fn beat(node: &Node, channel: &Channel) -> Failure {
    let mut is_alone = false;
    let mut patience = Duration::ZERO;
    loop {
        if !node.has_all_threads() {
            is_starved(channel);
            return Failure::Unhealthy;
        }
        match node.stuck() {
            None => patience = Duration::ZERO,
            Some((_, silent)) if silent < patience => {}
            Some((_, silent)) if silent < STARVED_MAX && is_starved(channel) => {
                patience = 2 * silent;
            }
            Some((worker, silent)) => {
                tracing::error!("worker {worker} (recoded-w{worker}) is silent for {silent:.1?}");
                return Failure::Unhealthy;
            }
        }
        if node.is_set_back() {
            return Failure::SetBack;
        }
        if node.needs_restart() && !is_alone {
            return Failure::Again;
        }
        if !is_alone && let Err(error) = channel.send(&News::Beat, &[]) {
            is_alone = true;
            tracing::error!(
                %error,
                "the supervisor is gone: packets flow on, but interfaces and tunnels that \
                 disappear stay away, and nothing replaces this process, until recoded is started \
                 again (SIGTERM ends this process)"
            );
        }
        tokio::time::sleep(BEAT_INTERVAL).await;
    }
}

/// Lets the supervisor inspect the threads of this process in their present state. Returns whether
/// the machine is overloaded.
fn is_starved(channel: &Channel) -> bool {
    if channel.send(&News::Stuck, &[]).is_err() {
        return false;
    }
    match poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&LOOK_PATIENCE)) {
        // The supervisor itself is late.
        Ok(0) => true,
        _ => {
            let answer = channel.receive::<Looked>();
            answer.is_ok_and(|answer| answer.is_some_and(|(looked, _)| looked.is_starved))
        }
    }
}

/// Samples the flows indefinitely, and reports changes.
async fn sample(node: &Node, rates: &Rates, view: &RefCell<View>, events: &events::Client) {
    let mut watcher = Watcher::default();
    loop {
        let seen = node.observe();
        rates.sample(&seen);
        watcher.note_queues(&seen.queues);
        let state = view.borrow().of(seen);
        events.tell(watcher.look(state)).await;
        tokio::time::sleep(rates::INTERVAL).await;
    }
}

/// Asks the supervisor about split TCP connections, indefinitely, while there are such tunnels.
async fn ask_splits(node: &Node, view: &RefCell<View>, supervisor: &keeper::Client) {
    loop {
        let splits = view.borrow().splits_tcp();
        if splits && let Ok(splits) = supervisor.splits().await {
            node.note_splits(splits);
        }
        tokio::time::sleep(rates::INTERVAL).await;
    }
}

/// Waits until another process should take over, the requesting client has its reply, and packets
/// read from tunnels have been delivered.
async fn give_way(node: &Node, replaced: &Notify, mut leave: Signal) -> Failure {
    tokio::select! {
        () = replaced.notified() => {}
        _ = leave.recv() => {}
    }
    node.leave();
    let begun = Instant::now();
    let mut wait = LAST_WORD;
    while begun.elapsed() < wait {
        tokio::time::sleep(LEAVE_LOOK).await;
        wait = if node.has_left() { LAST_WORD } else { LEAVE_MAX };
    }
    tracing::debug!("what was read has left after {:.1?}", begun.elapsed());
    Failure::Replaced
}

fn announce(config: &Config, seen: &Observation, socket: &Path) {
    tracing::info!(
        "recoded {} runs: workers {}, field arithmetic by {}, control socket {}",
        env!("CARGO_PKG_VERSION"),
        config.daemon.workers,
        recoded_gf::Kernel::best().name(),
        socket.display()
    );
    match config.daemon.auth {
        Auth::None => tracing::warn!(
            "auth: none: packets are neither authenticated nor encrypted (recodectl genkey makes a key)"
        ),
        auth => tracing::info!("auth: {}", auth::word(auth)),
    }
    for link in &seen.links {
        let reason = if link.reason.is_empty() { "the best there is" } else { &link.reason };
        tracing::info!(
            "link {} ({}): XDP {}, sockets {}: {reason}",
            link.name,
            link.interface,
            link.xdp_mode,
            link.socket_mode
        );
    }
}
