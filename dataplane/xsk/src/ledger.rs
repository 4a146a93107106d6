//! Frame accounting: the place of each frame and its references. No memory, no FFI.
//!
//! ```text
//!            take                    begin_transmit
//!   free -----------------> held ----------------------> tx
//!    |  ^  release (last)    ^  <-- end_transmit, --------+
//!    |  +--------------------+      references left       |
//!    |  ^                    |                            |
//!    |  +------------------------ end_transmit (last) ----+
//!    |  lend                 | receive
//!    +------------> fill ----+
//! ```
//!
//! A frame in a transmit ring counts as `tx` even while others hold references to it, so `free +
//! fill + held + tx = total` always. Calls that break the protocol (releasing a free frame,
//! completing one that was never sent) are faults of this crate or its caller, not of any input:
//! they panic. All operations but [`Ledger::abandon`] are O(1); nothing allocates after
//! [`Ledger::new`].

/// Frames in each place; the four sum to `total`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FrameGauge {
    /// All frames of the UMEM.
    pub total: u32,
    /// Not referenced, not lent, not transmitting.
    pub free: u32,
    /// Lent to Linux for packets to come (fill ring, driver, or receive ring before it is read).
    pub fill: u32,
    /// Referenced by the worker only: batches, packets being built.
    pub held: u32,
    /// In a transmit ring or being sent, whether or not the worker refers to them as well.
    pub tx: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Slot {
    /// All references, those of transmit rings included. Zero when free or lent.
    references: u16,
    /// The part of them held by transmit rings.
    transmits: u16,
    /// Lent for receiving.
    lent: bool,
}

const FREE: Slot = Slot { references: 0, transmits: 0, lent: false };

/// The places and references of a UMEM's frames.
#[derive(Debug)]
pub struct Ledger {
    slots: Vec<Slot>,
    /// Free frames, used last in first out: the frame freed last is the likeliest to be in cache.
    free: Vec<u32>,
    lent: u32,
    transmitting: u32,
}

impl Ledger {
    /// A ledger of `total` free frames.
    pub fn new(total: u32) -> Self {
        Ledger {
            slots: vec![FREE; total as usize],
            free: (0..total).rev().collect(),
            lent: 0,
            transmitting: 0,
        }
    }

    /// Frames in each place.
    pub fn gauge(&self) -> FrameGauge {
        let (total, free) = (self.slots.len() as u32, self.free.len() as u32);
        let held = total - free - self.lent - self.transmitting;
        FrameGauge { total, free, fill: self.lent, held, tx: self.transmitting }
    }

    /// Number of all frames.
    pub fn total(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Number of free frames.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// free -> held, with one reference; `None` when no frame is free.
    pub fn take(&mut self) -> Option<u32> {
        let frame = self.free.pop()?;
        self.slots[frame as usize].references = 1;
        Some(frame)
    }

    /// free -> fill; `None` when no frame is free.
    pub fn lend(&mut self) -> Option<u32> {
        let frame = self.free.pop()?;
        self.slots[frame as usize].lent = true;
        self.lent += 1;
        Some(frame)
    }

    /// fill -> held, with one reference.
    ///
    /// # Panics
    /// When the frame was not lent.
    pub fn receive(&mut self, frame: u32) {
        let slot = &mut self.slots[frame as usize];
        assert!(slot.lent, "frame {frame} was received but never lent");
        *slot = Slot { references: 1, transmits: 0, lent: false };
        self.lent -= 1;
    }

    /// fill -> free, for a frame that Linux never received.
    ///
    /// # Panics
    /// When the frame was not lent.
    pub fn reclaim(&mut self, frame: u32) {
        self.receive(frame);
        self.release(frame);
    }

    /// Adds a reference.
    ///
    /// # Panics
    /// When the frame has no reference, or at 65535 references.
    pub fn retain(&mut self, frame: u32) {
        let slot = &mut self.slots[frame as usize];
        assert!(slot.references > 0, "frame {frame} was retained but is not held");
        slot.references = slot.references.checked_add(1).expect("a frame has too many references");
    }

    /// Drops a reference; the frame is free when it was the last.
    ///
    /// # Panics
    /// When the caller cannot hold a reference, because all of them belong to transmit rings.
    pub fn release(&mut self, frame: u32) {
        let slot = &mut self.slots[frame as usize];
        assert!(slot.references > slot.transmits, "frame {frame} was released but is not held");
        slot.references -= 1;
        if slot.references == 0 {
            self.free.push(frame);
        }
    }

    /// held -> tx: one of the caller's references becomes a transmit ring's.
    ///
    /// # Panics
    /// Like [`Ledger::release`].
    pub fn begin_transmit(&mut self, frame: u32) {
        let slot = &mut self.slots[frame as usize];
        assert!(slot.references > slot.transmits, "frame {frame} was sent but is not held");
        slot.transmits += 1;
        self.transmitting += u32::from(slot.transmits == 1);
    }

    /// tx -> held or free: a transmit ring returns its reference.
    ///
    /// # Panics
    /// When the frame is in no transmit ring.
    pub fn end_transmit(&mut self, frame: u32) {
        let slot = &mut self.slots[frame as usize];
        assert!(slot.transmits > 0, "frame {frame} was completed but never sent");
        slot.transmits -= 1;
        slot.references -= 1;
        self.transmitting -= u32::from(slot.transmits == 0);
        if slot.references == 0 {
            self.free.push(frame);
        }
    }

    /// held -> free, of all frames, whatever refers to them: only transmit rings keep theirs. For a
    /// worker whose holders are gone and did not release their frames. O(frames).
    pub fn abandon(&mut self) {
        self.free.clear();
        self.transmitting = 0;
        self.lent = 0;
        for (frame, slot) in self.slots.iter_mut().enumerate().rev() {
            slot.references = slot.transmits;
            self.transmitting += u32::from(slot.transmits > 0);
            self.lent += u32::from(slot.lent);
            if slot.references == 0 && !slot.lent {
                // There are at most `u32::MAX` of them.
                self.free.push(frame as u32);
            }
        }
    }

    /// Whether the frame is in a transmit ring.
    #[inline]
    pub fn is_transmitting(&self, frame: u32) -> bool {
        self.slots[frame as usize].transmits > 0
    }

    /// Whether the worker may read the frame: it has a reference.
    #[inline]
    pub fn is_readable(&self, frame: u32) -> bool {
        self.slots[frame as usize].references > 0
    }

    /// Whether the worker may write the frame: it has a reference and no transmit ring does.
    #[inline]
    pub fn is_writable(&self, frame: u32) -> bool {
        let slot = self.slots[frame as usize];
        slot.references > 0 && slot.transmits == 0
    }
}
