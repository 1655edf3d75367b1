#include "memory.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>

#include "device.h"
#include "intervals.h"

namespace emulated {
namespace {

constexpr size_t host_page = 4096, device_page = 2 << 20;  // CUDA's granularity of physical memory
constexpr size_t large = 64 << 10;                         // from here on, copies avoid touching zero pages

struct State {
  std::mutex lock;
  std::map<uintptr_t, Range> ranges;  // by their base
  size_t used[most_devices] = {}, most[most_devices] = {};
  Intervals written;
};

State& state() {
  static auto* known = new State;  // never destroyed: torch frees memory at exit
  return *known;
}

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

void* map_pages(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

void add_range(void* at, size_t bytes, int device, Kind kind) {
  std::lock_guard guard(state().lock);
  state().ranges[uintptr_t(at)] = {uintptr_t(at), bytes, device, kind};
}

bool remove_range(void* at, Kind kind, Range& range) {
  std::lock_guard guard(state().lock);
  auto found = state().ranges.find(uintptr_t(at));
  if (found == state().ranges.end() || found->second.kind != kind) return false;
  range = found->second;
  state().ranges.erase(found);
  state().written.remove(range.base, range.base + range.bytes, [](uintptr_t, uintptr_t) {});
  return true;
}

// Give whole pages back to the kernel, which then reads them as zero, and write zeros into the rest.
void zero_pages(void* at, size_t bytes) {
  uintptr_t begin = uintptr_t(at), end = begin + bytes;
  uintptr_t first = round_up(begin, host_page), last = end / host_page * host_page;
  if (first >= last) {
    memset(at, 0, bytes);
    return;
  }
  memset(at, 0, first - begin);
  madvise((void*)first, last - first, MADV_DONTNEED);
  memset((void*)last, 0, end - last);
}
}  // namespace

bool take_memory(size_t bytes, int number) {
  std::lock_guard guard(state().lock);
  bytes = round_up(bytes, device_page);
  size_t& used = state().used[number];
  if (used + bytes + device().context_bytes > device().memory_bytes) return false;
  used += bytes;
  state().most[number] = std::max(state().most[number], used);
  return true;
}

void give_memory(size_t bytes, int number) {
  std::lock_guard guard(state().lock);
  state().used[number] -= round_up(bytes, device_page);
}

size_t most_used(int number) { return state().most[number]; }

void* reserve_addresses(size_t bytes, int number) {
  bytes = round_up(bytes, device_page);
  char* at = (char*)map_pages(bytes + device_page);  // one page more, to align the beginning
  if (!at) return nullptr;
  char* aligned = (char*)round_up(uintptr_t(at), device_page);
  if (aligned > at) munmap(at, aligned - at);
  if (at + device_page > aligned) munmap(aligned + bytes, at + device_page - aligned);
  add_range(aligned, bytes, number, Kind::device);
  return aligned;
}

void free_addresses(void* at, size_t bytes) {
  Range range;
  remove_range(at, Kind::device, range);
  munmap(at, round_up(bytes, device_page));
}

void* allocate(size_t bytes, int number) {
  if (!take_memory(bytes, number)) return nullptr;
  void* at = reserve_addresses(bytes, number);
  if (!at) give_memory(bytes, number);
  return at;
}

bool release(void* at) {
  Range range;
  if (!remove_range(at, Kind::device, range)) return false;
  munmap(at, range.bytes);
  give_memory(range.bytes, range.device);
  return true;
}

bool find(const void* at, Range& range) {
  std::lock_guard guard(state().lock);
  auto next = state().ranges.upper_bound(uintptr_t(at));
  if (next == state().ranges.begin()) return false;
  range = std::prev(next)->second;
  return uintptr_t(at) < range.base + range.bytes;
}

bool on_device(const void* at) {
  Range range;
  return find(at, range) && range.kind == Kind::device;
}

void memory_left(int number, size_t& free_bytes, size_t& total_bytes) {
  std::lock_guard guard(state().lock);
  total_bytes = device().memory_bytes;
  size_t used = state().used[number] + device().context_bytes;
  free_bytes = used < total_bytes ? total_bytes - used : 0;
}

void forget_contents(void* at, size_t bytes) {
  std::lock_guard guard(state().lock);
  state().written.remove(uintptr_t(at), uintptr_t(at) + bytes, [](uintptr_t, uintptr_t) {});
  madvise(at, bytes, MADV_DONTNEED);
}

void* allocate_pinned(size_t bytes) {
  bytes = round_up(bytes ? bytes : 1, host_page);
  void* at = map_pages(bytes);
  if (at) add_range(at, bytes, current_device(), Kind::host);
  return at;
}

bool release_pinned(void* at) {
  Range range;
  if (!remove_range(at, Kind::host, range)) return false;
  munmap(at, range.bytes);
  return true;
}

void register_pinned(void* at, size_t bytes) { add_range(at, bytes, current_device(), Kind::host); }

void unregister_pinned(void* at) {
  Range range;
  remove_range(at, Kind::host, range);
}

void note_written(const void* at, size_t bytes) {
  if (!bytes || !on_device(at)) return;
  std::lock_guard guard(state().lock);
  state().written.add(uintptr_t(at), uintptr_t(at) + bytes);
}

bool is_written(const void* at, size_t bytes) {
  if (!on_device(at)) return true;  // nothing is known about the host's memory
  std::lock_guard guard(state().lock);
  return bytes && state().written.overlaps(uintptr_t(at), uintptr_t(at) + bytes);
}

void zero_written(void* at, size_t bytes) {
  std::lock_guard guard(state().lock);
  state().written.remove(uintptr_t(at), uintptr_t(at) + bytes,
                         [](uintptr_t begin, uintptr_t end) { zero_pages((void*)begin, end - begin); });
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes >= large && !is_written(from, bytes) && on_device(to)) {
    zero_written(to, bytes);
    return;
  }
  memmove(to, from, bytes);
  note_written(to, bytes);
}

void fill(void* at, int value, size_t bytes) {
  if (!value && on_device(at)) {
    zero_written(at, bytes);
    return;
  }
  memset(at, value, bytes);
  note_written(at, bytes);
}
}  // namespace emulated
