// All kernels, one translation unit: one fatbin, no device linking.
#include "bmma.cu"
#include "four_russians.cu"
#include "invert.cu"
#include "loop.cu"
#include "permute.cu"
#include "prepare.cu"
#include "progressive.cu"
#include "table.cu"
