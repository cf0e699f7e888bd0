/* refused: must be proven to be at most */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	if (p + 64 > end)
		return XDP_DROP;
	return p[*(u64 *)p];
}
