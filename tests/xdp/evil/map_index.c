/* refused: outside the value */
#include "../xdp.h"

ARRAY_OF_COUNTS;

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	u32 key = 0;
	u8 *n = map_lookup(&counts, &key);
	if (!n || p + 1 > end)
		return XDP_DROP;
	return n[*p];
}
