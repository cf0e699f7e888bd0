/* Puts 8 bytes in front of a frame, and cuts off the last 4; what it cannot do is aborted. */
#include "xdp.h"

SEC("xdp.frags") int push(struct xdp_md *ctx)
{
	if (adjust_head(ctx, -8) || adjust_tail(ctx, -4))
		return XDP_ABORTED;
	u8 *p = START(ctx), *end = END(ctx);
	if (p + 8 > end)
		return XDP_ABORTED;
	for (int i = 0; i < 8; i++)
		p[i] = i + 1;
	return XDP_PASS;
}
