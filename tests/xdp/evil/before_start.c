/* refused: before its start */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	if (p + 10 > end)
		return XDP_DROP;
	return p[-1];
}
