/* Reads the first and the last bytes of each frame and writes them back; entry 0 of the map is the
 * longest frame, entry 1 how often a helper failed. */
#include "xdp.h"

#ifndef SECTION
#define SECTION "xdp.frags"
#endif

ARRAY_OF_COUNTS;

SEC(SECTION) int large(struct xdp_md *ctx)
{
	u32 longest = 0, failed = 1;
	u64 len = buff_len(ctx);
	u64 *count = map_lookup(&counts, &longest);
	u8 bytes[14];

	if (count && *count < len)
		*count = len;
	count = map_lookup(&counts, &failed);
	if (!count)
		return XDP_ABORTED;
	if (len < sizeof(bytes))
		return XDP_PASS;
	for (int i = 0; i < 2; i++) {
		u32 at = i ? len - sizeof(bytes) : 0;
		if (load_bytes(ctx, at, bytes, sizeof(bytes)))
			__sync_fetch_and_add(count, 1);
		else if (store_bytes(ctx, at, bytes, sizeof(bytes)))
			__sync_fetch_and_add(count, 1);
	}
	return XDP_PASS;
}
