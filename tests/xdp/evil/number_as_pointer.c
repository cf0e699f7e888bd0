/* refused: reads memory through a number */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	return *(volatile u8 *)0x1000;
}
