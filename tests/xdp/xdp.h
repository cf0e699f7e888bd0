/* What the programs need, so that no header of a system has to be there. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

#define SEC(name) __attribute__((section(name), used))
#define inline_ static inline __attribute__((always_inline))
#define map_number(name, value) int (*name)[value]
#define map_type(name, type) __typeof__(type) *name
#define START(ctx) ((u8 *)(long)(ctx)->data)
#define END(ctx) ((u8 *)(long)(ctx)->data_end)

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*now_ns)(void) = (void *)5;
static long (*redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*csum_diff)(u32 *from, u32 from_size, u32 *to, u32 to_size, u32 seed) = (void *)28;
static long (*adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*adjust_meta)(struct xdp_md *ctx, int delta) = (void *)54;
static long (*adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static u64 (*buff_len)(struct xdp_md *ctx) = (void *)188;
static long (*load_bytes)(struct xdp_md *ctx, u32 offset, void *to, u32 len) = (void *)189;
static long (*store_bytes)(struct xdp_md *ctx, u32 offset, void *from, u32 len) = (void *)190;

/* The map of most tests: four counters by number. */
#define ARRAY_OF_COUNTS \
	struct { \
		map_number(type, 2); \
		map_number(max_entries, 4); \
		map_type(key, u32); \
		map_type(value, u64); \
	} counts SEC(".maps")

char _license[] SEC("license") = "Dual MIT/GPL";
