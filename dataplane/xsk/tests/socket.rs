//! Sockets on a veth pair in a namespace of their own: real packets through the committed XDP
//! object.

mod common;

#[path = "common/bed.rs"]
mod bed;

#[path = "common/steer.rs"]
mod steer;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::{Duration, Instant},
};

use bed::Bed;
use recoded_wire::frames::{FrameId, Frames, Span};
use recoded_xsk::{
    BURST_FRAMES_MAX, Ethtool, FrameSize, ModePreference, Queues, Received, Socket, SocketMode,
    Umem, XdpMode, XskError,
};
use steer::{PAYLOAD_AT, Steer, write_packet};

const PATIENCE: Duration = Duration::from_secs(5);

fn open(umem: &mut Umem, interface: &str) -> Socket {
    let opened = Socket::open(umem, interface, 0, ModePreference::Auto, XdpMode::Native);
    let (socket, mode, reason) = opened.expect("socket opens");
    assert_eq!(mode, SocketMode::Copy, "veth copies");
    assert!(reason.starts_with("zero copy: "), "the reason is given: {reason}");
    socket
}

/// Queues packet `number`, `bytes` long, from `offset` within a new frame.
fn send(socket: &mut Socket, umem: &mut Umem, number: u32, offset: u16, bytes: u16) {
    let frame = umem.take().expect("a free frame");
    write_packet(umem.bytes_mut(Span { frame, offset, len: bytes }), number);
    assert!(socket.transmit(umem, frame, offset, bytes), "ring has room");
}

fn number(umem: &Umem, packet: Received) -> u32 {
    let Received { frame, offset, len } = packet;
    let bytes = umem.bytes(Span { frame, offset, len });
    let mut expected = vec![0; bytes.len()];
    let number = u32::from_be_bytes(bytes[PAYLOAD_AT + 8..PAYLOAD_AT + 12].try_into().expect("4"));
    write_packet(&mut expected, number);
    assert!(bytes == expected, "packet {number} arrived as it was sent");
    number
}

/// Receives until `count` packets arrived, checks and releases them, and returns their numbers.
fn collect(socket: &mut Socket, umem: &mut Umem, count: usize) -> Vec<u32> {
    let mut burst = Vec::with_capacity(BURST_FRAMES_MAX);
    let (mut seen, start) = (Vec::new(), Instant::now());
    while seen.len() < count && start.elapsed() < PATIENCE {
        socket.receive(umem, &mut burst);
        for &packet in &burst {
            seen.push(number(umem, packet));
            umem.release(packet.frame);
        }
    }
    assert_eq!(seen.len(), count, "statistics {:?}", socket.statistics());
    seen
}

/// Completes until no frame is being sent.
fn settle(socket: &mut Socket, umem: &mut Umem) {
    let start = Instant::now();
    while socket.pending() > 0 && start.elapsed() < PATIENCE {
        socket.flush();
        socket.complete(umem);
    }
    assert_eq!((socket.pending(), socket.unsent()), (0, 0));
}

fn check_sum(umem: &Umem) {
    let gauge = umem.gauge();
    assert_eq!(gauge.free + gauge.fill + gauge.held + gauge.tx, gauge.total, "{gauge:?}");
}

#[test]
fn sockets_sharing_a_umem_bursts_both_ways_arrive_intact_and_return_all_frames() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let mut umem = Umem::new(4096).expect("UMEM");
        let (mut a, mut b) = (open(&mut umem, "a"), open(&mut umem, "b"));
        assert_eq!((a.interface(), a.queue()), ("a", 0));
        let _steer = (Steer::attach("a", &a), Steer::attach("b", &b));
        for round in 0..20 {
            for index in 0..100u32 {
                // Odd offsets and lengths: packets begin wherever the headers happen to.
                let (offset, bytes) = ((index * 7 % 400) as u16, (90 + index * 14) as u16);
                send(&mut a, &mut umem, round * 1000 + index, offset, bytes);
                send(&mut b, &mut umem, round * 1000 + 500 + index, offset, bytes);
            }
            a.flush();
            b.flush();
            let at_b = collect(&mut b, &mut umem, 100);
            let at_a = collect(&mut a, &mut umem, 100);
            assert_eq!(at_b, (round * 1000..round * 1000 + 100).collect::<Vec<_>>());
            assert_eq!(at_a, (round * 1000 + 500..round * 1000 + 600).collect::<Vec<_>>());
            settle(&mut a, &mut umem);
            settle(&mut b, &mut umem);
            check_sum(&umem);
            assert_eq!((umem.gauge().held, umem.gauge().tx), (0, 0));
        }
        for socket in [&mut a, &mut b] {
            let counted = socket.statistics();
            assert_eq!((counted.tx_invalid_descriptors, counted.rx_invalid_descriptors), (0, 0));
            assert_eq!((counted.rx_dropped, counted.rx_ring_full), (0, 0));
        }
    });
}

