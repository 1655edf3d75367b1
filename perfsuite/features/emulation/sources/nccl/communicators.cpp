// libnccl: how communicators come and go.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "../core/counts.h"
#include "../core/device.h"
#include "../core/memory.h"
#include "communicator.h"
#include "reduce.h"

using namespace emulated;

namespace {
constexpr int ok = 0, unhandled_cuda_error = 1, invalid_usage = 5, remote_error = 6;
thread_local std::string last_error;

struct Id {
  char text[128];
};

struct Choice {  // of a rank, in a split
  int color, key;
};

// As NCCL's own, a device belongs to one rank: two processes on one would be a wrong device in one of them.
int share_no_device(Communicator& all) {
  int mine = number_of(all.device);
  memcpy(all.piece(all.rank), &mine, sizeof mine);
  if (!meet(all)) return remote_error;
  int found = ok;
  for (int other = 0; other < all.ranks; other++) {
    int theirs;
    memcpy(&theirs, all.piece(other), sizeof theirs);
    if (other == all.rank || theirs != mine || found != ok) continue;
    last_error = "Duplicate GPU detected : rank " + std::to_string(all.rank) + " and rank " + std::to_string(other) +
                 " both on emulated device " + std::to_string(mine);
    found = invalid_usage;
  }
  return meet(all) ? found : remote_error;
}

int made(Communicator** communicator, const std::string& name, int ranks, int rank) {
  count_call("ncclCommInit");
  *communicator = join(name, ranks, rank);
  return share_no_device(**communicator);
}
}  // namespace

extern "C" {
int ncclGetVersion(int* version) {
  *version = 22907;
  return ok;
}

const char* ncclGetErrorString(int error) { return error ? "an error of the emulated NCCL" : "no error"; }
const char* ncclGetLastError(Communicator*) { return last_error.c_str(); }

int ncclGetUniqueId(Id* id) {
  static std::atomic<int> number;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  memset(id, 0, sizeof *id);
  snprintf(id->text, sizeof id->text, "nccl-%d-%d-%ld", getpid(), number++, now.tv_nsec);
  return ok;
}

int ncclCommInitRank(Communicator** all, int ranks, Id id, int rank) { return made(all, id.text, ranks, rank); }

int ncclCommInitRankConfig(Communicator** all, int ranks, Id id, int rank, void*) {
  return made(all, id.text, ranks, rank);
}

int ncclCommInitRankScalable(Communicator** all, int ranks, int rank, int, Id* ids, void*) {
  return made(all, ids[0].text, ranks, rank);
}

int ncclCommSplit(Communicator* all, int color, int key, Communicator** part, void*) {
  Choice mine{color, key};
  memcpy(all->piece(all->rank), &mine, sizeof mine);
  if (!meet(*all)) return remote_error;
  std::vector<Choice> choices(all->ranks);
  for (int rank = 0; rank < all->ranks; rank++) memcpy(&choices[rank], all->piece(rank), sizeof mine);
  if (!meet(*all)) return remote_error;
  int ranks = 0, rank = 0;
  for (int other = 0; other < all->ranks; other++) {
    if (choices[other].color != color) continue;
    ranks++;
    rank += choices[other].key < key || (choices[other].key == key && other < all->rank);
  }
  std::string name = all->name + "-" + std::to_string(all->splits++) + "." + std::to_string(color);
  *part = nullptr;
  return color < 0 ? ok : made(part, name, ranks, rank);
}

int ncclCommAbort(Communicator* all) {
  all->aborted = true;  // it is not freed: another thread may wait in it
  return ok;
}

int ncclCommFinalize(Communicator*) { return ok; }

int ncclCommDestroy(Communicator* all) {
  leave(all);
  return ok;
}

int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = ok;
  return ok;
}

int ncclCommCount(Communicator* all, int* ranks) {
  *ranks = all->ranks;
  return ok;
}

int ncclCommCuDevice(Communicator* all, int* one) {
  *one = all->device;
  return ok;
}

int ncclCommUserRank(Communicator* all, int* rank) {
  *rank = all->rank;
  return ok;
}

int ncclCommRegister(Communicator*, void* at, size_t, void** handle) {
  *handle = at;
  return ok;
}

int ncclCommDeregister(Communicator*, void*) { return ok; }

int ncclMemAlloc(void** at, size_t bytes) {
  *at = allocate(bytes, current_device());
  return *at ? ok : unhandled_cuda_error;
}

int ncclMemFree(void* at) {
  release(at);
  return ok;
}

int ncclRedOpCreatePreMulSum(int* operation, void* factor, int type, int, Communicator*) {
  *operation = add_scaled_sum(factor, type);
  return ok;
}

int ncclRedOpDestroy(int, Communicator*) { return ok; }
}
