// libnccl: sends and receives. A send never waits for its receive (unless 256 are under way to one rank), because
// NCCL's own does not make the host wait either.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "../core/counts.h"
#include "../core/ending.h"
#include "../core/launch.h"
#include "../core/memory.h"
#include "communicator.h"
#include "reduce.h"

using namespace emulated;

namespace {
constexpr int ok = 0, remote_error = 6;
const char message_kernel = 0;
const bool named = (name_kernel(&message_kernel, "a send or receive of NCCL"), true);

struct Receive {
  Communicator* all;
  char* to;
  size_t bytes;
  int peer;
};

thread_local int groups = 0;
thread_local std::vector<Receive> waiting;  // for the end of the group

std::string file_of(const Communicator& all, int from, int to, uint32_t number) {
  return shared_path(all.name + "-" + std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number));
}

// Read or write a whole file.
void move(const std::string& path, int flags, char* at, size_t bytes) {
  int file = open(path.c_str(), flags, 0600);
  for (size_t done = 0; file >= 0 && done < bytes;) {
    ssize_t some = flags & O_CREAT ? write(file, at + done, bytes - done) : read(file, at + done, bytes - done);
    if (some <= 0) break;
    done += size_t(some);
    if (done == bytes) {
      close(file);
      return;
    }
  }
  end_process("%s: %m.", path.c_str());
}

bool send(Communicator& all, char* from, size_t bytes, int peer) {
  Mailbox& box = all.mailbox(all.rank, peer);
  uint32_t number = box.sent.load();
  for (uint32_t received = box.received.load(); number - received >= mailbox_depth; received = box.received.load())
    if (!wait_while(all, box.received, received)) return false;
  Letter& letter = box.letters[number % mailbox_depth];
  letter.bytes = bytes;
  letter.content = !is_written(from, bytes) ? Content::zeros : bytes <= letter_bytes ? Content::letter : Content::file;
  if (letter.content == Content::letter) memcpy(letter.text, from, bytes);
  if (letter.content == Content::file) move(file_of(all, all.rank, peer, number), O_WRONLY | O_CREAT, from, bytes);
  box.sent.fetch_add(1);
  wake(box.sent);
  return true;
}

bool receive(const Receive& one) {
  Communicator& all = *one.all;
  Mailbox& box = all.mailbox(one.peer, all.rank);
  uint32_t number = box.received.load();
  if (!wait_while(all, box.sent, number)) return false;
  Letter& letter = box.letters[number % mailbox_depth];
  if (letter.bytes != one.bytes)  // a real device would hang or write elsewhere
    end_process("rank %d receives %zu bytes from rank %d, which sends %zu.", all.rank, one.bytes, one.peer,
                size_t(letter.bytes));
  if (letter.content == Content::zeros) fill(one.to, 0, one.bytes);
  if (letter.content == Content::letter) copy(one.to, letter.text, one.bytes);
  if (letter.content == Content::file) {
    std::string path = file_of(all, one.peer, all.rank, number);
    move(path, O_RDONLY, one.to, one.bytes);
    unlink(path.c_str());
    note_written(one.to, one.bytes);
  }
  box.received.fetch_add(1);
  wake(box.received);
  return true;
}
}  // namespace

extern "C" {
int ncclGroupStart() {
  groups++;
  return ok;
}

int ncclGroupEnd() {
  if (--groups) return ok;
  std::vector<Receive> now;
  now.swap(waiting);
  bool done = true;
  for (const Receive& one : now) done = done && receive(one);
  return done ? ok : remote_error;
}

int ncclSend(const void* from, size_t count, int type, int peer, Communicator* all, void* stream) {
  size_t bytes = count * size_of(type);
  count_collective({"ncclSend", bytes, all->ranks, all->label, peer});
  launch(&message_kernel, stream);
  return send(*all, (char*)from, bytes, peer) ? ok : remote_error;
}

int ncclRecv(void* to, size_t count, int type, int peer, Communicator* all, void* stream) {
  size_t bytes = count * size_of(type);
  count_collective({"ncclRecv", bytes, all->ranks, all->label, peer});
  launch(&message_kernel, stream);
  Receive one{all, (char*)to, bytes, peer};
  if (groups) {
    waiting.push_back(one);
    return ok;
  }
  return receive(one) ? ok : remote_error;
}
}
