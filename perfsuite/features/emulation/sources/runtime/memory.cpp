// libcudart: memory, copies and fills.
#include "../core/memory.h"

#include <cstring>

#include "../core/counts.h"
#include "../core/device.h"
#include "hooks.h"
#include "runtime.h"

using namespace emulated;

namespace {
cudaError_t copied(void* to, const void* from, size_t bytes) {
  const char* direction = on_device(to) ? (on_device(from) ? "device to device" : "host to device")
                                        : (on_device(from) ? "device to host" : "host to host");
  count_copy(direction, bytes);
  copy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t filled(void* at, int value, size_t bytes) {
  count_call("cudaMemsetAsync");
  fill(at, value, bytes);
  return cudaSuccess;
}
}  // namespace

extern "C" {
cudaError_t cudaMalloc(void** at, size_t bytes) {
  watch_allocator();
  count_call("cudaMalloc");
  *at = bytes ? allocate(bytes, current_device()) : nullptr;
  return *at || !bytes ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* at) {
  count_call("cudaFree");
  return !at || release(at) ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaMallocAsync(void** at, size_t bytes, cudaStream_t) { return cudaMalloc(at, bytes); }
cudaError_t cudaFreeAsync(void* at, cudaStream_t) { return cudaFree(at); }
cudaError_t cudaMallocManaged(void** at, size_t bytes, unsigned) { return cudaMalloc(at, bytes); }

cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  memory_left(current_device(), *free_bytes, *total_bytes);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** at, size_t bytes, unsigned) {
  count_call("cudaHostAlloc");
  *at = allocate_pinned(bytes);
  return *at ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* at) { return !at || release_pinned(at) ? cudaSuccess : failed(cudaErrorInvalidValue); }

cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned) {
  register_pinned(at, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* at) {
  unregister_pinned(at);
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* on_host, unsigned) {
  *on_device = on_host;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  memset(attributes, 0, sizeof *attributes);
  Range range;
  if (!find(at, range)) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;  // as CUDA's own
    attributes->hostPointer = const_cast<void*>(at);
    return cudaSuccess;
  }
  attributes->type = cudaMemoryType(range.kind);
  attributes->device = range.device;
  attributes->devicePointer = const_cast<void*>(at);
  attributes->hostPointer = range.kind == Kind::host ? const_cast<void*>(at) : nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  count_synchronization("cudaMemcpy");
  return copied(to, from, bytes);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  count_call("cudaMemcpyAsync");
  return copied(to, from, bytes);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t) {
  return copied(to, from, bytes);
}

// Constants of kernels, which compute nothing.
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t bytes, size_t, cudaMemcpyKind) {
  count_copy("host to symbol", bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* at, int value, size_t bytes) { return filled(at, value, bytes); }
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) { return filled(at, value, bytes); }

cudaError_t cudaGetSymbolAddress(void** at, const void*) {
  static void* any_symbol = allocate(1 << 20, current_device());
  *at = any_symbol;
  return *at ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

// Memory of another process: refused, as on a device that cannot share it. torch.multiprocessing then says so.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return failed(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return failed(cudaErrorNotSupported); }
cudaError_t cudaIpcCloseMemHandle(void*) { return failed(cudaErrorNotSupported); }
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) { return failed(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) { return failed(cudaErrorNotSupported); }
}
