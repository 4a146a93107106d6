//! Wrong arguments through the C ABI: each is refused with its code, and objects stay as they were.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut, without_provenance, without_provenance_mut};

use recoded_c::abi::decoder::*;
use recoded_c::abi::encoder::*;
use recoded_c::abi::gibraltar::*;
use recoded_c::abi::recoder::*;
use recoded_c::abi::reed_solomon::*;
use recoded_c::abi::version::*;
use recoded_c::{RECODED_ABI_VERSION, Status};

/// Symbols of a generation.
const SIZE: usize = 3;

/// Bytes of a symbol.
const BYTES: usize = 5;

/// Sizes that are not those of any object here.
const WRONG: [usize; 6] = [0, 1, 64, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX];

/// A call of the library.
macro_rules! call {
    ($call:expr) => {
        // SAFETY: pointers are NULL, or valid for the sizes of their object; other sizes are
        // refused before memory is touched, which these tests are about.
        unsafe { $call }
    };
}

/// Asserts the code of a call.
macro_rules! refused {
    ($call:expr, $status:ident) => {
        assert_eq!(call!($call), Status::$status as c_int, stringify!($call))
    };
}

#[test]
fn null_is_refused_where_something_is_required() {
    let (mut vector, mut symbol, mut index) = ([1; SIZE], [1; BYTES], 0);
    let (v, s) = (vector.as_mut_ptr(), symbol.as_mut_ptr());
    refused!(recoded_reed_solomon_new(2, 1, null_mut()), Pointer);
    refused!(recoded_reed_solomon_encode(null(), null(), null(), 1), Pointer);
    refused!(recoded_reed_solomon_recover(null(), null(), null(), null(), 0, 1), Pointer);
    refused!(recoded_rlnc_encoder_new(SIZE, BYTES, 1, null_mut()), Pointer);
    refused!(recoded_rlnc_encoder_reset(null_mut()), Pointer);
    refused!(recoded_rlnc_encoder_set_systematic(null_mut(), true), Pointer);
    refused!(recoded_rlnc_encoder_add(null_mut(), s, BYTES), Pointer);
    refused!(recoded_rlnc_encoder_take(null_mut(), v, SIZE, s, BYTES), Pointer);
    refused!(recoded_rlnc_recoder_new(SIZE, BYTES, 1, null_mut()), Pointer);
    refused!(recoded_rlnc_recoder_reset(null_mut()), Pointer);
    refused!(recoded_rlnc_recoder_add(null_mut(), v, SIZE, s, BYTES, null_mut()), Pointer);
    refused!(recoded_rlnc_recoder_take(null_mut(), v, SIZE, s, BYTES), Pointer);
    refused!(recoded_rlnc_decoder_new(SIZE, BYTES, null_mut()), Pointer);
    refused!(recoded_rlnc_decoder_reset(null_mut()), Pointer);
    refused!(recoded_rlnc_decoder_add(null_mut(), v, SIZE, s, BYTES, null_mut()), Pointer);
    refused!(recoded_rlnc_decoder_next(null_mut(), &mut index, s, BYTES), Pointer);
    refused!(recoded_rlnc_decoder_symbol(null_mut(), 0, s, BYTES), Pointer);
    refused!(recoded_rlnc_decoder_decode(null_mut(), s, BYTES), Pointer);
    refused!(gib_init(2, 1, null_mut()), Pointer);
    refused!(gib_alloc(null_mut(), 1, null_mut(), null_mut()), Pointer);
    refused!(gib_free(null_mut(), null_mut()), Pointer);
    refused!(gib_generate(s.cast(), 1, null_mut()), Pointer);
    refused!(gib_recover(s.cast(), 1, null_mut(), 0, null_mut()), Pointer);
}

