/* Several programs of one section, one of another with a map that nothing here supports, and functions
 * that both call. Atomic operations with results, and an LRU map. */
#include "xdp.h"

struct {
	map_number(type, 9);
	map_number(max_entries, 4);
	map_number(numa_node, 0);
	map_type(key, u32);
	map_type(value, u64);
} flows SEC(".maps");

struct {
	map_number(type, 27);
	map_number(max_entries, 4096);
} ring SEC(".maps");

ARRAY_OF_COUNTS;

__attribute__((noinline)) static int count_flow(u32 flow)
{
	u64 one = 1, *seen = map_lookup(&flows, &flow);

	if (seen)
		return __sync_fetch_and_add(seen, 1) + 1;
	return map_update(&flows, &flow, &one, 0) ? -1 : 1;
}

/* The first byte of a frame is its flow; a flow's third frame is dropped. */
SEC("xdp_limit") int limit(struct xdp_md *ctx)
{
	u8 *p = START(ctx), *end = END(ctx);

	if (p + 1 > end)
		return XDP_ABORTED;
	return count_flow(*p) < 3 ? XDP_PASS : XDP_DROP;
}

/* Entry 0 is set to 5 once (exchange), entry 1 counts who saw something else. */
SEC("xdp_limit") int exchange(struct xdp_md *ctx)
{
	u32 zero = 0, one = 1;
	u64 *value = map_lookup(&counts, &zero), *others = map_lookup(&counts, &one);

	if (!value || !others)
		return XDP_ABORTED;
	u64 old = __sync_val_compare_and_swap(value, 0, 5);
	if (old)
		__sync_fetch_and_or(others, old);
	return old ? XDP_TX : XDP_PASS;
}

SEC("xdp/unsupported") int unsupported(struct xdp_md *ctx)
{
	return map_lookup(&ring, ctx) ? XDP_DROP : XDP_PASS;
}

SEC("tc") int other(void *skb)
{
	return 0;
}
