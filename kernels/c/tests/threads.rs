//! One code and one context of Gibraltar, used by several threads at once through the C ABI.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use recoded_c::abi::gibraltar::*;
use recoded_c::abi::reed_solomon::*;

const THREADS: u8 = 4;

/// Stripes of each thread.
const ROUNDS: u8 = 100;

/// Data and parity buffers.
const DATA: usize = 3;
const PARITY: usize = 2;

/// The address of an object, as threads of a C program share it.
#[derive(Copy, Clone)]
struct Shared(usize);

impl Shared {
    fn object<T>(self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

#[test]
fn one_context_serves_several_threads() {
    let mut context = null_mut();
    // SAFETY: `context` can be written.
    assert_eq!(unsafe { gib_init(DATA as c_int, PARITY as c_int, &mut context) }, 0);
    let shared = Shared(context.expose_provenance());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                (0..ROUNDS).for_each(|round| gibraltar(shared.object(), thread ^ round));
            });
        }
    });
    // SAFETY: all threads have ended.
    assert_eq!(unsafe { gib_destroy(context) }, 0);
}

/// Allocates a stripe, fills it, loses the first two data buffers and recovers them.
fn gibraltar(context: gib_context, seed: u8) {
    let (mut buffers, mut ld): (*mut c_void, c_int) = (null_mut(), 0);
    // SAFETY: the context is alive, and the results can be written.
    assert_eq!(unsafe { gib_alloc(&mut buffers, 100, &mut ld, context) }, 0);
    let bytes = ld as usize * (DATA + PARITY);
    // SAFETY: the memory was allocated with this size, and no other thread has it.
    let stripe = unsafe { std::slice::from_raw_parts_mut(buffers.cast::<u8>(), bytes) };
    for (index, byte) in stripe.iter_mut().enumerate() {
        *byte = seed.wrapping_mul(31).wrapping_add(index as u8);
    }
    let expected = stripe[..2 * ld as usize].to_vec();
    let parity = DATA * ld as usize;
    // SAFETY: as many bytes as the code has buffers.
    assert_eq!(unsafe { gib_generate(buffers, ld, context) }, 0);
    stripe.copy_within(parity.., 0);
    let mut ids = [3, 4, 2, 0, 1];
    // SAFETY: as before, and an id for each buffer.
    assert_eq!(unsafe { gib_recover(buffers, ld, ids.as_mut_ptr(), 2, context) }, 0);
    assert!(stripe[parity..] == expected, "the lost buffers of thread and round {seed}");
    // SAFETY: nothing uses the memory any more.
    assert_eq!(unsafe { gib_free(buffers, context) }, 0);
}

#[test]
fn one_code_serves_several_threads() {
    let mut code = null_mut();
    // SAFETY: `code` can be written.
    assert_eq!(unsafe { recoded_reed_solomon_new(DATA, PARITY, &mut code) }, 0);
    let shared = Shared(code.expose_provenance());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let code = shared.object();
                for round in 0..ROUNDS {
                    let data = [[thread; 50], [round; 50], [thread ^ round; 50]];
                    let mut parity = [[0; 50]; PARITY];
                    let inputs = data.each_ref().map(|buffer| buffer.as_ptr());
                    let outputs = parity.each_mut().map(|buffer| buffer.as_mut_ptr());
                    let (data_at, parity_at) = (inputs.as_ptr(), outputs.as_ptr());
                    // SAFETY: the code is alive, and each buffer has 50 bytes.
                    let encoded =
                        unsafe { recoded_reed_solomon_encode(code, data_at, parity_at, 50) };
                    let (mut lost, ids) = ([[0; 50]; 2], [1, 3, 4, 0, 2]);
                    let intact = [data[1].as_ptr(), parity[0].as_ptr(), parity[1].as_ptr()];
                    let places = lost.each_mut().map(|buffer| buffer.as_mut_ptr());
                    let (ids, intact, places) = (ids.as_ptr(), intact.as_ptr(), places.as_ptr());
                    // SAFETY: as before, with an id for each buffer.
                    let recovered =
                        unsafe { recoded_reed_solomon_recover(code, ids, intact, places, 2, 50) };
                    assert_eq!((encoded, recovered, lost), (0, 0, [data[0], data[2]]));
                }
            });
        }
    });
    // SAFETY: all threads have ended.
    unsafe { recoded_reed_solomon_free(code) };
}
