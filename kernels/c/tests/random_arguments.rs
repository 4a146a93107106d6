//! Random arguments through the C ABI, for two seconds: a call neither crashes nor reports an
//! internal error, and writes to its outputs only. `RECODED_SEED` repeats a run; the seed is
//! printed.

mod common;

use std::ffi::c_int;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_c::Status;
use recoded_c::abi::decoder::*;
use recoded_c::abi::encoder::*;
use recoded_c::abi::gibraltar::*;
use recoded_c::abi::recoder::*;
use recoded_c::abi::reed_solomon::*;
use recoded_library::{Decoder, Encoder, Recoder, ReedSolomon};

/// How long calls are made.
const RUN: Duration = Duration::from_secs(2);

/// Calls between two sets of objects.
const CALLS: usize = 400;

/// Bytes that pointers of calls point into.
const ARENA_BYTES: usize = 4096;

/// Bytes behind any pointer into the arena: more than any call may touch.
const REACH_BYTES: usize = 2048;

/// A call of the library.
macro_rules! call {
    ($call:expr) => {
        // SAFETY: pointers are NULL, or have at least as many bytes as the object's own sizes need;
        // other sizes are refused before memory is touched. Objects are NULL or alive, and one
        // thread uses them.
        unsafe { $call }
    };
}

/// Where a call wrote, at most.
type Outputs = Vec<(usize, usize)>;

/// Objects, and the memory of calls.
struct Case {
    random: ChaCha8Rng,
    arena: Vec<u8>,
    size: usize,
    bytes: usize,
    data: usize,
    parity: usize,
    code: *mut ReedSolomon,
    encoder: *mut Encoder,
    recoder: *mut Recoder,
    decoder: *mut Decoder,
    context: gib_context,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut pick = |limit: usize| 1 + random.next_u32() as usize % limit;
        let (size, bytes, data, parity) = (pick(6), pick(20), pick(6), pick(4));
        let mut case = Self {
            random,
            arena: vec![0x5a; ARENA_BYTES],
            size,
            bytes,
            data,
            parity,
            code: null_mut(),
            encoder: null_mut(),
            recoder: null_mut(),
            decoder: null_mut(),
            context: null_mut(),
        };
        assert_eq!(call!(recoded_reed_solomon_new(data, parity, &mut case.code)), 0);
        assert_eq!(call!(recoded_rlnc_encoder_new(size, bytes, seed, &mut case.encoder)), 0);
        assert_eq!(call!(recoded_rlnc_recoder_new(size, bytes, seed, &mut case.recoder)), 0);
        assert_eq!(call!(recoded_rlnc_decoder_new(size, bytes, &mut case.decoder)), 0);
        let (k, m) = (data as c_int, parity as c_int);
        assert_eq!(call!(gib_init(k, m, &mut case.context)), 0);
        case
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.next_u32() as usize % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// An object, or NULL now and then.
    fn object<T>(&mut self, object: *mut T) -> *mut T {
        if self.one_in(20) { null_mut() } else { object }
    }

    /// A pointer into the arena with [`REACH_BYTES`] behind it, or NULL.
    fn pointer(&mut self) -> *mut u8 {
        if self.one_in(20) {
            return null_mut();
        }
        // Few places, so that buffers overlap often, and some that do not.
        let step = if self.one_in(2) { 1 } else { 128 };
        let start = self.below((ARENA_BYTES - REACH_BYTES) / step) * step;
        self.arena.as_mut_ptr().wrapping_add(start)
    }

    /// A size, mostly the right one.
    fn near(&mut self, right: usize) -> usize {
        match self.below(16) {
            0 => 0,
            1 => right + 1,
            2 => right - 1,
            3 => usize::MAX,
            4 => isize::MAX as usize,
            5 => self.random.next_u64() as usize,
            _ => right,
        }
    }

    /// Bytes of buffers that are not checked against an object: possible, zero or impossible.
    fn free_size(&mut self) -> usize {
        match self.below(10) {
            0 => 0,
            1 => usize::MAX,
            2 => isize::MAX as usize + 1,
            _ => 1 + self.below(100),
        }
    }

