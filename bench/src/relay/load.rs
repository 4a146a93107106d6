//! The load and the counter at the end of the row: two XDP programs of one object in a closed loop.
//!
//! ```text
//!   A: `load` ---> vA ====== vRi  R  vRo ====== vB ---> `count` :B
//!        ^                                                |
//!        +-------------- packets that arrived <-----------+
//! ```
//!
//! `load` is run by BPF_PROG_TEST_RUN on live frames and generates several million packets per
//! second on one core. An AF_XDP socket generates 0.6 million here, fewer than most measured cases
//! can process, so it would measure itself.
//!
//! The load is a closed loop: at most [`WINDOW_PACKETS`] of a shard are in flight, so every case
//! runs at the highest rate at which it loses nothing. Without that bound receive rings would
//! overflow, and the relay would see losses other than the link's.
//!
//! Every shard has a thread of its own, on a core of its own: a veth delivers to the receive queue
//! with the number of the core that sends, modulo the queues.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use aya::maps::{Array, MapData};
use aya::programs::{Program, ProgramError, TestRun, TestRunAttrs, TestRunOptions, Xdp, XdpMode};
use aya::sys::SyscallError;
use aya::{Ebpf, EbpfLoader};
use recoded_wire::shard::{SHARDS_MAX, source_port};

use crate::cores::pin;
use crate::error::BenchError;
use crate::relay::bed::{Bed, LOAD, SINK};
use crate::relay::packets::{FLOW, GENERATION_SIZE, HEADERS_BYTES, LOSS, Packet};
use crate::relay::xdp::interface_index;

/// Packets that leave the measured host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// One packet for each that went in.
    PerPacket,
    /// As many packets per generation as planned, however many went in.
    PerGeneration,
}

/// Packets sent and received since the load started.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Packets sent.
    pub sent: u64,
    /// Generations sent, at least in part.
    pub generations: u64,
    /// Time that the load waited for a full window, summed over shards.
    pub waited_nanos: u64,
    /// Packets that arrived at the end of the row.
    pub arrived: u64,
    /// Received packets that a relay recoded.
    pub arrived_recoded: u64,
}

/// Both programs, loaded; `count` is attached, `load` ready to be run.
pub struct Instrument {
    ebpf: Arc<Ebpf>,
    headers: Array<MapData, [u8; HEADERS_BYTES]>,
    plan: Array<MapData, [u32; PLAN_WORDS]>,
    state: Array<MapData, [u64; STATE_WORDS]>,
    arrived: Array<MapData, [u64; ARRIVED_WORDS]>,
    /// Interface that `load` sends by.
    ifindex: u32,
    cpus: u32,
}

/// Packets to send, and the expected output.
pub struct Order<'a> {
    /// The first packet of every shard, from 0.
    pub packets: &'a [Packet],
    /// Expected output.
    pub output: Output,
    /// Seed of the losses, not 0.
    pub seed: u64,
    /// Cores to send from, one per shard.
    pub cores: &'a [usize],
    /// Approximate duration of the load.
    pub time: Duration,
}

/// A running load.
pub struct Load {
    output: Output,
    stop: Arc<AtomicBool>,
    threads: Vec<Sender>,
}

/// A thread that sends a shard.
type Sender = JoinHandle<Result<(), BenchError>>;

impl Instrument {
    /// Loads the object and attaches `count` at the end of the row.
    ///
    /// # Errors
    /// [`BenchError`] when Linux refuses it.
    pub fn attach(bed: &Bed) -> Result<Instrument, BenchError> {
        let mut ebpf = EbpfLoader::new().load(OBJECT)?;
        bed.b.inside(|| {
            let count = program(&mut ebpf, "count")?;
            count.load()?;
            count.attach(SINK.name, XdpMode::Driver)?;
            Ok(())
        })?;
        program(&mut ebpf, "load")?.load()?;
        let mut take = |name| ebpf.take_map(name).ok_or(BenchError::NoSuchItem(name));
        let cpus =
            aya::util::nr_cpus().map_err(|(file, error)| BenchError::os(file.to_owned())(error))?;
        Ok(Instrument {
            headers: Array::try_from(take("HEADERS")?)?,
            plan: Array::try_from(take("PLAN")?)?,
            state: Array::try_from(take("STATE")?)?,
            arrived: Array::try_from(take("ARRIVED")?)?,
            ebpf: Arc::new(ebpf),
            ifindex: bed.a.inside(|| interface_index(LOAD.name))?,
            cpus: cpus.min(CPUS_MAX) as u32,
        })
    }

    /// Starts sending with all counters at zero. Each shard's first packet is sent ahead, in a
    /// generation of its own: until a relay has memory for a shard it holds few packets.
    ///
    /// # Errors
    /// [`BenchError`] if Linux refuses it.
    pub fn start(&mut self, bed: &Bed, order: &Order<'_>) -> Result<Load, BenchError> {
        self.reset(order, 0)?;
        self.headers.set(0, order.packets[0].headers(), 0)?;
        self.set_plan(order.output, false)?;
        for first in self.spawn(bed, order, 1, &Arc::new(AtomicBool::new(true)))? {
            join(first)?;
        }
        thread::sleep(OPENING);
        self.reset(order, GENERATION_SIZE as u64)?;
        let stop = Arc::new(AtomicBool::new(false));
        let repeat = ((order.time.as_secs_f64() + 1.0) * RUNS_PER_SECOND) as u32;
        let threads = self.spawn(bed, order, repeat, &stop)?;
        Ok(Load { output: order.output, stop, threads })
    }

