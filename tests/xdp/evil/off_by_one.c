/* refused: not proven to be below data_end */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	for (int i = 0; i < 64; i++) {
		if (p + i > end)
			break;
		if (p[i] == 1)
			return XDP_DROP;
	}
	return XDP_PASS;
}