#[test]
fn sockets_with_umems_of_their_own_bursts_arrive_intact() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let (mut left, mut right) = (Umem::new(512).expect("UMEM"), Umem::new(512).expect("UMEM"));
        let (mut a, mut b) = (open(&mut left, "a"), open(&mut right, "b"));
        let _steer = (Steer::attach("a", &a), Steer::attach("b", &b));
        b.receive(&mut right, &mut Vec::new());
        for round in 0..100 {
            (0..50).for_each(|index| send(&mut a, &mut left, round * 50 + index, 128, 1400));
            a.flush();
            collect(&mut b, &mut right, 50);
            settle(&mut a, &mut left);
        }
        assert_eq!((left.gauge().held, left.gauge().tx), (0, 0));
        assert_eq!((right.gauge().held, right.gauge().tx), (0, 0));
    });
}

#[test]
fn frame_received_then_sent_with_longer_headers_is_kept_by_its_other_reference() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let mut umem = Umem::new(256).expect("UMEM");
        let (mut a, mut b) = (open(&mut umem, "a"), open(&mut umem, "b"));
        let _steer = (Steer::attach("a", &a), Steer::attach("b", &b));
        send(&mut a, &mut umem, 1, 300, 200);
        a.flush();
        let packet = receive_one(&mut b, &mut umem);
        assert_eq!((packet.offset, packet.len), (256, 200), "behind Linux's headroom");
        // Sent back from 40 bytes earlier, while the batch table would keep the payload.
        let (offset, len) = (packet.offset - 40, packet.len + 40);
        write_packet(umem.bytes_mut(Span { frame: packet.frame, offset, len }), 2);
        umem.retain(packet.frame);
        assert!(b.transmit(&mut umem, packet.frame, offset, len));
        assert!(umem.is_transmitting(packet.frame));
        b.flush();
        assert_eq!(collect(&mut a, &mut umem, 1), [2]);
        settle(&mut b, &mut umem);
        settle(&mut a, &mut umem);
        assert!(!umem.is_transmitting(packet.frame));
        assert_eq!(umem.gauge().held, 1);
        assert_eq!(number(&umem, Received { offset, len, ..packet }), 2);
        umem.release(packet.frame);
        assert_eq!((umem.gauge().held, umem.gauge().tx), (0, 0));
    });
}

fn receive_one(socket: &mut Socket, umem: &mut Umem) -> Received {
    let (mut burst, start) = (Vec::with_capacity(1), Instant::now());
    while socket.receive(umem, &mut burst) == 0 && start.elapsed() < PATIENCE {}
    *burst.first().expect("a packet arrives")
}

#[test]
fn transmit_ring_full_refuses_and_releases() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let (mut far, mut umem) = (Umem::new(256).expect("UMEM"), Umem::new(8192).expect("UMEM"));
        let (mut a, mut b) = (open(&mut umem, "a"), open(&mut far, "b"));
        let _steer = Steer::attach("a", &a);
        (0..2048).for_each(|index| send(&mut a, &mut umem, index, 128, 64));
        let before = umem.gauge();
        assert_eq!((before.tx, a.pending()), (2048, 2048));
        let frame = umem.take().expect("a free frame");
        assert!(!a.transmit(&mut umem, frame, 128, 64));
        assert_eq!(umem.gauge(), before);
        // Incoming packets are received meanwhile.
        send(&mut b, &mut far, 7, 128, 100);
        settle(&mut b, &mut far);
        assert_eq!(collect(&mut a, &mut umem, 1), [7]);
        assert_eq!(a.pending(), 2048, "the ring is still full");
        // No socket receives them; Linux sends and completes them nevertheless.
        settle(&mut a, &mut umem);
        assert_eq!(umem.gauge().tx, 0);
    });
}

