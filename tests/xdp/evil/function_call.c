/* refused: packet offset 20..21 is not proven */
#include "../xdp.h"

static __attribute__((noinline)) int far(u8 *p)
{
	return p[20];
}

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	return p + 20 > end ? XDP_PASS : far(p);
}
