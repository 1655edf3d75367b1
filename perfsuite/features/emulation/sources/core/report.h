// The totals of a process, and their file.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "counts.h"

namespace emulated {

struct Copies {
  size_t calls = 0, bytes = 0;
};

struct Totals {
  std::map<std::string, size_t> calls, synchronizations, computed, not_computed;
  std::map<std::string, Copies> copies;
  std::unordered_map<const void*, size_t> kernels;
  std::map<Matmul, size_t> matmuls;
  std::vector<Collective> collectives;  // in their order
};

const std::vector<Totals>& all_totals();  // of the process, then of each section
void write_report();  // if counts was given and the process has used a device
}  // namespace emulated
