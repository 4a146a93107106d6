//! Field axioms of the four fields, exhaustively, and the map between indices and elements.

use recoded_gf::{Field, FieldOrder, inverse, mul};

fn elements(field: FieldOrder) -> Vec<u8> {
    (0..field.order()).map(|index| field.embed(index as u8)).collect()
}

#[test]
fn embedded_elements_are_the_roots_of_x_to_the_order_minus_x() {
    for field in FieldOrder::ALL {
        let power = |x: u8| (1..field.order()).fold(x, |product, _| mul(product, x));
        let mut roots: Vec<u8> = (0..=255).filter(|&x| power(x) == x).collect();
        let mut embedded = elements(field);
        roots.sort_unstable();
        embedded.sort_unstable();
        assert_eq!(embedded, roots, "GF({field})");
    }
}

#[test]
fn every_subfield_is_closed_and_obeys_the_field_axioms() {
    for field in [FieldOrder::Two, FieldOrder::Four, FieldOrder::Sixteen] {
        let elements = elements(field);
        let contains = |element| elements.contains(&element);
        for &a in &elements {
            assert!(a == 0 || inverse(a).is_some_and(contains), "GF({field}): inverse of {a}");
            for &b in &elements {
                assert!(contains(a ^ b) && contains(mul(a, b)), "GF({field}): {a}, {b}");
            }
        }
    }
}

#[test]
fn gf256_obeys_the_field_axioms() {
    for a in 0..=255 {
        assert_eq!((mul(a, 0), mul(a, 1)), (0, a));
        for b in 0..=255 {
            assert_eq!(mul(a, b), mul(b, a), "{a} * {b}");
            assert!(mul(a, b) != 0 || a == 0 || b == 0, "zero divisors {a}, {b}");
            // Distributivity over a basis and associativity with a generator reach all elements,
            // since both sides are linear in the third operand.
            for c in (0..8).map(|bit| 1 << bit) {
                assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c), "{a} * ({b} + {c})");
                assert_eq!(mul(mul(a, b), c), mul(a, mul(b, c)), "{a} * {b} * {c}");
            }
        }
    }
}

#[test]
fn indices_of_gf4_and_gf16_multiply_like_polynomials() {
    // Remainders of x^2 and x^4: x^2 + x + 1 and x^4 + x + 1 are the wire's index polynomials.
    for (field, top, remainder) in [(FieldOrder::Four, 4, 0b11), (FieldOrder::Sixteen, 16, 0b11)] {
        let multiply = |a: u8, b: u8| {
            let (mut a, mut product) = (a, 0);
            for bit in 0..field.bits() {
                product ^= if b >> bit & 1 == 1 { a } else { 0 };
                a <<= 1;
                a = if a & top == 0 { a } else { a ^ top ^ remainder };
            }
            product
        };
        for a in 0..top {
            for b in 0..top {
                let (x, y) = (field.embed(a), field.embed(b));
                assert_eq!(field.index_of(mul(x, y)), Some(multiply(a, b)), "GF({field}) {a} {b}");
                assert_eq!(field.index_of(x ^ y), Some(a ^ b), "GF({field}) {a} {b}");
            }
        }
    }
}

#[test]
fn index_of_inverts_embed_and_refuses_outsiders() {
    for field in FieldOrder::ALL {
        assert_eq!((field.embed(0), field.embed(1)), (0, 1), "GF({field})");
        let mut members = 0;
        for element in 0..=255 {
            if let Some(index) = field.index_of(element) {
                assert!(u16::from(index) < field.order());
                assert_eq!(field.embed(index), element, "GF({field})");
                members += 1;
            }
        }
        assert_eq!(members, field.order());
    }
}

#[test]
fn embed_ignores_bits_beyond_the_index() {
    for field in FieldOrder::ALL {
        for byte in 0..=255_u8 {
            let index = (u16::from(byte) % field.order()) as u8;
            assert_eq!(field.embed(byte), field.embed(index), "GF({field}), {byte}");
        }
    }
}

#[test]
fn wire_elements_never_change() {
    // Peers of another version must agree on these.
    assert_eq!(elements(FieldOrder::Four), [0, 1, 214, 215]);
    assert_eq!(
        elements(FieldOrder::Sixteen),
        [0, 1, 78, 79, 153, 152, 215, 214, 68, 69, 10, 11, 221, 220, 147, 146]
    );
}

#[test]
fn codes_orders_and_texts_round_trip() {
    for (code, field) in FieldOrder::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(field.code()), code);
        assert_eq!(FieldOrder::from_code(field.code()), Some(field));
        assert_eq!(FieldOrder::from_order(field.order()), Some(field));
        assert_eq!(field.to_string().parse(), Ok(field));
        assert_eq!(1 << field.bits(), field.order());
    }
    assert_eq!(FieldOrder::from_code(4), None);
    assert_eq!(FieldOrder::from_order(8), None);
    let error = "8".parse::<FieldOrder>().expect_err("no field of order 8 on the wire");
    assert_eq!(error.to_string(), "`8` is not a field order: 2, 4, 16 or 256");
}

#[test]
fn elements_of_every_symbol_field_obey_the_field_axioms() {
    for field in Field::ALL {
        let elements = || 0..=(field.order() - 1) as u8;
        for a in elements() {
            assert_eq!((field.mul(a, 0), field.mul(a, 1)), (0, a), "{field}");
            let unit = field.inverse(a).map(|inverse| field.mul(a, inverse));
            assert_eq!(unit, (a != 0).then_some(1), "{field}: inverse of {a}");
            for b in elements() {
                assert!(u16::from(field.mul(a, b)) < field.order(), "{field}: {a} * {b}");
                assert_eq!(field.mul(a, b), field.mul(b, a), "{field}: {a} * {b}");
                // A basis reaches all elements: both sides are linear in the third operand.
                for c in (0..field.element_bits()).map(|bit| 1 << bit) {
                    let (ab, ac) = (field.mul(a, b), field.mul(a, c));
                    assert_eq!(field.mul(a, b ^ c), ab ^ ac, "{field}: {a} * ({b} + {c})");
                    assert_eq!(field.mul(ab, c), field.mul(a, field.mul(b, c)), "{field}");
                }
            }
        }
    }
}

#[test]
fn packed_fields_multiply_each_element_of_a_byte() {
    for field in Field::ALL {
        let (bits, mask) = (field.element_bits(), (field.order() - 1) as u8);
        for c in 0..=mask {
            for byte in 0..=255_u8 {
                let elements = (0..8).step_by(bits as usize).map(|at| (at, byte >> at & mask));
                let expected = elements.fold(0, |sum, (at, x)| sum | field.mul(c, x) << at);
                assert_eq!(field.mul(c, byte), expected, "{field}: {c} * {byte}");
            }
        }
    }
}

#[test]
fn names_of_symbol_fields_round_trip() {
    for field in Field::ALL {
        assert_eq!(field.to_string().parse(), Ok(field));
    }
    let error = "gf256".parse::<Field>().expect_err("the polynomial is part of the name");
    assert!(error.to_string().contains("gf256-11d"), "{error}");
}
