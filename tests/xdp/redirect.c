/* To netdev 7 when the first byte is 7, else to where entry 1 of the map says, else dropped. */
#include "xdp.h"

struct {
	map_number(type, 14);
	map_number(max_entries, 4);
	map_number(key_size, 4);
	map_number(value_size, 4);
} ports SEC(".maps");

SEC("xdp") int to(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);

	if (p + 1 <= end && *p == 7)
		return redirect(7, 0);
	return redirect_map(&ports, 1, XDP_DROP);
}
