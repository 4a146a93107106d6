//! XDP steering program: coded packets to the AF_XDP socket of their queue, the rest to Linux.
//!
//! Place on the path: the first code that sees a received packet. The decision itself is
//! `recoded_wire::steer::decide`, which is tested in user space; here it gets packet memory to read
//! ([`Packet`]), the flow table, the sockets and the counters. Limits: linear packets only (no
//! `xdp.frags`), 64 queues, 1024 flows and neighbours. The packet is never modified.

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

use aya_ebpf::{
    bindings::xdp_action,
    macros::{map, xdp},
    maps::{HashMap, PerCpuArray, XskMap},
    programs::XdpContext,
};
use recoded_wire::DEFAULT_PORT;
use recoded_wire::other_version::OtherVersion;
use recoded_wire::packet::AddressWords;
use recoded_wire::steer::{
    ANY_ADDRESS, Action, FLOWS_MAX, NEIGHBOURS_MAX, Tables, Verdict, XSKS_MAX, decide,
};

use crate::packet::Packet;

mod packet;

/// Receive queue index -> AF_XDP socket.
#[map]
static XSKS: XskMap = XskMap::with_max_entries(XSKS_MAX, 0);

/// Flow id, host order -> reserved.
#[map]
static FLOWS: HashMap<u32, u32> = HashMap::with_max_entries(FLOWS_MAX, 0);

/// Address of a neighbour -> its packets of another version.
#[map]
static NEIGHBOURS: HashMap<AddressWords, u32> = HashMap::with_max_entries(NEIGHBOURS_MAX, 0);

/// Verdict -> packets.
#[map]
static VERDICTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Verdict::COUNT, 0);

/// Source address of the last packet from a non-neighbour.
#[map]
static NOT_NEIGHBOURS: PerCpuArray<AddressWords> = PerCpuArray::with_max_entries(1, 0);

/// UDP destination port of coded packets; the loader overrides it before verification.
#[unsafe(no_mangle)]
static PORT: u16 = DEFAULT_PORT;

/// Local address; the loader overrides it, too.
#[unsafe(no_mangle)]
static LOCAL: AddressWords = ANY_ADDRESS;

/// Entry point: steers one packet.
#[xdp]
pub fn recoded(ctx: XdpContext) -> u32 {
    let mut verdict = decide(&Packet::new(&ctx), &Maps);
    if verdict.action() == Action::Redirect && !redirect(&ctx) {
        verdict = Verdict::DropNoSocket;
    }
    count(verdict);
    match verdict.action() {
        Action::Redirect => xdp_action::XDP_REDIRECT,
        Action::Pass => xdp_action::XDP_PASS,
        Action::Drop => xdp_action::XDP_DROP,
    }
}

/// The maps that user space filled.
struct Maps;

impl Tables for Maps {
    #[inline(always)]
    fn port(&self) -> u16 {
        // SAFETY: PORT is a valid static. The volatile read keeps the compiler from folding the
        // value that it has at build time.
        unsafe { core::ptr::read_volatile(&raw const PORT) }
    }

    #[inline(always)]
    fn local(&self) -> AddressWords {
        // SAFETY: as for PORT.
        unsafe { core::ptr::read_volatile(&raw const LOCAL) }
    }

    #[inline(always)]
    fn is_neighbour(&self, source: AddressWords) -> bool {
        // SAFETY: the reference is only compared with null; a concurrent update of the entry, the
        // hazard of this call, is never observed.
        let is_one = unsafe { NEIGHBOURS.get(source) }.is_some();
        if !is_one && let Some(last) = NOT_NEIGHBOURS.get_ptr_mut(0) {
            // SAFETY: as for the counters, below.
            unsafe { *last = source };
        }
        is_one
    }

    #[inline(always)]
    fn is_known(&self, flow: u32) -> bool {
        // SAFETY: as for NEIGHBOURS.
        unsafe { FLOWS.get(flow) }.is_some()
    }

    #[inline(always)]
    fn count_other_version(&self, source: AddressWords, first: u8) {
        if let Some(noted) = NEIGHBOURS.get_ptr_mut(source) {
            // SAFETY: the pointer is a live map value. Of updates on several CPUs at once, one may
            // be lost.
            unsafe { *noted = OtherVersion::from_bits(*noted).counted(first).bits() };
        }
    }
}

/// Names the socket of this queue as the target; returns false if the queue has none.
#[inline(always)]
fn redirect(ctx: &XdpContext) -> bool {
    XSKS.redirect(ctx.rx_queue_index(), xdp_action::XDP_DROP.into()).is_ok()
}

#[inline(always)]
fn count(verdict: Verdict) {
    if let Some(counter) = VERDICTS.get_ptr_mut(verdict as u32) {
        // SAFETY: the pointer is this CPU's copy of a live map value, and XDP runs to completion
        // on its CPU (softirq), so nothing else writes to it meanwhile.
        unsafe { *counter += 1 };
    }
}

/// Unreachable: the decision has no panicking path, and the verifier would refuse this loop.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The helpers used here need no GPL licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
