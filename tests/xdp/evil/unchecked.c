/* refused: not proven to be below data_end */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	return START(ctx)[0];
}