    /// Sets all counters to zero; packet `next` will be the next one of every shard.
    fn reset(&mut self, order: &Order<'_>, next: u64) -> Result<(), BenchError> {
        for slot in 0..self.cpus * SHARDS_MAX as u32 {
            self.arrived.set(slot, [0; ARRIVED_WORDS], 0)?;
        }
        for shard in 0..SHARDS_MAX as u32 {
            let mut state = [0; STATE_WORDS];
            state[STATE_NEXT] = next;
            state[STATE_RANDOM] = order.seed.wrapping_add(u64::from(shard) << 32).max(1);
            self.state.set(shard, state, 0)?;
        }
        Ok(())
    }

    /// A thread per shard, which sends until `stop` and checks it every `repeat` packets.
    fn spawn(
        &self,
        bed: &Bed,
        order: &Order<'_>,
        repeat: u32,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Sender>, BenchError> {
        let send = |packet: &Packet, core: usize| {
            let (stopped, ebpf, packet) =
                (stop.clone(), self.ebpf.clone(), packet.bytes().to_vec());
            let work = move || {
                pin(core)?;
                loop {
                    run(&ebpf, &packet, repeat)?;
                    // Relaxed: `Plan::stop`, which the program reads, ends the sending itself.
                    if stopped.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
            };
            let started = thread::Builder::new().name("load".into()).spawn(work);
            started.map_err(BenchError::os("starting the load's thread"))
        };
        // A thread lives where the one that starts it lives.
        let threads = order.packets.iter().zip(order.cores);
        bed.a.inside(|| threads.map(|(packet, core)| send(packet, *core)).collect())
    }

    /// Stops a load. Its packets may still be in flight.
    ///
    /// # Errors
    /// Errors of its threads.
    pub fn stop(&mut self, load: Load) -> Result<(), BenchError> {
        load.stop.store(true, Ordering::Relaxed);
        self.set_plan(load.output, true)?;
        load.threads.into_iter().try_for_each(join)
    }

    /// How far the load is.
    ///
    /// # Errors
    /// [`BenchError::Map`].
    pub fn progress(&self) -> Result<Progress, BenchError> {
        let mut progress = Progress::default();
        for slot in 0..self.cpus * SHARDS_MAX as u32 {
            let [coded, recoded, ..] = self.arrived.get(&slot, 0)?;
            progress.arrived += coded;
            progress.arrived_recoded += recoded;
        }
        for shard in 0..SHARDS_MAX as u32 {
            let [next, sent, waited_nanos, ..] = self.state.get(&shard, 0)?;
            progress.generations += next.div_ceil(GENERATION_SIZE as u64).saturating_sub(1);
            progress.sent += sent;
            progress.waited_nanos += waited_nanos;
        }
        Ok(progress)
    }

    fn set_plan(&mut self, output: Output, stop: bool) -> Result<(), BenchError> {
        let loss = (LOSS * 4_294_967_296.0) as u32;
        let planned = match output {
            Output::PerPacket => 0,
            Output::PerGeneration => GENERATION_SIZE as u32,
        };
        let port = u32::from(source_port(FLOW, 0));
        let (ifindex, cpus) = (self.ifindex, self.cpus);
        let plan = [ifindex, loss, WINDOW_PACKETS, planned, port, cpus, u32::from(stop)];
        Ok(self.plan.set(0, plan, 0)?)
    }
}

fn join(sender: Sender) -> Result<(), BenchError> {
    sender.join().map_err(|_| BenchError::Thread("load"))?
}

/// Runs `load` on `repeat` frames that begin as copies of `packet`.
fn run(ebpf: &Ebpf, packet: &[u8], repeat: u32) -> Result<(), BenchError> {
    let Some(Program::Xdp(program)) = ebpf.program("load") else {
        return Err(BenchError::NoSuchItem("load"));
    };
    let mut options = TestRunOptions::new();
    options.data_in = Some(packet);
    options.repeat = repeat;
    options.attrs = TestRunAttrs::new().xdp_live_frames(BATCH_PACKETS);
    match program.test_run(options) {
        Ok(_) => Ok(()),
        // Kernel work for the thread sometimes ends the call early; the next call continues.
        Err(ProgramError::SyscallError(SyscallError { io_error, .. }))
            if io_error.kind() == io::ErrorKind::Interrupted =>
        {
            Ok(())
        }
        Err(error) => Err(BenchError::LiveFrames(error)),
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, BenchError> {
    let program = ebpf.program_mut(name).ok_or(BenchError::NoSuchItem(name))?;
    Ok(program.try_into()?)
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../ebpf/load.bpf.o");

/// Packets of a shard in flight: enough that the measured case never waits for the load, and fewer
/// than its receive ring of 2048 holds.
const WINDOW_PACKETS: u32 = 1024;
/// Longer than a relay takes to allocate memory for a shard.
const OPENING: Duration = Duration::from_millis(20);
/// Packets that are generated before they are sent; they must fit into a cable's ring of 256.
const BATCH_PACKETS: u32 = 64;
/// Approximate runs of the program per second. One system call should outlast a sample, because the
/// next one takes 20 ms to start; but the rest of it after the load stops takes time too.
const RUNS_PER_SECOND: f64 = 5e6;
/// Words of the maps, and CPUs, as `ebpf/load/src/main.rs` has them.
const PLAN_WORDS: usize = 7;
const STATE_WORDS: usize = 8;
const STATE_NEXT: usize = 0;
const STATE_RANDOM: usize = 3;
const ARRIVED_WORDS: usize = 8;
const CPUS_MAX: usize = 256;
