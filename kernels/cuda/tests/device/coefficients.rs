//! Constant tables and random coefficients.

use recoded_code::rlnc::{Density, Generator, Seeded};
use recoded_cuda::{Job, TABLES_BYTES};
use recoded_gf::{Field, FieldOrder};

use crate::card::{Card, Random};

const FIELD_BYTES: usize = TABLES_BYTES / 5;

/// Parts of the tables of a field, in the layout of `job.h`.
fn tables_of(all: &[u8], field: usize) -> (&[u8], &[u8], &[u8]) {
    let bytes = &all[field * FIELD_BYTES..][..FIELD_BYTES];
    let (products, rest) = bytes.split_at(256 * 32);
    let (bit_rows, rest) = rest.split_at(256 * 8);
    (products, bit_rows, rest)
}

#[test]
fn tables_hold_the_products_of_the_field() {
    let all = Card::new(16, 1).tables();
    for (index, field) in Field::ALL.into_iter().enumerate() {
        let (products, bit_rows, rest) = tables_of(&all, index);
        for c in 0..=255_u8 {
            let product = &products[usize::from(c) * 32..][..32];
            for x in 0..8 {
                assert_eq!(product[usize::from(x)], field.mul(c, x), "{field} {c} {x}");
                assert_eq!(product[8 + usize::from(x)], field.mul(c, x << 3));
            }
            for x in 0..4 {
                assert_eq!(product[16 + usize::from(x)], field.mul(c, x << 6));
            }
            assert_eq!(product[20..], [0; 12]);
            for bit in 0..8 {
                let row = bit_rows[usize::from(c) * 8 + bit];
                let expected = (0..8).map(|i| (field.mul(c, 1 << i) >> bit & 1) << i);
                assert_eq!(row, expected.sum::<u8>(), "{field} {c}");
            }
            if u16::from(c) < field.order() {
                assert_eq!(rest[usize::from(c)], field.inverse(c).unwrap_or(0), "{field} {c}");
            }
        }
    }
}

#[test]
fn logarithms_and_powers_multiply() {
    let all = Card::new(16, 2).tables();
    for (index, field) in Field::ALL.into_iter().enumerate().take(2) {
        let (_, _, rest) = tables_of(&all, index);
        let (logarithms, powers) = (&rest[256..512], &rest[512..1024]);
        assert_eq!(logarithms[0], 0xFF);
        for (a, b) in (1..=255_u8).flat_map(|a| (1..=255_u8).map(move |b| (a, b))) {
            let sum = [a, b].map(|x| usize::from(logarithms[usize::from(x)]));
            assert_eq!(powers[sum[0] + sum[1]], field.mul(a, b), "{field} {a} {b}");
        }
    }
}

#[test]
fn random_coefficients_are_those_of_seeds_in_packets() {
    let mut random = Random::new();
    let mut card = Card::new(4 << 20, random.next());
    let seed = random.next() as u32 | 0xFFFF_FF00;
    // Rows of one coefficient are often zero at first, and the seeds wrap around.
    for (order, columns) in
        FieldOrder::ALL.into_iter().flat_map(|order| [1, 3, 100].map(|columns| (order, columns)))
    {
        let (rows, stride) = (300, 112);
        let destinations = card.allocate(rows * u64::from(stride));
        let job = Job {
            destinations,
            destination_stride: stride,
            rows: rows as u32,
            symbol_bytes: columns,
            order: Job::order_code(order),
            parameter: u64::from(seed),
            ..Job::default()
        };
        card.run("random_coefficients", &[job]);
        for (row, bytes) in
            card.download(destinations, rows as usize, columns as usize, stride).iter().enumerate()
        {
            let mut expected = vec![0; columns as usize];
            Seeded::new(seed.wrapping_add(row as u32), Density::UNIFORM).fill(order, &mut expected);
            assert_eq!(*bytes, expected, "order {order}, row {row} of {columns}");
        }
    }
}

#[test]
fn random_coefficients_of_packed_fields_are_indices() {
    let mut card = Card::new(1 << 16, 3);
    let destinations = card.allocate(64 * 32);
    let job = Job {
        destinations,
        destination_stride: 32,
        rows: 64,
        symbol_bytes: 20,
        field: Job::field_code(Field::PackedGf16x13),
        order: Job::order_code(FieldOrder::Sixteen),
        parameter: 9,
        ..Job::default()
    };
    card.run("random_coefficients", &[job]);
    let rows = card.download(destinations, 64, 20, 32);
    for (row, bytes) in rows.iter().enumerate() {
        let mut elements = [0; 20];
        Seeded::new(9 + row as u32, Density::UNIFORM).fill(FieldOrder::Sixteen, &mut elements);
        let indices = elements.map(|element| FieldOrder::Sixteen.index_of(element));
        assert!(bytes.iter().zip(indices).all(|(&byte, index)| Some(byte) == index), "row {row}");
    }
}
