// In place of NVIDIA's libcudart: a device that has nothing but a capacity and addresses. What torch's allocator asks
// of it is answered here; whatever else libc10_cuda.so wants is added by allocator_real.py as a stub that ends the
// process with its name, so that nothing unknown can pass for an answer.
//
// Addresses rise and are never given out twice, as in perfsuite/memory/allocator.py: of several free blocks of one
// size the allocator takes the lowest, so that what is compared does not depend on where a driver puts things.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>

static const size_t multiple = size_t(2) << 20;
static std::map<uintptr_t, size_t> segments;
static uintptr_t next_address = multiple;
static size_t capacity = SIZE_MAX, used = 0;
static const int success = 0, out_of_memory = 2;  // cudaError_t

extern "C" {

void device_capacity(size_t bytes) { capacity = bytes; }

int cudaMalloc(void** pointer, size_t size) {
  if (used + size > capacity) return out_of_memory;
  *pointer = reinterpret_cast<void*>(next_address);
  segments[next_address] = size;
  next_address += (size + multiple - 1) / multiple * multiple;
  used += size;
  return success;
}

int cudaFree(void* pointer) {
  auto found = segments.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == segments.end()) std::abort();
  used -= found->second;
  segments.erase(found);
  return success;
}

int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = used < capacity ? capacity - used : 0;
  *total_bytes = capacity;
  return success;
}

int cudaGetDeviceCount(int* count) { return *count = 1, success; }
int cudaGetDevice(int* device) { return *device = 0, success; }
int cudaSetDevice(int) { return success; }
int cudaDeviceSynchronize() { return success; }
int cudaStreamSynchronize(void*) { return success; }
int cudaGetLastError() { return success; }
int cudaPeekAtLastError() { return success; }
const char* cudaGetErrorString(int) { return "of the stand-in for libcudart"; }
const char* cudaGetErrorName(int) { return "of the stand-in for libcudart"; }
int cudaDriverGetVersion(int* version) { return *version = 13000, success; }
int cudaRuntimeGetVersion(int* version) { return *version = 13000, success; }
int cudaStreamIsCapturing(void*, int* status) { return *status = 0, success; }
int cudaThreadExchangeStreamCaptureMode(int*) { return success; }

[[noreturn]] void unknown(const char* name) {
  std::fprintf(stderr, "%s is asked for, and benchmarks/allocator/cudart.cpp does not have it\n", name);
  std::abort();
}

}  // extern "C"
