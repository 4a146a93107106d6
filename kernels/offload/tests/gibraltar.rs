//! Stripes by CPU and by devices that work, fail, hang and lie. `RECODED_SEED` repeats a run; the
//! seed is printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::engine::{Chaos, CpuEngine, Faults, Partition};
use recoded_code::reed_solomon::{self, ReedSolomon};
use recoded_offload::gibraltar::{Buffers, Context, Error};
use recoded_offload::{By, Config, Device, Mode, OpenEngine, SpotCheck};

#[test]
fn any_surviving_buffers_in_any_order_recover_the_others() {
    let mut random = random();
    for device in [None, Some(device(Faults::default(), 1))] {
        for (data, parity) in [(1, 1), (4, 2), (10, 4), (5, 16)] {
            let mut context = context(device.clone(), data, parity);
            for bytes in [1, 127, 128, 1000] {
                round_trip(&mut context, data, parity, bytes, &mut random);
            }
        }
    }
}

#[test]
fn device_that_fails_leaves_stripes_right() {
    let mut random = random();
    for round in 0..6 {
        let share = |word: u32| f64::from(word) / f64::from(u32::MAX) * 0.2;
        let faults = Faults {
            refuse: share(random.next_u32()),
            fail: share(random.next_u32()),
            lose: share(random.next_u32()) / 4.0,
            lie: share(random.next_u32()),
            hang: if round == 0 { 0.2 } else { 0.0 },
            ..Faults::default()
        };
        println!("{faults:?}");
        let mut context = context(Some(device(faults, random.next_u64())), 10, 4);
        for _ in 0..10 {
            round_trip(&mut context, 10, 4, 500, &mut random);
        }
    }
}

/// Fills stripes, generates, loses buffers, recovers, and compares with the code's own arithmetic.
fn round_trip(
    context: &mut Context,
    data: usize,
    parity: usize,
    bytes: usize,
    random: &mut ChaCha8Rng,
) {
    let mut stripes: Vec<Buffers> =
        (0..3).map(|_| context.alloc(bytes).expect("a size that there is")).collect();
    for buffers in &mut stripes {
        assert_eq!((buffers.bytes(), buffers.stride()), (bytes, bytes.next_multiple_of(128)));
        (0..data).for_each(|row| random.fill_bytes(buffers.row_mut(row)));
    }
    context.generate_all(&mut stripes).expect("of this code");
    let code = ReedSolomon::new(data, parity).expect("a code");
    for buffers in &mut stripes {
        let sources: Vec<&[u8]> = (0..data).map(|row| buffers.row(row)).collect();
        let mut expected = vec![vec![0; bytes]; parity];
        let mut rows: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
        code.generate(&sources, &mut rows).expect("as many as the code has");
        for (row, expected) in expected.iter().enumerate() {
            assert_eq!(buffers.row(data + row), expected, "parity {row}");
        }
        // Any k of all in any order, then some of the others.
        let mut ids: Vec<usize> = (0..data + parity).collect();
        for index in (1..ids.len()).rev() {
            ids.swap(index, random.next_u32() as usize % (index + 1));
        }
        ids.truncate(data + random.next_u32() as usize % (parity + 1));
        let all: Vec<Vec<u8>> = (0..data + parity).map(|row| buffers.row(row).to_vec()).collect();
        for (place, &id) in ids[..data].iter().enumerate() {
            buffers.row_mut(place).copy_from_slice(&all[id]);
        }
        (data..data + parity).for_each(|place| buffers.row_mut(place).fill(0xEE));
        context.recover(buffers, &ids).expect("enough are left");
        for (place, &id) in ids.iter().enumerate() {
            assert_eq!(buffers.row(place), all[id], "buffer {id} at {place}");
        }
    }
}

#[test]
fn a_lost_disk_is_recovered_in_all_stripes_or_in_none() {
    for device in [None, Some(device(Faults::default(), 1))] {
        let mut context = context(device, 4, 2);
        let mut stripes: Vec<Buffers> =
            (0..5).map(|_| context.alloc(77).expect("a size")).collect();
        for (number, buffers) in stripes.iter_mut().enumerate() {
            (0..4).for_each(|row| buffers.row_mut(row).fill((16 * number + row) as u8));
        }
        context.generate_all(&mut stripes).expect("of this code");
        // Buffer 1 is lost: parity 4 in its place.
        for buffers in &mut stripes {
            let parity = buffers.row(4).to_vec();
            buffers.row_mut(1).copy_from_slice(&parity);
        }
        let ids = [0, 4, 2, 3, 1];
        assert_eq!(context.recover_all(&mut stripes, &ids).expect("enough are left").len(), 5);
        for (number, buffers) in stripes.iter().enumerate() {
            assert_eq!(buffers.row(4), [(16 * number + 1) as u8; 77], "stripe {number}");
        }
        stripes.push(Context::new(3, 2).expect("a code").alloc(77).expect("a size"));
        let before: Vec<Vec<u8>> = stripes.iter().map(|buffers| buffers.row(4).to_vec()).collect();
        let refused = context.recover_all(&mut stripes, &[0, 4, 2, 3, 5]);
        assert_eq!(refused, Err(Error::OtherCode { data: 3, parity: 2 }));
        assert!(stripes.iter().zip(&before).all(|(buffers, before)| buffers.row(4) == before));
    }
}

