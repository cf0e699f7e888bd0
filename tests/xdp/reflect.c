/* Sends everything back, with the addresses swapped. */
#include "xdp.h"

SEC("xdp") int reflect(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx), own[6];

	if (p + 14 > end)
		return XDP_DROP;
	__builtin_memcpy(own, p, 6);
	__builtin_memcpy(p, p + 6, 6);
	__builtin_memcpy(p + 6, own, 6);
	return XDP_TX;
}