#[test]
fn receive_with_frames_held_back_keeps_a_quarter_for_sending_and_recovers() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let (mut far, mut umem) = (Umem::new(4096).expect("UMEM"), Umem::new(256).expect("UMEM"));
        let (mut a, mut b) = (open(&mut far, "a"), open(&mut umem, "b"));
        let _steer = (Steer::attach("a", &a), Steer::attach("b", &b));
        let (mut held, mut burst) = (Vec::new(), Vec::with_capacity(BURST_FRAMES_MAX));
        for round in 0..40 {
            (0..16).for_each(|index| send(&mut a, &mut far, round * 16 + index, 128, 100));
            settle(&mut a, &mut far);
            b.receive(&mut umem, &mut burst);
            held.extend(burst.iter().map(|packet| packet.frame));
            check_sum(&umem);
            assert!(umem.gauge().free >= 64, "{:?}", umem.gauge());
        }
        assert_eq!(umem.gauge().fill, 0, "Linux was left without frames");
        assert!(b.statistics().rx_fill_ring_empty > 0 || b.statistics().rx_dropped > 0);
        held.into_iter().for_each(|frame: FrameId| umem.release(frame));
        b.receive(&mut umem, &mut burst);
        send(&mut a, &mut far, 7, 128, 100);
        settle(&mut a, &mut far);
        assert_eq!(collect(&mut b, &mut umem, 1), [7]);
    });
}

#[test]
fn packet_longer_than_a_frame_holds_is_dropped_and_counted() {
    if !common::have_root() {
        return;
    }
    let bed = Bed::new();
    bed.ip(&["link", "set", "dev", "a", "mtu", "2000"]);
    bed.ip(&["link", "set", "dev", "b", "mtu", "2000"]);
    bed.run(|| {
        let mut umem = Umem::new(256).expect("UMEM");
        let (mut a, mut b) = (open(&mut umem, "a"), open(&mut umem, "b"));
        let _steer = (Steer::attach("a", &a), Steer::attach("b", &b));
        send(&mut a, &mut umem, 1, 0, FrameSize::SMALL.receive_bytes_max() as u16 + 1);
        send(&mut a, &mut umem, 2, 0, FrameSize::SMALL.receive_bytes_max() as u16);
        settle(&mut a, &mut umem);
        assert_eq!(collect(&mut b, &mut umem, 1), [2]);
        assert_eq!(b.statistics().rx_dropped, 1);
    });
}

#[test]
fn rounds_after_open_do_not_allocate() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let mut umem = Umem::new(1024).expect("UMEM");
        let (mut a, mut b) = (open(&mut umem, "a"), open(&mut umem, "b"));
        let _steer = (Steer::attach("a", &a), Steer::attach("b", &b));
        let mut burst = Vec::with_capacity(BURST_FRAMES_MAX);
        let (mut arrived, before) = (0, allocations());
        for number in 0..200 {
            (0..30).for_each(|_| send(&mut a, &mut umem, number, 128, 300));
            a.flush();
            arrived += b.receive(&mut umem, &mut burst);
            for packet in &burst {
                umem.release(packet.frame);
            }
            a.complete(&mut umem);
            b.statistics();
        }
        assert_eq!(allocations(), before);
        assert!(arrived > 5000, "packets did flow: {arrived}");
    });
}

#[test]
fn queue_reopened_at_once_works_and_opened_twice_is_busy() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        for _ in 0..5 {
            let mut umem = Umem::new(256).expect("UMEM");
            let (_a, b) = (open(&mut umem, "a"), open(&mut umem, "b"));
            let same = Socket::open(&mut umem, "a", 0, ModePreference::Auto, XdpMode::Native);
            assert!(matches!(same, Err(XskError::Busy { .. })), "{same:?}");
            let same = Socket::open(&mut umem, "b", 0, ModePreference::Auto, XdpMode::Native);
            assert!(matches!(same, Err(XskError::Busy { .. })), "{same:?}");
            drop(b);
            open(&mut umem, "b");
        }
        let mut umem = Umem::new(256).expect("UMEM");
        let _a = open(&mut umem, "a");
        let mut other = Umem::new(256).expect("UMEM");
        let second = Socket::open(&mut other, "a", 0, ModePreference::Auto, XdpMode::Native);
        assert!(matches!(second, Err(XskError::Busy { queue: 0, .. })), "{second:?}");
        // The refusal leaves the UMEM usable for another queue; without any socket it is spent.
        drop(open(&mut other, "b"));
        let spent = Socket::open(&mut other, "b", 0, ModePreference::Auto, XdpMode::Native);
        assert!(matches!(spent, Err(XskError::UmemSpent { .. })), "{spent:?}");
    });
}

#[test]
fn queue_released_while_waiting_is_taken() {
    if !common::have_root() {
        return;
    }
    let bed = Bed::new();
    bed.run(|| {
        let mut first = Umem::new(256).expect("UMEM");
        let socket = open(&mut first, "a");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                drop((socket, first));
            });
            open(&mut Umem::new(256).expect("UMEM"), "a");
        });
    });
}

