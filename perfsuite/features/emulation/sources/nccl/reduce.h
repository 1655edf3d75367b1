// Reductions of numbers of one type, which NCCL numbers as ncclDataType_t and ncclRedOp_t.
#pragma once
#include <cstddef>

namespace emulated {
size_t size_of(int type);
int add_scaled_sum(const void* factor, int type);  // the number of an operation that multiplies, then sums

// to[i] = operation over the ranks' pieces[rank][i], for `count` numbers.
void reduce(char* to, const char* const* pieces, int ranks, size_t count, int type, int operation);
}  // namespace emulated
