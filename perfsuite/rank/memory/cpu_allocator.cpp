// Counts what tensors occupy on a CPU: an allocator in front of torch's own.
//
// torch tells the peak of live bytes for CUDA but not for a CPU. This file gives a CPU the same three things: the
// peak to the byte, a capacity that raises torch.OutOfMemoryError at the allocation that crosses it, and, while
// recording, a log of every allocation and release with the operator and the module that caused it and the storages
// that a collective read or wrote. It sees the releases of gloo's own threads too, which torch.profiler does not, and unlike
// a Python dispatch mode it leaves autograd's in-place accumulation as it is.

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {

// bytes > 0: allocated; bytes < 0: released; bytes == 0: a collective touched the block at this address.
// A mark has address -1 and its number in `bytes`. `time` is nanoseconds since 1970, as in torch's profiler.
struct Event {
  int64_t address;
  int64_t bytes;
  int64_t operation;
  int64_t module;
  int64_t time;
};

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::mutex guard;
struct Block {
  int64_t bytes;
  int64_t step;  // in which it was allocated
};
std::unordered_map<void*, Block> blocks;
std::unordered_set<void*> adopted;  // those of them that somebody else allocated
int64_t step = 0;
std::vector<Event> events;
std::unordered_map<std::string, int64_t> numbers = {{"", 0}};
std::deque<std::string> names = {""};  // which stay where they are
int64_t live = 0, peak = 0, capacity = -1;
int64_t refused = -1, live_then = 0;  // the last allocation that exceeded the capacity; -1 if none has
bool recording = false;
at::CallbackHandle callback = 0, ending = 0;
c10::Allocator* inner = nullptr;
thread_local int depth = 0;
// The outermost operator of this thread, and the outermost since a module's forward began: a module that is computed
// again runs inside a backward's. 0 outside any.
thread_local int64_t outermost = 0, operation = 0;
thread_local int module_depth = 0;
// The module whose forward runs, the one whose forward made the node that a backward runs, and the phase: 0 is none.
thread_local int64_t forward_module = 0, backward_module = 0, last_module = 0, phase = 0;
// From which sequence number on autograd's nodes were made by which module. They only grow.
thread_local std::vector<std::pair<int64_t, int64_t>> makers;

int64_t here() { return forward_module ? forward_module : backward_module ? backward_module : phase; }

int64_t number_of(const char* name) {
  auto [found, added] = numbers.try_emplace(name, names.size());
  if (added) names.emplace_back(name);
  return found->second;
}

// The next three are called with the guard held.
void forget(void* block) {
  auto found = blocks.find(block);
  if (found == blocks.end()) return;
  live -= found->second.bytes;
  if (recording) events.push_back({(int64_t)block, -found->second.bytes, 0, 0, now()});
  blocks.erase(found);
}

bool fits_in(int64_t bytes) {
  const bool fits = capacity < 0 || live + bytes <= capacity;
  if (!fits) refused = bytes, live_then = live;
  return fits;
}

void keep(void* block, int64_t bytes) {
  if (adopted.erase(block)) forget(block);  // its owner has released it since
  if (live > peak) peak = live;
  blocks[block] = {bytes, step};
  if (recording) events.push_back({(int64_t)block, bytes, operation, here(), now()});
}

void release(void* block) {
  if (!block) return;
  {
    std::lock_guard<std::mutex> hold(guard);
    forget(block);
  }
  inner->raw_deleter()(block);
}

struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    int64_t bytes = (int64_t)size;
    {
      std::lock_guard<std::mutex> hold(guard);
      const bool fits = fits_in(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, fits, "tried to allocate ", bytes, " bytes with ", live,
                       " bytes in use; the capacity is ", capacity, " bytes");
      live += bytes;  // counted before the block exists, so that two threads cannot both take the last bytes
    }
    void* block = nullptr;
    try {
      block = inner->allocate(size).release_context();
    } catch (...) {
      std::lock_guard<std::mutex> hold(guard);
      live -= bytes;
      throw;
    }
    std::lock_guard<std::mutex> hold(guard);
    if (!block) return {nullptr, nullptr, &release, c10::DeviceType::CPU};
    keep(block, bytes);
    return {block, block, &release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }
};

