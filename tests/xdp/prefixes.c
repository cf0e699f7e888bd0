/* Drops what comes from listed networks. */
#include "xdp.h"

struct key {
	u32 bits;
	u8 address[4];
};

struct {
	map_number(type, 11);
	map_number(max_entries, 8);
	map_number(map_flags, 1);
	map_type(key, struct key);
	map_type(value, u32);
} networks SEC(".maps");

SEC("xdp") int prefixes(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	struct key key = { .bits = 32 };

	if (p + 34 > end)
		return XDP_PASS;
	__builtin_memcpy(key.address, p + 26, 4);
	u32 *found = map_lookup(&networks, &key);
	return found ? *found : XDP_PASS;
}