    /// Makes one call. Returns its code, and where it may have written.
    fn call(&mut self) -> (c_int, Outputs) {
        let (size, bytes) = (self.size, self.bytes);
        let (v, s) = (self.pointer(), self.pointer());
        let (near_size, near_bytes) = (self.near(size), self.near(bytes));
        let packet = vec![(v.addr(), size), (s.addr(), bytes)];
        let (encoder, recoder) = (self.object(self.encoder), self.object(self.recoder));
        let decoder = self.object(self.decoder);
        let (mut flag, mut index) = (false, 0);
        let flag = if self.one_in(2) { null_mut() } else { &raw mut flag };
        let none = Outputs::new();
        match self.below(15) {
            0 => (call!(recoded_rlnc_encoder_add(encoder, s, near_bytes)), none),
            1 | 2 => {
                (call!(recoded_rlnc_encoder_take(encoder, v, near_size, s, near_bytes)), packet)
            }
            3 => {
                (call!(recoded_rlnc_recoder_add(recoder, v, near_size, s, near_bytes, flag)), none)
            }
            4 => (call!(recoded_rlnc_recoder_take(recoder, v, near_size, s, near_bytes)), packet),
            5 => {
                (call!(recoded_rlnc_decoder_add(decoder, v, near_size, s, near_bytes, flag)), none)
            }
            6 => (call!(recoded_rlnc_decoder_next(decoder, &mut index, s, near_bytes)), packet),
            7 => {
                let symbol = self.near(size);
                (call!(recoded_rlnc_decoder_symbol(decoder, symbol, s, near_bytes)), packet)
            }
            8 => {
                let all = self.near(size * bytes);
                let code = call!(recoded_rlnc_decoder_decode(decoder, v, all));
                (code, vec![(v.addr(), size * bytes)])
            }
            9 => (self.reset(), none),
            10 | 11 => self.reed_solomon(),
            12 | 13 => self.gibraltar(),
            _ => (self.create(), none),
        }
    }

    fn reset(&mut self) -> c_int {
        match self.below(4) {
            0 => call!(recoded_rlnc_encoder_reset(self.encoder)),
            1 => call!(recoded_rlnc_recoder_reset(self.recoder)),
            2 => call!(recoded_rlnc_decoder_reset(self.decoder)),
            _ => call!(recoded_rlnc_encoder_set_systematic(self.encoder, false)),
        }
    }

    fn reed_solomon(&mut self) -> (c_int, Outputs) {
        let (code, bytes) = (self.object(self.code), self.free_size());
        let inputs: Vec<*const u8> = (0..self.data).map(|_| self.pointer().cast_const()).collect();
        let outputs: Vec<*mut u8> = (0..self.parity).map(|_| self.pointer()).collect();
        let places = outputs.iter().map(|place| (place.addr(), bytes)).collect();
        let inputs = if self.one_in(30) { null() } else { inputs.as_ptr() };
        let outputs = if self.one_in(30) { null() } else { outputs.as_ptr() };
        if self.one_in(2) {
            return (call!(recoded_reed_solomon_encode(code, inputs, outputs, bytes)), places);
        }
        let lost = self.below(self.parity + 2);
        let mut ids: Vec<usize> = (0..self.data + self.parity + 1).collect();
        if self.one_in(2) {
            let (from, to) = (self.below(ids.len()), self.below(ids.len()));
            ids[to] = if self.one_in(4) { self.near(ids.len()) } else { from };
        }
        let ids = if self.one_in(30) { null() } else { ids.as_ptr() };
        (call!(recoded_reed_solomon_recover(code, ids, inputs, outputs, lost, bytes)), places)
    }

    fn gibraltar(&mut self) -> (c_int, Outputs) {
        let (context, buffers) = (self.object(self.context), self.pointer());
        let bytes = match self.below(6) {
            0 => 0,
            1 => -1 - self.below(c_int::MAX as usize) as c_int,
            _ => 1 + self.below(100) as c_int,
        };
        let reach = (bytes.max(0) as usize) * (self.data + self.parity);
        let places = vec![(buffers.addr(), reach)];
        match self.below(3) {
            0 => (call!(gib_generate(buffers.cast(), bytes, context)), places),
            1 => {
                let mut ids: Vec<c_int> = (0..(self.data + self.parity) as c_int).collect();
                let other = self.below(ids.len());
                ids[other] = self.random.next_u32() as c_int % 12;
                let lost = self.below(self.parity + 3) as c_int - 1;
                let ids = if self.one_in(20) { null_mut() } else { ids.as_mut_ptr() };
                (call!(gib_recover(buffers.cast(), bytes, ids, lost, context)), places)
            }
            _ => (self.allocate(context, bytes), Outputs::new()),
        }
    }

