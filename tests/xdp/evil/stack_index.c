/* refused: an unknown number is added to a stack pointer */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	volatile u8 bytes[8] = {};
	if (p + 1 > end)
		return XDP_DROP;
	return bytes[*p];
}
