//! `src/job.rs` agrees with `job.h`.

use recoded_cuda::{Form, Job, KERNELS, TABLES_BYTES, TECHNIQUES};
use recoded_cuda_shim::{geometries, sample, techniques};
use recoded_gf::Field;

#[test]
fn job_has_the_layout_of_the_header() {
    let expected = Job {
        coefficients: 1,
        sources: 2,
        destinations: 3,
        coefficient_stride: 4,
        source_stride: 5,
        destination_stride: 6,
        symbol_bytes: 7,
        rows: 8,
        depth: 9,
        first_block: 10,
        field: 11,
        flags: 12,
        order: 13,
        reserved: 14,
        parameter: 15,
    };
    let (bytes, tables_bytes, state_bytes) = sample();
    // SAFETY: a job is 64 bytes of plain integers.
    let job: Job = unsafe { std::mem::transmute(bytes) };
    assert_eq!(job, expected);
    assert_eq!(tables_bytes, TABLES_BYTES as u64);
    let states = [u64::from(Job::progressive_state_bytes(100)), Job::INVERSE_STATE_BYTES];
    assert_eq!(state_bytes, states);
    assert_eq!(align_of::<Job>(), 16);
}

#[test]
fn kernels_are_those_of_the_header() {
    let rows = geometries();
    assert_eq!(rows.len(), KERNELS.len());
    for (row, kernel) in rows.iter().zip(KERNELS) {
        assert_eq!(row.name, kernel.name);
        let numbers = [
            kernel.threads,
            kernel.unit_rows,
            kernel.unit_bytes,
            kernel.units_per_block,
            kernel.shared_bytes,
        ];
        assert_eq!(row.numbers, numbers, "{}", row.name);
    }
}

#[test]
fn techniques_are_those_of_the_header() {
    let form = |form: Form| form as u32;
    let rows = techniques();
    assert_eq!(rows.len(), TECHNIQUES.len());
    for (row, technique) in rows.iter().zip(TECHNIQUES) {
        assert_eq!((row.name.as_str(), row.kernel.as_str()), (technique.name, technique.kernel));
        let (from, to) = technique.capability;
        let packed = u32::from(technique.packed);
        let forms = [form(technique.coefficients), form(technique.sources), packed, from, to];
        assert_eq!(row.numbers, forms, "{}", row.name);
    }
}

#[test]
fn fields_have_distinct_codes() {
    let codes: Vec<u8> = Field::ALL.into_iter().map(Job::field_code).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4]);
}
