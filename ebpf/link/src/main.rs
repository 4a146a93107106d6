//! Programs of the test bed: a lossy link, and two XDP programs that pass or forward everything.
//!
//! `link` is a tc classifier for the clsact ingress of one side of an emulated link. It drops
//! packets by a Gilbert-Elliott chain and hands the rest to the other side's interface, whose
//! egress queue shapes the rate. One loaded instance serves one direction; load the object again
//! for the other. Loss applies to IPv4 and IPv6; packets for neighbour resolution (ARP, neighbour
//! and multicast listener discovery) are neither dropped nor counted, and neither are other non-IP
//! packets.
//!
//! The chain, one step per packet, before the packet's own fate is drawn:
//! ```text
//!            p_good_to_bad
//!     good  --------------->  bad        a packet is lost with probability loss_good in the good
//!           <---------------             state and loss_bad in the bad one
//!            p_bad_to_good
//! ```
//! Independent losses with probability p: `p_good_to_bad = 0`, `loss_good = p`.
//!
//! Memory ordering: counters are per CPU and exact. The chain's state is one plain word shared by
//! all CPUs; two CPUs that send in one direction at once may step the chain from the same state,
//! which changes no probability. Packets are counted as seen here: a merged one (GSO, GRO) is lost
//! as a whole, so disable merging on the interfaces in front; `COUNTER_MERGED` counts merged
//! packets.

#![no_std]
#![no_main]

use aya_ebpf::{
    bindings::{TC_ACT_OK, TC_ACT_SHOT, xdp_action},
    helpers::generated::{bpf_get_prandom_u32, bpf_redirect},
    macros::{classifier, map, xdp},
    maps::{Array, DevMap, PerCpuArray},
    programs::{TcContext, XdpContext},
};

/// Parameters of one direction. Probabilities are scaled by 2^32, and `u32::MAX` means always.
/// User space sees `[u32; 5]`, in this order.
#[repr(C)]
struct Link {
    p_good_to_bad: u32,
    p_bad_to_good: u32,
    loss_bad: u32,
    loss_good: u32,
    /// Interface that sends the surviving packets; 0 hands them to this host's stack.
    out_ifindex: u32,
}

/// State of the chain and the outcome of the previous packet.
#[repr(C)]
struct State {
    bad: u32,
    dropped: u32,
}

/// Index 0: the parameters. May be written while packets flow.
#[map]
static LINK: Array<Link> = Array::with_max_entries(1, 0);

/// Index 0: the chain.
#[map]
static STATE: Array<State> = Array::with_max_entries(1, 0);

/// Packets, by the indexes `COUNTER_*`.
#[map]
static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTERS_MAX, 0);

/// Packets subject to loss.
const COUNTER_SEEN: u32 = 0;
/// Packets dropped.
const COUNTER_DROPPED: u32 = 1;
/// Packets dropped whose predecessor was dropped too.
const COUNTER_DROPPED_AFTER_DROP: u32 = 2;
/// Packets seen that were several packets merged into one; loss is then not per packet.
const COUNTER_MERGED: u32 = 3;
const COUNTERS_MAX: u32 = 4;

/// Entry point of the classifier.
#[classifier]
pub fn link(ctx: TcContext) -> i32 {
    let (Some(link), Some(state)) = (LINK.get(0), STATE.get_ptr_mut(0)) else {
        return TC_ACT_SHOT;
    };
    if is_subject(&ctx) {
        count(COUNTER_SEEN);
        // SAFETY: the context of a running classifier.
        if unsafe { (*ctx.skb.skb).gso_segs } > 1 {
            count(COUNTER_MERGED);
        }
        // SAFETY: a live map value; the module's "Memory ordering" covers sharing it.
        if unsafe { lose(link, &mut *state) } {
            return TC_ACT_SHOT;
        }
    }
    if link.out_ifindex == 0 {
        return TC_ACT_OK;
    }
    // SAFETY: a helper without pointers; it only records the target.
    unsafe { bpf_redirect(link.out_ifindex, 0) as i32 }
}

