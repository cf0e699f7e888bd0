#include "xdp.h"

SEC("xdp") int pass(struct xdp_md *ctx) { return XDP_PASS; }
