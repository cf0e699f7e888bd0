/* refused: not proven to be below data_end */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	if (p + 4 > end)
		return XDP_DROP;
	*(volatile u32 *)(p + 2) = 1;
	return XDP_PASS;
}
