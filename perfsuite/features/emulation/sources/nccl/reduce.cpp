#include "reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../core/counts.h"

namespace emulated {
namespace {

enum Operation { sum, product, maximum, minimum, average, first_scaled_sum };
std::vector<double> factors;  // of scaled sums

struct Bfloat16 {
  uint16_t bits;
  operator float() const {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
  Bfloat16& operator=(float value) {
    uint32_t wide;
    memcpy(&wide, &value, 4);
    bool is_nan = value != value;
    bits = is_nan ? 0x7fc0 : uint16_t((wide + 0x7fff + (wide >> 16 & 1)) >> 16);  // to nearest, ties to even
    return *this;
  }
};

// `Wide` is the type in which NCCL accumulates.
template <typename Number, typename Wide>
void reduce_as(char* to, const char* const* pieces, int ranks, size_t count, int operation) {
  auto* out = (Number*)to;
  Wide factor = operation >= first_scaled_sum ? Wide(factors.at(operation - first_scaled_sum)) : Wide(1);
  for (size_t at = 0; at < count; at++) {
    Wide total = Wide(((const Number*)pieces[0])[at]) * factor;
    for (int rank = 1; rank < ranks; rank++) {
      Wide next = Wide(((const Number*)pieces[rank])[at]) * factor;
      switch (operation) {
        case product: total = total * next; break;
        case maximum: total = std::max(total, next); break;
        case minimum: total = std::min(total, next); break;
        default: total = total + next;
      }
    }
    out[at] = operation == average ? total / Wide(ranks) : total;
  }
}
}  // namespace

size_t size_of(int type) {
  constexpr size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  if (type < 0 || type >= 12) unknown("libnccl.so.2", "a message of an unknown type");
  return sizes[type];
}

int add_scaled_sum(const void* factor, int type) {
  double value = 0;
  switch (type) {
    case 6: value = double(*(const _Float16*)factor); break;
    case 7: value = *(const float*)factor; break;
    case 8: value = *(const double*)factor; break;
    case 9: value = float(*(const Bfloat16*)factor); break;
    default: unknown("libnccl.so.2", "ncclRedOpCreatePreMulSum of integers");
  }
  factors.push_back(value);
  return first_scaled_sum + int(factors.size()) - 1;
}

void reduce(char* to, const char* const* pieces, int ranks, size_t count, int type, int operation) {
  switch (type) {
    case 0: return reduce_as<int8_t, int32_t>(to, pieces, ranks, count, operation);
    case 1: return reduce_as<uint8_t, uint32_t>(to, pieces, ranks, count, operation);
    case 2: return reduce_as<int32_t, int32_t>(to, pieces, ranks, count, operation);
    case 3: return reduce_as<uint32_t, uint32_t>(to, pieces, ranks, count, operation);
    case 4: return reduce_as<int64_t, int64_t>(to, pieces, ranks, count, operation);
    case 5: return reduce_as<uint64_t, uint64_t>(to, pieces, ranks, count, operation);
    case 6: return reduce_as<_Float16, float>(to, pieces, ranks, count, operation);
    case 7: return reduce_as<float, float>(to, pieces, ranks, count, operation);
    case 8: return reduce_as<double, double>(to, pieces, ranks, count, operation);
    case 9: return reduce_as<Bfloat16, float>(to, pieces, ranks, count, operation);
    default: unknown("libnccl.so.2", "a reduction of 8-bit floats");
  }
}
}  // namespace emulated
