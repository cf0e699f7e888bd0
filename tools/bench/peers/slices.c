// DPDK's rings and mempools in time slices, for `mqnet-bench ring|pool`.
//
// Prints "ready", then answers each line "WHAT MILLISECONDS" with
// "ok OBJECTS SECONDS [BEFORE_NS AFTER_NS]": the objects that the consumer took in its own time
// and, across two CPUs, the one-way cache line ping-pong before and after. Both threads sleep
// between the lines. The program ends at the end of its input.
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_pause.h>
#include <rte_ring.h>

#define BULK 32
#define BURSTS 64 // bursts between two reads of the clock
#define CHUNKS 9
#define TRIPS 40

static struct { _Atomic uint64_t v; char pad[120]; } line __rte_aligned(128);
static struct { _Atomic bool v; char pad[127]; } stop __rte_aligned(128);

// The rate depends on a ring's memory placement: successive ring slices use different rings.
#define RINGS 8
static struct rte_ring *rings[RINGS], *ring;
static struct rte_mempool *pool, *mbufs;
static enum { RING, POOL, MBUF } kind; // source of the objects
static uint64_t taken;
static double taken_in, before_ns, after_ns;

// Marks the objects as used, so that the compiler makes no assumptions about them.
static inline void used(void *objects)
{
	__asm__ volatile("" : : "r"(objects) : "memory");
}

static inline bool get(void **objects)
{
	if (kind == MBUF)
		return rte_pktmbuf_alloc_bulk(mbufs, (struct rte_mbuf **)objects, BULK) == 0;
	return rte_mempool_get_bulk(pool, objects, BULK) == 0;
}

static inline void put(void **objects)
{
	if (kind == MBUF)
		rte_pktmbuf_free_bulk((struct rte_mbuf **)objects, BULK);
	else
		rte_mempool_put_bulk(pool, objects, BULK);
}

static double seconds_since(uint64_t start)
{
	return (double)(rte_rdtsc() - start) / rte_get_tsc_hz();
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// Same measurement as in the benchmark: the median of several chunks.
static double measure(void)
{
	uint64_t at = atomic_load_explicit(&line.v, memory_order_acquire);
	double chunks[CHUNKS];
	for (int c = 0; c < CHUNKS; c++) {
		uint64_t start = rte_rdtsc();
		for (int t = 0; t < TRIPS; t++) {
			atomic_store_explicit(&line.v, at + 1, memory_order_release);
			at += 2;
			while (atomic_load_explicit(&line.v, memory_order_acquire) != at)
				;
		}
		chunks[c] = seconds_since(start) * 1e9 / (2 * TRIPS);
	}
	qsort(chunks, CHUNKS, sizeof(chunks[0]), ascending);
	return chunks[CHUNKS / 2];
}

static void answer(uint64_t turn)
{
	uint64_t at = turn * 2 * CHUNKS * TRIPS;
	for (int t = 0; t < CHUNKS * TRIPS; t++) {
		while (atomic_load_explicit(&line.v, memory_order_acquire) != at + 1)
			;
		at += 2;
		atomic_store_explicit(&line.v, at, memory_order_release);
	}
}

static int consumer(void *unused)
{
	(void)unused;
	void *objects[BULK];
	uint64_t n = 0;
	answer(0);
	uint64_t start = rte_rdtsc();
	while (!atomic_load_explicit(&stop.v, memory_order_relaxed)) {
		if (rte_ring_sc_dequeue_bulk(ring, objects, BULK, NULL) == 0) {
			rte_pause();
			continue;
		}
		used(objects);
		if (kind != RING)
			put(objects);
		n += BULK;
	}
	taken_in = seconds_since(start);
	taken = n;
	answer(1);
	return 0;
}

static void produce_objects(uint64_t end)
{
	void *objects[BULK];
	memset(objects, 1, sizeof(objects));
	while (rte_rdtsc() < end)
		for (int i = 0; i < BURSTS; i++)
			if (rte_ring_sp_enqueue_bulk(ring, objects, BULK, NULL) == 0)
				rte_pause();
}

// A bulk that did not fit is kept for the next attempt.
static void produce_from_pool(uint64_t end)
{
	void *objects[BULK];
	bool held = false;
	while (rte_rdtsc() < end)
		for (int i = 0; i < BURSTS; i++) {
			held = held || get(objects);
			if (held && rte_ring_sp_enqueue_bulk(ring, objects, BULK, NULL) != 0)
				held = false;
			else
				rte_pause();
		}
	if (held)
		put(objects);
}

static void two_cpus(double length)
{
	static unsigned turn;
	void *objects[BULK];
	ring = rings[kind == RING ? turn++ % RINGS : 0];
	rte_ring_reset(ring);
	atomic_store(&line.v, 0);
	atomic_store(&stop.v, false);
	rte_eal_remote_launch(consumer, NULL, rte_get_next_lcore(-1, 1, 0));
	before_ns = measure();
	uint64_t end = rte_rdtsc() + length * rte_get_tsc_hz();
	if (kind != RING)
		produce_from_pool(end);
	else
		produce_objects(end);
	atomic_store_explicit(&stop.v, true, memory_order_relaxed);
	after_ns = measure();
	rte_eal_mp_wait_lcore();
	while (kind != RING && rte_ring_sc_dequeue_bulk(ring, objects, BULK, NULL) != 0)
		put(objects);
	printf("ok %lu %.9f %.1f %.1f\n", taken, taken_in, before_ns, after_ns);
}

static void one_cpu(double length)
{
	void *objects[BULK];
	memset(objects, 1, sizeof(objects));
	rte_ring_reset(ring);
	uint64_t n = 0, start = rte_rdtsc(), end = start + length * rte_get_tsc_hz();
	while (rte_rdtsc() < end)
		for (int i = 0; i < BURSTS; i++) {
			if (kind != RING) {
				if (!get(objects))
					continue;
				used(objects);
				put(objects);
				n += BULK;
			} else {
				rte_ring_sp_enqueue_bulk(ring, objects, BULK, NULL);
				n += rte_ring_sc_dequeue_bulk(ring, objects, BULK, NULL);
				used(objects);
			}
		}
	printf("ok %lu %.9f\n", n, seconds_since(start));
}

int main(int argc, char **argv)
{
	char text[64], what[16];
	double ms;
	if (rte_eal_init(argc, argv) < 0)
		return 1;
	bool made = true;
	for (int i = 0; i < RINGS; i++) {
		snprintf(text, sizeof(text), "r%d", i);
		rings[i] = rte_ring_create(text, 1024, 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
		made = made && rings[i];
	}
	ring = rings[0];
	pool = rte_mempool_create("p", 8191, 64, 512, 0, NULL, NULL, NULL, NULL, 0, 0);
	mbufs = rte_pktmbuf_pool_create("m", 8191, 512, 0, 2176, 0);
	if (!made || !pool || !mbufs || rte_lcore_count() < 2) {
		puts("error: no ring, no pool or only one lcore");
		return 1;
	}
	setlinebuf(stdout);
	puts("ready");
	while (fgets(text, sizeof(text), stdin)) {
		if (sscanf(text, "%15s %lf", what, &ms) != 2) {
			puts("error: WHAT MILLISECONDS");
			continue;
		}
		kind = what[0] == 'p' ? POOL : what[0] == 'm' ? MBUF : RING;
		if (strchr(what, '1'))
			one_cpu(ms / 1e3);
		else
			two_cpus(ms / 1e3);
	}
	return 0;
}