    /// Allocates, uses and frees memory of Gibraltar.
    fn allocate(&mut self, context: gib_context, bytes: c_int) -> c_int {
        let (mut buffers, mut ld) = (null_mut(), 0);
        let bytes = if self.one_in(10) { c_int::MAX - self.below(200) as c_int } else { bytes };
        let code = call!(gib_alloc(&mut buffers, bytes, &mut ld, context));
        if code != 0 {
            assert!(buffers.is_null());
            return code;
        }
        if bytes < 1000 {
            let larger = c_int::MAX - self.below(1000) as c_int;
            assert_eq!(call!(gib_generate(buffers, larger, context)), Status::Size as c_int);
            // SAFETY: as many bytes as were allocated.
            unsafe { buffers.write_bytes(7, ld as usize * (self.data + self.parity)) };
            assert_eq!(call!(gib_generate(buffers, ld, context)), 0);
        }
        call!(gib_free(buffers, context))
    }

    /// Creates objects of any size, and frees them.
    fn create(&mut self) -> c_int {
        let (size, bytes) = (self.near(self.size), self.near(self.bytes));
        match self.below(4) {
            0 => {
                let mut encoder = null_mut();
                let code = call!(recoded_rlnc_encoder_new(size, bytes, 1, &mut encoder));
                call!(recoded_rlnc_encoder_free(encoder));
                code
            }
            1 => {
                let mut recoder = null_mut();
                let code = call!(recoded_rlnc_recoder_new(size, bytes, 1, &mut recoder));
                call!(recoded_rlnc_recoder_free(recoder));
                code
            }
            2 => {
                let mut decoder = null_mut();
                let code = call!(recoded_rlnc_decoder_new(size, bytes, &mut decoder));
                call!(recoded_rlnc_decoder_free(decoder));
                code
            }
            _ => {
                let mut created = null_mut();
                let code = call!(recoded_reed_solomon_new(size, bytes, &mut created));
                call!(recoded_reed_solomon_free(created));
                code
            }
        }
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        call!(recoded_reed_solomon_free(self.code));
        call!(recoded_rlnc_encoder_free(self.encoder));
        call!(recoded_rlnc_recoder_free(self.recoder));
        call!(recoded_rlnc_decoder_free(self.decoder));
        call!(gib_destroy(self.context));
    }
}

#[test]
fn random_arguments_are_coded_or_refused() {
    let (seed, start) = (common::seed(), Instant::now());
    let mut codes = [0_u64; Status::Internal as usize];
    let mut round = 0;
    while start.elapsed() < RUN {
        let mut case = Case::new(seed.wrapping_add(round));
        for number in 0..CALLS {
            let before = case.arena.clone();
            let (code, outputs) = case.call();
            let count = usize::try_from(code).ok().and_then(|code| codes.get_mut(code));
            *count.unwrap_or_else(|| panic!("round {round}, call {number}: code {code}")) += 1;
            let start = case.arena.as_ptr().addr();
            for (offset, (now, before)) in case.arena.iter().zip(&before).enumerate() {
                let place = start + offset;
                let is_output = |&(from, bytes): &(usize, usize)| {
                    place.checked_sub(from).is_some_and(|distance| distance < bytes)
                };
                let is_right = now == before || outputs.iter().any(is_output);
                assert!(is_right, "round {round}, call {number}: wrote to byte {offset}");
            }
        }
        round += 1;
    }
    println!("{round} rounds, calls by code: {codes:?}");
    let absent = codes.iter().position(|&count| count == 0);
    assert!(round < 20 || absent.is_none_or(|code| code == Status::Foreign as usize), "{codes:?}");
}
