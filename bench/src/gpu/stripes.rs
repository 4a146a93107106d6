//! Gibraltar's stripes: computes the parity of k data buffers, and recovers lost buffers.

use std::sync::Arc;
use std::time::Duration;

use recoded_cuda::opener;
use recoded_offload::gibraltar::{Buffers, Context};
use recoded_offload::{Config, Device, Mode, SpotCheck};

use super::bed::Bed;
use super::coding::{CPU, HOST};
use super::rows::{Part, RowKey};
use crate::error::BenchError;

/// Generation and recovery. Rates are of data, as a user of the library sees them.
///
/// # Errors
/// If the card's result is wrong, or a code is refused.
pub fn stripes(bed: &mut Bed) -> Result<(), BenchError> {
    let buffer = *bed.scale.buffers.last().unwrap_or(&(1 << 20));
    let device = device(bed);
    if device.is_some() {
        bed.card = None; // one engine at a time has the card
    }
    for &data in bed.scale.data_buffers {
        for parity in PARITY {
            stripe(bed, device.as_ref(), [data, parity, buffer])?;
        }
        for &bytes in bed.scale.buffers.iter().filter(|&&bytes| bytes != buffer) {
            stripe(bed, device.as_ref(), [data, PARITY[0], bytes])?;
        }
        bed.bar.inc(1);
    }
    if let Some(error) = device.as_ref().and_then(Device::why_down) {
        bed.troubles.push(format!("stripes: {error}"));
    }
    drop(device);
    bed.open();
    Ok(())
}

/// The card as a user of the library sees it.
fn device(bed: &Bed) -> Option<Device> {
    let config = Config {
        mode: Mode::Device,
        measure: false,
        // For a product of few rows, a check would cost the CPU as much as the product.
        spot_check: SpotCheck::Off,
        ..Config::default()
    };
    Some(Device::new(config, Arc::new(opener(bed.options.clone()?, TIMEOUT))))
}

fn stripe(
    bed: &mut Bed,
    device: Option<&Device>,
    [data, parity, bytes]: [usize; 3],
) -> Result<(), BenchError> {
    let count = (bed.scale.bytes / (data * bytes)).clamp(1, STRIPES_MAX);
    let mut contexts = vec![(CPU, Context::new(data, parity)?)];
    if let Some(device) = device {
        contexts.push((HOST, Context::on(device.clone(), data, parity)?));
    }
    let mut random = vec![0; data * bytes];
    bed.bytes(&mut random);
    let mut all = Vec::new();
    for (who, context) in contexts {
        all.push(Stripes::new(who, context, &random, count, bytes, parity)?);
    }
    for stripes in &mut all {
        stripes.check()?;
    }
    let (first, others) = all.split_first().map_or((None, &[][..]), |(f, o)| (Some(f), o));
    for other in others {
        if first.is_some_and(|first| first.parity() != other.parity()) {
            let (what, technique) = ("parity".into(), "reed-solomon".into());
            return Err(BenchError::WrongCard { what, technique });
        }
    }
    let of_data = (count * data * bytes) as f64;
    for _ in 0..bed.rounds() {
        for stripes in &mut all {
            let place = |part| RowKey { part, n: data, bytes, of: parity };
            let seconds = bed.seconds(|| stripes.generate());
            bed.rows.sample(place(Part::Generate), stripes.who, of_data / seconds);
            let seconds = bed.seconds(|| stripes.recover());
            bed.rows.sample(place(Part::Recover), stripes.who, of_data / seconds);
        }
    }
    Ok(())
}

/// Stripes that one contestant codes.
struct Stripes {
    who: &'static str,
    context: Context,
    whole: Vec<Buffers>,
    /// The same with as many data buffers lost as possible, parity in their places.
    damaged: Vec<Buffers>,
    ids: Vec<usize>,
    lost: usize,
}

impl Stripes {
    fn new(
        who: &'static str,
        mut context: Context,
        random: &[u8],
        count: usize,
        bytes: usize,
        parity: usize,
    ) -> Result<Self, BenchError> {
        let data = random.len() / bytes;
        let fresh = |_| -> Result<Buffers, BenchError> {
            let mut buffers = context.alloc(bytes)?;
            for (place, from) in random.chunks_exact(bytes).enumerate() {
                buffers.row_mut(place).copy_from_slice(from);
            }
            Ok(buffers)
        };
        let mut whole = (0..count).map(fresh).collect::<Result<Vec<_>, _>>()?;
        let mut damaged = (0..count).map(fresh).collect::<Result<Vec<_>, _>>()?;
        context.generate_all(&mut whole)?;
        let lost = data.min(parity);
        for (buffers, whole) in damaged.iter_mut().zip(&whole) {
            for place in 0..lost {
                buffers.row_mut(place).copy_from_slice(whole.row(data + place));
            }
        }
        let intact = (0..data).map(|place| if place < lost { data + place } else { place });
        let ids = intact.chain(0..lost).collect();
        Ok(Self { who, context, whole, damaged, ids, lost })
    }

    fn generate(&mut self) {
        // `check` ran it before and reported errors.
        let _ = self.context.generate_all(&mut self.whole);
    }

    fn recover(&mut self) {
        let _ = self.context.recover_all(&mut self.damaged, &self.ids);
    }

    fn parity(&self) -> Vec<&[u8]> {
        let data = self.ids.len() - self.lost;
        self.whole.iter().map(|buffers| buffers.row(data)).collect()
    }

    /// Checks that lost buffers are recovered.
    fn check(&mut self) -> Result<(), BenchError> {
        self.context.generate_all(&mut self.whole)?;
        let data = self.ids.len() - self.lost;
        self.context.recover_all(&mut self.damaged, &self.ids)?;
        for (buffers, whole) in self.damaged.iter().zip(&self.whole) {
            if (0..self.lost).any(|place| buffers.row(data + place) != whole.row(place)) {
                let (what, technique) = ("recovery".into(), self.who.into());
                return Err(BenchError::WrongCard { what, technique });
            }
        }
        Ok(())
    }
}

/// Parity buffers of the codes that are measured.
const PARITY: [usize; 3] = [2, 3, 4];

/// Enough that no cache holds them all and copies overlap with products.
const STRIPES_MAX: usize = 32;

const TIMEOUT: Duration = Duration::from_secs(20);
