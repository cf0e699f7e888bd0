/* As large.c, for a program that takes no large frames. */
#define SECTION "xdp"
#include "large.c"
