#include "xdp.h"

SEC("xdp") int aborted(struct xdp_md *ctx) { return 77; }
