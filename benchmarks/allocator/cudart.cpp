// In place of NVIDIA's libcudart: a device that has nothing but a capacity and addresses. What torch's allocator asks
// of it is answered here; whatever else libc10_cuda.so wants is added by allocator_real.py as a stub that ends the
// process with its name, so that nothing unknown can pass for an answer.
//
// Addresses rise and are never given out twice, as in perfsuite/features/predict/allocator.py: of several free blocks of one
// size the allocator takes the lowest, so that what is compared does not depend on where a driver puts things.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>

static const size_t multiple = size_t(2) << 20;
static std::map<uintptr_t, size_t> segments;
static uintptr_t next_address = multiple;
static size_t capacity = SIZE_MAX, used = 0;

extern "C" {

void device_capacity(size_t bytes) { capacity = bytes; }

cudaError_t cudaMalloc(void** pointer, size_t size) {
  if (used + size > capacity) return cudaErrorMemoryAllocation;
  *pointer = reinterpret_cast<void*>(next_address);
  segments[next_address] = size;
  next_address += (size + multiple - 1) / multiple * multiple;
  used += size;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  auto found = segments.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == segments.end()) std::abort();
  used -= found->second;
  segments.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = used < capacity ? capacity - used : 0;
  *total_bytes = capacity;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = cudaDeviceProp();
  properties->totalGlobalMem = capacity;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "of the stand-in for libcudart"; }
const char* cudaGetErrorName(cudaError_t) { return "of the stand-in for libcudart"; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

[[noreturn]] void unknown(const char* name) {
  std::fprintf(stderr, "%s is asked for, and benchmarks/allocator/cudart.cpp does not have it\n", name);
  std::abort();
}

}  // extern "C"
