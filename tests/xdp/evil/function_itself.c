/* refused: calls itself */
#include "../xdp.h"

static __attribute__((noinline)) int down(struct xdp_md *ctx, u32 n)
{
	return n ? down(ctx, n - 1) + down(ctx, n / 2) : XDP_PASS;
}

SEC("xdp") int evil(struct xdp_md *ctx)
{
	return down(ctx, ctx->rx_queue_index);
}
