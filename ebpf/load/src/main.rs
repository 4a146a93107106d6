//! The load of the benchmark and its counter: `load` generates coded packets, several million per
//! second on one core; `count` drops and counts them at the end of the row.
//!
//! `load` is run by BPF_PROG_TEST_RUN on live frames: Linux runs it on one page after the other and
//! sends the redirected frames. It writes the systematic packets of consecutive generations of 16
//! of one shard, and skips randomly lost ones. It is never more than a window ahead of the count of
//! `count`: a closed loop, so that the measured host runs at the highest rate at which it loses
//! nothing.
//!
//! Each shard is sent by a call of its own, whose frames begin as copies of a packet that names the
//! shard; nothing changes that byte. A veth delivers frames sent by XDP to the receive queue with
//! the number of the sending CPU, modulo the queues, so calls on different CPUs reach different
//! queues.
//!
//! Memory ordering: `load` runs on one CPU at a time for each shard and owns the state of that
//! shard. `count` may run on several and adds to the slots of its CPU. `load` and user space read
//! slots and state without ordering: a stale count only makes the window look fuller than it is.

#![no_std]
#![no_main]

use aya_ebpf::{
    bindings::xdp_action,
    helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_redirect},
    macros::{map, xdp},
    maps::Array,
    programs::XdpContext,
};

/// Packets to send. User space sees `[u32; 7]`, in this order.
#[repr(C)]
struct Plan {
    /// Interface to send by, as numbered in the namespace the program runs in.
    ifindex: u32,
    /// Share of packets lost, scaled by 2^32.
    loss: u32,
    /// Packets that may be in flight.
    window: u32,
    /// Packets that come out per generation; 0 means as many as were sent.
    planned: u32,
    /// UDP source port of shard 0.
    port: u32,
    /// CPUs, at most [`CPUS_MAX`].
    cpus: u32,
    /// Nonzero: stop sending.
    stop: u32,
}

/// Send state of one shard. User space sees `[u64; 8]`, in this order. It has a cache line of its
/// own, because shards are sent by different CPUs.
#[repr(C, align(64))]
struct State {
    /// Number of the next packet, lost ones counted: generation * 16 + symbol index.
    next: u64,
    /// Packets sent.
    sent: u64,
    /// Time spent waiting for room in the window.
    waited_nanos: u64,
    /// State of the xorshift generator that draws the losses; never 0.
    random: u64,
    /// Packets that should have come out by now.
    expected: u64,
    /// Packets that had come out at the last check.
    arrived: u64,
    /// Packets given up, because nothing came out for [`PATIENCE_NANOS`].
    given_up: u64,
    /// Time since when the window is full and nothing comes out; 0 otherwise.
    stuck_since: u64,
}

/// Packets of one shard that one CPU received. User space sees `[u64; 8]`. It has a cache line of
/// its own, which is all that the counting CPU shares with the sending one.
#[repr(C, align(64))]
struct Arrived {
    coded: u64,
    /// Packets that a relay recoded.
    recoded: u64,
    _unused: [u64; 6],
}

#[map]
static PLAN: Array<Plan> = Array::with_max_entries(1, 0);

/// All headers of symbol 0 of generation 0 of shard 0, from Ethernet to the symbol index.
#[map]
static HEADERS: Array<[u8; HEADERS_BYTES]> = Array::with_max_entries(1, 0);

/// By shard.
#[map]
static STATE: Array<State> = Array::with_max_entries(SHARDS_MAX, 0);

/// By CPU, and within a CPU by shard.
#[map]
static ARRIVED: Array<Arrived> = Array::with_max_entries(CPUS_MAX * SHARDS_MAX, 0);

/// Generates one packet and sends it, unless the window is full.
#[xdp]
pub fn load(ctx: XdpContext) -> u32 {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + HEADERS_BYTES > end {
        return xdp_action::XDP_ABORTED;
    }
    // SAFETY: these bytes lie within the packet, checked above, and only this program touches the
    // packet while it runs.
    let packet = unsafe { &mut *(start as *mut [u8; HEADERS_BYTES]) };
    let shard = u32::from(packet[SHARD]);
    let (Some(plan), Some(headers), Some(state)) =
        (PLAN.get(0), HEADERS.get(0), STATE.get_ptr_mut(shard))
    else {
        return xdp_action::XDP_ABORTED;
    };
    // SAFETY: a live map value that only this program writes while it runs, on one CPU at a time.
    let state = unsafe { &mut *state };
    if plan.stop != 0 || !has_room(plan, state, shard) {
        return xdp_action::XDP_DROP;
    }
    let number = next_survivor(plan, state);
    let generation = (number / GENERATION_SIZE) as u32;
    // Copies all headers: the page may be reused after others have changed it.
    *packet = *headers;
    write(packet, plan, shard, number);
    state.next = number + 1;
    state.sent += 1;
    state.expected = match plan.planned {
        0 => state.sent,
        planned => u64::from(generation) * u64::from(planned),
    };
    // SAFETY: a helper without pointers; it only records the target.
    unsafe { bpf_redirect(plan.ifindex, 0) as u32 }
}

/// Number of the next packet that is not lost. Losses are independent.
#[inline(always)]
fn next_survivor(plan: &Plan, state: &mut State) -> u64 {
    let mut number = state.next;
    let mut random = state.random;
    for _ in 0..RUN_MAX {
        // Xorshift64* (Vigna 2016), whose high bits are the good ones.
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        if random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32 >= u64::from(plan.loss) {
            break;
        }
        number += 1;
    }
    state.random = random;
    number
}

