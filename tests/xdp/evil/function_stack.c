/* refused: outside its 512 bytes */
#include "../xdp.h"

static __attribute__((noinline)) int far(u64 *p)
{
	p[2] = 1;
	return XDP_PASS;
}

SEC("xdp") int evil(struct xdp_md *ctx)
{
	u64 here = 0;
	int action = far(&here);
	__asm__ volatile("" : : "r"(&here) : "memory");
	return action;
}
