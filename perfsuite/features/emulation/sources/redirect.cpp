// An auditor of the dynamic linker (LD_AUDIT, man rtld-audit): wherever a process looks for one of NVIDIA's libraries,
// it finds the stand-in. LD_LIBRARY_PATH would not do: torch's libraries have a DT_RPATH, which is searched before it
// and leads to the nvidia-* wheels.
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" unsigned la_version(unsigned version) { return version; }

extern "C" char* la_objsearch(const char* name, uintptr_t*, unsigned) {
  const char* folder = getenv("PERFSUITE_EMULATED_LIBRARIES");
  const char* slash = strrchr(name, '/');
  const char* base = slash ? slash + 1 : name;
  if (!folder || (strncmp(base, "libcu", 5) && strncmp(base, "libnv", 5) && strncmp(base, "libnccl", 7)))
    return const_cast<char*>(name);
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, base);
  return access(path, R_OK) ? const_cast<char*>(name) : strdup(path);  // the linker keeps it
}
