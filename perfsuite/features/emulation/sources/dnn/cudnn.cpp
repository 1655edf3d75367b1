// libcudnn: the graph interface, by which torch calls cuDNN's attention. A descriptor keeps the attributes that were
// set; a graph has one engine that needs no workspace. The older interface (convolutions, RNNs) is not emulated.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "../core/counts.h"
#include "../core/launch.h"

using namespace emulated;

namespace {
constexpr int ok = 0;
// cudnnBackendAttributeType_t
constexpr int type_boolean = 2, type_data = 1, type_float = 4, type_descriptor = 15, type_void_pointer = 6;
constexpr int type_handle = 0, type_int64 = 3, type_double = 5;
// cudnnBackendAttributeName_t
constexpr int heuristic_results = 202, plan_workspace_bytes = 402;

struct Handle {
  void* stream;
};

struct Attribute {
  int64_t count;
  std::vector<char> bytes;
};

struct Descriptor {
  int kind;
  std::map<int, Attribute> attributes;
};

size_t bytes_of(int type) {
  switch (type) {
    case type_boolean: return 1;
    case type_handle:
    case type_int64:
    case type_double:
    case type_void_pointer:
    case type_descriptor: return 8;
    case type_data:
    case type_float:
    default: return 4;  // all enumerations
  }
}

const char graph_kernel = 0;
const bool named = (name_kernel(&graph_kernel, "a graph of cuDNN"), true);
}  // namespace

extern "C" {
size_t cudnnGetVersion() { return 92000; }
size_t cudnnGetCudartVersion() { return 13000; }
const char* cudnnGetErrorString(int) { return "an error of the emulated cuDNN"; }

int cudnnGetProperty(int which, int* value) {
  *value = which == 0 ? 9 : which == 1 ? 20 : 0;  // major, minor, patch
  return ok;
}

void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes) *text = 0;
}

int cudnnCreate(void** handle) {
  count_call("cudnnCreate");
  *handle = new Handle{};
  return ok;
}

int cudnnDestroy(void* handle) {
  delete (Handle*)handle;
  return ok;
}

int cudnnSetStream(void* handle, void* stream) {
  ((Handle*)handle)->stream = stream;
  return ok;
}

int cudnnGetStream(void* handle, void** stream) {
  *stream = ((Handle*)handle)->stream;
  return ok;
}

int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  *descriptor = new Descriptor{kind, {}};
  return ok;
}

int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete (Descriptor*)descriptor;
  return ok;
}

int cudnnBackendFinalize(void*) { return ok; }

int cudnnBackendSetAttribute(void* descriptor, int name, int type, int64_t count, const void* data) {
  const char* bytes = (const char*)data;
  ((Descriptor*)descriptor)->attributes[name] = {count, {bytes, bytes + count * bytes_of(type)}};
  return ok;
}

int cudnnBackendGetAttribute(void* descriptor, int name, int type, int64_t wanted, int64_t* count, void* data) {
  auto& known = ((Descriptor*)descriptor)->attributes;
  if (auto at = known.find(name); at != known.end() && type != type_descriptor) {
    int64_t given = std::min(at->second.count, wanted);
    if (count) *count = at->second.count;
    if (data) memcpy(data, at->second.bytes.data(), given * bytes_of(type));
    return ok;
  }
  if (name == heuristic_results || name == plan_workspace_bytes) {  // one configuration, into the one given; 0 bytes
    if (count) *count = 1;
    if (data && name == plan_workspace_bytes) memset(data, 0, sizeof(int64_t));
    return ok;
  }
  if (count) *count = type == type_descriptor;
  if (data && type != type_descriptor && wanted > 0) memset(data, 0, bytes_of(type));
  return ok;
}

int cudnnBackendExecute(void* handle, void*, void*) {
  count_call("cudnnBackendExecute");
  launch(&graph_kernel, ((Handle*)handle)->stream);
  return ok;
}
}
