// libcuda: modules and their functions, for Triton's kernels. Triton and its assembler really compile them.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "../core/counts.h"
#include "../core/device.h"
#include "../core/launch.h"

using namespace emulated;

namespace {
CUmodule any_module() {
  static char module[8];
  return (CUmodule)module;
}
}  // namespace

extern "C" {
CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = any_module();
  return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule* module, const char*) { return cuModuleLoadData(module, nullptr); }

CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, nullptr);
}

CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  char* own = strdup(name);
  name_kernel(own, own);
  *function = (CUfunction)own;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

CUresult cuFuncGetModule(CUmodule* module, CUfunction) {
  *module = any_module();
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream stream, void**, void**) {
  launch(function, stream, "cuLaunchKernel");
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void**) {
  launch(function, config->hStream, "cuLaunchKernelEx");
  return CUDA_SUCCESS;
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, CUstream stream, void**) {
  launch(function, stream, "cuLaunchKernel");
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads, size_t) {
  *blocks = device().threads_per_multiprocessor / std::max(threads, 1);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = 1;
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  memset(map, 0, sizeof *map);  // kernels read it, and compute nothing
  return CUDA_SUCCESS;
}
}
