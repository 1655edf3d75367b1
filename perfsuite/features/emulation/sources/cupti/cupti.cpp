// libcupti: the activity records of the host's calls, by which torch's profiler shows each launch, copy and
// synchronization within its operator. There are no records of the device: its kernels take no time.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <mutex>
#include <vector>

#include "../core/tracing.h"

using namespace emulated;

namespace {
constexpr int ok = 0, end_of_records = 12;  // CUPTI_ERROR_MAX_LIMIT_REACHED
constexpr uint32_t kind_driver = 4, kind_runtime = 5, kind_external = 39;

struct Call {  // CUpti_ActivityAPI
  uint32_t kind, number;
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
};

struct External {  // CUpti_ActivityExternalCorrelation: the operator around a call
  uint32_t kind, external_kind;
  uint64_t external_id;
  uint32_t correlation, reserved;
};

using Request = void (*)(uint8_t** buffer, size_t* bytes, size_t* most_records);
using Complete = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t used);
using Clock = uint64_t (*)();

// Of the profiler's memory. It must be asked for before a flush: with none given out, the profiler flushes nothing.
struct Buffer {
  uint8_t* at = nullptr;
  size_t bytes = 0, used = 0;
};

struct State {
  std::mutex lock;
  Buffer buffer;
  uint32_t correlations = 0;
  bool enabled[64] = {};
  Request request = nullptr;
  Complete complete = nullptr;
  Clock clock = nullptr;
};

State& state() {
  static auto* known = new State;
  return *known;
}

struct Operator {
  uint32_t kind;
  uint64_t id;
};
thread_local std::vector<Operator> operators;

size_t bytes_of(const void* record) {
  return *(const uint32_t*)record == kind_external ? sizeof(External) : sizeof(Call);
}

uint64_t time_now() {
  if (state().clock) return state().clock();
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}

void complete_buffer() {
  Buffer full = state().buffer;
  state().buffer = {};
  if (full.at) state().complete(nullptr, 0, full.at, full.bytes, full.used);
}

void append(const void* record) {
  Buffer& buffer = state().buffer;
  size_t bytes = bytes_of(record), most_records = 0;
  if (buffer.at && buffer.used + bytes > buffer.bytes) complete_buffer();
  if (!buffer.at) state().request(&buffer.at, &buffer.bytes, &most_records);
  if (!buffer.at) return;
  memcpy(buffer.at + buffer.used, record, bytes);
  buffer.used += bytes;
}

void listen(const TracedCall& traced) {
  std::lock_guard guard(state().lock);
  uint32_t kind = traced.of_driver ? kind_driver : kind_runtime;
  if (!state().enabled[kind] || !state().request) return;
  uint32_t correlation = ++state().correlations;
  if (state().enabled[kind_external])
    for (uint32_t of_kind : {3u, 4u}) {  // torch's profiler has two kinds of its own, CUSTOM0 and CUSTOM1
      auto last = std::find_if(operators.rbegin(), operators.rend(), [&](auto& one) { return one.kind == of_kind; });
      if (last == operators.rend()) continue;
      External external{kind_external, last->kind, last->id, correlation, 0};
      append(&external);
    }
  uint64_t start = time_now();
  Call call{kind, uint32_t(traced.number), start, start, uint32_t(getpid()), uint32_t(pthread_self()), correlation, 0};
  append(&call);
}

void update_listener() {
  bool any = state().enabled[kind_runtime] || state().enabled[kind_driver];
  listener = any ? listen : nullptr;
}

int enable(uint32_t kind, bool on) {
  std::lock_guard guard(state().lock);
  if (kind < 64) state().enabled[kind] = on;
  update_listener();
  return ok;
}
}  // namespace

extern "C" {
int cuptiGetVersion(uint32_t* version) {
  *version = 130000;
  return ok;
}

int cuptiGetResultString(int, const char** text) {
  *text = "an error of the emulated CUPTI";
  return ok;
}

int cuptiActivityRegisterCallbacks(Request request, Complete complete) {
  state().request = request;
  state().complete = complete;
  return ok;
}

int cuptiActivityRegisterTimestampCallback(Clock clock) {
  state().clock = clock;
  return ok;
}

int cuptiActivityEnable(uint32_t kind) { return enable(kind, true); }
int cuptiActivityDisable(uint32_t kind) { return enable(kind, false); }
int cuptiActivityEnableRuntimeApi(uint32_t, uint8_t) { return ok; }
int cuptiActivityEnableDriverApi(uint32_t, uint8_t) { return ok; }
int cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) { return ok; }
int cuptiActivitySetAttribute(int, size_t*, void*) { return ok; }

int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) {
  operators.push_back({kind, id});
  return ok;
}

int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t* last) {
  auto at = std::find_if(operators.rbegin(), operators.rend(), [&](auto& one) { return one.kind == kind; });
  if (at == operators.rend()) return ok;
  if (last) *last = at->id;
  operators.erase(std::next(at).base());
  return ok;
}

int cuptiActivityFlushAll(uint32_t) {
  std::lock_guard guard(state().lock);
  complete_buffer();
  return ok;
}

int cuptiActivityGetNextRecord(uint8_t* buffer, size_t used, uint8_t** record) {
  uint8_t* next = *record ? *record + bytes_of(*record) : buffer;
  if (next >= buffer + used) return end_of_records;
  *record = next;
  return ok;
}

int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  *dropped = 0;
  return ok;
}

int cuptiGetCallbackName(int domain, uint32_t number, const char** name) {
  for (const TracedCall& one : traced_calls)
    if (one.number == int(number) && one.of_driver == (domain == 1)) {  // CUPTI_CB_DOMAIN_DRIVER_API
      *name = one.name;
      return ok;
    }
  *name = "a call that is not traced";
  return ok;
}

int cuptiSubscribe(void** subscriber, void*, void*) {
  static char only;
  *subscriber = &only;
  return ok;
}

int cuptiUnsubscribe(void*) { return ok; }
int cuptiEnableCallback(uint32_t, void*, int, uint32_t) { return ok; }
int cuptiEnableDomain(uint32_t, void*, int) { return ok; }
int cuptiFinalize() { return ok; }
}
