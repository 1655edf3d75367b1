// What the process has asked of its devices, for `perfsuite emulate --set counts`. Everything is counted for the whole
// process, and a second time for the section between cudaProfilerStart and cudaProfilerStop, if one is open.
#pragma once
#include <cstddef>
#include <string>

namespace emulated {

struct Matmul {
  const char* call;
  long m, n, k, batch;
  int type;  // of the first matrix, as cudaDataType numbers it
  auto operator<=>(const Matmul&) const = default;
};

struct Collective {
  const char* call;
  size_t bytes;         // of the whole message, on this rank
  int ranks;            // of the communicator
  const char* communicator;
  int peer;             // of a send or receive; -1 for all others
};

void count_call(const char* name);
void count_synchronization(const char* name);  // a call in which the host waits for the device
void count_copy(const char* direction, size_t bytes);
void count_kernel(const void* function);       // on the current device
size_t kernels_on(int number);                 // of all time, on that device of the machine
void count_matmul(const Matmul& matmul);
void count_collective(const Collective& collective);
void count_computed(const char* operator_name, bool succeeded);  // a small tensor's, by the CPU's kernel
void begin_section();
void end_section();

void name_kernel(const void* function, const char* name);
const char* kernel_name(const void* function);

// Ends the process with the call's name: a stand-in that answers wrongly would make numbers that nobody can trust.
[[noreturn]] void unknown(const char* library, const char* function);
}  // namespace emulated
