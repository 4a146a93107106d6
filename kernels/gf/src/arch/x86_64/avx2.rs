//! AVX2: a product is two byte shuffles, one table for the low nibbles, one for the high.
//!
//! The matrix product keeps `D` destinations of `V` vectors in registers over all sources, so a
//! source is split into nibbles once for `D` destinations and no destination is stored twice.
//!
//! Bytes beyond the last whole vector are computed from the last 32 bytes of each slice, which
//! overlap bytes already done; when accumulating, a byte mask leaves those alone. Slices below 32
//! bytes, and the rests in the single-source routines, pass through a buffer on the stack.

use core::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use crate::arch::Level;
use crate::table::NIBBLES;

pub(in crate::arch) const LEVEL: Level =
    Level { name: "avx2", is_available, add, mul, madd, matmul };

/// Bytes of a ymm register.
const VECTOR: usize = 32;

/// Place of a block of the matrix product: whole vectors from a given offset.
const WHOLE: u8 = 0;
/// Place of a block: the last 32 bytes, some of which are done already.
const LAST: u8 = 1;
/// Place of a block: everything, being less than one vector.
const SHORT: u8 = 2;

fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
}

#[target_feature(enable = "avx2")]
fn add(dst: &mut [u8], src: &[u8]) {
    let (dst_chunks, dst_rest) = dst.as_chunks_mut::<VECTOR>();
    let (src_chunks, src_rest) = src.as_chunks::<VECTOR>();
    for (d, s) in dst_chunks.iter_mut().zip(src_chunks) {
        store(d, _mm256_xor_si256(load(d), load(s)));
    }
    if !dst_rest.is_empty() {
        store_short(dst_rest, _mm256_xor_si256(load_short(dst_rest), load_short(src_rest)));
    }
}

#[target_feature(enable = "avx2")]
fn mul(dst: &mut [u8], c: u8) {
    let factor = factor(c);
    let (chunks, rest) = dst.as_chunks_mut::<VECTOR>();
    for d in chunks {
        store(d, product(&factor, &nibbles(load(d))));
    }
    if !rest.is_empty() {
        store_short(rest, product(&factor, &nibbles(load_short(rest))));
    }
}

#[target_feature(enable = "avx2")]
fn madd(dst: &mut [u8], c: u8, src: &[u8]) {
    let factor = factor(c);
    let (dst_chunks, dst_rest) = dst.as_chunks_mut::<VECTOR>();
    let (src_chunks, src_rest) = src.as_chunks::<VECTOR>();
    for (d, s) in dst_chunks.iter_mut().zip(src_chunks) {
        store(d, _mm256_xor_si256(load(d), product(&factor, &nibbles(load(s)))));
    }
    if !dst_rest.is_empty() {
        let product = product(&factor, &nibbles(load_short(src_rest)));
        store_short(dst_rest, _mm256_xor_si256(load_short(dst_rest), product));
    }
}

#[target_feature(enable = "avx2")]
fn matmul(
    coefficients: &[u8],
    sources: &[&[u8]],
    destinations: &mut [&mut [u8]],
    accumulate: bool,
) {
    let columns = sources.len();
    let mut done = 0;
    while done < destinations.len() {
        let rows = (destinations.len() - done).min(4);
        let strip = &mut destinations[done..done + rows];
        let factors = &coefficients[done * columns..(done + rows) * columns];
        match rows {
            4 => fill_strip::<4, 2>(factors, sources, strip, accumulate),
            3 => fill_strip::<3, 2>(factors, sources, strip, accumulate),
            2 => fill_strip::<2, 2>(factors, sources, strip, accumulate),
            _ => fill_strip::<1, 4>(factors, sources, strip, accumulate),
        }
        done += rows;
    }
}

/// Computes `D` whole destinations, `V` vectors at a time.
#[target_feature(enable = "avx2")]
#[inline]
fn fill_strip<const D: usize, const V: usize>(
    factors: &[u8],
    sources: &[&[u8]],
    strip: &mut [&mut [u8]],
    accumulate: bool,
) {
    let Some(strip) = strip.first_chunk_mut::<D>() else {
        return;
    };
    let bytes = strip[0].len();
    let mut start = 0;
    while bytes - start >= V * VECTOR {
        fill_block::<D, V, WHOLE>(factors, sources, strip, start, accumulate);
        start += V * VECTOR;
    }
    while bytes - start >= VECTOR {
        fill_block::<D, 1, WHOLE>(factors, sources, strip, start, accumulate);
        start += VECTOR;
    }
    if start == bytes {
        return;
    }
    if bytes > VECTOR {
        fill_block::<D, 1, LAST>(factors, sources, strip, start, accumulate);
    } else {
        fill_block::<D, 1, SHORT>(factors, sources, strip, start, accumulate);
    }
}

