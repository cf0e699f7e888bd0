/* A map in the older notation, and bytes moved by helpers. */
#include "xdp.h"

struct {
	u32 type, key_size, value_size, max_entries, map_flags;
} lengths SEC("maps") = { 2, 4, 8, 1, 0 };

SEC("xdp") int legacy(struct xdp_md *ctx)
{
	u8 bytes[4];
	u32 zero = 0;
	u64 len = buff_len(ctx);

	map_update(&lengths, &zero, &len, 0);
	if (load_bytes(ctx, len - 4, bytes, 4))
		return XDP_DROP;
	return store_bytes(ctx, 0, bytes, 4) ? XDP_DROP : XDP_PASS;
}
