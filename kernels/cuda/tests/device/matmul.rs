//! Every technique gives the same bytes as the CPU's kernels: all fields, odd shapes, many jobs a
//! launch.

use recoded_cuda::{TECHNIQUES, Technique};
use recoded_gf::Field;

use crate::card::{Card, Product, Random};

fn serves(technique: &Technique, field: Field) -> bool {
    technique.packed || field.order() == 256
}

/// Rows, depth, bytes: around the units of all kernels, and one with more coefficients than
/// `permute` and `wgmma` keep in shared memory at a time.
const SHAPES: [(usize, usize, usize); 11] = [
    (1, 1, 16),
    (2, 3, 48),
    (5, 7, 64),
    (16, 16, 256),
    (17, 9, 272),
    (33, 33, 80),
    (65, 40, 32),
    (3, 70, 528),
    (31, 31, 2064),
    (40, 300, 16),
    (20, 140, 656),
];

fn technique_matches_cpu(name: &str) {
    let technique = TECHNIQUES.iter().find(|known| known.name == name).expect("a technique");
    let mut random = Random::new();
    for field in Field::ALL.into_iter().filter(|&field| serves(technique, field)) {
        for (index, (rows, depth, bytes)) in SHAPES.into_iter().enumerate() {
            let accumulate = index % 2 == 1;
            let product = Product::random(&mut random, field, rows, depth, bytes, accumulate);
            let mut card = Card::new(1 << 20, random.next());
            // Fields differ in their tables only.
            card.finds_races = field == Field::default();
            let job = product.upload(&mut card, technique, 16 * (index as u32 % 3));
            card.run(technique.kernel, &[job]);
            product.check(&mut card, &job, name);
        }
    }
}

fn many_jobs_match_cpu(name: &str) {
    let technique = TECHNIQUES.iter().find(|known| known.name == name).expect("a technique");
    let mut random = Random::new();
    let fields: Vec<Field> = Field::ALL.into_iter().filter(|&f| serves(technique, f)).collect();
    let mut card = Card::new(8 << 20, random.next());
    // More than 32, so that the search for a job takes two rounds; some of them empty.
    let products: Vec<Product> = (0..45)
        .map(|index| {
            let rows = if index % 7 == 6 { 0 } else { 1 + random.below(9) };
            let (depth, bytes) = (1 + random.below(20), 16 * (1 + random.below(12)));
            let accumulate = random.below(2) == 1;
            let field = fields[index % fields.len()];
            Product::random(&mut random, field, rows, depth, bytes, accumulate)
        })
        .collect();
    let jobs: Vec<_> =
        products.iter().map(|product| product.upload(&mut card, technique, 0)).collect();
    card.run(technique.kernel, &jobs);
    for (product, job) in products.iter().zip(&jobs) {
        product.check(&mut card, job, name);
    }
}

macro_rules! techniques {
    ($($test:ident, $name:literal;)*) => {
        $(mod $test {
            #[test]
            fn matches_cpu() {
                super::technique_matches_cpu($name);
            }

            #[test]
            fn many_jobs_match_cpu() {
                super::many_jobs_match_cpu($name);
            }
        })*

        #[test]
        fn every_technique_is_tested() {
            let tested = [$($name),*];
            assert!(TECHNIQUES.iter().map(|technique| technique.name).eq(tested));
        }
    };
}

techniques! {
    loop_, "loop";
    table_0, "table-0";
    table_1, "table-1";
    table_2, "table-2";
    table_3, "table-3";
    table_4, "table-4";
    table_5, "table-5";
    permute, "permute";
    permute_narrow, "permute-narrow";
    four_russians, "four-russians";
    bmma, "bmma";
    wgmma, "wgmma";
}
