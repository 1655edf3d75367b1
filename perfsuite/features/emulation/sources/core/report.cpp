// The file of counts: one JSON object per process, FILE.<process>.json. docs/emulation.md describes it.
#include "report.h"

#include <cxxabi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "device.h"
#include "memory.h"

namespace emulated {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (unsigned char one : text) {
    if (one == '"' || one == '\\') out += '\\';
    if (one >= ' ') out += char(one);
  }
  return out + "\"";
}

std::string readable(const char* name) {
  int status;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string out = text ? text : name;
  free(text);
  return out;
}

void write_numbers(FILE* file, const char* title, const std::map<std::string, size_t>& numbers) {
  fprintf(file, "%s: {", quoted(title).c_str());
  const char* comma = "";
  for (auto& [name, number] : numbers) {
    fprintf(file, "%s%s: %zu", comma, quoted(name).c_str(), number);
    comma = ", ";
  }
  fprintf(file, "}");
}

void write_copies(FILE* file, const Totals& totals) {
  fprintf(file, "\"copies\": {");
  const char* comma = "";
  for (auto& [direction, made] : totals.copies) {
    fprintf(file, "%s\"%s\": {\"calls\": %zu, \"bytes\": %zu}", comma, direction.c_str(), made.calls, made.bytes);
    comma = ", ";
  }
  fprintf(file, "}");
}

void write_matmuls(FILE* file, const Totals& totals) {
  fprintf(file, "\"matmuls\": [");
  const char* comma = "";
  for (auto& [one, calls] : totals.matmuls) {
    fprintf(file, "%s{\"call\": \"%s\", \"m\": %ld, \"n\": %ld, \"k\": %ld, \"batch\": %ld, \"type\": %d, \"calls\": %zu}",
            comma, one.call, one.m, one.n, one.k, one.batch, one.type, calls);
    comma = ", ";
  }
  fprintf(file, "]");
}

void write_collectives(FILE* file, const Totals& totals) {
  fprintf(file, "\"collectives\": [");
  const char* comma = "";
  for (auto& one : totals.collectives) {
    fprintf(file, "%s{\"call\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"communicator\": \"%s\"", comma, one.call,
            one.bytes, one.ranks, one.communicator);
    if (one.peer >= 0) fprintf(file, ", \"peer\": %d", one.peer);
    fprintf(file, "}");
    comma = ", ";
  }
  fprintf(file, "]");
}

void write_totals(FILE* file, const Totals& totals) {
  std::map<std::string, size_t> kernels;
  for (auto& [function, launches] : totals.kernels) kernels[readable(kernel_name(function))] += launches;
  fprintf(file, "{");
  write_numbers(file, "kernels", kernels);
  fprintf(file, ",\n ");
  write_copies(file, totals);
  fprintf(file, ",\n ");
  write_numbers(file, "synchronizations", totals.synchronizations);
  fprintf(file, ",\n ");
  write_matmuls(file, totals);
  fprintf(file, ",\n ");
  write_collectives(file, totals);
  fprintf(file, ",\n ");
  write_numbers(file, "calls", totals.calls);
  fprintf(file, ",\n ");
  write_numbers(file, "computed", totals.computed);
  fprintf(file, ",\n ");
  write_numbers(file, "not_computed", totals.not_computed);
  fprintf(file, "}");
}

std::string command_line() {
  std::string text;
  if (FILE* file = fopen("/proc/self/cmdline", "r")) {
    for (int one; (one = fgetc(file)) != EOF;) text += one ? char(one) : ' ';
    fclose(file);
  }
  return text.substr(0, text.empty() ? 0 : text.size() - 1);
}
}  // namespace

void write_report() {
  static bool written = false;
  const char* stem = setting("counts");
  const auto& totals = all_totals();
  if (!stem || written || (totals[0].calls.empty() && totals[0].kernels.empty())) return;
  written = true;
  std::string path = std::string(stem) + "." + std::to_string(getpid()) + ".json";
  FILE* file = fopen((path + ".part").c_str(), "w");
  if (!file) return;
  const char* rank = getenv("RANK");
  fprintf(file, "{\"format\": 1, \"device\": %s, \"process\": %d, \"rank\": %s, \"command\": %s,\n",
          quoted(device().name).c_str(), getpid(), rank ? quoted(rank).c_str() : "null", quoted(command_line()).c_str());
  fprintf(file, "\"peak_bytes\": [");
  for (int one = 0; one < visible_devices(); one++) fprintf(file, "%s%zu", one ? ", " : "", most_used(one));
  fprintf(file, "],\n\"total\": ");
  write_totals(file, totals[0]);
  fprintf(file, ",\n\"sections\": [");
  for (size_t one = 1; one < totals.size(); one++) {
    fprintf(file, "%s", one > 1 ? ",\n" : "");
    write_totals(file, totals[one]);
  }
  fprintf(file, "]}\n");
  fclose(file);
  rename((path + ".part").c_str(), path.c_str());
}

// At a normal exit; and at os._exit, by which multiprocessing's children end: with counts this library is preloaded,
// so that its _exit is the first.
struct AtExit {
  ~AtExit() {
    if (getenv("PERFSUITE_EMULATED")) write_report();
  }
} at_exit;
}  // namespace emulated

extern "C" [[noreturn]] void _exit(int status) {
  if (getenv("PERFSUITE_EMULATED")) emulated::write_report();
  for (;;) syscall(SYS_exit_group, status);
}
