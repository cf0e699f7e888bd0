/* refused: is not a field */
#include "../xdp.h"

SEC("xdp") int evil(struct xdp_md *ctx)
{
	return ((volatile u32 *)ctx)[6];
}
