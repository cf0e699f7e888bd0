/* refused: to memory that others can read */
#include "../xdp.h"

ARRAY_OF_COUNTS;

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u32 key = 0;
	u64 *n = map_lookup(&counts, &key);
	if (n)
		*n = (u64)ctx;
	return XDP_PASS;
}
