//! The available cards, as named in configurations and on command lines, and how they are opened.

use std::fmt;
use std::str::FromStr;

use recoded_code::engine::{Engine, Error};

use crate::transport::Transport;
use crate::transport::vfio::Vfio;
use crate::transport::xdma::Xdma;
use crate::{EngineOptions, FpgaEngine};

/// A card, by its connection to the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Card {
    /// No card: the engine, simulated in this process. Needs the feature `fpga-sim`.
    Simulated,
    /// Behind AMD's XDMA driver.
    Xdma {
        /// Number of the device.
        number: u8,
        /// Start of the card's memory for the engine, a multiple of 4,096.
        memory: u64,
    },
    /// A PCI device bound to `vfio-pci`.
    Vfio {
        /// Domain, bus, device and function.
        address: String,
    },
}

/// The rule for the name of a card.
pub const CARD_RULE: &str =
    "it is \"simulated\", \"xdma:N\", \"xdma:N@ADDRESS\" or \"vfio:PCI-ADDRESS\"";

/// A text that names no card.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such card: {CARD_RULE}")]
pub struct NoCard;

impl FromStr for Card {
    type Err = NoCard;

    fn from_str(text: &str) -> Result<Self, NoCard> {
        if text == SIMULATED {
            return Ok(Self::Simulated);
        }
        match text.split_once(':').ok_or(NoCard)? {
            ("xdma", name) => {
                let (number, memory) = name.split_once('@').unwrap_or((name, "0x0"));
                let number = decimal(number).ok_or(NoCard)?;
                Ok(Self::Xdma { number, memory: page(memory).ok_or(NoCard)? })
            }
            ("vfio", address) if is_pci_address(address) => {
                Ok(Self::Vfio { address: address.to_ascii_lowercase() })
            }
            _ => Err(NoCard),
        }
    }
}

fn decimal(text: &str) -> Option<u8> {
    // Rust's parser would accept a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A hexadecimal multiple of 4,096 with room for the engine's memory after it.
fn page(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let address = u64::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal)?;
    (address % 4096 == 0 && address <= u64::MAX - CARD_BYTES).then_some(address)
}

/// Whether it has the form `0000:03:00.0`: it becomes part of a path.
fn is_pci_address(text: &str) -> bool {
    let shape = b"hhhh:hh:hh.h";
    let fits = |(byte, shape): (u8, &u8)| match shape {
        b'h' => byte.is_ascii_hexdigit(),
        _ => byte == *shape,
    };
    text.len() == shape.len() && text.bytes().zip(shape).all(fits)
}

impl fmt::Display for Card {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulated => formatter.write_str(SIMULATED),
            Self::Xdma { number, memory: 0 } => write!(formatter, "xdma:{number}"),
            Self::Xdma { number, memory } => write!(formatter, "xdma:{number}@{memory:#x}"),
            Self::Vfio { address } => write!(formatter, "vfio:{address}"),
        }
    }
}

impl Card {
    /// Resets the card and prepares it for use.
    ///
    /// # Errors
    /// [`Error::Absent`]: the reason why it cannot be used.
    pub fn open(&self) -> Result<Box<dyn Engine>, Error> {
        match self {
            Self::Simulated => simulated(),
            Self::Xdma { number, memory } => {
                let window = *memory..memory + CARD_BYTES;
                let opened = Xdma::open(*number, window);
                let why = |error| absent(format!("the devices of xdma:{number}: {error}"));
                engine(opened.map_err(why)?)
            }
            Self::Vfio { address } => {
                engine(Vfio::open(address).map_err(|error| absent(error.to_string()))?)
            }
        }
    }

    /// Whether it runs at hardware speed.
    #[must_use]
    pub const fn is_real(&self) -> bool {
        match self {
            Self::Simulated => false,
            Self::Xdma { .. } | Self::Vfio { .. } => true,
        }
    }

    /// A caveat for reports, in addition to its name.
    #[must_use]
    pub const fn caveat(&self) -> &'static str {
        match self {
            Self::Simulated => "no card: its circuits are simulated clock by clock; not measured",
            Self::Xdma { .. } => "through AMD's XDMA driver, which was not run on a card before",
            Self::Vfio { .. } => "through VFIO, which was not run on a card before",
        }
    }
}

fn engine(transport: impl Transport + 'static) -> Result<Box<dyn Engine>, Error> {
    let engine = FpgaEngine::open(transport, EngineOptions::default());
    Ok(Box::new(engine.map_err(|error| absent(error.to_string()))?))
}

const fn absent(reason: String) -> Error {
    Error::Absent { reason }
}

#[cfg(feature = "fpga-sim")]
fn simulated() -> Result<Box<dyn Engine>, Error> {
    use crate::sim::{MemoryModel, Mishaps, Simulation};

    let card = Simulation::new(MemoryModel::default(), CARD_BYTES as usize);
    let mut simulation = card.with_host_memory();
    if let Some(file) = std::env::var_os(MISHAPS_ENV) {
        simulation.set_mishaps(Mishaps::in_file(file.into()));
    }
    engine(simulation)
}

#[cfg(not(feature = "fpga-sim"))]
fn simulated() -> Result<Box<dyn Engine>, Error> {
    Err(absent(
        "this program was built without the feature `fpga-sim`: it simulates no card".into(),
    ))
}

const SIMULATED: &str = "simulated";

/// Memory of a card that the engine gets: twice the allocation of its default options.
const CARD_BYTES: u64 = 64 << 20;

/// Names a file with the faults of a simulated card: for tests.
#[cfg(feature = "fpga-sim")]
const MISHAPS_ENV: &str = "RECODED_FPGA_MISHAPS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_is_written_as_it_is_read() {
        for name in ["simulated", "xdma:0", "xdma:255@0x80000000", "vfio:0000:03:00.0"] {
            let card = name.parse::<Card>().map(|card| card.to_string());
            assert_eq!(card.as_deref(), Ok(name));
        }
        let wrong = [
            "",
            "Simulated",
            "xdma",
            "xdma:",
            "xdma:256",
            "xdma:+1",
            "xdma:0@1000",
            "xdma:0@0x1001",
            "xdma:0@0xfffffffffffff000",
            "xdma:0@0x+1000",
            "vfio:03:00.0",
            "vfio:0000:03:00.00",
            "vfio:../../etc/pas",
            "vfio:",
            "uio:0",
        ];
        for name in wrong {
            assert_eq!(name.parse::<Card>(), Err(NoCard), "{name}");
        }
    }

    #[test]
    fn card_that_is_not_there_is_explained() {
        for name in ["xdma:255", "vfio:ffff:ff:1f.7"] {
            let card: Card = name.parse().expect("a name");
            let refused = card.open().err();
            assert!(matches!(&refused, Some(Error::Absent { .. })), "{name}: {refused:?}");
            println!("{}", refused.map_or_else(String::new, |error| error.to_string()));
        }
    }

    #[cfg(not(feature = "fpga-sim"))]
    #[test]
    fn simulated_card_is_refused_where_nothing_simulates_it() {
        let refused = Card::Simulated.open().err().map(|error| error.to_string());
        assert!(refused.is_some_and(|reason| reason.contains("fpga-sim")));
    }
}
