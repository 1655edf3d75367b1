// libcuda: memory, and its virtual management, which torch's expandable segments use.
#include "../core/memory.h"

#include <cuda.h>

#include "../core/counts.h"
#include "../core/device.h"

using namespace emulated;

namespace {
struct Physical {
  size_t bytes;
  int device;
};
}  // namespace

extern "C" {
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  memory_left(current_device(), *free_bytes, *total_bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr at) {
  Range range;
  if (!find((void*)at, range)) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = range.base;
  if (bytes) *bytes = range.bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = 2 << 20;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* at, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  *at = (CUdeviceptr)reserve_addresses(bytes, current_device());
  return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  free_addresses((void*)at, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* wanted,
                     unsigned long long) {
  count_call("cuMemCreate");
  int device = wanted->location.id;
  if (!take_memory(bytes, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = (CUmemGenericAllocationHandle) new Physical{bytes, device};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  auto* physical = (Physical*)handle;
  give_memory(physical->bytes, physical->device);
  delete physical;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  forget_contents((void*)at, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  count_copy("device to host", bytes);
  copy(to, (void*)from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  count_copy("host to device", bytes);
  copy((void*)to, from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t count, CUstream) {
  count_call("cuMemsetD32Async");
  if (!value)
    fill((void*)at, 0, 4 * count);
  else {
    for (size_t one = 0; one < count; one++) ((unsigned*)at)[one] = value;
    note_written((void*)at, 4 * count);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr at, cuuint32_t value, unsigned) {
  *(unsigned*)at = value;
  note_written((void*)at, 4);
  return CUDA_SUCCESS;
}
}
