//! Opening a socket: the ladder of modes, retries on busy queues, and the query for the active
//! mode.
//!
//! The sockets of a UMEM are not independent; [`crate::registry`] has the rules.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use xsk_rs::{
    CompQueue, FillQueue, RxQueue, TxQueue,
    config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig},
};

use crate::{
    error::{XskError, os_error},
    mode::{ModePreference, SocketMode, XdpMode, rungs},
    umem::{RING_ENTRIES, Umem},
};

/// How long binding to a busy queue is retried. Linux tears sockets down asynchronously, so the
/// queue of a process that just ended stays busy for a moment (tens of milliseconds under load).
const BUSY_RETRY: Duration = Duration::from_millis(500);

/// Pause between two attempts: traffic is interrupted for that long, and an attempt costs
/// microseconds.
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Packets that Linux sends per system call in copy mode, if this can be set. Its default of 32
/// costs ten times as many system calls.
const TX_BUDGET: u32 = 512;

/// `XDP_MAX_TX_SKB_BUDGET` of `linux/if_xdp.h`, newer than the libc crate's list.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// A socket's four rings.
pub(crate) type Rings = (TxQueue, RxQueue, FillQueue, CompQueue);

/// Interface and queue that a socket is bound to, and the number of entries in its rings.
#[derive(Copy, Clone)]
pub(crate) struct QueueBinding<'a> {
    pub(crate) interface: &'a str,
    pub(crate) queue: u32,
    pub(crate) receive_entries: u32,
    pub(crate) transmit_entries: u32,
}

impl<'a> QueueBinding<'a> {
    /// Place of a socket on these frames: no more packets can wait in its ring than frames are
    /// lent.
    pub(crate) fn new(umem: &Umem, interface: &'a str, queue: u32) -> QueueBinding<'a> {
        let receive_entries = umem.fill_share().next_power_of_two().clamp(64, RING_ENTRIES);
        QueueBinding { interface, queue, receive_entries, transmit_entries: RING_ENTRIES }
    }

    /// The same with this many entries in the transmit ring.
    pub(crate) fn sending(self, transmit_entries: u32) -> QueueBinding<'a> {
        QueueBinding { transmit_entries, ..self }
    }
}

/// Binds in the best mode available; returns the rings and the fallback reason.
pub(crate) fn bind_best(
    umem: &Umem,
    place: QueueBinding<'_>,
    preference: ModePreference,
    xdp: XdpMode,
) -> Result<(Rings, String), XskError> {
    let (allowed, left_out) = rungs(preference, xdp);
    if let Some((first, mode)) = umem.registry.settled() {
        return join(umem, first, mode, place, allowed, left_out);
    }
    let QueueBinding { interface, queue, .. } = place;
    let mut reason = left_out.to_owned();
    for (index, &mode) in allowed.iter().enumerate() {
        match bind_patiently(umem, place, mode) {
            Ok(rings) => return Ok((rings, reason)),
            Err(error) if mode == SocketMode::ZeroCopy && is_mode_refusal(&error) => {
                if index + 1 == allowed.len() {
                    let (interface, reason) = (interface.to_owned(), error.to_string());
                    return Err(XskError::NoZeroCopy { interface, reason });
                }
                reason = format!("zero copy: the driver refused it ({error})");
            }
            Err(error) => return Err(XskError::from_bind(error, interface, queue)),
        }
    }
    unreachable!("every preference allows at least one mode")
}

