// Functions that are handed out by name and are not emulated.
#pragma once

namespace emulated {
void* trap(const char* library, const char* function);  // a function that ends the process with this name
}  // namespace emulated
