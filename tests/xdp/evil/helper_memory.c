/* refused: never written */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	volatile u8 bytes[8];
	return store_bytes(ctx, 0, (void *)bytes, 8);
}
