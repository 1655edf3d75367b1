#include "communicator.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <ctime>

#include "../core/device.h"
#include "../core/ending.h"

namespace emulated {

std::string shared_path(const std::string& name) {
  const char* folder = setting("shared");
  return std::string(folder ? folder : "/dev/shm") + "/" + name;
}

bool wait_while(Communicator& communicator, std::atomic<uint32_t>& word, uint32_t value) {
  const timespec limit{0, 100'000'000};  // then look whether the communicator was aborted
  while (word.load() == value) {
    if (communicator.aborted) return false;
    syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
  }
  return true;
}

void wake(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

bool meet(Communicator& communicator) {
  if (communicator.ranks == 1) return true;
  Meeting& meeting = communicator.meeting();
  uint32_t generation = meeting.generation.load();
  if (meeting.arrived.fetch_add(1) + 1 < uint32_t(communicator.ranks))
    return wait_while(communicator, meeting.generation, generation);
  meeting.arrived = 0;
  meeting.generation.fetch_add(1);
  wake(meeting.generation);
  return true;
}

Communicator* join(const std::string& name, int ranks, int rank) {
  auto* made = new Communicator{name, rank, ranks, current_device()};
  made->label = strdup(name.c_str());
  made->memory_bytes = 4096 + ranks * piece_bytes + size_t(ranks) * ranks * sizeof(Mailbox);
  std::string path = shared_path(name);
  int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  void* memory = MAP_FAILED;
  if (file >= 0 && !ftruncate(file, off_t(made->memory_bytes)))
    memory = mmap(nullptr, made->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) end_process("%s: %m.", path.c_str());
  close(file);
  made->memory = (char*)memory;
  meet(*made);
  unlink(path.c_str());  // all have it open; the last of them to end frees it
  return made;
}

void leave(Communicator* communicator) {
  munmap(communicator->memory, communicator->memory_bytes);
  delete communicator;
}
}  // namespace emulated
