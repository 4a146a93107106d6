//! Errors before a number is measured: one sentence each, with the fix if there is one.

use std::io;

use aya::EbpfError;
use aya::maps::MapError;
use aya::maps::xdp::XdpMapError;
use aya::programs::ProgramError;
use recoded_runtime::StartError;
use recoded_xsk::XskError;

/// Why a benchmark ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// An invariant of a simulated run did not hold.
    #[error("{row}: {violation}")]
    Simulated {
        /// The row of the table.
        row: String,
        /// What happened.
        violation: String,
    },

    /// The process lacks privilege.
    #[error("needs root for network namespaces, XDP and AF_XDP: run it with sudo")]
    NotRoot,

    /// Too few cores to keep the load and the subject apart.
    #[error("only {found} core(s) may be used: the load and the workers measured need {needed}")]
    Cores {
        /// Number of cores required.
        needed: usize,
        /// Cores this process may run on.
        found: usize,
    },

    /// A core that does not exist or is not allowed.
    #[error("core {core} cannot be used: choose two different ones of {allowed:?}")]
    Core {
        /// The requested core.
        core: usize,
        /// Cores this process may run on.
        allowed: Vec<usize>,
    },

    /// The load would not reach all receive queues.
    #[error(
        "the load on cores {cores:?} does not reach {workers} receive queues: a veth delivers to \
         the queue of the sending core's number modulo the queues; allow other cores (taskset)"
    )]
    Queues {
        /// Workers, and receive queues.
        workers: usize,
        /// Cores of the load.
        cores: Vec<usize>,
    },

    /// A command that prepares the test bed, or a measured program, failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line.
        command: String,
        /// Output of the program.
        output: String,
    },

    /// A program of the test bed does not run.
    #[error(transparent)]
    Bed(recoded_netns::BedError),

    /// Linux refused something.
    #[error("{action}: {source}")]
    Os {
        /// The attempted action.
        action: String,
        /// Error from Linux.
        source: io::Error,
    },

    /// An eBPF object lacks a program or map of this name.
    #[error("the eBPF object has no `{0}`: rebuild it from its source")]
    NoSuchItem(&'static str),

    /// An eBPF object does not load.
    #[error(transparent)]
    Ebpf(#[from] EbpfError),

    /// An XDP program is refused.
    #[error(transparent)]
    Program(#[from] ProgramError),

    /// The load does not run.
    #[error("the load does not run on live frames, which Linux can do since 5.18")]
    LiveFrames(#[source] ProgramError),

    /// An eBPF map is refused.
    #[error(transparent)]
    Map(#[from] MapError),

    /// A map of devices is refused.
    #[error(transparent)]
    Devices(#[from] XdpMapError),

    /// A socket or its frames are refused.
    #[error(transparent)]
    Xsk(#[from] XskError),

    /// The relay does not start.
    #[error(transparent)]
    Start(#[from] StartError),

    /// Packets too short for a symbol.
    #[error("IP packets of {0} bytes have no room for a symbol: choose longer ones")]
    PacketBytes(usize),

    /// The measured program did not do its work, so its speed means nothing.
    #[error(
        "{case} at {packet_bytes} bytes did not do its work, so there is no number: \
         {claim}, expected {expected}, measured {measured}"
    )]
    Unproven {
        /// The measured case.
        case: &'static str,
        /// Size of its packets.
        packet_bytes: usize,
        /// The violated claim.
        claim: &'static str,
        /// The value it should have.
        expected: f64,
        /// The value it had.
        measured: f64,
    },

    /// A core that may not be used.
    #[error("core {core} cannot be used: choose one of {allowed:?}")]
    PinCore {
        /// The requested core.
        core: usize,
        /// Cores this process may run on.
        allowed: Vec<usize>,
    },

    /// The kernel that the environment names cannot be used.
    #[error(transparent)]
    Kernel(recoded_gf::ForceError),

    /// A kernel's result differs from the naive kernel's, so its speed means nothing.
    #[error("{kernel} computes a wrong {operation} over {field} (n = {n}, {bytes} bytes)")]
    Wrong {
        /// The level.
        kernel: &'static str,
        /// The operation.
        operation: &'static str,
        /// The field.
        field: String,
        /// Symbols that are combined.
        n: usize,
        /// Bytes of a symbol.
        bytes: usize,
    },

    /// A card's result differs from this CPU's, so its speed means nothing.
    #[error("the card makes wrong bytes: {what}, technique {technique}")]
    WrongCard {
        /// The operation.
        what: String,
        /// How.
        technique: String,
    },

    /// No threads for the CPU's part.
    #[error(transparent)]
    Engine(recoded_code::engine::Error),

    /// A shape that no batch supports.
    #[error(transparent)]
    Job(recoded_code::engine::Rejected),

    /// A Reed-Solomon code or its buffers are refused.
    #[error(transparent)]
    Stripe(#[from] recoded_offload::gibraltar::Error),

    /// A library refuses a code of stripes, or Recoded's recovers other bytes.
    #[error("{0}")]
    StripeCode(String),

    /// There is no program that codes files.
    #[error(
        "there is no {}: build it (cargo build --release -p recoded-stripes), or name it with \
         --program",
        program.display()
    )]
    NoStripes {
        /// The file.
        program: std::path::PathBuf,
    },

    /// A disk is too full for files.
    #[error(
        "{} has {free} free bytes, {needed} are needed: choose a shorter file with --file-mib, or \
         another --folder",
        folder.display()
    )]
    Space {
        /// The folder.
        folder: std::path::PathBuf,
        /// Bytes that files take at most.
        needed: u64,
        /// Free bytes.
        free: u64,
    },

    /// A measured program recovered other bytes.
    #[error("{name} differs from the original file, so its times mean nothing")]
    Differs {
        /// The recovered file.
        name: String,
    },

    /// A code of a figure is refused.
    #[error(transparent)]
    Code(#[from] recoded_code::bats::ParamsError),

    /// A decoder has no room for the input of a figure.
    #[error(transparent)]
    Decoder(#[from] recoded_code::bats::Rejected),

    /// A circuit's result differs from the field's, so its gate count means nothing.
    #[error(
        "the chain of partial multipliers computes a wrong product of {operand} and {coefficient}"
    )]
    Circuit {
        /// The operand.
        operand: u8,
        /// The coefficient.
        coefficient: u8,
    },

    /// Numbers of figures outside their tolerance.
    #[error("{rows} number(s) outside their tolerance without a known reason: see above")]
    Unexplained {
        /// How many.
        rows: usize,
    },

    /// The scoreboard of the papers has no page.
    #[error(transparent)]
    Papers(#[from] crate::papers::error::PapersError),

    /// A thread of the benchmark failed.
    #[error("the {0} thread failed")]
    Thread(&'static str),
}

impl BenchError {
    /// Wraps an answer of Linux.
    pub fn os<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> BenchError {
        let action = action.into();
        move |error| BenchError::Os { action, source: error.into() }
    }
}