#[test]
fn null_objects_are_empty_and_may_be_freed() {
    assert_eq!(call!(recoded_rlnc_encoder_present(null())), 0);
    assert_eq!(call!(recoded_rlnc_recoder_rank(null())), 0);
    assert_eq!(call!(recoded_rlnc_decoder_rank(null())), 0);
    assert_eq!(call!(recoded_rlnc_decoder_decoded(null())), 0);
    call!(recoded_reed_solomon_free(null_mut()));
    call!(recoded_rlnc_encoder_free(null_mut()));
    call!(recoded_rlnc_recoder_free(null_mut()));
    call!(recoded_rlnc_decoder_free(null_mut()));
    refused!(gib_destroy(null_mut()), Ok);
}

#[test]
fn codes_that_do_not_exist_leave_null() {
    let huge = [0, 1025, usize::MAX];
    for (size, bytes, status) in huge
        .map(|size| (size, BYTES, Status::Code))
        .into_iter()
        .chain([(4, 0, Status::Size), (4, usize::MAX / 2, Status::Memory)])
        .chain([(4, usize::MAX / 4 + 1, Status::Memory), (4, isize::MAX as usize, Status::Memory)])
    {
        let mut encoder = without_provenance_mut(8);
        assert_eq!(call!(recoded_rlnc_encoder_new(size, bytes, 1, &mut encoder)), status as c_int);
        let mut recoder = without_provenance_mut(8);
        assert_eq!(call!(recoded_rlnc_recoder_new(size, bytes, 1, &mut recoder)), status as c_int);
        let mut decoder = without_provenance_mut(8);
        assert_eq!(call!(recoded_rlnc_decoder_new(size, bytes, &mut decoder)), status as c_int);
        assert!(encoder.is_null() && recoder.is_null() && decoder.is_null());
    }
    for (data, parity) in [(0, 1), (1, 0), (255, 2), (usize::MAX, 1), (usize::MAX, usize::MAX)] {
        let mut code = without_provenance_mut(8);
        refused!(recoded_reed_solomon_new(data, parity, &mut code), Code);
        assert!(code.is_null());
    }
    for (k, m) in [(0, 1), (1, 0), (-1, 4), (4, -1), (255, 2), (c_int::MAX, 1), (c_int::MIN, 1)] {
        let mut context: gib_context = without_provenance_mut(8);
        refused!(gib_init(k, m, &mut context), Code);
        assert!(context.is_null());
    }
}

#[test]
fn encoder_refuses_wrong_sizes_and_sends_nothing() {
    let mut encoder = null_mut();
    refused!(recoded_rlnc_encoder_new(SIZE, BYTES, 1, &mut encoder), Ok);
    let (mut vector, mut symbol) = ([9; SIZE], *b"first");
    let (v, s) = (vector.as_mut_ptr(), symbol.as_mut_ptr());
    refused!(recoded_rlnc_encoder_take(encoder, v, SIZE, s, BYTES), Empty);
    refused!(recoded_rlnc_encoder_add(encoder, null(), BYTES), Pointer);
    for wrong in WRONG {
        refused!(recoded_rlnc_encoder_add(encoder, s, wrong), Size);
    }
    refused!(recoded_rlnc_encoder_add(encoder, s, BYTES), Ok);
    for wrong in WRONG {
        refused!(recoded_rlnc_encoder_take(encoder, v, wrong, s, BYTES), Size);
        refused!(recoded_rlnc_encoder_take(encoder, v, SIZE, s, wrong), Size);
    }
    refused!(recoded_rlnc_encoder_take(encoder, null_mut(), SIZE, s, BYTES), Pointer);
    refused!(recoded_rlnc_encoder_take(encoder, v, SIZE, null_mut(), BYTES), Pointer);
    let mut both = [0; SIZE + BYTES];
    let both = both.as_mut_ptr();
    let inside = both.wrapping_add(SIZE - 1);
    refused!(recoded_rlnc_encoder_take(encoder, both, SIZE, inside, BYTES), Overlap);
    refused!(recoded_rlnc_encoder_take(encoder, both, SIZE, both, BYTES), Overlap);
    assert_eq!((vector, &symbol), ([9; SIZE], b"first"), "nothing was written");
    refused!(recoded_rlnc_encoder_take(encoder, v, SIZE, s, BYTES), Ok);
    assert_eq!((vector, &symbol), ([1, 0, 0], b"first"), "refused calls sent nothing");
    for _ in 1..SIZE {
        refused!(recoded_rlnc_encoder_add(encoder, s, BYTES), Ok);
    }
    refused!(recoded_rlnc_encoder_add(encoder, s, BYTES), Full);
    assert_eq!(call!(recoded_rlnc_encoder_present(encoder)), SIZE);
    refused!(recoded_rlnc_encoder_reset(encoder), Ok);
    assert_eq!(call!(recoded_rlnc_encoder_present(encoder)), 0);
    call!(recoded_rlnc_encoder_free(encoder));
}

