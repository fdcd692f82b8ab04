// For which instruction sets the kernels are compiled; before Highway's headers. On x86: AVX-512, AVX2 with FMA, and
// scalar code for anything older.
#pragma once
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
