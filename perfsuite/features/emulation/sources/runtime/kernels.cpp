// libcudart: kernels are registered by name when torch's libraries are loaded, and counted when they are launched.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "../core/counts.h"
#include "../core/device.h"
#include "../core/launch.h"
#include "../core/traps.h"
#include "runtime.h"

using namespace emulated;

namespace {
constexpr unsigned most_threads = 1024, most_grid_yz = 65535;

struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local Configuration pushed[16];
thread_local int depth = 0;

bool possible(dim3 grid, dim3 block) {
  bool some = grid.x && grid.y && grid.z && block.x && block.y && block.z;
  return some && block.x * block.y * block.z <= most_threads && grid.y <= most_grid_yz && grid.z <= most_grid_yz;
}
}  // namespace

extern "C" {
void** __cudaRegisterFatBinary(void* binary) { return (void**)new void*(binary); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  name_kernel(host, name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  pushed[depth++] = {grid, block, shared, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  Configuration& last = pushed[--depth];
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *(void**)stream = last.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t, cudaStream_t stream) {
  if (!possible(grid, block)) return failed(cudaErrorInvalidConfiguration);
  launch(function, stream);
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel((const void*)kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  if (!possible(config->gridDim, config->blockDim)) return failed(cudaErrorInvalidConfiguration);
  launch(function, config->stream, "cudaLaunchKernelExC");
  return cudaSuccess;
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = most_threads;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = device().major * 10 + device().minor;
  attributes->maxDynamicSharedSizeBytes = device().shared_per_block;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, size_t shared,
                                                                   unsigned) {
  int by_threads = device().threads_per_multiprocessor / std::max(threads, 1);
  int by_shared = device().shared_per_multiprocessor / int(shared + 1024);  // 1 KiB of each block is the system's
  *blocks = std::clamp(std::min(by_threads, by_shared), 1, 32);
  return cudaSuccess;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  *library = (cudaLibrary_t)code;
  return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
  char* own = strdup(name);
  name_kernel(own, own);
  *kernel = (cudaKernel_t)own;
  return cudaSuccess;
}

// The driver's functions by name, as torch asks for them when it starts. One that is not emulated is a trap: it ends
// the process with its name, when it is called.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  static void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
  *function = nullptr;
  for (const char* suffix : {"_v3", "_v2", ""})
    if (driver && !*function) *function = dlsym(driver, (std::string(name) + suffix).c_str());
  if (!*function) *function = trap("libcuda.so.1", name);
  if (status) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
}
