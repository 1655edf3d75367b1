// Calls that torch's profiler sees, through the stand-in for CUPTI, which listens while a profile is recorded.
#pragma once
#include <atomic>

namespace emulated {

struct TracedCall {
  const char* name;
  int number;      // as CUPTI numbers its callbacks
  bool of_driver;  // or of the runtime
};

// CUPTI's numbers, of cupti_runtime_cbid.h and cupti_driver_cbid.h.
constexpr TracedCall traced_calls[] = {
    {"cudaMalloc", 20, false},           {"cudaFree", 22, false},
    {"cudaMemcpy", 31, false},           {"cudaMemcpyAsync", 41, false},
    {"cudaMemsetAsync", 51, false},      {"cudaStreamSynchronize", 131, false},
    {"cudaEventSynchronize", 137, false}, {"cudaDeviceSynchronize", 165, false},
    {"cudaLaunchKernel", 211, false},    {"cudaGraphLaunch", 311, false},
    {"cudaLaunchKernelExC", 430, false}, {"cuLaunchKernel", 307, true},
    {"cuLaunchKernelEx", 652, true},
};

using Listener = void (*)(const TracedCall&);
extern std::atomic<Listener> listener;  // null: nobody listens
void traced(const char* name);
}  // namespace emulated
