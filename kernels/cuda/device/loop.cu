// `loop`: Nuclei's multiplication (Shojania, Li, Wang, "Nuclei: Graphics-accelerated many-core
// network coding", section IV): a thread makes one word of one destination, reads coefficients four
// at a time, and multiplies bit by bit. About 10 instructions for a byte; the papers' baseline.
#include "../job.h"
#include "common.cuh"

KERNEL(matmul_loop) {
    const Job job = job_of_block(jobs, jobs_count);
    const Unit unit = unit_of(
        job, (blockIdx.x - job.first_block) * matmul_loop_units + threadIdx.x, 1, 4);
    if (!unit.exists) return;
    const Shape shape = shape_of(tables[job.field].element_bits, tables[job.field].polynomial);
    const uint8_t *coefficients = coefficient_row(job, arena, unit.row);
    const uint8_t *source = source_row(job, arena, 0) + unit.byte;
    uint32_t sum = 0;
    for (uint32_t first = 0; first < job.depth; first += 4) {
        uint32_t four = load<uint32_t>(coefficients + first);
        const uint32_t last = min(first + 4, job.depth);
        for (uint32_t i = first; i < last; i++, four >>= 8, source += job.source_stride) {
            sum ^= loop_multiply(four & 0xff, load<uint32_t>(source), shape);
        }
    }
    put(job, destination_row(job, arena, unit.row) + unit.byte, sum);
}