#[test]
fn umem_dropped_before_its_sockets_is_harmless() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let mut umem = Umem::new(256).expect("UMEM");
        let (mut a, mut b) = (open(&mut umem, "a"), open(&mut umem, "b"));
        drop(umem);
        assert_eq!(a.statistics(), b.statistics());
        drop((b, a));
        drop(open(&mut Umem::new(256).expect("UMEM"), "a"));
    });
}

#[test]
fn socket_used_with_another_umem_panics() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let (mut own, mut other) = (Umem::new(256).expect("UMEM"), Umem::new(256).expect("UMEM"));
        let mut a = open(&mut own, "a");
        let misuse = std::panic::AssertUnwindSafe(|| a.receive(&mut other, &mut Vec::new()));
        assert!(std::panic::catch_unwind(misuse).is_err());
    });
}

/// The first socket took half of the frames, and the eighth found none.
#[test]
fn sockets_on_eight_queues_share_the_frames_of_one() {
    if !common::have_root() {
        return;
    }
    let bed = Bed::new();
    let queues = ["numrxqueues", "8", "numtxqueues", "8"];
    let peer = ["type", "veth", "peer", "name", "d"];
    bed.ip(&[&["link", "add", "name", "c"], &queues[..], &peer[..], &queues[..]].concat());
    bed.ip(&["link", "set", "dev", "c", "up"]);
    bed.run(|| {
        let ethtool = Ethtool::open().expect("a socket");
        let of = |interface| ethtool.queues(interface).expect("the driver answers");
        assert_eq!(of("a"), Queues::ONE);
        assert_eq!(of("c"), Queues { receive: 8, transmit: 8 });
        assert!(ethtool.queues("nowhere").is_err());
        let (auto, native) = (ModePreference::Auto, XdpMode::Native);
        for frames in [64, 256, 4096] {
            let mut umem = Umem::new(frames).expect("UMEM");
            umem.expect_sockets(8);
            let mut sockets: Vec<Socket> = (0..8)
                .map(|queue| match queue {
                    0 => Socket::open(&mut umem, "c", queue, auto, native).expect("opens").0,
                    _ => {
                        let opened =
                            Socket::open_for_receiving(&mut umem, "c", queue, auto, native);
                        opened.expect("opens").0
                    }
                })
                .collect();
            let mut burst = Vec::with_capacity(BURST_FRAMES_MAX);
            for socket in &mut sockets {
                assert_eq!(socket.receive(&mut umem, &mut burst), 0);
            }
            assert_eq!(umem.gauge().fill, frames / 2, "half, in equal shares");
            check_sum(&umem);
        }
    });
}

fn refusal(interface: &str, queue: u32, preference: ModePreference) -> XskError {
    let mut umem = Umem::new(256).expect("UMEM");
    Socket::open(&mut umem, interface, queue, preference, XdpMode::Native).expect_err("refused")
}

#[test]
fn open_that_cannot_work_says_why_and_what_helps() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let missing = refusal("nowhere", 0, ModePreference::Auto);
        assert!(matches!(missing, XskError::NoSuchInterface { .. }), "{missing}");
        let queue = refusal("a", 1, ModePreference::Native);
        assert!(matches!(queue, XskError::NoSuchQueue { queue: 1, .. }), "{queue}");
        let queue = refusal("a", 1, ModePreference::Auto);
        assert!(matches!(queue, XskError::NoSuchQueue { queue: 1, .. }), "{queue}");
        let mode = refusal("a", 0, ModePreference::ZeroCopy);
        assert!(matches!(mode, XskError::NoZeroCopy { .. }), "{mode}");
        for error in [missing, queue, mode] {
            assert!(error.to_string().contains(": "), "names the cure: {error}");
        }
    });
}

#[test]
fn umem_without_privilege_is_not_permitted() {
    if !common::have_root() {
        return;
    }
    let error = std::thread::spawn(|| {
        // SAFETY: plain integers; the raw call changes the calling thread only.
        let status = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(status, 0);
        Umem::new(256).expect_err("refused")
    });
    let error = error.join().expect("thread ends");
    assert!(matches!(error, XskError::NotPermitted), "{error}");
}

#[test]
fn generic_mode_names_its_reason() {
    if !common::have_root() {
        return;
    }
    Bed::new().run(|| {
        let mut umem = Umem::new(256).expect("UMEM");
        let opened = Socket::open(&mut umem, "a", 0, ModePreference::Auto, XdpMode::Generic);
        let (_socket, mode, reason) = opened.expect("opens");
        assert_eq!((mode, reason.as_str()), (SocketMode::Copy, "zero copy: needs native XDP"));
    });
}

/// Counts the allocations of each thread, so that tests running in parallel do not interfere.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

// SAFETY: all calls are passed to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
