/* refused: outside its 512 bytes */
#include "../xdp.h"

ARRAY_OF_COUNTS;

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 key[1] = {};
	return map_lookup(&counts, key) ? 1 : 2;
}
