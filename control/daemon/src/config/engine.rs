//! The engine that solves large generations at a sink.

/// Words of `engine`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum EngineChoice {
    /// A card if it is measured to be faster.
    #[default]
    Auto,
    /// The workers.
    Cpu,
    /// The CUDA card whenever it works, however slow.
    Cuda,
    /// The FPGA card whenever it works, however slow.
    Fpga,
}

impl EngineChoice {
    /// Every choice, with its name.
    pub const NAMES: [(&'static str, Self); 4] =
        [("auto", Self::Auto), ("cpu", Self::Cpu), ("cuda", Self::Cuda), ("fpga", Self::Fpga)];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Fpga => "fpga",
        }
    }
}
