/* refused: reads memory through a map */
#include "../xdp.h"

ARRAY_OF_COUNTS;

SEC("xdp") int evil(struct xdp_md *ctx)
{
	return *(volatile u8 *)&counts;
}
