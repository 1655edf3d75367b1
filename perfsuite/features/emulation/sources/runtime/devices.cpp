// libcudart: the devices and their properties.
#include <cstdio>
#include <cstring>

#include "../core/counts.h"
#include "../core/device.h"
#include "../core/memory.h"
#include "../core/streams.h"
#include "hooks.h"
#include "runtime.h"

using namespace emulated;

namespace {
constexpr int registers = 65536, most_threads = 1024, default_shared = 48 << 10, reserved_shared = 1024;
constexpr int most_blocks = 32, most_grid_x = 2147483647, most_grid_yz = 65535;

bool exists(int one) { return one >= 0 && one < visible_devices(); }
}  // namespace

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) {
  *count = visible_devices();
  return *count ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* one) {
  *one = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int one) {
  if (!exists(one)) return failed(cudaErrorInvalidDevice);
  set_current_device(one);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = cuda_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = cuda_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int one) {
  if (!exists(one)) return failed(cudaErrorInvalidDevice);
  compute_small_tensors();  // torch's libraries are loaded by now, and no tensor of the device exists yet
  const Device& known = device();
  cudaDeviceProp& p = *properties;
  memset(&p, 0, sizeof p);
  snprintf(p.name, sizeof p.name, "%s", known.name.c_str());
  for (int byte = 0; byte < 4; byte++) p.uuid.bytes[byte] = char(number_of(one) >> 8 * (3 - byte));
  p.totalGlobalMem = known.memory_bytes;
  p.major = known.major;
  p.minor = known.minor;
  p.multiProcessorCount = known.multiprocessors;
  p.maxThreadsPerMultiProcessor = known.threads_per_multiprocessor;
  p.maxBlocksPerMultiProcessor = most_blocks;
  p.maxThreadsPerBlock = most_threads;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = most_threads;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = most_grid_x;
  p.maxGridSize[1] = p.maxGridSize[2] = most_grid_yz;
  p.warpSize = 32;
  p.regsPerBlock = p.regsPerMultiprocessor = registers;
  p.sharedMemPerBlock = default_shared;
  p.sharedMemPerBlockOptin = known.shared_per_block;
  p.sharedMemPerMultiprocessor = known.shared_per_multiprocessor;
  p.reservedSharedMemPerBlock = reserved_shared;
  p.totalConstMem = 64 << 10;
  p.l2CacheSize = known.l2_bytes;
  p.memPitch = 2147483647;
  p.textureAlignment = 512;
  p.texturePitchAlignment = 32;
  p.asyncEngineCount = 3;
  p.pciBusID = first_bus + number_of(one);
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = p.managedMemory = 1;
  p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.cooperativeLaunch = p.hostRegisterSupported = p.memoryPoolsSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int one) {
  cudaDeviceProp p;
  if (cudaError_t error = cudaGetDeviceProperties(&p, one)) return error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(p.sharedMemPerMultiprocessor); break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = reserved_shared; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = most_threads; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = registers; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = most_blocks; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxGridDimX: *value = most_grid_x; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = most_grid_yz; break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = most_threads; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrTextureAlignment: *value = int(p.textureAlignment); break;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrHostRegisterSupported: *value = 1; break;
    default: *value = 0;  // what a device does not support
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int one) {
  snprintf(text, length, "0000:%02X:00.0", first_bus + number_of(one));
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int one, int other) {
  *can = one != other;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  count_synchronization("cudaDeviceSynchronize");
  return cudaSuccess;
}

cudaError_t cudaProfilerStart() {
  begin_section();
  return cudaSuccess;
}

cudaError_t cudaProfilerStop() {
  end_section();
  return cudaSuccess;
}
}
