// Communicators among the processes of this machine. Their ranks meet in shared memory, below a folder that
// `perfsuite emulate` makes and removes. A call returns when its ranks have met: NCCL's own only queues the message.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulated {

constexpr size_t piece_bytes = 1 << 20;   // of a collective's message: a rank shows so much at a time
constexpr int mailbox_depth = 256;        // messages that a rank can send to another before one is received
constexpr size_t letter_bytes = 4 << 10;  // of a message within the mailbox; a larger one is a file

enum class Content : uint32_t { zeros, letter, file };

struct Letter {
  uint64_t bytes;
  Content content;
  char text[letter_bytes];
};

struct Mailbox {  // from one rank to another
  std::atomic<uint32_t> sent, received;
  Letter letters[mailbox_depth];
};

struct Meeting {
  std::atomic<uint32_t> arrived, generation;
};

struct Communicator {
  std::string name;
  int rank, ranks, device;
  char* memory = nullptr;
  size_t memory_bytes = 0;
  int splits = 0;
  std::atomic<bool> aborted{false};
  const char* label = nullptr;  // the name, for the counts: it outlives the communicator

  Meeting& meeting() { return *(Meeting*)memory; }
  // Whether a rank shows anything else than zeros in this collective.
  std::atomic<uint32_t>& shows(int one) { return ((std::atomic<uint32_t>*)(memory + 64))[one]; }
  char* piece(int one) { return memory + 4096 + one * piece_bytes; }
  Mailbox& mailbox(int from, int to) { return ((Mailbox*)piece(ranks))[from * ranks + to]; }
};

std::string shared_path(const std::string& name);
Communicator* join(const std::string& name, int ranks, int rank);
void leave(Communicator* communicator);
bool meet(Communicator& communicator);  // wait for all ranks; false if this one was aborted
bool wait_while(Communicator& communicator, std::atomic<uint32_t>& word, uint32_t value);  // the same
void wake(std::atomic<uint32_t>& word);
}  // namespace emulated
