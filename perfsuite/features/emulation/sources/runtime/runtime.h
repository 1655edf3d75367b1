// What the files of libcudart share.
#pragma once
#include <cuda_runtime_api.h>

namespace emulated {
cudaError_t failed(cudaError_t error);  // remembers it for cudaGetLastError
}  // namespace emulated
