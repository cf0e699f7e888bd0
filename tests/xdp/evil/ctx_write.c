/* refused: cannot be written */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	*(volatile u32 *)&ctx->data = 0;
	return XDP_PASS;
}
