// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Frames through packet sockets, 32 per system call, for `mqnet-bench afxdp`.
//
// usage: packet flood DEVICE BYTES CPU          sends frames of that length without end
//        packet burst DEVICE BYTES CPU FRAMES   sends that number of frames
//        packet relay FROM TO CPU               forwards frames from FROM to TO
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

#define BATCH 32
#define FRAME_MAX 2048
#define TYPE_LOCAL 0x88b5 // for experiments (IEEE 802): ignored by every network stack
#define RECEIVE_BUFFER (8 << 20)

static char frames[BATCH][FRAME_MAX];
static struct iovec pieces[BATCH];
static struct mmsghdr batch[BATCH];

static void require(int well, const char *what)
{
	if (well)
		return;
	perror(what);
	exit(1);
}

// `protocol` 0: send-only socket.
static int open_device(const char *name, int protocol)
{
	int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1, bytes = RECEIVE_BUFFER;
	require(fd >= 0, "a packet socket");
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(protocol),
		.sll_ifindex = if_nametoindex(name),
	};
	require(address.sll_ifindex > 0, name);
	require(setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)) == 0,
		"PACKET_QDISC_BYPASS");
	require(setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) == 0,
		"PACKET_IGNORE_OUTGOING");
	require(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) == 0,
		"SO_RCVBUFFORCE");
	require(bind(fd, (void *)&address, sizeof(address)) == 0, "bind");
	return fd;
}

static void run_on(const char *cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	require(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

static void make_frames(size_t bytes)
{
	for (int i = 0; i < BATCH; i++) {
		struct ethhdr *head = (void *)frames[i];
		memset(head->h_dest, 0xff, ETH_ALEN);
		head->h_source[0] = 2;
		head->h_proto = htons(TYPE_LOCAL);
		pieces[i].iov_len = bytes;
	}
}

static void flood(int fd)
{
	// Excess frames are lost, as on a wire.
	for (;;)
		(void)!sendmmsg(fd, batch, BATCH, 0);
}

static void burst(int fd, int frames)
{
	while (frames > 0) {
		int sent = sendmmsg(fd, batch, frames < BATCH ? frames : BATCH, 0);
		require(sent > 0, "sendmmsg");
		frames -= sent;
	}
}

static void relay(int from, int to)
{
	for (;;) {
		for (int i = 0; i < BATCH; i++)
			pieces[i].iov_len = FRAME_MAX;
		int frames = recvmmsg(from, batch, BATCH, MSG_WAITFORONE, NULL);
		for (int i = 0; i < frames; i++)
			pieces[i].iov_len = batch[i].msg_len;
		for (int sent = 0; sent < frames;) {
			int more = sendmmsg(to, batch + sent, frames - sent, 0);
			if (more <= 0)
				break;
			sent += more;
		}
	}
}

int main(int argc, char **argv)
{
	int is_burst = argc == 6 && strcmp(argv[1], "burst") == 0;
	require(argc == 5 || is_burst, "usage: see the head of packet.c");
	run_on(argv[4]);
	for (int i = 0; i < BATCH; i++) {
		pieces[i].iov_base = frames[i];
		batch[i].msg_hdr.msg_iov = &pieces[i];
		batch[i].msg_hdr.msg_iovlen = 1;
	}
	if (is_burst || strcmp(argv[1], "flood") == 0)
		make_frames(atoi(argv[3]));
	if (is_burst)
		burst(open_device(argv[2], 0), atoi(argv[5]));
	else if (strcmp(argv[1], "flood") == 0)
		flood(open_device(argv[2], 0));
	else
		relay(open_device(argv[2], ETH_P_ALL), open_device(argv[3], 0));
}
