// How a stand-in ends its process.
#pragma once

namespace emulated {

// Ends the process with this sentence, as printf writes it. Where stderr is captured, as by pytest, it would be lost
// with the process: `perfsuite emulate` reads it from the file "ended" of its folder, and prints it at its end.
[[noreturn]] void end_process(const char* format, ...) __attribute__((format(printf, 1, 2)));
}  // namespace emulated
