/* refused: helper 12 (bpf_tail_call) is not supported */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	return ((long (*)(void *))12)(ctx);
}
