// libnvrtc: kernels that torch writes as text, such as exp2's. Nothing is compiled: the driver's functions only need a
// name, and take any bytes as a module.
#include <cstring>
#include <string>

#include "../core/device.h"

namespace {
constexpr int ok = 0;
constexpr char module[] = "emulated";

struct Program {
  std::string lowered;  // the name that was asked for last
};
}  // namespace

extern "C" {
const char* nvrtcGetErrorString(int) { return "an emulated error"; }

int nvrtcVersion(int* major, int* minor) {
  *major = emulated::cuda_version / 1000;
  *minor = emulated::cuda_version % 1000 / 10;
  return ok;
}

int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*, const char* const*) {
  *program = new Program;
  return ok;
}

int nvrtcDestroyProgram(void** program) {
  delete (Program*)*program;
  *program = nullptr;
  return ok;
}

int nvrtcAddNameExpression(void*, const char*) { return ok; }
int nvrtcCompileProgram(void*, int, const char* const*) { return ok; }

int nvrtcGetLoweredName(void* program, const char* expression, const char** name) {
  auto& own = ((Program*)program)->lowered;
  own = expression;
  *name = own.c_str();
  return ok;
}

int nvrtcGetProgramLogSize(void*, size_t* size) {
  *size = 1;
  return ok;
}

int nvrtcGetProgramLog(void*, char* log) {
  *log = 0;
  return ok;
}

int nvrtcGetCUBINSize(void*, size_t* size) {
  *size = sizeof module;
  return ok;
}

int nvrtcGetCUBIN(void*, char* text) {
  memcpy(text, module, sizeof module);
  return ok;
}

int nvrtcGetPTXSize(void* program, size_t* size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(void* program, char* text) { return nvrtcGetCUBIN(program, text); }
}
