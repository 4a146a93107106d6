//! Chains of source, relays and sink, and stripes with losses, from a seed. `RECODED_SEED` repeats
//! a run; the seed is printed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::rlnc;
use recoded_library::{Decoder, Encoder, Error, Recoder, ReedSolomon};

#[test]
fn chain_delivers_every_symbol_once_and_as_it_was() {
    let mut random = random();
    for (size, symbol_bytes) in [(1, 1), (2, 7), (16, 100), (64, 1400)] {
        let mut data = vec![0; size * symbol_bytes];
        random.fill_bytes(&mut data);
        let mut encoder = Encoder::new(size, symbol_bytes, random.next_u64()).expect("sizes");
        let mut recoder = Recoder::new(size, symbol_bytes, random.next_u64()).expect("sizes");
        let mut decoder = Decoder::new(size, symbol_bytes).expect("sizes");
        for generation in 0..2 {
            encoder.set_systematic(generation == 0);
            for symbol in data.chunks(symbol_bytes) {
                encoder.add(symbol).expect("there is room");
            }
            let progressive = run(&mut random, &mut encoder, &mut recoder, &mut decoder);
            assert_eq!(progressive, data, "next() of {size} symbols");
            let mut whole = vec![0; data.len()];
            decoder.decode(&mut whole).expect("complete");
            assert_eq!(whole, data);
            encoder.reset();
            recoder.reset().expect("its own size");
            decoder.reset().expect("its own size");
            assert_eq!((encoder.present(), recoder.rank(), decoder.rank()), (0, 0, 0));
        }
    }
}

/// Sends until the sink is complete, over two links that drop every third packet; returns the
/// symbols that the sink delivered.
fn run(
    random: &mut ChaCha8Rng,
    encoder: &mut Encoder,
    recoder: &mut Recoder,
    decoder: &mut Decoder,
) -> Vec<u8> {
    let (size, symbol_bytes) = (encoder.size(), encoder.symbol_bytes());
    let (mut vector, mut symbol) = (vec![0; size], vec![0; symbol_bytes]);
    let mut delivered = vec![0; size * symbol_bytes];
    let mut is_delivered = vec![false; size];
    while !decoder.is_complete() {
        encoder.take(&mut vector, &mut symbol).expect("symbols are present");
        if !random.next_u32().is_multiple_of(3) {
            recoder.add(&vector, &symbol).expect("lengths");
        }
        if recoder.rank() == 0 {
            continue;
        }
        recoder.take(&mut vector, &mut symbol).expect("packets are held");
        if random.next_u32().is_multiple_of(3) {
            continue;
        }
        let rank = decoder.rank();
        let is_innovative = decoder.add(&vector, &symbol).expect("lengths");
        assert_eq!(decoder.rank(), rank + usize::from(is_innovative));
        while let Some(index) = decoder.next(&mut symbol).expect("a length") {
            assert!(!std::mem::replace(&mut is_delivered[index], true), "symbol {index} twice");
            delivered[index * symbol_bytes..][..symbol_bytes].copy_from_slice(&symbol);
        }
    }
    assert!(is_delivered.iter().all(|&it| it));
    delivered
}

#[test]
fn systematic_symbols_are_delivered_at_once_without_a_relay() {
    let (mut encoder, mut decoder) =
        (Encoder::new(3, 4, 1).expect("sizes"), Decoder::new(3, 4).expect("sizes"));
    let (mut vector, mut symbol) = ([0; 3], [0; 4]);
    for (index, bytes) in [b"zero", b"one ", b"two "].into_iter().enumerate() {
        encoder.add(bytes).expect("there is room");
        encoder.take(&mut vector, &mut symbol).expect("a symbol is present");
        assert_eq!(decoder.add(&vector, &symbol), Ok(true));
        assert_eq!(decoder.add(&vector, &symbol), Ok(false), "a copy");
        assert_eq!(decoder.next(&mut symbol), Ok(Some(index)));
        assert_eq!(&symbol, bytes);
        assert_eq!(decoder.next(&mut symbol), Ok(None));
    }
    assert_eq!(encoder.add(b"more"), Err(Error::Full { size: 3 }));
}

