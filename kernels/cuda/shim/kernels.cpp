// The kernels by name, and the values of job.h for Rust, so that a test can compare its mirror with
// them.
#include "../device/recoded.cu"
#include "broken.cu"

// Kernels of Reed-Solomon codes, written and listed by build.rs.
#include "reed_solomon.inc"

namespace {

struct Named {
    const char *name;
    shim::Kernel kernel;
};

#define NAMED(kernel, ...) {#kernel, recoded_##kernel},

const Named NAMED_KERNELS[] = {
    RECODED_MATMUL_KERNELS(NAMED)    //
    RECODED_OTHER_KERNELS(NAMED)     //
    {"broken_barrier", recoded_broken_barrier},
    {"broken_warp", recoded_broken_warp},
    {"broken_divergence", recoded_broken_divergence},
    {"broken_exit", recoded_broken_exit},
    {"broken_store", recoded_broken_store},
    {"broken_alignment", recoded_broken_alignment},
    {"broken_shared", recoded_broken_shared},
    {"broken_shared_alignment", recoded_broken_shared_alignment},
    {"broken_blocks", recoded_broken_blocks},
    {"broken_read_only", recoded_broken_read_only},
    {"broken_unwritten", recoded_broken_unwritten},
    REED_SOLOMON_KERNELS(NAMED)
};

struct Geometry {
    const char *name;
    uint32_t numbers[5];
};

#define GEOMETRY(kernel, ...) {#kernel, {__VA_ARGS__}},

const Geometry GEOMETRIES[] = {
    RECODED_MATMUL_KERNELS(GEOMETRY)   //
    RECODED_OTHER_KERNELS(GEOMETRY)    //
    RECODED_REED_SOLOMON_KERNEL(GEOMETRY)
};

struct TechniqueRow {
    const char *name;
    const char *kernel;
    uint32_t numbers[5];
};

#define TECHNIQUE(name, kernel, ...) {name, #kernel, {__VA_ARGS__}},

const TechniqueRow TECHNIQUE_ROWS[] = {RECODED_TECHNIQUES(TECHNIQUE)};

} // namespace

// Null, or what went wrong.
extern "C" const char *recoded_shim_launch(const char *name, const shim::Launch *launch) {
    for (const Named &named : NAMED_KERNELS) {
        if (strcmp(named.name, name) != 0) continue;
        shim::Launch complete = *launch;
        complete.kernel = named.kernel;
        return shim::run(complete);
    }
    return "no such kernel";
}

// Row `index` of the tables of job.h; false beyond the last one.
extern "C" bool recoded_shim_geometry(size_t index, Geometry *row) {
    if (index >= sizeof GEOMETRIES / sizeof *GEOMETRIES) return false;
    *row = GEOMETRIES[index];
    return true;
}

extern "C" bool recoded_shim_technique(size_t index, TechniqueRow *row) {
    if (index >= sizeof TECHNIQUE_ROWS / sizeof *TECHNIQUE_ROWS) return false;
    *row = TECHNIQUE_ROWS[index];
    return true;
}

// A job whose members are 1, 2, 3 ... in the order of job.h, and the bytes of the
// tables, of the state of progressive decoding for 100 symbols and of that of an inversion.
extern "C" void recoded_shim_sample(Job *job, uint64_t *tables_bytes, uint64_t state_bytes[2]) {
    *job = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    *tables_bytes = FIELDS * sizeof(FieldTables);
    state_bytes[0] = PROGRESSIVE_STATE_BYTES(100);
    state_bytes[1] = INVERSE_STATE_BYTES;
}
