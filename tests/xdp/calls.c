/* Functions that are not inlined: in other sections, through three levels, with memory of their
 * callers, and one of them moves the frame. */
#include "xdp.h"

#define function static __attribute__((noinline))

ARRAY_OF_COUNTS;

function u32 sum(struct xdp_md *ctx, u32 from, u32 *places)
{
	u8 *p = START(ctx), *end = END(ctx);
	u32 own[8] = {}, all = 0;

	for (u32 i = 0; i < 8; i++) {
		if (p + from + i + 1 > end)
			break;
		own[i & 7] = p[from + i];
	}
	__asm__ volatile("" : : "r"(own) : "memory");
	for (u32 i = 0; i < 8; i++)
		all += own[i];
	places[1] = all;
	return all;
}

function u32 both(struct xdp_md *ctx, u32 *out)
{
	u32 places[2] = { 1, 2 };
	u32 first = sum(ctx, 0, places);
	u32 kept = places[0] + places[1];
	u32 second = sum(ctx, 8, places);

	*out = first * 3 + second;
	return kept + places[1];
}

__attribute__((noinline)) int push(struct xdp_md *ctx)
{
	return adjust_head(ctx, -4);
}

SEC("xdp") int calls(struct xdp_md *ctx)
{
	u32 out = 0, one = 1;
	u32 got = both(ctx, &out);
	u64 *count = map_lookup(&counts, &one);

	if (!count)
		return XDP_ABORTED;
	*count += out;
	if (push(ctx))
		return XDP_ABORTED;
	u8 *p = START(ctx), *end = END(ctx);
	if (p + 4 > end)
		return XDP_ABORTED;
	p[0] = got;
	p[1] = got >> 8;
	p[2] = p[3] = 0;
	return XDP_PASS;
}
