//! The XDP program `recoded` under test.
//!
//! Nothing is attached: BPF_PROG_TEST_RUN supplies the packet, on queue 0 of no interface, runs the
//! verified program, and returns its verdict without applying it.

use std::error::Error;
use std::os::fd::{AsRawFd, OwnedFd};

use aya::maps::{HashMap, PerCpuArray, XskMap};
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use recoded_wire::other_version::OtherVersion;
use recoded_wire::packet::AddressWords;
use recoded_wire::steer::{self, Action, Verdict};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};

/// The loaded program with its maps.
pub struct Steering {
    ebpf: Ebpf,
    /// Keeps the socket alive while its map slot is in use.
    socket: Option<OwnedFd>,
}

impl Steering {
    /// Loads the committed object for this port and these flows; no socket is in place yet.
    ///
    /// # Errors
    /// The error of aya if Linux refuses the object.
    pub fn load(port: u16, flows: &[u32]) -> Result<Self, Box<dyn Error>> {
        Self::load_for(port, steer::ANY_ADDRESS, &[], flows)
    }

    /// The same for packets from these neighbours to one address.
    ///
    /// # Errors
    /// The error of aya if Linux refuses the object.
    pub fn load_for(
        port: u16,
        local: AddressWords,
        neighbours: &[AddressWords],
        flows: &[u32],
    ) -> Result<Self, Box<dyn Error>> {
        let mut ebpf = EbpfLoader::new()
            .override_global(steer::GLOBAL_PORT, &port, true)
            .override_global(steer::GLOBAL_LOCAL, &local, true)
            .load(OBJECT)?;
        let program: &mut Xdp = ebpf.program_mut(steer::PROGRAM).ok_or("no program")?.try_into()?;
        program.load()?;
        let map = ebpf.map_mut(steer::MAP_FLOWS).ok_or("no flow map")?;
        let mut known: HashMap<_, u32, u32> = map.try_into()?;
        for flow in flows {
            known.insert(flow, 1, 0)?;
        }
        let map = ebpf.map_mut(steer::MAP_NEIGHBOURS).ok_or("no neighbour map")?;
        let mut known: HashMap<_, AddressWords, u32> = map.try_into()?;
        for neighbour in neighbours {
            known.insert(neighbour, 0, 0)?;
        }
        Ok(Self { ebpf, socket: None })
    }

    /// Puts an AF_XDP socket in the slot of queue 0. It is not bound, which suffices for a verdict
    /// that is not applied.
    ///
    /// # Errors
    /// The error of Linux or aya.
    pub fn place_socket(&mut self) -> Result<(), Box<dyn Error>> {
        let socket = socket(AddressFamily::XDP, SocketType::RAW, None)?;
        sockopt::set_xdp_rx_ring_size(&socket, 64)?;
        self.sockets()?.set(0, socket.as_raw_fd(), 0)?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Empties the slot of queue 0.
    ///
    /// # Errors
    /// The error of aya.
    pub fn remove_socket(&mut self) -> Result<(), Box<dyn Error>> {
        self.sockets()?.unset(0)?;
        self.socket = None;
        Ok(())
    }

    fn sockets(&mut self) -> Result<XskMap<&mut aya::maps::MapData>, Box<dyn Error>> {
        Ok(self.ebpf.map_mut(steer::MAP_XSKS).ok_or("no socket map")?.try_into()?)
    }

    /// Steers one frame of at least [`FRAME_BYTES_MIN`] bytes and returns its verdict, after
    /// checking that exactly one counter moved and that the return value fits it.
    ///
    /// # Panics
    /// When it does not, or when Linux refuses to run the program.
    pub fn run(&self, frame: &[u8]) -> Verdict {
        let before = self.counts();
        let returned = self.return_value(frame).expect("BPF_PROG_TEST_RUN");
        let after = self.counts();
        let mut moved = Verdict::ALL.into_iter().filter(|verdict| {
            let index = *verdict as usize;
            assert!(after[index] - before[index] <= 1, "{} counted twice", verdict.name());
            after[index] != before[index]
        });
        let verdict = moved.next().expect("no counter moved");
        assert_eq!(moved.next(), None, "a second counter moved in addition to {}", verdict.name());
        let expected = match verdict.action() {
            Action::Drop => XDP_DROP,
            Action::Pass => XDP_PASS,
            Action::Redirect => XDP_REDIRECT,
        };
        assert_eq!(returned, expected, "return value with verdict {}", verdict.name());
        verdict
    }

    /// Packets by verdict, summed over CPUs.
    ///
    /// # Panics
    /// When the counters cannot be read.
    pub fn counts(&self) -> [u64; Verdict::COUNT as usize] {
        let map = self.ebpf.map(steer::MAP_VERDICTS).expect("the verdict map");
        let map: PerCpuArray<_, u64> = map.try_into().expect("a per-CPU array of u64");
        Verdict::ALL.map(|verdict| map.get(&(verdict as u32), 0).expect("a counter").iter().sum())
    }

    /// The sources that were refused last, one for each CPU.
    ///
    /// # Panics
    /// When they cannot be read.
    pub fn not_neighbours(&self) -> Vec<AddressWords> {
        let map = self.ebpf.map(steer::MAP_NOT_NEIGHBOURS).expect("the map of refused addresses");
        let map: PerCpuArray<_, AddressWords> = map.try_into().expect("a per-CPU array");
        map.get(&0, 0).expect("its entry").iter().copied().collect()
    }

    /// Packets of another version from a neighbour.
    ///
    /// # Panics
    /// When they cannot be read.
    pub fn other_version(&self, neighbour: AddressWords) -> OtherVersion {
        let map = self.ebpf.map(steer::MAP_NEIGHBOURS).expect("the map of neighbours");
        let map: HashMap<_, AddressWords, u32> = map.try_into().expect("a hash map");
        OtherVersion::from_bits(map.get(&neighbour, 0).expect("a neighbour"))
    }

    fn return_value(&self, frame: &[u8]) -> Result<u32, Box<dyn Error>> {
        let program: &Xdp = self.ebpf.program(steer::PROGRAM).ok_or("no program")?.try_into()?;
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::default() };
        Ok(program.test_run(options)?.return_value)
    }
}

/// Linux runs XDP only on frames with at least an Ethernet header, in tests as on an interface.
pub const FRAME_BYTES_MIN: usize = 14;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

static OBJECT: &[u8] = include_bytes_aligned!("../../../ebpf/recoded.bpf.o");
