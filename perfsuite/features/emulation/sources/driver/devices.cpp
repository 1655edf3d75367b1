// libcuda: devices, contexts and pointers. One address space with the runtime.
#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "../core/counts.h"
#include "../core/device.h"
#include "../core/memory.h"
#include "../core/traps.h"

#include <dlfcn.h>

using namespace emulated;

namespace {
char only_context[64];  // its address is the handle
thread_local CUcontext current = nullptr;
CUcontext context() { return (CUcontext)only_context; }
}  // namespace

extern "C" {
CUresult cuInit(unsigned) { return visible_devices() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }

CUresult cuDriverGetVersion(int* version) {
  *version = cuda_version;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = visible_devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* found, int one) {
  if (one < 0 || one >= visible_devices()) return CUDA_ERROR_INVALID_DEVICE;
  *found = one;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* text, int length, CUdevice) {
  snprintf(text, length, "%s", device().name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = device().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice one) {
  memset(uuid, 0, sizeof *uuid);
  for (int byte = 0; byte < 4; byte++) uuid->bytes[byte] = char(number_of(one) >> 8 * (3 - byte));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice one) {
  snprintf(text, length, "0000:%02X:00.0", first_bus + number_of(one));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice one) {
  switch (int(attribute)) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = device().major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = device().minor; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = device().multiprocessors; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = device().threads_per_multiprocessor; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = device().shared_per_block; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = device().shared_per_multiprocessor; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = device().l2_bytes; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = first_bus + number_of(one); break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
    default: *value = 0;  // what a device does not support
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* found) {
  *found = current ? current : context();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext one) {
  current = one;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext one) { return cuCtxSetCurrent(one); }

CUresult cuCtxPopCurrent_v2(CUcontext* one) {
  if (one) *one = context();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* found) {
  *found = current_device();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  count_synchronization("cuCtxSynchronize");
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }

CUresult cuCtxGetLimit(size_t* bytes, CUlimit) {
  *bytes = 8 << 20;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  if (flags) *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* found, CUdevice) {
  *found = context();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of the emulated driver";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}

#undef cuGetProcAddress
CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t, CUdriverProcAddressQueryResult* found) {
  *function = nullptr;
  for (const char* suffix : {"_v3", "_v2", ""})
    if (!*function) *function = dlsym(RTLD_DEFAULT, (std::string(name) + suffix).c_str());
  if (!*function) *function = trap("libcuda.so.1", name);
  if (found) *found = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr at) {
  Range range;
  if (!find((void*)at, range)) return CUDA_ERROR_INVALID_VALUE;
  switch (int(attribute)) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned*)data = unsigned(range.kind); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int*)data = range.device; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr*)data = at; break;
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext*)data = context(); break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long*)data = range.base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr*)data = range.base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t*)data = range.bytes; break;
    default: *(int*)data = 0;  // flags of what a device does not support
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr at) {
  for (unsigned one = 0; one < count; one++) cuPointerGetAttribute(data[one], attributes[one], at);
  return CUDA_SUCCESS;
}
}
