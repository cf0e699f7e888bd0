/* refused: is no field */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	return ((volatile u32 *)ctx)[6];
}
