// The emulated machine: how many GPUs it has, and what each is. `perfsuite emulate` writes it into an environment
// variable, from perfsuite's catalog.
#pragma once
#include <cstddef>
#include <string>

namespace emulated {

struct Device {
  std::string name;          // begins with "emulated ", so that every record says so
  size_t card_bytes;         // as NVML reports it
  size_t memory_bytes;       // as CUDA reports it: the capacity
  size_t context_bytes;      // of them, taken by a process as soon as it uses the device
  int major, minor;          // compute capability
  int multiprocessors, threads_per_multiprocessor;
  int shared_per_multiprocessor, shared_per_block;  // bytes of shared memory
  int l2_bytes;
};

const Device& device();
int machine_devices();       // of the machine, visible or not
int visible_devices();       // in this process, by CUDA_VISIBLE_DEVICES
int number_of(int visible);  // a visible device's number on the machine
std::string uuid_of(int number);
constexpr int most_devices = 64;
constexpr int first_bus = 16;  // of PCI, of device 0
constexpr int cuda_version = 13000;

int current_device();        // of the calling thread
void set_current_device(int visible);

const char* setting(const char* key);  // of the same variable; null if it is not set
}  // namespace emulated
