// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Minimal relay between two TAPs, for `mqnet-bench tcp`: one blocking thread per direction reads a
// frame from one TAP and writes it to the other. Frames keep their virtio-net header, so that
// checksum offload and GSO work between the two stacks.
//
// usage: relay NETNS_A NETNS_B; creates the TAP "a" in NETNS_A and "b" in NETNS_B and prints
// "ready"; the TAPs disappear when the process is killed
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/if.h>
#include <linux/if_tun.h>

#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

#define FRAME_MAX (1 << 17) // a segment of 64 KiB and all its headers

static void require(int well, const char *what)
{
	if (well)
		return;
	perror(what);
	exit(1);
}

static int open_tap(const char *netns, const char *name)
{
	char path[256];
	snprintf(path, sizeof(path), "/run/netns/%s", netns);
	int ns = open(path, O_RDONLY | O_CLOEXEC);
	require(ns >= 0 && setns(ns, CLONE_NEWNET) == 0, path);
	close(ns);

	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	require(fd >= 0, "/dev/net/tun");
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	require(ioctl(fd, TUNSETIFF, &request) == 0, "TUNSETIFF");
	unsigned long offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
	// Kernels before 6.2 have no USO.
	int set = ioctl(fd, TUNSETOFFLOAD, offloads | TUN_F_USO4 | TUN_F_USO6) == 0 ||
		  ioctl(fd, TUNSETOFFLOAD, offloads) == 0;
	require(set, "TUNSETOFFLOAD");
	return fd;
}

struct lane {
	int from, to;
};

static void *relay(void *arg)
{
	const struct lane *lane = arg;
	char *frame = malloc(FRAME_MAX);
	require(frame != NULL, "malloc");
	for (;;) {
		ssize_t bytes = read(lane->from, frame, FRAME_MAX);
		require(bytes >= 0 || errno == EINTR, "read");
		// A frame that the other TAP refuses (it may be down) is lost, as on a wire.
		if (bytes > 0 && write(lane->to, frame, bytes) < 0)
			continue;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	require(argc == 3, "usage: relay NETNS_A NETNS_B");
	int a = open_tap(argv[1], "a"), b = open_tap(argv[2], "b");
	struct lane there = { a, b }, back = { b, a };
	pthread_t thread;
	errno = pthread_create(&thread, NULL, relay, &back);
	require(errno == 0, "pthread_create");
	puts("ready");
	fflush(stdout);
	relay(&there);
}