#[test]
fn recoder_refuses_wrong_sizes_and_keeps_nothing() {
    let mut recoder = null_mut();
    refused!(recoded_rlnc_recoder_new(SIZE, BYTES, 1, &mut recoder), Ok);
    let (mut vector, mut symbol, mut innovative) = ([0, 2, 0], *b"bytes", false);
    let (v, s, i) = (vector.as_mut_ptr(), symbol.as_mut_ptr(), &raw mut innovative);
    refused!(recoded_rlnc_recoder_take(recoder, v, SIZE, s, BYTES), Empty);
    for wrong in WRONG {
        refused!(recoded_rlnc_recoder_add(recoder, v, wrong, s, BYTES, i), Size);
        refused!(recoded_rlnc_recoder_add(recoder, v, SIZE, s, wrong, i), Size);
    }
    refused!(recoded_rlnc_recoder_add(recoder, null(), SIZE, s, BYTES, i), Pointer);
    refused!(recoded_rlnc_recoder_add(recoder, v, SIZE, null(), BYTES, i), Pointer);
    assert_eq!(call!(recoded_rlnc_recoder_rank(recoder)), 0);
    refused!(recoded_rlnc_recoder_add(recoder, v, SIZE, s, BYTES, i), Ok);
    assert!(innovative);
    refused!(recoded_rlnc_recoder_add(recoder, v, SIZE, s, BYTES, i), Ok);
    assert!(!innovative, "a copy");
    refused!(recoded_rlnc_recoder_add(recoder, [0; SIZE].as_ptr(), SIZE, s, BYTES, null_mut()), Ok);
    assert_eq!(call!(recoded_rlnc_recoder_rank(recoder)), 1, "the zero vector says nothing");
    refused!(recoded_rlnc_recoder_take(recoder, s, SIZE, s, BYTES), Overlap);
    refused!(recoded_rlnc_recoder_take(recoder, v, SIZE, s, BYTES), Ok);
    assert!(vector[1] != 0 && vector[0] == 0 && vector[2] == 0);
    refused!(recoded_rlnc_recoder_reset(recoder), Ok);
    assert_eq!(call!(recoded_rlnc_recoder_rank(recoder)), 0);
    call!(recoded_rlnc_recoder_free(recoder));
}

