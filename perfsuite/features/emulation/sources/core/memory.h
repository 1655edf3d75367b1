// Memory of the devices. It is memory of the host that the kernel commits page by page, at the first touch: 80 GB can
// be allocated, and only what is written costs. The stand-ins write only what a copy, a memset, a collective or a
// computed operator writes; everything else stays zero and untouched.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulated {

enum class Kind { host = 1, device = 2 };  // as cudaMemoryType and CUmemorytype number them
struct Range {
  uintptr_t base;
  size_t bytes;
  int device;
  Kind kind;
};

void* allocate(size_t bytes, int device);  // null if the device has too little left
bool release(void* at);                    // false if it is no device memory
bool find(const void* at, Range& range);   // the allocation that contains the address
bool on_device(const void* at);
void memory_left(int device, size_t& free_bytes, size_t& total_bytes);
size_t most_used(int device);              // bytes, without the context

// The parts of an allocation, for CUDA's virtual memory management: addresses alone, and memory alone.
void* reserve_addresses(size_t bytes, int device);
void free_addresses(void* at, size_t bytes);
bool take_memory(size_t bytes, int device);
void give_memory(size_t bytes, int device);
void forget_contents(void* at, size_t bytes);  // it reads as zero afterwards

void* allocate_pinned(size_t bytes);
bool release_pinned(void* at);
void register_pinned(void* at, size_t bytes);
void unregister_pinned(void* at);

void copy(void* to, const void* from, size_t bytes);
void fill(void* at, int value, size_t bytes);
void note_written(const void* at, size_t bytes);   // something else than zero may be there now
bool is_written(const void* at, size_t bytes);     // whether that is so of any byte
void zero_written(void* at, size_t bytes);         // make it zero again, and touch nothing else
}  // namespace emulated
