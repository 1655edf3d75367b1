#include "launch.h"

#include "counts.h"
#include "streams.h"
#include "tracing.h"

void emulated::launch(const void* function, void* stream, const char* call) {
  traced(call);
  if (Graph* graph = stream_of(stream)->capturing)
    graph->kernels.push_back(function);
  else
    count_kernel(function);
}