#[test]
fn work_goes_to_the_device_and_back_when_it_hangs() {
    let mut context = context(Some(device(Faults::default(), 1)), 4, 2);
    let mut buffers = context.alloc(100).expect("a size");
    assert_eq!(context.generate(&mut buffers), Ok(By::Device));

    // The self-test returns, the next bundle does not.
    let device = Device::new(config(), hanging_after(1));
    let mut context = self::context(Some(device.clone()), 4, 2);
    assert_eq!(context.generate(&mut buffers), Ok(By::Cpu));
    assert!(device.why_down().is_some());
    // The device still holds the inputs; they are writable nevertheless.
    buffers.row_mut(0).fill(1);
    assert_eq!(context.generate(&mut buffers), Ok(By::Cpu));
}

#[test]
fn what_contradicts_the_code_is_an_error() {
    assert!(matches!(Context::new(0, 1), Err(Error::Code(_))));
    let mut context = context(None, 4, 2);
    assert!(matches!(context.alloc(0), Err(Error::Buffers(_))));
    let mut other = Context::new(3, 2).expect("a code").alloc(10).expect("a size");
    assert_eq!(context.generate(&mut other), Err(Error::OtherCode { data: 3, parity: 2 }));
    let mut buffers = context.alloc(10).expect("a size");
    let mut recover = |ids: &[usize]| context.recover(&mut buffers, ids);
    let code = |error| Err(Error::Code(error));
    assert_eq!(recover(&[0, 1, 2]), code(reed_solomon::Error::TooFew { intact: 3, needed: 4 }));
    assert_eq!(recover(&[0, 1, 2, 2]), code(reed_solomon::Error::Repeated { id: 2 }));
    assert_eq!(recover(&[0, 1, 2, 6]), code(reed_solomon::Error::UnknownId { id: 6, buffers: 6 }));
    assert_eq!(
        recover(&[0, 1, 2, 3, 4, 5, 0]),
        code(reed_solomon::Error::Ids { ids: 7, buffers: 6 })
    );
    assert_eq!(recover(&[0, 1, 2, 3]), Ok(By::Cpu));
}

fn context(device: Option<Device>, data: usize, parity: usize) -> Context {
    match device {
        Some(device) => Context::on(device, data, parity).expect("a code"),
        None => Context::new(data, parity).expect("a code"),
    }
}

fn config() -> Config {
    Config {
        mode: Mode::Device,
        measure: false,
        spot_check: SpotCheck::All,
        open_timeout: Duration::from_millis(500),
        retry_min: Duration::from_millis(1),
        retry_max: Duration::from_millis(4),
        ..Config::default()
    }
}

fn device(faults: Faults, seed: u64) -> Device {
    let opened = AtomicUsize::new(0);
    let open: OpenEngine = Arc::new(move || {
        let seed = seed.wrapping_add(opened.fetch_add(1, Ordering::Relaxed) as u64);
        let engine = CpuEngine::new(1, Partition::FullBlock)?;
        Ok(Box::new(Chaos::new(engine, faults, seed)))
    });
    Device::new(config(), open)
}

/// Opens an engine that returns `bundles` bundles and no more.
fn hanging_after(bundles: usize) -> OpenEngine {
    use recoded_code::engine::{Bundle, Completed, Engine, Refused};
    struct Hanging(CpuEngine, usize);
    impl Engine for Hanging {
        fn name(&self) -> &str {
            "hanging"
        }
        fn depth(&self) -> usize {
            1
        }
        fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
            self.0.submit(bundle)
        }
        fn poll(&mut self) -> Option<Completed> {
            self.1 = self.1.checked_sub(1).or_else(|| {
                std::thread::sleep(Duration::from_millis(1));
                None
            })?;
            self.0.poll().or_else(|| {
                self.1 += 1;
                None
            })
        }
    }
    Arc::new(move || Ok(Box::new(Hanging(CpuEngine::new(1, Partition::FullBlock)?, bundles))))
}

fn random() -> ChaCha8Rng {
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let clock =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let seed = given.unwrap_or(clock);
    println!("RECODED_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}
