#include "counts.h"

#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "device.h"
#include "ending.h"
#include "report.h"
#include "tracing.h"

namespace emulated {
namespace {

struct State {
  std::mutex lock;
  std::vector<Totals> totals = std::vector<Totals>(1);  // of the process, then of each section
  bool in_section = false;
  std::unordered_map<const void*, const char*> names;
};

std::atomic<size_t> launched[most_devices];

State& state() {
  static auto* known = new State;  // never destroyed: used at exit
  return *known;
}

void count(auto add) {
  std::lock_guard guard(state().lock);
  add(state().totals.front());
  if (state().in_section) add(state().totals.back());
}
}  // namespace

void count_call(const char* name) {
  traced(name);
  count([&](Totals& totals) { totals.calls[name]++; });
}

void count_synchronization(const char* name) {
  traced(name);
  count([&](Totals& totals) { totals.synchronizations[name]++; });
}

void count_copy(const char* direction, size_t bytes) {
  count([&](Totals& totals) {
    totals.copies[direction].calls++;
    totals.copies[direction].bytes += bytes;
  });
}

void count_kernel(const void* function) {
  launched[number_of(current_device())]++;
  count([&](Totals& totals) { totals.kernels[function]++; });
}

size_t kernels_on(int number) { return launched[number]; }

void count_matmul(const Matmul& matmul) {
  count([&](Totals& totals) { totals.matmuls[matmul]++; });
}

void count_collective(const Collective& collective) {
  count([&](Totals& totals) { totals.collectives.push_back(collective); });
}

void count_computed(const char* operator_name, bool succeeded) {
  count([&](Totals& totals) { (succeeded ? totals.computed : totals.not_computed)[operator_name]++; });
}

void begin_section() {
  std::lock_guard guard(state().lock);
  state().totals.emplace_back();
  state().in_section = true;
}

void end_section() {
  std::lock_guard guard(state().lock);
  state().in_section = false;
}

void name_kernel(const void* function, const char* name) {
  std::lock_guard guard(state().lock);
  state().names[function] = name;
}

const char* kernel_name(const void* function) {
  std::lock_guard guard(state().lock);
  auto at = state().names.find(function);
  return at == state().names.end() ? "unnamed" : at->second;
}

const std::vector<Totals>& all_totals() { return state().totals; }

void unknown(const char* library, const char* function) {
  end_process("%s of %s is not emulated, so this process ends.", function, library);
}
}  // namespace emulated
