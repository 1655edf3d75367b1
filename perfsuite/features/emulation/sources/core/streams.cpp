#include "streams.h"

#include <cstdlib>
#include <iterator>
#include <mutex>
#include <random>
#include <set>

#include "device.h"

namespace emulated {
namespace {

constexpr int most_late_queries = 3;

struct State {
  std::mutex lock;
  std::set<Stream*> joined;  // streams whose work is captured
  unsigned long long ids = 0;
  std::mt19937 random{setting("late") ? unsigned(atoi(setting("late"))) : 0u};
};

State& state() {
  static auto* known = new State;
  return *known;
}

int late_queries() {
  if (!setting("late")) return 0;
  std::lock_guard guard(state().lock);
  return int(state().random() % (most_late_queries + 1));
}
}  // namespace

void join_capture(Stream* stream, Graph* graph) {
  std::lock_guard guard(state().lock);
  stream->capturing = graph;
  state().joined.insert(stream);
}

Stream* stream_of(void* handle) {
  static Stream defaults[most_devices];
  if (uintptr_t(handle) > 2) return (Stream*)handle;
  Stream* stream = &defaults[current_device()];
  stream->device = current_device();
  return stream;
}

Stream* make_stream(int priority, unsigned flags) {
  std::lock_guard guard(state().lock);
  return new Stream{current_device(), priority, flags, ++state().ids};
}

void record(Event* event, void* handle) {
  event->recorded = true;
  event->captured_by = stream_of(handle)->capturing;
  event->queries_until_done = event->captured_by ? 0 : late_queries();
}

bool query(Event* event) {
  if (event->queries_until_done == 0) return true;
  event->queries_until_done--;
  return false;
}

void finish(Event* event) { event->queries_until_done = 0; }

void wait_for(void* handle, Event* event) {
  Stream* stream = stream_of(handle);
  if (event->captured_by && !stream->capturing) join_capture(stream, event->captured_by);
}

bool query_stream(void*) { return late_queries() == 0; }

void end_captures(Graph* graph) {
  std::lock_guard guard(state().lock);
  for (auto at = state().joined.begin(); at != state().joined.end();) {
    bool ends = (*at)->capturing == graph;
    if (ends) (*at)->capturing = nullptr;
    at = ends ? state().joined.erase(at) : std::next(at);
  }
}
}  // namespace emulated