// Another library's aligned blocks, of which it makes its tensors; what it takes by malloc is not counted.
void* aligned_new(size_t size, std::align_val_t alignment) {
  std::lock_guard<std::mutex> hold(guard);
  if (!fits_in(size)) throw std::bad_alloc();
  void* block = ::operator new(size, alignment);
  live += size;
  keep(block, size);
  return block;
}

void aligned_delete(void* block, std::align_val_t alignment) {
  {
    std::lock_guard<std::mutex> hold(guard);
    forget(block);
  }
  ::operator delete(block, alignment);
}

void sized_aligned_delete(void* block, size_t, std::align_val_t alignment) { aligned_delete(block, alignment); }

const std::unordered_map<std::string, void*> counted_calls = {
    {"_ZnwmSt11align_val_t", (void*)&aligned_new},
    {"_ZdlPvSt11align_val_t", (void*)&aligned_delete},
    {"_ZdlPvmSt11align_val_t", (void*)&sized_aligned_delete},
};

// Point a loaded library's calls to those: each goes through an address that the loader has filled in.
int count_calls(dl_phdr_info* library, size_t, void* name) {
  if (!std::strstr(library->dlpi_name, (const char*)name)) return 0;
  const ElfW(Dyn)* found[64] = {};
  for (int i = 0; i < library->dlpi_phnum; ++i)
    if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
      for (auto* one = (const ElfW(Dyn)*)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr); one->d_tag; ++one)
        if (one->d_tag < 64) found[one->d_tag] = one;
  if (!found[DT_SYMTAB] || !found[DT_STRTAB]) return 0;
  auto* symbols = (const ElfW(Sym)*)found[DT_SYMTAB]->d_un.d_ptr;
  auto* strings = (const char*)found[DT_STRTAB]->d_un.d_ptr;
  int patched = 0;
  auto patch = [&](int table, int size) {
    if (!found[table] || !found[size]) return;
    auto* entries = (const ElfW(Rela)*)found[table]->d_un.d_ptr;
    for (size_t i = 0; i < found[size]->d_un.d_val / sizeof(ElfW(Rela)); ++i) {
      auto call = counted_calls.find(strings + symbols[ELF64_R_SYM(entries[i].r_info)].st_name);
      if (call == counted_calls.end()) continue;
      auto* slot = (void**)(library->dlpi_addr + entries[i].r_offset);
      auto page = (uintptr_t)slot & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
      mprotect((void*)page, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE);
      *slot = call->second;
      ++patched;
    }
  };
  patch(DT_JMPREL, DT_PLTRELSZ);
  patch(DT_RELA, DT_RELASZ);
  return patched;
}

void touch(const at::Tensor& tensor, int64_t collective) {
  if (tensor.defined() && tensor.has_storage())
    events.push_back({(int64_t)tensor.storage().data(), 0, collective, 0, now()});
}

// An accumulation of a gradient has no number of its own; it runs right behind the node whose gradient it takes.
void enter_backward(int64_t sequence_number) {
  auto next = std::upper_bound(makers.begin(), makers.end(), std::make_pair(sequence_number, INT64_MAX));
  if (sequence_number >= 0) last_module = next == makers.begin() ? 0 : (next - 1)->second;
  backward_module = last_module;
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  const char* name = function.name();
  bool collective = !std::strncmp(name, "c10d::", 6) || !std::strncmp(name, "_c10d_functional::", 18);
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) enter_backward(function.seqNr());
  bool first = depth++ == 0, named = first || depth == module_depth + 1;
  if (named || collective) {
    std::lock_guard<std::mutex> hold(guard);
    int64_t number = number_of(name);
    if (first) outermost = number;
    if (named) operation = number;
    if (collective) {
      for (const c10::IValue& value : function.inputs()) {
        if (value.isTensor()) touch(value.toTensor(), number);
        if (value.isTensorList())
          for (const at::Tensor& tensor : value.toTensorVector()) touch(tensor, number);
        if (value.isList())
          for (const c10::IValue& item : value.toListRef())
            if (item.isTensorList())
              for (const at::Tensor& tensor : item.toTensorVector()) touch(tensor, number);
      }
    }
  }
  return nullptr;
}

