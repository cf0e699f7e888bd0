/* A bounded loop over the frame, its sum by channel, and by the first byte in a hash. */
#include "xdp.h"

struct {
	map_number(type, 6);
	map_number(max_entries, 1);
	map_type(key, u32);
	map_type(value, u64);
} sums SEC(".maps");

struct {
	map_number(type, 1);
	map_number(max_entries, 2);
	map_type(key, u8);
	map_type(value, u32);
} firsts SEC(".maps");

static volatile u32 seen;

SEC("xdp") int sum(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);
	u32 zero = 0, one = 1, *count;
	u64 all = 0, *value;

	if (p + 1 > end)
		return XDP_DROP;
	for (int i = 0; i < 100; i++) {
		if (p + i + 1 > end)
			break;
		all += p[i];
	}
	u8 first = *p;
	value = map_lookup(&sums, &zero);
	if (value)
		*value += all;
	count = map_lookup(&firsts, &first);
	if (count)
		__sync_fetch_and_add(count, 1);
	else if (map_update(&firsts, &first, &one, 0))
		return XDP_ABORTED;
	seen++;
	return first == 255 ? (map_delete(&firsts, &first) ? XDP_ABORTED : XDP_DROP) : XDP_PASS;
}
