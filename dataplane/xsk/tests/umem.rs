//! The UMEM as memory: access rules, gathering, limits.

mod common;

use recoded_wire::frames::{FrameId, Frames, GATHER_MAX, Span};
use recoded_xsk::{FrameSize, ModePreference, Socket, Umem, XdpMode, XskError};

fn span(frame: FrameId, offset: u16, len: u16) -> Span {
    Span { frame, offset, len }
}

#[test]
fn umem_frame_written_at_any_offset_reads_back() {
    if !common::have_root() {
        return;
    }
    let mut umem = Umem::new(64).expect("UMEM");
    assert_eq!(umem.frame_bytes(), FrameSize::SMALL.bytes());
    let frames: Vec<FrameId> = std::iter::from_fn(|| umem.take()).collect();
    assert_eq!(frames.len(), 64);
    for (&frame, byte) in frames.iter().zip(1u8..) {
        umem.bytes_mut(span(frame, 0, FrameSize::SMALL.bytes() as u16)).fill(byte);
    }
    for (&frame, byte) in frames.iter().zip(1u8..) {
        for (offset, len) in [(0, 2048), (1, 1), (130, 60), (2047, 1), (2048, 0)] {
            assert!(umem.bytes(span(frame, offset, len)).iter().all(|&seen| seen == byte));
        }
    }
    assert_eq!(umem.gauge().held, 64);
    frames.into_iter().for_each(|frame| umem.release(frame));
    assert_eq!(umem.gauge().free, 64);
}

#[test]
fn umem_with_disjoint_full_width_writes_all_destinations() {
    if !common::have_root() {
        return;
    }
    let mut umem = Umem::new(2 * GATHER_MAX as u32).expect("UMEM");
    let mut take = |count| (0..count).filter_map(|_| umem.take()).collect::<Vec<_>>();
    let (from, to) = (take(GATHER_MAX), take(GATHER_MAX));
    for (&frame, index) in from.iter().zip(0u16..) {
        umem.bytes_mut(span(frame, index, 100)).fill(index as u8);
    }
    let sources: Vec<Span> =
        from.iter().zip(0..).map(|(&frame, at)| span(frame, at, 100)).collect();
    let targets: Vec<Span> =
        to.iter().zip(0..).map(|(&frame, at)| span(frame, 300 - at, 100)).collect();
    let count = umem.with_disjoint(&sources, &targets, |sources, targets| {
        for (target, source) in targets.iter_mut().zip(sources) {
            target.copy_from_slice(source);
        }
        targets.len()
    });
    assert_eq!(count, GATHER_MAX);
    for (&target, index) in targets.iter().zip(0u16..) {
        assert!(umem.bytes(target).iter().all(|&seen| seen == index as u8));
    }
    // A source may occur twice, and an empty list of spans is valid.
    umem.with_disjoint(&[sources[0], sources[0]], &[], |sources, targets| {
        assert_eq!((sources[0], targets.len()), (sources[1], 0));
    });
}

/// The message of the panic of `work`.
fn panics(work: impl FnOnce()) -> String {
    let cause = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).expect_err("no panic");
    cause.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn umem_broken_invariants_panic() {
    if !common::have_root() {
        return;
    }
    let mut umem = Umem::new(64).expect("UMEM");
    let (one, two) = (umem.take().expect("free"), umem.take().expect("free"));
    let (first, again, other) = (span(one, 0, 64), span(one, 128, 64), span(two, 0, 64));
    let overlap = panics(|| umem.with_disjoint(&[other], &[first, again], |_, _| ()));
    assert!(overlap.contains("is a destination twice"), "{overlap}");
    let overlap = panics(|| umem.with_disjoint(&[again], &[first], |_, _| ()));
    assert!(overlap.contains("is source and destination"), "{overlap}");
    let leaves = panics(|| _ = umem.bytes(span(one, 2000, 49)));
    assert!(leaves.contains("leaves its frame"), "{leaves}");
    let outside = panics(|| _ = umem.bytes(span(FrameId(64), 0, 1)));
    assert!(outside.contains("is outside the UMEM"), "{outside}");
    umem.release(two);
    let freed = panics(|| _ = umem.bytes(other));
    assert!(freed.contains("is read but not held"), "{freed}");
    let freed = panics(|| umem.with_disjoint(&[first], &[other], |_, _| ()));
    assert!(freed.contains("is written but shared"), "{freed}");
}

#[test]
fn umem_absurd_frame_count_is_refused_with_the_range() {
    for frames in [0, 63, u32::MAX] {
        let error = Umem::new(frames).expect_err("out of range");
        assert!(matches!(error, XskError::FrameCount { min: 64, .. }), "{error}");
    }
}

/// Memory that no AF_XDP socket shares needs no privilege, and has the same rules.
#[test]
fn unshared_frames_are_as_others_and_take_no_xdp_socket() {
    let mut umem = Umem::unshared(64, FrameSize::SMALL).expect("memory");
    let frames: Vec<FrameId> = std::iter::from_fn(|| umem.take()).collect();
    assert_eq!(frames.len(), 64);
    for (&frame, byte) in frames.iter().zip(1u8..) {
        assert!(umem.bytes(span(frame, 0, 2048)).iter().all(|&seen| seen == 0));
        umem.bytes_mut(span(frame, 0, 2048)).fill(byte);
    }
    for (&frame, byte) in frames.iter().zip(1u8..) {
        assert!(umem.bytes(span(frame, 0, 2048)).iter().all(|&seen| seen == byte));
    }
    umem.begin_transmit(frames[0]);
    assert!(umem.is_transmitting(frames[0]) && umem.gauge().tx == 1);
    umem.end_transmit(frames[0]);
    frames[1..].iter().for_each(|frame| umem.release(*frame));
    assert_eq!((umem.gauge().free, umem.gauge().held), (64, 0));
    // A quarter is left for sending and decoding.
    assert_eq!(std::iter::from_fn(|| umem.take_for_receiving()).count(), 48);
    let opened = Socket::open(&mut umem, "lo", 0, ModePreference::Generic, XdpMode::Generic);
    assert!(opened.is_err(), "its memory is not Linux's");
}
