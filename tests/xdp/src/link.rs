//! The test-bed programs under test: the classifier `link`, the XDP programs `pass` and `forward`.
//!
//! `LINK[0]` is `[u32; 5]`, `COUNTERS` a per-CPU array of `u64`, `MACS[0]` is `[u8; 12]`: the order
//! within each is in `ebpf/link/src/main.rs`.

use std::error::Error;

use aya::maps::{Array, DevMap, PerCpuArray};
use aya::programs::{SchedClassifier, TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, include_bytes_aligned};

/// Parameters of one direction; probabilities from 0 to 1.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct LinkParameters {
    /// Chance per packet to enter the bad state.
    pub p_good_to_bad: f64,
    /// Chance per packet to leave it.
    pub p_bad_to_good: f64,
    /// Loss in the bad state.
    pub loss_bad: f64,
    /// Loss in the good state.
    pub loss_good: f64,
    /// Interface that sends the survivors; 0 for this host's stack.
    pub out_ifindex: u32,
}

impl LinkParameters {
    /// The value of `LINK[0]`.
    pub fn to_map_value(self) -> [u32; 5] {
        [
            scale(self.p_good_to_bad),
            scale(self.p_bad_to_good),
            scale(self.loss_bad),
            scale(self.loss_good),
            self.out_ifindex,
        ]
    }
}

/// Packets counted by one direction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkCounters {
    /// Subject to loss.
    pub seen: u64,
    /// Lost.
    pub dropped: u64,
    /// Lost right after a lost one.
    pub dropped_after_drop: u64,
    /// Several packets merged into one.
    pub merged: u64,
}

/// One direction, loaded but not attached.
pub struct Link {
    ebpf: Ebpf,
}

impl Link {
    /// Loads the committed object with these parameters.
    ///
    /// # Errors
    /// The error of aya if Linux refuses the object.
    pub fn load(parameters: LinkParameters) -> Result<Self, Box<dyn Error>> {
        let mut ebpf = Ebpf::load(OBJECT)?;
        let program: &mut SchedClassifier =
            ebpf.program_mut("link").ok_or("no program")?.try_into()?;
        program.load()?;
        let mut map: Array<_, [u32; 5]> = ebpf.map_mut("LINK").ok_or("no map")?.try_into()?;
        map.set(0, parameters.to_map_value(), 0)?;
        Ok(Self { ebpf })
    }

    /// Runs the program `repeat` times on this frame; returns the last return value.
    ///
    /// # Errors
    /// The error of Linux.
    pub fn run(&self, frame: &[u8], repeat: u32) -> Result<u32, Box<dyn Error>> {
        let program: &SchedClassifier =
            self.ebpf.program("link").ok_or("no program")?.try_into()?;
        let options = TestRunOptions { data_in: Some(frame), repeat, ..TestRunOptions::default() };
        Ok(program.test_run(options)?.return_value)
    }

    /// Counters, summed over CPUs.
    ///
    /// # Errors
    /// The error of aya.
    pub fn counters(&self) -> Result<LinkCounters, Box<dyn Error>> {
        let map: PerCpuArray<_, u64> = self.ebpf.map("COUNTERS").ok_or("no map")?.try_into()?;
        let sum = |index: u32| map.get(&index, 0).map(|values| values.iter().sum());
        Ok(LinkCounters {
            seen: sum(0)?,
            dropped: sum(1)?,
            dropped_after_drop: sum(2)?,
            merged: sum(3)?,
        })
    }
}

/// Runs the XDP program `name` on a frame, with `macs` and the interface `ifindex` in its maps.
/// Returns its action and the resulting frame.
///
/// # Errors
/// What aya reports when Linux refuses the object or the run.
pub fn run_xdp(
    name: &str,
    macs: [u8; 12],
    ifindex: u32,
    frame: &[u8],
) -> Result<(u32, Vec<u8>), Box<dyn Error>> {
    let mut ebpf = Ebpf::load(OBJECT)?;
    let mut map: Array<_, [u8; 12]> = ebpf.map_mut("MACS").ok_or("no map")?.try_into()?;
    map.set(0, macs, 0)?;
    let mut map: DevMap<_> = ebpf.map_mut("DEVICES").ok_or("no map")?.try_into()?;
    map.set(0, ifindex, None, 0)?;
    let program: &mut Xdp = ebpf.program_mut(name).ok_or("no program")?.try_into()?;
    program.load()?;
    let mut after = vec![0; frame.len()];
    let options = TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut after),
        ..TestRunOptions::default()
    };
    Ok((program.test_run(options)?.return_value, after))
}

/// A probability scaled by 2^32; 1 becomes `u32::MAX`, which the program treats as "always".
fn scale(probability: f64) -> u32 {
    (probability * 4_294_967_296.0) as u32
}

static OBJECT: &[u8] = include_bytes_aligned!("../../../ebpf/link.bpf.o");
