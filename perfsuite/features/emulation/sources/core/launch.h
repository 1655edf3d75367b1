// A kernel's launch: it is counted, or captured into a graph. It computes nothing.
#pragma once

namespace emulated {
// `call` is the name of the runtime's or driver's function, for torch's profiler.
void launch(const void* function, void* stream, const char* call = "cudaLaunchKernel");
}  // namespace emulated
