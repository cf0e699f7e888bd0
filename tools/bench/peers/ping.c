// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Round trips of bare frames between the ends "a" and "b" of a veth pair, for `mqnet-bench
// latency`. One thread per CPU polls a packet socket, as the ends of an mqnet link are polled.
// Frames have an Ethernet type for experiments, so that no network stack answers them.
//
// usage: ping CPU_A CPU_B; prints "ready"; an input line "MS GAP" starts MS milliseconds of pings;
// the output is "done NS:COUNT ..."
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>

#define TYPE 0x88b5 // for experiments (IEEE 802)
#define BYTES 64
#define MOST (1 << 20)
#define LOST 100000000 // time in ns after which a frame counts as lost

static atomic_int running, stopped = 1;
static int ends[2];
static int cpus[2];
static long long seen[MOST];

static void require(int well, const char *what)
{
	if (well)
		return;
	perror(what);
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	require(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

static int open_end(const char *name)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(TYPE));
	require(fd >= 0, "packet socket");
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(TYPE) };
	at.sll_ifindex = if_nametoindex(name);
	require(at.sll_ifindex != 0, name);
	require(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "bind");
	return fd;
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// Returns true if a frame was received.
static int take(int fd)
{
	char frame[256];
	ssize_t n = recv(fd, frame, sizeof(frame), MSG_DONTWAIT);
	require(n >= 0 || errno == EAGAIN || errno == EINTR, "recv");
	return n > 0;
}

static void give(int fd)
{
	char frame[BYTES] = { 0 };
	memset(frame, 0xff, ETH_ALEN);
	frame[12] = TYPE >> 8;
	frame[13] = TYPE & 0xff;
	require(send(fd, frame, sizeof(frame), 0) == sizeof(frame), "send");
}

// Returns received frames to the sender; sleeps between turns.
static void *answer(void *unused)
{
	(void)unused;
	pin(cpus[1]);
	for (;;) {
		if (!atomic_load(&running)) {
			atomic_store(&stopped, 1);
			usleep(200);
			continue;
		}
		atomic_store(&stopped, 0);
		if (take(ends[1]))
			give(ends[1]);
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;
	return (x > y) - (x < y);
}

// Histogram class with an error of about 3 %, as in the benchmark.
static long long class_of(long long value)
{
	int shift = 0;
	while (value >> shift >= 64)
		shift++;
	return value >> shift << shift;
}

static void turn(long ms)
{
	int count = 0;
	atomic_store(&running, 1);
	while (atomic_load(&stopped))
		;
	while (take(ends[0]))
		;
	long long end = now() + ms * 1000000LL;
	while (now() < end && count < MOST) {
		long long sent = now();
		give(ends[0]);
		while (!take(ends[0]))
			require(now() - sent < LOST, "a frame is lost");
		seen[count++] = now() - sent;
	}
	atomic_store(&running, 0);
	while (!atomic_load(&stopped))
		;
	qsort(seen, count, sizeof(seen[0]), compare);
	printf("done");
	for (int at = 0; at < count;) {
		int first = at;
		while (at < count && class_of(seen[at]) == class_of(seen[first]))
			at++;
		printf(" %lld:%d", class_of(seen[first]), at - first);
	}
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	require(argc == 3, "usage: ping CPU_A CPU_B");
	cpus[0] = atoi(argv[1]);
	cpus[1] = atoi(argv[2]);
	ends[0] = open_end("a");
	ends[1] = open_end("b");
	pthread_t other;
	require(pthread_create(&other, NULL, answer, NULL) == 0, "pthread_create");
	pin(cpus[0]);
	puts("ready");
	fflush(stdout);
	long ms, gap;
	while (scanf("%ld %ld", &ms, &gap) == 2)
		turn(ms);
	return 0;
}
