//! Limits of the card resources that the engine uses, by the recorded counts (`scripts/fpga`).

#[test]
fn engine_is_within_its_aims() {
    let counts = include_str!("../syn/counts.csv");
    let mut lines = counts.lines();
    let kinds: Vec<&str> = lines.next().expect("a head").split(',').skip(1).collect();
    let total = lines.find_map(|line| line.strip_prefix("total,")).expect("the sum of all blocks");
    let numbers: Vec<u32> = total.split(',').map(|text| text.parse().expect("a count")).collect();
    let of = |kind| {
        let place = kinds.iter().position(|known| *known == kind).expect("it is counted");
        numbers[place]
    };
    let luts = of("luts") + LUTS_OF_A_MEMORY * of("lut_memories");
    let block_rams = of("block_rams_18k").div_ceil(2);
    println!("{luts} LUTs, {block_rams} BRAM36");
    assert!(luts <= 25_000 && block_rams <= 64);
}

/// A RAM32M16 or a RAM64M8.
const LUTS_OF_A_MEMORY: u32 = 8;