/// Computes the vectors of one block, whose place is told by `PLACE` and, where that is `WHOLE`,
/// by `start`; otherwise `start` says how many bytes are done.
#[target_feature(enable = "avx2")]
#[inline]
fn fill_block<const D: usize, const V: usize, const PLACE: u8>(
    factors: &[u8],
    sources: &[&[u8]],
    strip: &mut [&mut [u8]; D],
    start: usize,
    accumulate: bool,
) {
    let mut sums = [[_mm256_setzero_si256(); V]; D];
    let columns = sources.len();
    for (column, source) in sources.iter().enumerate() {
        let vectors = load_block::<V, PLACE>(source, start);
        let mut split = [Nibbles { low: vectors[0], high: vectors[0] }; V];
        for v in 0..V {
            split[v] = nibbles(vectors[v]);
        }
        for (row, sum) in sums.iter_mut().enumerate() {
            let factor = factor(factors[row * columns + column]);
            for (vector, nibbles) in sum.iter_mut().zip(&split) {
                *vector = _mm256_xor_si256(*vector, product(&factor, nibbles));
            }
        }
    }
    for (sum, destination) in sums.iter_mut().zip(strip) {
        if accumulate {
            let old = load_block::<V, PLACE>(destination, start);
            for (vector, old) in sum.iter_mut().zip(old) {
                if PLACE == LAST {
                    *vector = _mm256_and_si256(*vector, fresh_bytes(destination.len() - start));
                }
                *vector = _mm256_xor_si256(*vector, old);
            }
        }
        store_block::<V, PLACE>(destination, start, sum);
    }
}

/// The shuffle tables of a coefficient, in both 128-bit lanes.
struct Factor {
    low: __m256i,
    high: __m256i,
}

/// A vector split into the low and the high half of each byte.
#[derive(Copy, Clone)]
struct Nibbles {
    low: __m256i,
    high: __m256i,
}

#[target_feature(enable = "avx2")]
#[inline]
fn factor(c: u8) -> Factor {
    let pair = &NIBBLES[usize::from(c)];
    // SAFETY: both pointers are to arrays of 16 bytes.
    let (low, high) = unsafe {
        (_mm_loadu_si128(pair.low.as_ptr().cast()), _mm_loadu_si128(pair.high.as_ptr().cast()))
    };
    Factor { low: _mm256_broadcastsi128_si256(low), high: _mm256_broadcastsi128_si256(high) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn nibbles(vector: __m256i) -> Nibbles {
    let mask = _mm256_set1_epi8(0x0F);
    Nibbles {
        low: _mm256_and_si256(vector, mask),
        high: _mm256_and_si256(_mm256_srli_epi64::<4>(vector), mask),
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn product(factor: &Factor, nibbles: &Nibbles) -> __m256i {
    _mm256_xor_si256(
        _mm256_shuffle_epi8(factor.low, nibbles.low),
        _mm256_shuffle_epi8(factor.high, nibbles.high),
    )
}

/// Selects the last `bytes` of a vector, `bytes` <= 32.
#[target_feature(enable = "avx2")]
#[inline]
fn fresh_bytes(bytes: usize) -> __m256i {
    const WINDOW: [u8; 2 * VECTOR] = {
        let mut window = [0; 2 * VECTOR];
        let mut i = VECTOR;
        while i < 2 * VECTOR {
            window[i] = 0xFF;
            i += 1;
        }
        window
    };
    WINDOW[bytes..].first_chunk().map_or(_mm256_setzero_si256(), |mask| load(mask))
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_block<const V: usize, const PLACE: u8>(slice: &[u8], start: usize) -> [__m256i; V] {
    let mut vectors = [_mm256_setzero_si256(); V];
    match PLACE {
        WHOLE => {
            let (chunks, _) = slice[start..start + V * VECTOR].as_chunks::<VECTOR>();
            for v in 0..V {
                vectors[v] = load(&chunks[v]);
            }
        }
        LAST => vectors[0] = load_short(&slice[slice.len() - VECTOR..]),
        _ => vectors[0] = load_short(slice),
    }
    vectors
}

#[target_feature(enable = "avx2")]
#[inline]
fn store_block<const V: usize, const PLACE: u8>(
    slice: &mut [u8],
    start: usize,
    vectors: &[__m256i; V],
) {
    match PLACE {
        WHOLE => {
            let (chunks, _) = slice[start..start + V * VECTOR].as_chunks_mut::<VECTOR>();
            for v in 0..V {
                store(&mut chunks[v], vectors[v]);
            }
        }
        LAST => {
            let end = slice.len() - VECTOR;
            store_short(&mut slice[end..], vectors[0]);
        }
        _ => store_short(slice, vectors[0]),
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; VECTOR]) -> __m256i {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(bytes: &mut [u8; VECTOR], vector: __m256i) {
    // SAFETY: the pointer is to an array of 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
}

/// Loads up to 32 bytes, zeroes behind them.
#[target_feature(enable = "avx2")]
#[inline]
fn load_short(bytes: &[u8]) -> __m256i {
    let mut buffer = [0; VECTOR];
    buffer[..bytes.len()].copy_from_slice(bytes);
    load(&buffer)
}

/// Stores the first `bytes.len()` bytes of a vector, 32 at most.
#[target_feature(enable = "avx2")]
#[inline]
fn store_short(bytes: &mut [u8], vector: __m256i) {
    let mut buffer = [0; VECTOR];
    store(&mut buffer, vector);
    bytes.copy_from_slice(&buffer[..bytes.len()]);
}