/// Writes the fields that differ between packets.
#[inline(always)]
fn write(packet: &mut [u8; HEADERS_BYTES], plan: &Plan, shard: u32, number: u64) {
    let port = (plan.port + shard) as u16;
    packet[UDP..UDP + 2].copy_from_slice(&port.to_be_bytes());
    packet[SHARD] = shard as u8;
    let index = (number % GENERATION_SIZE) as u8;
    if u64::from(index) == GENERATION_SIZE - 1 {
        packet[FLAGS] |= FLAG_END;
    }
    // Lost packets are counted, so the link sequence number is the number of the packet.
    packet[CODED + 8..CODED + 12].copy_from_slice(&(number as u32).to_be_bytes());
    let generation = (number / GENERATION_SIZE) as u32;
    packet[CODED + 16..CODED + 20].copy_from_slice(&generation.to_be_bytes());
    packet[INDEX] = index;
}

/// Whether another packet fits the window. If not, waits a little.
#[inline(always)]
fn has_room(plan: &Plan, state: &mut State, shard: u32) -> bool {
    let bound = u64::from(plan.window) + state.given_up;
    if state.expected <= state.arrived + bound {
        return true;
    }
    let before = state.arrived;
    state.arrived = arrived(plan, shard);
    if state.expected <= state.arrived + bound {
        state.stuck_since = 0;
        return true;
    }
    let now = now();
    if state.stuck_since == 0 || state.arrived != before {
        state.stuck_since = now;
    } else if now - state.stuck_since > PATIENCE_NANOS {
        state.given_up = state.expected.saturating_sub(state.arrived);
    }
    for _ in 0..PAUSE_STEPS_MAX {
        if self::now() - now >= PAUSE_NANOS {
            break;
        }
    }
    state.waited_nanos += self::now() - now;
    false
}

/// Packets of a shard that all CPUs have counted.
#[inline(always)]
fn arrived(plan: &Plan, shard: u32) -> u64 {
    let mut sum = 0;
    for cpu in 0..CPUS_MAX {
        if cpu >= plan.cpus {
            break;
        }
        if let Some(slot) = ARRIVED.get_ptr(cpu * SHARDS_MAX + shard) {
            // SAFETY: a live, aligned map value; another CPU may be adding to it.
            sum += unsafe { core::ptr::read_volatile(&raw const (*slot).coded) };
        }
    }
    sum
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// Counts and drops coded packets, passes all others.
#[xdp]
pub fn count(ctx: XdpContext) -> u32 {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + HEADERS_BYTES > end {
        return xdp_action::XDP_PASS;
    }
    // SAFETY: these bytes lie within the packet, checked above.
    let packet = unsafe { &*(start as *const [u8; HEADERS_BYTES]) };
    let is_udp = packet[12..14] == ETHER_TYPE_IPV4 && packet[23] == PROTOCOL_UDP;
    if !is_udp || packet[CODED] != VERSION_AND_TYPE {
        return xdp_action::XDP_PASS;
    }
    let shard = u32::from(packet[SHARD]);
    // SAFETY: a helper without arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    if shard >= SHARDS_MAX {
        return xdp_action::XDP_PASS;
    }
    let Some(slot) = ARRIVED.get_ptr_mut(cpu * SHARDS_MAX + shard) else {
        return xdp_action::XDP_ABORTED;
    };
    // SAFETY: the slot belongs to this CPU, and no other XDP program runs on it meanwhile.
    let slot = unsafe { &mut *slot };
    slot.coded += 1;
    slot.recoded += u64::from(packet[FLAGS] & FLAG_RECODED != 0);
    xdp_action::XDP_DROP
}

/// Symbols per generation.
const GENERATION_SIZE: u64 = 16;
/// Most shards of a flow.
const SHARDS_MAX: u32 = 16;
const UDP: usize = 14 + 20;
const CODED: usize = UDP + 8;
const FLAGS: usize = CODED + 1;
const SHARD: usize = CODED + 3;
/// Last byte of the symbol index.
const INDEX: usize = CODED + 23;
const HEADERS_BYTES: usize = INDEX + 1;
const ETHER_TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_UDP: u8 = 17;
/// Version 2, a packet of a generation.
const VERSION_AND_TYPE: u8 = 0x32;
const FLAG_END: u8 = 0x20;
const FLAG_RECODED: u8 = 0x10;
/// Slots for counting. On a machine with more CPUs, packets that arrive on the others are aborted.
const CPUS_MAX: u32 = 256;
/// Longest run of losses. A longer one has a probability of one in a hundred million at a loss of
/// 10 %. The verifier requires a bound.
const RUN_MAX: u32 = 8;
/// Pause while the window is full: the time of a few packets. Polling more often would take the
/// counter's cache line from the CPU that counts.
const PAUSE_NANOS: u64 = 2_000;
/// More than a pause needs; the verifier requires a bound.
const PAUSE_STEPS_MAX: u32 = 1_000;
/// After this time without any arrival, packets in flight count as lost. Longer than other
/// processes may keep a core from the measured host.
const PATIENCE_NANOS: u64 = 100_000_000;

/// Unreachable: no path here panics, and the verifier would refuse this loop.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The helpers used here need no GPL licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
