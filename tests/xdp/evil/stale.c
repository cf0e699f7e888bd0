/* refused: r7 is read before it is written */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	if (p + 14 > end || adjust_head(ctx, 4))
		return XDP_DROP;
	return p[0];
}
