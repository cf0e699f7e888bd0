// DPDK on one core for `mqnet-bench instr`: both ends of a memif link in copy mode or of a
// vhost-user connection, an rte_ring, or an rte_mempool. A fixed number of bursts runs inside
// measured_section(), the section that callgrind counts.
//
// usage: onecore EAL_OPTIONS -- WHAT SIZE BURSTS SOCKET; prints "units N"
// WHAT: link|ring|pool, or split|packed-to-device|driver
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_vhost.h>

#define BULK 32
#define DATA_ROOM 2176 // one buffer per frame up to 1514 bytes
#define SERVER 0
#define CLIENT 1

static struct rte_mempool *mbufs, *pool;
static struct rte_ring *ring;
static int size;
// Vhost device that virtio-user is connected to; -1 before the connection.
static volatile int device = -1;
// Ring numbers from the driver's point of view.
#define TO_DRIVER 0
#define TO_DEVICE 1

// Marks the objects as used, so that the compiler makes no assumptions about them.
static inline void used(void *objects)
{
	__asm__ volatile("" : : "r"(objects) : "memory");
}

static int new_frames(struct rte_mbuf **out)
{
	if (rte_pktmbuf_alloc_bulk(mbufs, out, BULK))
		return 0;
	for (int i = 0; i < BULK; i++) {
		out[i]->data_len = out[i]->pkt_len = size;
		*rte_pktmbuf_mtod(out[i], uint64_t *) = i;
	}
	return 1;
}

static unsigned link_burst(void)
{
	struct rte_mbuf *out[BULK], *in[BULK];
	if (!new_frames(out))
		return 0;
	unsigned sent = rte_eth_tx_burst(CLIENT, 0, out, BULK);
	unsigned got = rte_eth_rx_burst(SERVER, 0, in, BULK);
	if (sent < BULK)
		rte_pktmbuf_free_bulk(out + sent, BULK - sent);
	rte_pktmbuf_free_bulk(in, got);
	return got;
}

static unsigned to_device_burst(void)
{
	struct rte_mbuf *out[BULK], *in[BULK];
	if (!new_frames(out))
		return 0;
	unsigned sent = rte_eth_tx_burst(0, 0, out, BULK);
	unsigned got = rte_vhost_dequeue_burst(device, TO_DEVICE, mbufs, in, BULK);
	if (sent < BULK)
		rte_pktmbuf_free_bulk(out + sent, BULK - sent);
	rte_pktmbuf_free_bulk(in, got);
	return got;
}

static unsigned to_driver_burst(void)
{
	struct rte_mbuf *out[BULK], *in[BULK];
	if (!new_frames(out))
		return 0;
	rte_vhost_enqueue_burst(device, TO_DRIVER, out, BULK);
	rte_pktmbuf_free_bulk(out, BULK);
	unsigned got = rte_eth_rx_burst(0, 0, in, BULK);
	rte_pktmbuf_free_bulk(in, got);
	return got;
}

static unsigned ring_burst(void)
{
	void *out[BULK], *in[BULK];
	used(out);
	rte_ring_sp_enqueue_bulk(ring, out, BULK, NULL);
	unsigned n = rte_ring_sc_dequeue_bulk(ring, in, BULK, NULL);
	used(in);
	return n;
}

static unsigned pool_burst(void)
{
	void *objects[BULK];
	if (rte_mempool_get_bulk(pool, objects, BULK))
		return 0;
	used(objects);
	rte_mempool_put_bulk(pool, objects, BULK);
	return BULK;
}

__attribute__((noinline)) static uint64_t measured_section(unsigned (*burst)(void), int bursts)
{
	uint64_t n = 0;
	for (int i = 0; i < bursts; i++)
		n += burst();
	return n;
}

static int start_port(int port)
{
	struct rte_eth_conf conf;
	memset(&conf, 0, sizeof(conf));
	return rte_eth_dev_configure(port, 1, 1, &conf) ||
	       rte_eth_rx_queue_setup(port, 0, 1024, 0, NULL, mbufs) ||
	       rte_eth_tx_queue_setup(port, 0, 1024, 0, NULL) || rte_eth_dev_start(port);
}

static int is_up(int port)
{
	struct rte_eth_link link;
	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status;
}

static int start_link(const char *socket)
{
	static const char *const roles[] = { "role=server", "role=client,zero-copy=no" };
	static const char *const names[] = { "net_memif0", "net_memif1" };
	char args[512];
	mbufs = rte_pktmbuf_pool_create("m", 8191, 256, 0, DATA_ROOM, 0);
	if (!mbufs)
		return 1;
	for (int port = SERVER; port <= CLIENT; port++) {
		snprintf(args, sizeof(args), "%s,id=0,socket=%s,socket-abstract=no,rsize=10,bsize=2048",
			 roles[port], socket);
		if (rte_vdev_init(names[port], args) || start_port(port))
			return 1;
	}
	for (int i = 0; i < 1000 && !(is_up(SERVER) && is_up(CLIENT)); i++)
		usleep(20000);
	return !(is_up(SERVER) && is_up(CLIENT));
}

static int device_came(int number)
{
	device = number;
	return 0;
}

static void device_went(int number)
{
	(void)number;
	device = -1;
}

static const struct rte_vhost_device_ops ops = {
	.new_device = device_came,
	.destroy_device = device_went,
};

static int start_vhost(const char *socket, int packed)
{
	char args[512];
	mbufs = rte_pktmbuf_pool_create("m", 8191, 256, 0, DATA_ROOM, 0);
	if (!mbufs || rte_vhost_driver_register(socket, 0) ||
	    rte_vhost_driver_callback_register(socket, &ops) || rte_vhost_driver_start(socket))
		return 1;
	snprintf(args, sizeof(args),
		 "path=%s,queues=1,queue_size=1024,mrg_rxbuf=1,packed_vq=%d,in_order=1", socket,
		 packed);
	if (rte_vdev_init("net_virtio_user0", args) || start_port(0))
		return 1;
	for (int i = 0; i < 1000 && device < 0; i++)
		usleep(20000);
	usleep(200000);
	return device < 0;
}

int main(int argc, char **argv)
{
	unsigned (*burst)(void) = link_burst;
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used < 5) {
		puts("error: DPDK does not start, or usage");
		return 1;
	}
	argv += used;
	size = atoi(argv[2]);
	if (!strcmp(argv[1], "link")) {
		if (start_link(argv[4])) {
			puts("error: the memif link does not come up");
			return 1;
		}
	} else if (strstr(argv[1], "-to-")) {
		burst = strstr(argv[1], "device") ? to_device_burst : to_driver_burst;
		if (start_vhost(argv[4], !strncmp(argv[1], "packed", 6))) {
			puts("error: the vhost-user connection does not come up");
			return 1;
		}
	} else if (!strcmp(argv[1], "ring")) {
		burst = ring_burst;
		ring = rte_ring_create("r", 1024, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
	} else {
		burst = pool_burst;
		pool = rte_mempool_create("p", 8191, 64, 512, 0, NULL, NULL, NULL, NULL, 0, 0);
	}
	for (int i = 0; i < 400; i++)
		burst();
	printf("units %lu\n", measured_section(burst, atoi(argv[3])));
	fflush(stdout);
	// An orderly exit conflicts with memif's own threads.
	_exit(0);
}
