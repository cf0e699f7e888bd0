/* refused: not proven to end */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	volatile u32 i = 0;
	while (i < 10)
		;
	return XDP_PASS;
}
