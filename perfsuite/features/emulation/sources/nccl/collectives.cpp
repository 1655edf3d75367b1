// libnccl: collectives. Messages of any size really travel, piece by piece, unless they are zeros on all ranks: then
// the result is zeros, and nothing is copied.
#include <algorithm>
#include <cstring>
#include <vector>

#include "../core/counts.h"
#include "../core/launch.h"
#include "../core/memory.h"
#include "communicator.h"
#include "reduce.h"

using namespace emulated;

namespace {
constexpr int ok = 0, remote_error = 6;
const char collective_kernel = 0;
const bool named = (name_kernel(&collective_kernel, "a collective of NCCL"), true);

// One collective: every rank shows `shown` bytes at `mine`, and `take(offset, bytes, pieces)` reads a piece of all
// ranks. `to` gets `bytes`, all zero if no rank shows anything else.
int exchange(const char* call, Communicator* communicator, void* stream, const void* mine, size_t shown, void* to,
             size_t bytes, auto take) {
  Communicator& all = *communicator;
  count_collective({call, std::max(shown, bytes), all.ranks, all.label, -1});
  launch(&collective_kernel, stream);
  all.shows(all.rank) = mine && is_written(mine, shown);
  if (!meet(all)) return remote_error;
  bool anything = false;
  for (int rank = 0; rank < all.ranks; rank++) anything |= all.shows(rank) != 0;
  std::vector<const char*> pieces;
  for (int rank = 0; rank < all.ranks; rank++) pieces.push_back(all.piece(rank));
  for (size_t offset = 0; anything && offset < shown; offset += piece_bytes) {
    size_t length = std::min(piece_bytes, shown - offset);
    if (mine) memcpy(all.piece(all.rank), (const char*)mine + offset, length);
    if (!meet(all)) return remote_error;
    take(offset, length, pieces.data());
    if (!meet(all)) return remote_error;
  }
  if (!anything && to) fill(to, 0, bytes);
  if (anything && to) note_written(to, bytes);
  return meet(all) ? ok : remote_error;  // before another collective says what it shows
}

// Calls `use(offset in the part, offset in the piece, bytes)` for what [offset, offset + length) has of a part.
void within(size_t part_begin, size_t part_bytes, size_t offset, size_t length, auto use) {
  size_t begin = std::max(part_begin, offset), end = std::min(part_begin + part_bytes, offset + length);
  if (begin < end) use(begin - part_begin, begin - offset, end - begin);
}
}  // namespace

extern "C" {
int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, Communicator* all, void* stream) {
  size_t bytes = count * size_of(type);
  return exchange("ncclAllReduce", all, stream, from, bytes, to, bytes,
                  [&](size_t offset, size_t length, const char* const* pieces) {
                    reduce((char*)to + offset, pieces, all->ranks, length / size_of(type), type, operation);
                  });
}

int ncclReduce(const void* from, void* to, size_t count, int type, int operation, int root, Communicator* all,
               void* stream) {
  size_t bytes = count * size_of(type);
  bool mine = all->rank == root;
  return exchange("ncclReduce", all, stream, from, bytes, mine ? to : nullptr, bytes,
                  [&](size_t offset, size_t length, const char* const* pieces) {
                    if (mine) reduce((char*)to + offset, pieces, all->ranks, length / size_of(type), type, operation);
                  });
}

int ncclReduceScatter(const void* from, void* to, size_t count, int type, int operation, Communicator* all,
                      void* stream) {
  size_t part = count * size_of(type);
  return exchange("ncclReduceScatter", all, stream, from, part * all->ranks, to, part,
                  [&](size_t offset, size_t length, const char* const* pieces) {
                    within(part * all->rank, part, offset, length, [&](size_t at, size_t skipped, size_t bytes) {
                      std::vector<const char*> mine(pieces, pieces + all->ranks);
                      for (const char*& one : mine) one += skipped;
                      reduce((char*)to + at, mine.data(), all->ranks, bytes / size_of(type), type, operation);
                    });
                  });
}

int ncclAllGather(const void* from, void* to, size_t count, int type, Communicator* all, void* stream) {
  size_t part = count * size_of(type);
  return exchange("ncclAllGather", all, stream, from, part, to, part * all->ranks,
                  [&](size_t offset, size_t length, const char* const* pieces) {
                    for (int rank = 0; rank < all->ranks; rank++)
                      memcpy((char*)to + rank * part + offset, pieces[rank], length);
                  });
}

int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Communicator* all, void* stream) {
  size_t bytes = count * size_of(type);
  return exchange("ncclBroadcast", all, stream, all->rank == root ? from : nullptr, bytes, to, bytes,
                  [&](size_t offset, size_t length, const char* const* pieces) {
                    memcpy((char*)to + offset, pieces[root], length);
                  });
}

int ncclBcast(void* at, size_t count, int type, int root, Communicator* all, void* stream) {
  return ncclBroadcast(at, at, count, type, root, all, stream);
}

int ncclAlltoAll(const void* from, void* to, size_t count, int type, Communicator* all, void* stream) {
  size_t part = count * size_of(type);
  return exchange("ncclAlltoAll", all, stream, from, part * all->ranks, to, part * all->ranks,
                  [&](size_t offset, size_t length, const char* const* pieces) {
                    within(part * all->rank, part, offset, length, [&](size_t at, size_t skipped, size_t bytes) {
                      for (int rank = 0; rank < all->ranks; rank++)
                        memcpy((char*)to + rank * part + at, pieces[rank] + skipped, bytes);
                    });
                  });
}
}
