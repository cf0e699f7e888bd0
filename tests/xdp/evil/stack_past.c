/* refused: stack */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	volatile u8 bytes[8] = {};
	volatile u8 *b = bytes;
	__asm__ volatile("%0 += 600" : "+r"(b));
	return b[0];
}
