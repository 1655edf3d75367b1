// libcublasLt: products of matrices are counted with their shapes, and not computed. None needs a workspace.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "../core/counts.h"
#include "../core/launch.h"

using namespace emulated;

namespace {
constexpr int ok = 0;
constexpr int layout_batch_count = 5, desc_transpose_a = 3;  // attributes of a layout and of a product

struct Layout {
  uint64_t rows, columns;
  int32_t type, batch;
};

struct Product {
  int32_t transpose_a;
};

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

const char product_kernel = 0;
const bool named = (name_kernel(&product_kernel, "a matrix product of cuBLASLt"), true);
}  // namespace

extern "C" {
size_t cublasLtGetVersion() { return 130200; }

int cublasLtMatmulDescCreate(void** product, int, int) {
  *product = new Product{};
  return ok;
}

int cublasLtMatmulDescDestroy(void* product) {
  delete (Product*)product;
  return ok;
}

int cublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value, size_t bytes) {
  if (attribute == desc_transpose_a && bytes == sizeof(int32_t)) memcpy(&((Product*)product)->transpose_a, value, bytes);
  return ok;
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = malloc(1);
  return ok;
}

int cublasLtMatmulPreferenceDestroy(void* preference) {
  free(preference);
  return ok;
}

int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return ok; }

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t) {
  *layout = new Layout{rows, columns, type, 1};
  return ok;
}

int cublasLtMatrixLayoutDestroy(void* layout) {
  delete (Layout*)layout;
  return ok;
}

int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  if (attribute == layout_batch_count && bytes == sizeof(int32_t)) memcpy(&((Layout*)layout)->batch, value, bytes);
  return ok;
}

int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int wanted, Heuristic* found,
                                   int* count) {
  *count = wanted > 0;
  if (*count) memset(found, 0, sizeof *found);
  return ok;
}

int cublasLtMatmul(void*, Product* product, const void*, const void*, Layout* a, const void*, Layout*, const void*,
                   const void*, Layout*, void*, Layout* d, const void*, void*, size_t, void* stream) {
  long depth = product->transpose_a ? a->rows : a->columns;
  count_matmul({"cublasLtMatmul", long(d->rows), long(d->columns), depth, d->batch, a->type});
  launch(&product_kernel, stream);
  return ok;
}
}
