// Streams and events. All work is done in the call that queues it, so that everything is always finished. With the
// setting "late" an event nevertheless says "not ready" to its first few queries, as it does on a real device: then
// torch's allocator really keeps a block that another stream uses (record_stream), instead of reusing it at once.
#pragma once
#include <cstdint>
#include <vector>

namespace emulated {

struct Graph {  // what was captured: the kernels that a replay launches
  std::vector<const void*> kernels;
  unsigned long long id;
};

struct Stream {
  int device;
  int priority;
  unsigned flags;
  unsigned long long id;
  Graph* capturing = nullptr;  // the graph that the work of this stream goes into
};

struct Event {
  unsigned flags;
  bool recorded = false;
  int queries_until_done = 0;
  Graph* captured_by = nullptr;  // it was recorded in a capture: a stream that waits for it joins that capture
};

Stream* stream_of(void* handle);  // also of the default streams' handles 0, 1 and 2
Stream* make_stream(int priority, unsigned flags);
void record(Event* event, void* stream);
bool query(Event* event);        // whether its work is done
void finish(Event* event);       // somebody waits for it
void wait_for(void* stream, Event* event);
bool query_stream(void* stream);
void join_capture(Stream* stream, Graph* graph);
void end_captures(Graph* graph);  // of every stream that joined
}  // namespace emulated
