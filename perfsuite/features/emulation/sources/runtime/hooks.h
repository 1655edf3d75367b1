// The library that is compiled against torch's own headers: hooks/ tells what it does. The runtime loads it when torch
// asks for a device for the first time.
#pragma once

namespace emulated {
void compute_small_tensors();
void watch_allocator();  // once torch's allocator exists
}  // namespace emulated