/// Binds in the mode of the UMEM's first socket, which Linux imposes.
fn join(
    umem: &Umem,
    first: &str,
    mode: SocketMode,
    place: QueueBinding<'_>,
    allowed: &[SocketMode],
    left_out: &str,
) -> Result<(Rings, String), XskError> {
    let QueueBinding { interface, queue, .. } = place;
    let name = interface.to_owned();
    if umem.registry.is_spent() {
        return Err(XskError::UmemSpent { interface: name });
    }
    if umem.registry.occupies(interface, queue) {
        return Err(XskError::Busy { interface: name, queue });
    }
    if !allowed.contains(&mode) {
        return Err(XskError::MixedModes { interface: name, mode, reason: left_out.to_owned() });
    }
    let reason = match left_out {
        "" if first == interface => String::new(),
        "" => format!("zero copy: frames are shared with `{first}`, which copies"),
        given => given.to_owned(),
    };
    match bind_patiently(umem, place, mode) {
        Ok(rings) => Ok((rings, reason)),
        Err(error) if mode == SocketMode::ZeroCopy && is_mode_refusal(&error) => {
            Err(XskError::MixedModes { interface: name, mode, reason: error.to_string() })
        }
        Err(error) => Err(XskError::from_bind(error, interface, queue)),
    }
}

/// Whether another mode may succeed after zero copy failed like this.
fn is_mode_refusal(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(
            libc::EBUSY
                | libc::EPERM
                | libc::EACCES
                | libc::ENODEV
                | libc::ENXIO
                | libc::ENETDOWN
                | libc::EAFNOSUPPORT
        )
    )
}

/// Binds, and retries while the queue is busy.
fn bind_patiently(
    umem: &Umem,
    place: QueueBinding<'_>,
    mode: SocketMode,
) -> Result<Rings, io::Error> {
    let deadline = Instant::now() + BUSY_RETRY;
    loop {
        match bind(umem, place, mode) {
            Err(error) if is_busy(&error) && Instant::now() < deadline => thread::sleep(BUSY_PAUSE),
            outcome => return outcome,
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

fn bind(umem: &Umem, place: QueueBinding<'_>, mode: SocketMode) -> Result<Rings, io::Error> {
    let name: Interface =
        place.interface.parse().map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let entries = |count| QueueSize::new(count).map_err(io::Error::other);
    let copying = match mode {
        SocketMode::ZeroCopy => BindFlags::XDP_ZEROCOPY,
        SocketMode::Copy => BindFlags::XDP_COPY,
    };
    let config = SocketConfig::builder()
        .rx_queue_size(entries(place.receive_entries)?)
        .tx_queue_size(entries(place.transmit_entries)?)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(copying | BindFlags::XDP_USE_NEED_WAKEUP)
        .build();
    // The error for a descriptor that is not a UMEM.
    let memory = umem.shared().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTSOCK))?;
    // SAFETY: the one condition, that libxdp be inhibited from loading a program, is met.
    let (tx, rx, shared) = unsafe { xsk_rs::Socket::new(config, &memory.xsk, &name, place.queue) }
        .map_err(|error| os_error(&error))?;
    // No rings of its own: this UMEM already has a socket on the same queue.
    let (fill, completion) = shared.ok_or_else(|| io::Error::from_raw_os_error(libc::EBUSY))?;
    Ok((tx, rx, fill, completion))
}

/// Queries the mode that the socket runs in.
pub(crate) fn active_mode(fd: libc::c_int, interface: &str) -> Result<SocketMode, XskError> {
    let mut options = libc::xdp_options { flags: 0 };
    let mut length = size_of::<libc::xdp_options>() as libc::socklen_t;
    // SAFETY: `options` and `length` are valid for writing and `length` states the size of
    // `options`.
    let status = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_XDP,
            libc::XDP_OPTIONS,
            (&raw mut options).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(XskError::Os {
            action: "asking for the socket's mode",
            subject: interface.to_owned(),
            source: io::Error::last_os_error(),
        });
    }
    Ok(match options.flags & libc::XDP_OPTIONS_ZEROCOPY {
        0 => SocketMode::Copy,
        _ => SocketMode::ZeroCopy,
    })
}

/// Allows Linux to send more packets per system call, where supported.
pub(crate) fn raise_tx_budget(fd: libc::c_int) {
    let budget = TX_BUDGET;
    // SAFETY: the value is valid for reading and its size is stated. Older versions refuse the
    // option, which only costs system calls.
    unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_XDP,
            XDP_MAX_TX_SKB_BUDGET,
            (&raw const budget).cast(),
            size_of_val(&budget) as libc::socklen_t,
        );
    }
}
