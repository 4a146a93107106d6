//! How many clocks the simulated engine takes for jobs of many shapes, and what that is in Gbit/s
//! at an assumed 300 MHz. Prints a table, and writes JSON to the file that is named.
//!
//! ```text
//! cargo run --release -p recoded-fpga --features fpga-sim --example rates -- FILE
//! ```

use std::time::Instant;
use std::{env, fs};

use recoded_fpga::layout::{Descriptor, counter, field, op, status};
use recoded_fpga::sim::{CLOCK_KHZ, MemoryModel, Simulation};
use recoded_fpga::{Counters, Driver, Options, Transport, tiled_bytes};
use recoded_gf::Field;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rows = Vec::new();
    let (mut cycles, begun) = (0, Instant::now());
    println!(
        "| K = N | bytes | unaligned | clocks/job | Gbit/s | tables | input | output | memory |"
    );
    for (name, model) in memories() {
        for shape in shapes() {
            let measured = measure(&model, shape)?;
            cycles += measured.cycles;
            println!("{} {name} |", measured.line(shape));
            rows.push(measured.to_json(shape, name));
        }
    }
    let rate = cycles as f64 / begun.elapsed().as_secs_f64();
    println!("{cycles} clocks simulated, {:.2} million a second", rate / 1e6);
    if let Some(path) = env::args().nth(1) {
        let document = json!({
            "what": "simulated clock by clock; rates are at an assumed 300 MHz, destinations only",
            "clock_khz": CLOCK_KHZ,
            "simulated_cycles_per_second": rate as u64,
            "jobs": rows,
        });
        fs::write(path, serde_json::to_string_pretty(&document)? + "\n")?;
    }
    Ok(())
}

/// Memories that a card may have before it.
fn memories() -> [(&'static str, MemoryModel); 2] {
    // 12 GB/s each way at 300 MHz is 40 of 64 bytes a clock; 1 us is 300 clocks.
    let host = MemoryModel {
        read_latency: 300,
        write_latency: 300,
        beats_per_1024: 640,
        ..MemoryModel::default()
    };
    [("HBM", MemoryModel::default()), ("PCIe", host)]
}

#[derive(Copy, Clone)]
struct Shape {
    size: usize,
    row_bytes: usize,
    is_unaligned: bool,
}

fn shapes() -> impl Iterator<Item = Shape> {
    let lengths = [64, 128, 256, 512, 1000, 1500, 4096, 9000];
    let sized = move |size: usize| {
        lengths.into_iter().flat_map(move |row_bytes| {
            let of = move |is_unaligned| Shape { size, row_bytes, is_unaligned };
            [of(false), of(true)]
        })
    };
    [16, 32, 64, 128].into_iter().flat_map(sized)
}

struct Measured {
    jobs: u64,
    cycles: u64,
    bytes_out: u64,
    stalls: [u64; 3],
}

/// Does as many jobs back to back as the ring takes, by addresses in a list.
fn measure(model: &MemoryModel, shape: Shape) -> Result<Measured, Box<dyn std::error::Error>> {
    let Shape { size, row_bytes, is_unaligned } = shape;
    let products = size * size * row_bytes;
    let jobs = (PRODUCTS / products).clamp(6, 200) as u64;
    let simulation = Simulation::new(model.clone(), 16 << 20);
    let mut driver = Driver::open(simulation, Options::default())?;
    let tile = driver.shape().tile();
    let coefficients = driver.transport().allocate(tiled_bytes(size, size, tile))?;
    let mut lists = [0; 2];
    for list in &mut lists {
        let stride = row_bytes.next_multiple_of(64) + 64;
        let first = driver.transport().allocate(stride * size + 64)?;
        // Offsets 0, 11, 22, ... in a beat, such as packets have.
        let shift = |row: usize| if is_unaligned { 11 * row % 64 } else { 0 };
        let addresses = (0..size).map(|row| first + (stride * row + shift(row)) as u64);
        let bytes: Vec<u8> = addresses.flat_map(u64::to_le_bytes).collect();
        *list = driver.transport().allocate(bytes.len())?;
        driver.transport().write(*list, &bytes)?;
    }
    let descriptor = Descriptor {
        op: op::MULTIPLY,
        field: field::GF256,
        polynomial: Field::Gf256x11D.polynomial() as u8,
        k: size as u16,
        n: size as u16,
        row_bytes: row_bytes as u32,
        coefficients,
        sources: lists[0],
        destinations: lists[1],
        ..Descriptor::default()
    };
    let before = driver.counters();
    for _ in 0..jobs {
        driver.submit(descriptor)?;
    }
    let begun = driver.transport().cycle();
    while let Some(completion) = driver.wait()? {
        assert_eq!(completion.status, status::OK);
    }
    let cycles = driver.transport().cycle() - begun;
    let after = driver.counters();
    let grown = |number| Counters::get(&after, number) - before.get(number);
    let stalls = [counter::STALL_TABLES, counter::STALL_INPUT, counter::STALL_OUTPUT].map(grown);
    Ok(Measured { jobs, cycles, bytes_out: grown(counter::BYTES_OUT), stalls })
}

impl Measured {
    fn gbit(&self) -> f64 {
        self.bytes_out as f64 * 8.0 * CLOCK_KHZ as f64 / 1e6 / self.cycles as f64
    }

    fn line(&self, shape: Shape) -> String {
        let [tables, input, output] = self.stalls.map(|stall| stall / self.jobs);
        let Shape { size, row_bytes, is_unaligned } = shape;
        let (cycles, gbit) = (self.cycles / self.jobs, self.gbit());
        let unaligned = if is_unaligned { "yes" } else { "no" };
        format!(
            "| {size} | {row_bytes} | {unaligned} | {cycles} | {gbit:.1} | {tables} | {input} | \
             {output} |"
        )
    }

    fn to_json(&self, shape: Shape, memory: &str) -> Value {
        let per_job = |value: u64| value as f64 / self.jobs as f64;
        json!({
            "memory": memory,
            "size": shape.size,
            "row_bytes": shape.row_bytes,
            "is_unaligned": shape.is_unaligned,
            "jobs": self.jobs,
            "cycles_per_job": per_job(self.cycles),
            "gbit_per_second": self.gbit(),
            "stalled_for_tables": per_job(self.stalls[0]),
            "stalled_for_input": per_job(self.stalls[1]),
            "stalled_for_output": per_job(self.stalls[2]),
        })
    }
}

/// Products of a coefficient and a byte for each shape: what takes a tenth of a second or so.
const PRODUCTS: usize = 20_000_000;