void leave(const at::RecordFunction&, at::ObserverContext*) {
  if (depth > 0) --depth;
  if (depth == 0) outermost = backward_module = 0;
  if (depth == 0 || depth == module_depth) operation = outermost;
}

// The state letter of a thread in /proc: 'S' asleep, 'R' running or waiting for a core, 'D' in the kernel for a moment.
char thread_state(const char* thread) {
  char path[64], text[512];
  std::snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
  int file = open(path, O_RDONLY);
  if (file < 0) return 'S';  // it has ended
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 'S';
  text[length] = 0;
  const char* after_name = std::strrchr(text, ')');
  return after_name ? after_name[2] : 'S';
}

bool others_asleep() {
  std::string self = std::to_string(syscall(SYS_gettid));
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) return true;
  bool asleep = true;
  while (dirent* entry = readdir(tasks))
    if (entry->d_name[0] != '.' && self != entry->d_name && std::strchr("RD", thread_state(entry->d_name)))
      asleep = false;
  closedir(tasks);
  return asleep;
}

bool settle(int seconds) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (int calm = 0; calm < 3; usleep(20)) {
    calm = others_asleep() ? calm + 1 : 0;
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

// Messages are not waited for where they are sent: two ranks that send to each other would wait for ever. Gloo's
// threads allocate nothing for them, and keep nothing.
bool waited_for(const char* name) {
  return !std::strncmp(name, "c10d::", 6) && !std::strstr(name, "send") && !std::strstr(name, "recv");
}

int settle_seconds = 0;
std::atomic<bool> unsettled{false};

// A collective ends here, in whatever way it was asked for: gloo's threads copy what they gather and reduce, while the
// rank goes on to allocate, and let go of it some time after the work is done. Which is first would be the scheduler's
// choice.
void end_collective(const at::RecordFunction& function, at::ObserverContext*) {
  if (!waited_for(function.name())) return;
  for (const c10::IValue& value : function.outputs()) {
    if (!value.isObject()) continue;  // the tensors
    auto work = value.toCustomClass<c10d::Work>();
    try {
      if (work) work->wait();
    } catch (...) {
      return;  // it is raised where the rank waits for it
    }
  }
  if (!settle(settle_seconds)) unsettled = true;
}

}  // namespace