#[test]
fn decoder_refuses_wrong_sizes_and_symbols_that_it_lacks() {
    let mut decoder = null_mut();
    refused!(recoded_rlnc_decoder_new(SIZE, BYTES, &mut decoder), Ok);
    let (vector, mut symbol, mut index) = ([0, 1, 0], *b"bytes", 77);
    let (v, s) = (vector.as_ptr(), symbol.as_mut_ptr());
    for wrong in WRONG {
        refused!(recoded_rlnc_decoder_add(decoder, v, wrong, s, BYTES, null_mut()), Size);
        refused!(recoded_rlnc_decoder_add(decoder, v, SIZE, s, wrong, null_mut()), Size);
        refused!(recoded_rlnc_decoder_next(decoder, &mut index, s, wrong), Size);
        refused!(recoded_rlnc_decoder_symbol(decoder, 1, s, wrong), Size);
        refused!(recoded_rlnc_decoder_decode(decoder, s, wrong), Size);
    }
    refused!(recoded_rlnc_decoder_next(decoder, &mut index, s, BYTES), NotDecoded);
    refused!(recoded_rlnc_decoder_add(decoder, v, SIZE, s, BYTES, null_mut()), Ok);
    refused!(recoded_rlnc_decoder_next(decoder, null_mut(), s, BYTES), Pointer);
    let odd = (&raw mut index).wrapping_byte_add(1);
    refused!(recoded_rlnc_decoder_next(decoder, odd, s, BYTES), Pointer);
    refused!(recoded_rlnc_decoder_next(decoder, &mut index, null_mut(), BYTES), Pointer);
    assert_eq!(index, 77, "refused calls delivered nothing");
    refused!(recoded_rlnc_decoder_next(decoder, &mut index, s, BYTES), Ok);
    assert_eq!((index, &symbol), (1, b"bytes"));
    refused!(recoded_rlnc_decoder_symbol(decoder, 0, s, BYTES), NotDecoded);
    refused!(recoded_rlnc_decoder_symbol(decoder, SIZE, s, BYTES), Id);
    refused!(recoded_rlnc_decoder_symbol(decoder, usize::MAX, s, BYTES), Id);
    refused!(recoded_rlnc_decoder_decode(decoder, [0; 15].as_mut_ptr(), 15), NotDecoded);
    refused!(recoded_rlnc_decoder_decode(decoder, null_mut(), 15), Pointer);
    assert_eq!(call!(recoded_rlnc_decoder_decoded(decoder)), 1);
    refused!(recoded_rlnc_decoder_reset(decoder), Ok);
    assert_eq!(call!(recoded_rlnc_decoder_rank(decoder)), 0);
    call!(recoded_rlnc_decoder_free(decoder));
}

#[test]
fn reed_solomon_refuses_sizes_overlaps_and_ids() {
    let mut code = null_mut();
    refused!(recoded_reed_solomon_new(2, 1, &mut code), Ok);
    let mut memory = *b"ab--cd--ef--";
    let m = memory.as_mut_ptr();
    let (a, c, e) = (m.cast_const(), m.wrapping_add(4).cast_const(), m.wrapping_add(8));
    let (data, parity) = ([a, c], [e]);
    let encode = |data: &[*const u8; 2], parity: &[*mut u8; 1], bytes| {
        call!(recoded_reed_solomon_encode(code, data.as_ptr(), parity.as_ptr(), bytes))
    };
    for bytes in [0, isize::MAX as usize + 1, usize::MAX] {
        assert_eq!(encode(&data, &parity, bytes), Status::Size as c_int, "{bytes}");
    }
    let last = without_provenance(usize::MAX - 1);
    assert_eq!(encode(&[a, last], &parity, 2), Status::Size as c_int, "beyond memory");
    assert_eq!(encode(&[a, null()], &parity, 2), Status::Pointer as c_int);
    assert_eq!(encode(&data, &[null_mut()], 2), Status::Pointer as c_int);
    for overlapping in [0, 1, 3, 5] {
        let code = encode(&data, &[m.wrapping_add(overlapping)], 2);
        assert_eq!(code, Status::Overlap as c_int, "{overlapping}");
    }
    refused!(recoded_reed_solomon_encode(code, null(), parity.as_ptr(), 2), Pointer);
    refused!(recoded_reed_solomon_encode(code, data.as_ptr(), null(), 2), Pointer);
    let odd = data.as_ptr().wrapping_byte_add(1);
    refused!(recoded_reed_solomon_encode(code, odd, parity.as_ptr(), 2), Pointer);
    let recover = |ids: &[usize; 3], lost: usize| {
        let (ids, data, parity) = (ids.as_ptr(), data.as_ptr(), parity.as_ptr());
        call!(recoded_reed_solomon_recover(code, ids, data, parity, lost, 2))
    };
    for ids in [[0, 1, 3], [0, 0, 2], [0, 1, 1], [0, usize::MAX, 2]] {
        assert_eq!(recover(&ids, 1), Status::Id as c_int, "{ids:?}");
    }
    for lost in [2, usize::MAX] {
        assert_eq!(recover(&[0, 1, 2], lost), Status::Size as c_int, "{lost}");
    }
    let ids = [0, 1].as_ptr();
    refused!(recoded_reed_solomon_recover(code, ids, data.as_ptr(), null(), 0, 2), Ok);
    assert_eq!(&memory, b"ab--cd--ef--", "refused calls wrote nothing");
    assert_eq!(encode(&[a, a], &parity, 2), 0, "data may overlap");
    call!(recoded_reed_solomon_free(code));
}

