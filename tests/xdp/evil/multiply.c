/* refused: is not allowed */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u64 p = (u64)START(ctx);
	__asm__ volatile("%0 *= 2" : "+r"(p));
	return *(volatile u8 *)p;
}