#[test]
fn wrong_arguments_change_nothing() {
    let mut encoder = Encoder::new(2, 4, 1).expect("sizes");
    let mut recoder = Recoder::new(2, 4, 1).expect("sizes");
    let mut decoder = Decoder::new(2, 4).expect("sizes");
    let (mut vector, mut symbol) = ([0; 2], [0; 4]);
    let nothing = Error::Rlnc(rlnc::Error::Present { present: 0, size: 2 });
    assert_eq!(encoder.take(&mut vector, &mut symbol), Err(nothing));
    assert_eq!(recoder.take(&mut vector, &mut symbol), Err(nothing));
    assert_eq!(encoder.add(b"five!"), Err(Error::Length { found: 5, expected: 4 }));
    encoder.add(b"data").expect("there is room");
    assert!(encoder.take(&mut [0; 3], &mut symbol).is_err());
    assert!(encoder.take(&mut vector, &mut [0; 3]).is_err());
    encoder.take(&mut vector, &mut symbol).expect("as at first");
    assert_eq!((vector, &symbol), ([1, 0], b"data"), "refused calls sent nothing");
    assert!(decoder.add(&[1], &symbol).is_err() && decoder.add(&vector, b"no").is_err());
    assert_eq!(decoder.rank(), 0);
    decoder.add(&vector, &symbol).expect("lengths");
    let missing = Error::Rlnc(rlnc::Error::NotDecoded { symbol: 1 });
    assert_eq!(decoder.symbol(1, &mut symbol), Err(missing));
    assert_eq!(decoder.decode(&mut [0; 8]), Err(missing));
    assert_eq!(decoder.decode(&mut [0; 7]), Err(Error::Length { found: 7, expected: 8 }));
    let unknown = Error::Rlnc(rlnc::Error::Index { index: 2, size: 2 });
    assert_eq!(decoder.symbol(2, &mut symbol), Err(unknown));
    for size in [0, 1025, usize::MAX] {
        assert!(Encoder::new(size, 4, 1).is_err() && Decoder::new(size, 4).is_err());
        assert!(Recoder::new(size, 4, 1).is_err());
    }
}

#[test]
fn stripes_on_several_threads_share_one_code() {
    let code = ReedSolomon::new(5, 3).expect("a code");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let code = &code;
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(thread);
                (0..50).for_each(|_| stripe(code, &mut random));
            });
        }
    });
}

fn stripe(code: &ReedSolomon, random: &mut ChaCha8Rng) {
    let (data, all) = (code.data(), code.data() + code.parity());
    let bytes = 1 + random.next_u32() as usize % 300;
    let mut buffers = vec![vec![0; bytes]; all];
    buffers[..data].iter_mut().for_each(|buffer| random.fill_bytes(buffer));
    let (sources, parity) = buffers.split_at_mut(data);
    let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode(&sources.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut parity)
        .expect("as many as the code has");
    let mut ids: Vec<usize> = (0..all).collect();
    for index in (1..all).rev() {
        ids.swap(index, random.next_u32() as usize % (index + 1));
    }
    let intact: Vec<&[u8]> = ids[..data].iter().map(|&id| buffers[id].as_slice()).collect();
    let mut lost = vec![vec![0; bytes]; all - data];
    let mut places: Vec<&mut [u8]> = lost.iter_mut().map(Vec::as_mut_slice).collect();
    code.recover(&ids, &intact, &mut places).expect("k are intact");
    for (buffer, &id) in lost.iter().zip(&ids[data..]) {
        assert_eq!(*buffer, buffers[id], "buffer {id} of {ids:?}");
    }
}

#[test]
fn stripes_refuse_ids_and_lengths_that_do_not_fit() {
    let code = ReedSolomon::new(2, 1).expect("a code");
    let (intact, mut lost): ([&[u8]; 2], _) = ([b"ab", b"cd"], [0; 2]);
    for ids in [&[0, 1][..], &[0, 1, 3], &[0, 0, 2], &[0, 1, 1], &[0, 1, 2, 3], &[]] {
        assert!(code.recover(ids, &intact, &mut [&mut lost]).is_err(), "{ids:?}");
    }
    assert!(code.recover(&[0, 1, 2], &intact, &mut [&mut [0; 3]]).is_err());
    assert!(code.recover(&[0, 1, 2], &[b"ab", b"c"], &mut [&mut lost]).is_err());
    assert_eq!(lost, [0; 2]);
    assert_eq!(code.recover(&[0, 1], &intact, &mut []), Ok(()), "nothing is lost");
    assert!(ReedSolomon::new(0, 1).is_err() && ReedSolomon::new(200, 57).is_err());
}

fn random() -> ChaCha8Rng {
    let seed = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("RECODED_SEED={seed} repeats this run");
    ChaCha8Rng::seed_from_u64(seed)
}
