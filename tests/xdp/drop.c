/* Drops UDP to port 9, over IPv4 with any options, and counts it. */
#include "xdp.h"

ARRAY_OF_COUNTS;

SEC("xdp") int drop(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	u32 key = 1;

	if (p + 14 + 20 > end || p[12] != 8 || p[13] != 0 || p[23] != 17)
		return XDP_PASS;
	u8 *udp = p + 14 + (p[14] & 15) * 4;
	if (udp + 8 > end || udp[2] != 0 || udp[3] != 9)
		return XDP_PASS;
	u64 *n = map_lookup(&counts, &key);
	if (n)
		__sync_fetch_and_add(n, 1);
	return XDP_DROP;
}
