// libnvidia-ml: what torch and perfsuite ask about the devices before they use CUDA. A query that is not answered
// returns "not supported", as NVML's own do on many devices: its callers expect that.
#include <cstdio>
#include <cstring>

#include "../core/counts.h"
#include "../core/device.h"
#include "../core/memory.h"

using namespace emulated;

namespace {
constexpr int ok = 0, invalid_argument = 2, not_supported = 3;
constexpr unsigned clock_mhz = 1000;

void* handle_of(int number) { return (void*)(long)(number + 1); }
int number_of_handle(void* handle) { return int(long(handle)) - 1; }

struct Memory {
  unsigned long long total, free, used;
};

struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
}  // namespace

extern "C" {
int nvmlInit() { return ok; }
int nvmlInit_v2() { return ok; }
int nvmlInitWithFlags(unsigned) { return ok; }
int nvmlShutdown() { return ok; }
const char* nvmlErrorString(int error) { return error == not_supported ? "Not Supported" : "an emulated error"; }

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  snprintf(text, length, "emulated");
  return ok;
}

int nvmlSystemGetNVMLVersion(char* text, unsigned length) { return nvmlSystemGetDriverVersion(text, length); }

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = cuda_version;
  return ok;
}

int nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = machine_devices();
  return ok;
}

int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned number, void** handle) {
  if (int(number) >= machine_devices()) return invalid_argument;
  *handle = handle_of(number);
  return ok;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  int bus = 0;
  sscanf(id, "%*x:%x", &bus);
  *handle = handle_of(bus - first_bus);
  return ok;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  for (int one = 0; one < machine_devices(); one++)
    if (uuid_of(one) == uuid) {
      *handle = handle_of(one);
      return ok;
    }
  return invalid_argument;
}

int nvmlDeviceGetIndex(void* handle, unsigned* number) {
  *number = number_of_handle(handle);
  return ok;
}

int nvmlDeviceGetName(void*, char* text, unsigned length) {
  snprintf(text, length, "%s", device().name.c_str());
  return ok;
}

int nvmlDeviceGetUUID(void* handle, char* text, unsigned length) {
  snprintf(text, length, "%s", uuid_of(number_of_handle(handle)).c_str());
  return ok;
}

// Of the card. What processes use is not known across processes: all of it is free.
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {device().card_bytes, device().card_bytes, 0};
  return ok;
}

// No joule is used here: each kernel that this process launches on the device counts as a millijoule.
int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  *millijoules = kernels_on(number_of_handle(handle));
  return ok;
}

int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  memset(info, 0, sizeof *info);
  info->bus = first_bus + number_of_handle(handle);
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
  return ok;
}

int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = device().major;
  *minor = device().minor;
  return ok;
}

int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return ok;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void*) {
  *count = 0;
  return ok;
}

// Links between the devices: none.
int nvmlDeviceGetNvLinkState(void*, unsigned, unsigned*) { return not_supported; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, void*) { return not_supported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return not_supported; }
int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return not_supported; }
int nvmlDeviceGetP2PStatus(void*, void*, int, int*) { return not_supported; }
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int*) { return not_supported; }
}
