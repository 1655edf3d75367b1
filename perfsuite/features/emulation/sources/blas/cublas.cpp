// libcublas: products of matrices are counted with their shapes, and not computed.
#include "../core/counts.h"
#include "../core/launch.h"

using namespace emulated;

namespace {
constexpr int ok = 0;
constexpr int real_16 = 2, real_32 = 0, real_64 = 1;  // of cudaDataType

struct Handle {
  void* stream;
  int math_mode, pointer_mode;
};

int product(void* handle, const char* call, long m, long n, long k, long batch, int type) {
  count_matmul({call, m, n, k, batch, type});
  launch((const void*)product, ((Handle*)handle)->stream);
  return ok;
}

const bool named = (name_kernel((const void*)product, "a matrix product of cuBLAS"), true);
}  // namespace

extern "C" {
int cublasCreate_v2(void** handle) {
  count_call("cublasCreate");
  *handle = new Handle{};
  return ok;
}

int cublasDestroy_v2(void* handle) {
  delete (Handle*)handle;
  return ok;
}

int cublasSetStream_v2(void* handle, void* stream) {
  ((Handle*)handle)->stream = stream;
  return ok;
}

int cublasGetStream_v2(void* handle, void** stream) {
  *stream = ((Handle*)handle)->stream;
  return ok;
}

int cublasSetWorkspace_v2(void*, void*, long) { return ok; }
int cublasSetSmCountTarget(void*, int) { return ok; }

int cublasSetMathMode(void* handle, int mode) {
  ((Handle*)handle)->math_mode = mode;
  return ok;
}

int cublasGetMathMode(void* handle, int* mode) {
  *mode = ((Handle*)handle)->math_mode;
  return ok;
}

int cublasSetPointerMode_v2(void* handle, int mode) {
  ((Handle*)handle)->pointer_mode = mode;
  return ok;
}

int cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = ((Handle*)handle)->pointer_mode;
  return ok;
}

int cublasSgemm_v2(void* handle, int, int, int m, int n, int k) {
  return product(handle, "cublasSgemm", m, n, k, 1, real_32);
}

int cublasDgemm_v2(void* handle, int, int, int m, int n, int k) {
  return product(handle, "cublasDgemm", m, n, k, 1, real_64);
}

int cublasSgemmEx(void* handle, int, int, int m, int n, int k, const float*, const void*, int type) {
  return product(handle, "cublasSgemmEx", m, n, k, 1, type);
}

int cublasGemmEx(void* handle, int, int, int m, int n, int k, const void*, const void*, int type) {
  return product(handle, "cublasGemmEx", m, n, k, 1, type);
}

int cublasSgemmStridedBatched(void* handle, int, int, int m, int n, int k, const float*, const float*, int, long long,
                              const float*, int, long long, const float*, float*, int, long long, int batch) {
  return product(handle, "cublasSgemmStridedBatched", m, n, k, batch, real_32);
}

int cublasDgemmStridedBatched(void* handle, int, int, int m, int n, int k, const double*, const double*, int, long long,
                              const double*, int, long long, const double*, double*, int, long long, int batch) {
  return product(handle, "cublasDgemmStridedBatched", m, n, k, batch, real_64);
}

int cublasGemmStridedBatchedEx(void* handle, int, int, int m, int n, int k, const void*, const void*, int type, int,
                               long long, const void*, int, int, long long, const void*, void*, int, int, long long,
                               int batch) {
  return product(handle, "cublasGemmStridedBatchedEx", m, n, k, batch, type);
}

// Products of a matrix and a vector, and of two vectors.
int cublasSgemv_v2(void* handle, int, int m, int n) { return product(handle, "cublasSgemv", m, 1, n, 1, real_32); }
int cublasDgemv_v2(void* handle, int, int m, int n) { return product(handle, "cublasDgemv", m, 1, n, 1, real_64); }
int cublasSdot_v2(void* handle, int n) { return product(handle, "cublasSdot", 1, 1, n, 1, real_32); }
int cublasDdot_v2(void* handle, int n) { return product(handle, "cublasDdot", 1, 1, n, 1, real_64); }
int cublasDotEx(void* handle, int n, const void*, int type) {
  return product(handle, "cublasDotEx", 1, 1, n, 1, type < 0 ? real_16 : type);
}
}
