/* refused: not proven to be below data_end */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	if (p + 64 > end)
		return XDP_DROP;
	return p[(p[0] & 63) * 2];
}