extern "C" {
// Wait until no other thread runs. A collective that is done may still be held by the gloo thread that ran it, for
// some microseconds or, on a busy machine, milliseconds; its tensors would then count as live at random.
// Returns 0 if they never all rest within the seconds, now or after an earlier collective.
int perfsuite_settle(int seconds) { return settle(seconds) && !unsettled; }
// End every collective before the rank goes on, from now on, or do so no more (0).
void perfsuite_end_collectives(int seconds) {
  if (!settle_seconds == !seconds) return;
  settle_seconds = seconds;
  if (seconds)
    ending = at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction&) {
                                     return std::unique_ptr<at::ObserverContext>();
                                   }, &end_collective)
                                       .needsOutputs(true)
                                       .scopes({at::RecordScope::FUNCTION}));
  else
    at::removeCallback(ending);
}
void perfsuite_install() {
  if (inner) return;
  static CountingAllocator counting;
  inner = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&counting, 255);
}
void perfsuite_set_capacity(int64_t bytes) { capacity = bytes, refused = -1; }
int64_t perfsuite_refused() { return refused; }
int64_t perfsuite_live_at_refusal() { return live_then; }
int64_t perfsuite_capacity() { return capacity; }
void perfsuite_record(int on) {
  if (on == recording) return;
  if (on)
    callback = at::addGlobalCallback(at::RecordFunctionCallback(&enter, &leave)
                                         .needsInputs(true)
                                         .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  else
    at::removeCallback(callback);
  std::lock_guard<std::mutex> hold(guard);
  recording = on;
}
void perfsuite_mark(int64_t number) {
  std::lock_guard<std::mutex> hold(guard);
  if (recording) events.push_back({-1, number, 0, 0, now()});
}
void perfsuite_phase(const char* name) {
  std::lock_guard<std::mutex> hold(guard);
  phase = number_of(name);
}
// The forward of this module begins or goes on; "" is none's.
void perfsuite_module(const char* name) {
  std::lock_guard<std::mutex> hold(guard);
  forward_module = number_of(name);
  module_depth = forward_module ? depth : 0;
  operation = outermost;
  makers.emplace_back((int64_t)at::sequence_number::peek(), forward_module);
}
int64_t perfsuite_peak() {
  std::lock_guard<std::mutex> hold(guard);
  return peak;
}
int64_t perfsuite_live() {
  std::lock_guard<std::mutex> hold(guard);
  return live;
}
// A step begins.
void perfsuite_step() {
  std::lock_guard<std::mutex> hold(guard);
  ++step;
}
// What is alive of so many steps ago and before.
int64_t perfsuite_live_since(int64_t steps) {
  std::lock_guard<std::mutex> hold(guard);
  int64_t bytes = 0;
  for (const auto& [address, block] : blocks)
    if (block.step <= step - steps) bytes += block.bytes;
  return bytes;
}
void perfsuite_reset_peak() {
  std::lock_guard<std::mutex> hold(guard);
  peak = live;
}
// Count a loaded library's aligned blocks too, from now on. Returns how many of its addresses were changed.
int perfsuite_count_library(const char* name) { return dl_iterate_phdr(&count_calls, (void*)name); }
bool lies_in_block(int64_t address) {
  for (const auto& [begin, block] : blocks)
    if (address >= (int64_t)begin && address < (int64_t)begin + block.bytes) return true;
  return false;
}
// These `count` tensors (address and bytes of each) are alive, and the former ones no more: those that torch did not
// allocate, such as parts of a mapped file. Returns the bytes of these.
int64_t perfsuite_adopt(const int64_t* tensors, int64_t count) {
  std::lock_guard<std::mutex> hold(guard);
  std::unordered_set<void*> gone = adopted;
  for (int64_t at = 0; at < count; ++at) gone.erase((void*)tensors[2 * at]);
  for (void* block : gone) adopted.erase(block), forget(block);
  for (int64_t at = 0; at < count; ++at) {
    void* block = (void*)tensors[2 * at];
    if (blocks.count(block) || lies_in_block(tensors[2 * at])) continue;
    live += tensors[2 * at + 1];
    keep(block, tensors[2 * at + 1]);
    blocks[block].step = std::numeric_limits<int64_t>::min();  // it may be of any age, so it is never new
    adopted.insert(block);
  }
  int64_t bytes = 0;
  for (void* block : adopted) bytes += blocks[block].bytes;
  return bytes;
}
// The blocks that are alive: address and bytes of each, as many as `most`. Returns how many there are.
int64_t perfsuite_blocks(int64_t* to, int64_t most) {
  std::lock_guard<std::mutex> hold(guard);
  int64_t count = 0;
  for (const auto& [address, block] : blocks)
    if (count++ < most) *to++ = (int64_t)address, *to++ = block.bytes;
  return (int64_t)blocks.size();
}
// The log so far, as many of its first events as `most`. Returns how many there are: another thread may log more, and so
// may the caller, whose garbage has tensors.
int64_t perfsuite_events(int64_t* to, int64_t most) {
  std::lock_guard<std::mutex> hold(guard);
  std::memcpy(to, events.data(), std::min<int64_t>(most, events.size()) * sizeof(Event));
  return (int64_t)events.size();
}
const char* perfsuite_operation(int64_t number) {
  std::lock_guard<std::mutex> hold(guard);
  return names.at(number).c_str();
}
}