/// Steps the chain and draws the fate of one packet.
#[inline(always)]
fn lose(link: &Link, state: &mut State) -> bool {
    let leave = if state.bad == 0 { link.p_good_to_bad } else { link.p_bad_to_good };
    if chance(leave) {
        state.bad ^= 1;
    }
    let lost = chance(if state.bad == 0 { link.loss_good } else { link.loss_bad });
    if lost {
        count(COUNTER_DROPPED);
        if state.dropped != 0 {
            count(COUNTER_DROPPED_AFTER_DROP);
        }
    }
    state.dropped = lost.into();
    lost
}

/// Whether loss applies to this packet.
#[inline(always)]
fn is_subject(ctx: &TcContext) -> bool {
    // SAFETY: the context of a running classifier.
    let protocol = unsafe { (*ctx.skb.skb).protocol } as u16;
    match u16::from_be(protocol) {
        ETHER_TYPE_IPV4 => true,
        ETHER_TYPE_IPV6 => match ctx.load::<u8>(ETHERNET_BYTES + 6) {
            // Multicast listener discovery carries a router alert in a hop-by-hop header.
            Ok(EXTENSION_HOP_BY_HOP) => false,
            Ok(PROTOCOL_ICMPV6) => !matches!(
                ctx.load::<u8>(ETHERNET_BYTES + IPV6_BYTES),
                Ok(NEIGHBOUR_DISCOVERY_FIRST..=NEIGHBOUR_DISCOVERY_LAST)
            ),
            _ => true,
        },
        _ => false,
    }
}

/// True with the given probability.
#[inline(always)]
fn chance(scaled: u32) -> bool {
    // SAFETY: a helper without arguments.
    let draw = unsafe { bpf_get_prandom_u32() };
    draw < scaled || scaled == u32::MAX
}

#[inline(always)]
fn count(index: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(index) {
        // SAFETY: this CPU's copy of a live map value; classifiers run with bottom halves disabled,
        // so nothing else on this CPU writes to it meanwhile.
        unsafe { *counter += 1 };
    }
}

/// Passes every packet. Linux delivers packets that XDP or AF_XDP sends into a veth only if the
/// receiving side polls. An attached XDP program, such as this one, makes it poll.
#[xdp]
pub fn pass(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_PASS
}

/// Index 0: destination and source MAC address that `forward` writes.
#[map]
static MACS: Array<[u8; MACS_BYTES]> = Array::with_max_entries(1, 0);

/// Index 0: the interface that `forward` sends to.
#[map]
static DEVICES: DevMap = DevMap::with_max_entries(1, 0);

/// Forwards IPv4 with new MAC addresses and nothing else: the minimum of a relay in XDP, and the
/// bound that the benchmark compares with. Other packets pass.
#[xdp]
pub fn forward(ctx: XdpContext) -> u32 {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + ETHERNET_BYTES > end {
        return xdp_action::XDP_PASS;
    }
    let header = start as *mut [u8; ETHERNET_BYTES];
    // SAFETY: the Ethernet header lies within the packet, checked above, and only this program
    // touches the packet while it runs.
    let header = unsafe { &mut *header };
    let Some(macs) = MACS.get(0) else {
        return xdp_action::XDP_ABORTED;
    };
    if header[MACS_BYTES..] != ETHER_TYPE_IPV4.to_be_bytes() {
        return xdp_action::XDP_PASS;
    }
    header[..MACS_BYTES].copy_from_slice(macs);
    DEVICES.redirect(0, xdp_action::XDP_DROP.into()).unwrap_or(xdp_action::XDP_DROP)
}

/// Two MAC addresses, the part of the Ethernet header in front of the EtherType.
const MACS_BYTES: usize = 12;
const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;
/// At clsact ingress the outer VLAN tag, if any, has moved out of the packet bytes.
const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
const EXTENSION_HOP_BY_HOP: u8 = 0;
const PROTOCOL_ICMPV6: u8 = 58;
/// Router solicitation to redirect, RFC 4861 section 4.
const NEIGHBOUR_DISCOVERY_FIRST: u8 = 133;
const NEIGHBOUR_DISCOVERY_LAST: u8 = 137;

/// Unreachable: no path here panics, and the verifier would refuse this loop.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The helpers used here need no GPL licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
