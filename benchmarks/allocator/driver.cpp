// Drives torch's own caching allocator, the one in libc10_cuda.so, by lines on its standard input:
//     a NUMBER BYTES STREAM    allocate
//     f NUMBER                 free
//     b CAPACITY               from here on: nothing cached, that many bytes of device (0: as many as it likes)
// and answers each with "ADDRESS ALLOCATED RESERVED SEGMENTS", the address 0 but for allocations, or with "oom".
#include <c10/cuda/CUDACachingAllocator.h>

#include <cinttypes>
#include <cstdio>
#include <unordered_map>

extern "C" void device_capacity(size_t bytes);

namespace allocator = c10::cuda::CUDACachingAllocator;

static void tell(const void* address) {
  const auto stats = allocator::getDeviceStats(0);
  std::printf(
      "%" PRIuPTR " %" PRId64 " %" PRId64 " %" PRId64 "\n",
      reinterpret_cast<uintptr_t>(address),
      stats.allocated_bytes[0].current,
      stats.reserved_bytes[0].current,
      stats.segment[0].current);
}

int main() {
  allocator::init(1);
  std::unordered_map<long, void*> blocks;
  char order;
  long number;
  while (std::scanf(" %c %ld", &order, &number) == 2) {
    if (order == 'a') {
      size_t bytes, stream;
      if (std::scanf("%zu %zu", &bytes, &stream) != 2) return 1;
      try {
        blocks[number] = allocator::raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream));
      } catch (const c10::OutOfMemoryError&) {
        std::puts("oom");
        continue;
      }
      tell(blocks[number]);
      continue;
    }
    if (order == 'f') {
      const auto found = blocks.find(number);  // not there if memory ran out when it was asked for
      if (found != blocks.end()) {
        allocator::raw_delete(found->second);
        blocks.erase(found);
      }
    } else {
      allocator::emptyCache();
      device_capacity(number ? number : SIZE_MAX);
    }
    tell(nullptr);
  }
  return 0;
}