#[test]
fn gibraltar_refuses_sizes_ids_and_memory_of_others() {
    let (mut context, mut other) = (null_mut(), null_mut());
    refused!(gib_init(2, 1, &mut context), Ok);
    refused!(gib_init(2, 1, &mut other), Ok);
    let (mut buffers, mut ld): (*mut c_void, c_int) = (null_mut(), 0);
    for size in [0, -1, c_int::MIN, c_int::MAX] {
        refused!(gib_alloc(&mut buffers, size, &mut ld, context), Size);
    }
    refused!(gib_alloc(&mut buffers, 5, null_mut(), context), Pointer);
    assert!(buffers.is_null());
    refused!(gib_alloc(&mut buffers, 5, &mut ld, context), Ok);
    assert_eq!((ld, buffers.addr() % 64), (128, 0));
    for size in [0, -1, c_int::MIN, ld + 1, c_int::MAX] {
        refused!(gib_generate(buffers, size, context), Size);
        refused!(gib_recover(buffers, size, [0, 1, 2].as_mut_ptr(), 1, context), Size);
    }
    refused!(gib_generate(buffers.wrapping_byte_add(1), ld, context), Size);
    refused!(gib_generate(null_mut(), ld, context), Pointer);
    refused!(gib_generate(buffers, ld, context), Ok);
    for lost in [-1, 2, c_int::MIN, c_int::MAX] {
        refused!(gib_recover(buffers, ld, [0, 1, 2].as_mut_ptr(), lost, context), Size);
    }
    for mut ids in [[0, 1, 3], [0, 0, 2], [-1, 1, 2], [c_int::MAX, 1, 2]] {
        refused!(gib_recover(buffers, ld, ids.as_mut_ptr(), 1, context), Id);
    }
    refused!(gib_recover(buffers, ld, null_mut(), 1, context), Pointer);
    refused!(gib_recover(buffers, ld, [1, 0].as_mut_ptr(), 0, context), Ok);
    refused!(gib_free(buffers, other), Foreign);
    refused!(gib_free(buffers.wrapping_byte_add(64), context), Foreign);
    refused!(gib_free(null_mut(), context), Ok);
    refused!(gib_free(buffers, context), Ok);
    refused!(gib_free(buffers, context), Foreign);
    refused!(gib_alloc(&mut buffers, 5, &mut ld, context), Ok);
    refused!(gib_destroy(context), Ok);
    refused!(gib_destroy(other), Ok);
}

#[test]
fn every_number_has_a_text() {
    let text = |code| {
        // SAFETY: a text that ends with zero, and lasts as long as the program.
        unsafe { CStr::from_ptr(recoded_error_text(code)) }.to_str().expect("ASCII")
    };
    assert_eq!((text(0), text(8)), ("done", "the symbol is not decoded yet"));
    for code in [-1, 12, c_int::MIN, c_int::MAX] {
        assert_eq!(text(code), "unknown code");
    }
    // SAFETY: as before.
    let version = unsafe { CStr::from_ptr(recoded_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    assert_eq!(recoded_abi_version(), RECODED_ABI_VERSION);
}
