//! Kernels that are written for one matrix.

use recoded_code::reed_solomon::ReedSolomon;
use recoded_cuda::reed_solomon_source::{PRELUDE, source};
use recoded_cuda::{Geometry, TECHNIQUES};
use recoded_gf::Field;

use crate::card::{Card, Product, Random};

#[test]
fn written_kernels_match_cpu() {
    let mut random = Random::new();
    let geometry = Geometry::of("reed_solomon").expect("a kernel of the table");
    // Those that the shim's build script writes.
    for (data, parity) in [(1, 1), (4, 2), (10, 4), (13, 5), (32, 16)] {
        let code = ReedSolomon::new(data, parity).expect("a small code");
        let coefficients: Vec<Vec<u8>> =
            code.generator().chunks_exact(data).map(<[u8]>::to_vec).collect();
        let mut card = Card::new(4 << 20, random.next());
        let (mut products, mut jobs) = (Vec::new(), Vec::new());
        for bytes in [16, 1008, 4096] {
            let mut product = Product::random(
                &mut random,
                Field::default(),
                (parity, data, bytes),
                bytes == 1008,
            );
            product.coefficients.clone_from(&coefficients);
            jobs.push(product.upload(&mut card, &TECHNIQUES[0], 16));
            products.push(product);
        }
        let name = format!("reed_solomon_{data}_{parity}");
        card.run_as(&name, geometry, &jobs);
        for (product, job) in products.iter().zip(&jobs) {
            product.check(&mut card, job, &name);
        }
    }
}

#[test]
fn source_is_one_text() {
    let text = PRELUDE.to_owned() + &source("reed_solomon", &[1, 2, 3, 4], 2);
    assert!(!text.contains("#include \""), "the run-time compiler has no files");
    assert!(text.contains("KERNEL(reed_solomon)"));
}
