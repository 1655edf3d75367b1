#include "device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace emulated {
namespace {

// "key=value;key=value", which perfsuite/features/emulation/devices.py writes.
std::map<std::string, std::string> read_settings() {
  std::map<std::string, std::string> found;
  const char* text = getenv("PERFSUITE_EMULATED");
  if (!text) {
    fprintf(stderr, "perfsuite emulate: PERFSUITE_EMULATED is not set: start the command by perfsuite emulate.\n");
    abort();
  }
  std::string rest = text;
  while (!rest.empty()) {
    size_t end = rest.find(';'), equals = rest.find('=');
    found[rest.substr(0, equals)] = rest.substr(equals + 1, end == std::string::npos ? end : end - equals - 1);
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  return found;
}

const std::map<std::string, std::string>& settings() {
  static auto* known = new std::map<std::string, std::string>(read_settings());  // never destroyed: used at exit
  return *known;
}

size_t number(const char* key) {
  const char* text = setting(key);
  if (!text) {
    fprintf(stderr, "perfsuite emulate: PERFSUITE_EMULATED has no %s.\n", key);
    abort();
  }
  return strtoull(text, nullptr, 10);
}

Device read_device() {
  return {setting("name") ? setting("name") : "",
          number("card_bytes"),
          number("memory_bytes"),
          number("context_bytes"),
          int(number("major")),
          int(number("minor")),
          int(number("multiprocessors")),
          int(number("threads_per_multiprocessor")),
          int(number("shared_per_multiprocessor")),
          int(number("shared_per_block")),
          int(number("l2_bytes"))};
}

// A number of CUDA_VISIBLE_DEVICES, or the device with a UUID that begins so; -1 if there is none.
int device_named(const std::string& entry) {
  if (entry.rfind("GPU-", 0) == 0) {
    for (int one = 0; one < machine_devices(); one++)
      if (uuid_of(one).rfind(entry, 0) == 0) return one;
    return -1;
  }
  char* end;
  long found = strtol(entry.c_str(), &end, 10);
  return end == entry.c_str() || *end || found < 0 || found >= machine_devices() ? -1 : int(found);
}

std::vector<int> read_visible() {
  std::vector<int> found;
  const char* shown = getenv("CUDA_VISIBLE_DEVICES");
  if (!shown)
    for (int one = 0; one < machine_devices(); one++) found.push_back(one);
  for (std::string rest = shown ? shown : ""; !rest.empty();) {
    size_t comma = rest.find(',');
    int one = device_named(rest.substr(0, comma));
    if (one < 0) break;  // as CUDA: what follows an unknown one is not visible
    found.push_back(one);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return found;
}

const std::vector<int>& visible() {
  static auto* known = new std::vector<int>(read_visible());
  return *known;
}

thread_local int current = 0;
}  // namespace

const char* setting(const char* key) {
  auto at = settings().find(key);
  return at == settings().end() ? nullptr : at->second.c_str();
}

const Device& device() {
  static auto* known = new Device(read_device());
  return *known;
}

int machine_devices() {
  static int known = int(number("count"));
  return known;
}

int visible_devices() { return int(visible().size()); }
int number_of(int one) { return visible().at(one); }

std::string uuid_of(int one) {
  char text[48];
  snprintf(text, sizeof text, "GPU-%08x-0000-0000-0000-000000000000", unsigned(one));
  return text;
}

int current_device() { return current; }
void set_current_device(int one) { current = one; }
}  // namespace emulated
