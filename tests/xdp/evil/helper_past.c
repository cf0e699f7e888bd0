/* refused: stack */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u8 bytes[8];
	return load_bytes(ctx, 0, bytes, 16);
}
