#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void refuse(void) {
    const char *shown = getenv("CUDA_VISIBLE_DEVICES");
    if (access(DRIVER, F_OK) || (shown && (!*shown || !strncmp(shown, "-1", 2)))) return;
    fputs("perfsuite: " SONAME " is a stand-in without GPU code, and a GPU is visible: install the real one, "
          "or hide the GPU with CUDA_VISIBLE_DEVICES=-1.\n", stderr);
    _exit(1);
}
