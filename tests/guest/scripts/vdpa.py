"""Driver of a vhost-vdpa device that moves its memory repeatedly.

The kernel's own driver maps once. This driver sends ARP requests through its rings, then moves the
memory that the device sees and sends again: an answer proves that the device follows, because the
old memory is overwritten with garbage by then. The requested address is the argument.
"""
import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import sys
import time

# linux/vhost.h and linux/vhost_types.h
SET_OWNER, SET_NUM, SET_BASE = 0xAF01, 0x4008AF10, 0x4008AF12
SET_KICK, SET_CALL = 0x4008AF20, 0x4008AF21
GET_FEATURES, SET_FEATURES, SET_BACKEND = 0x8008AF00, 0x4008AF00, 0x4008AF25
GET_BACKEND, SET_ADDR, SET_STATUS, SET_ENABLE = 0x8008AF26, 0x4028AF11, 0x4001AF72, 0x4008AF75
MSG_V2, READ_WRITE, UPDATE, INVALIDATE, BATCH_BEGIN, BATCH_END = 2, 3, 2, 3, 5, 6
VERSION_1, ACCESS_PLATFORM = 1 << 32, 1 << 33
BACKEND = 1 << 1 | 1 << 2
ENTRIES, PAGE, HEADER = 16, 4096, 12
DESC, AVAIL, USED, SIZE = 0, 4096, 8192, 12288
WRITE = 2
ME = bytes.fromhex("020000000077")


class Memory:
    """A file in memory, as the device can map it too."""

    def __init__(self, size):
        self.size = size
        fd = os.memfd_create("vdpa")
        os.ftruncate(fd, size)
        self.map = mmap.mmap(fd, size, mmap.MAP_SHARED)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def put(self, at, data):
        self.map[at : at + len(data)] = data


class Device:
    """The device, and what it sees: at each address a memory."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR)
        self.ioctl(SET_OWNER, 0)
        offered = self.number(GET_FEATURES)
        backend = self.number(GET_BACKEND)
        print(f"features {offered:#x}, of the kernel {backend:#x}")
        self.ioctl(SET_BACKEND, struct.pack("Q", backend & BACKEND))
        self.status(0)
        self.status(3)
        self.ioctl(SET_FEATURES, struct.pack("Q", VERSION_1 | ACCESS_PLATFORM))
        self.status(11)

    def ioctl(self, number, argument):
        return fcntl.ioctl(self.fd, number, argument)

    def number(self, request):
        return struct.unpack("Q", self.ioctl(request, bytes(8)))[0]

    def status(self, value):
        self.ioctl(SET_STATUS, bytes([value]))

    def tell(self, kind, address=0, memory=None):
        where = (memory.size, memory.at) if memory else (0, 0)
        head = struct.pack("<II", MSG_V2, 0)
        message = struct.pack("<QQQBB", address, *where, READ_WRITE, kind)
        os.write(self.fd, head + message.ljust(64, b"\0"))


class Ring:
    """One split queue at an address of the device, in a memory of ours."""

    def __init__(self, device, index, memory, offset, address):
        self.device, self.index, self.memory, self.offset = device, index, memory, offset
        self.kick, self.call = os.eventfd(0), os.eventfd(0)
        self.next, self.seen = 0, 0
        device.ioctl(SET_NUM, struct.pack("II", index, ENTRIES))
        device.ioctl(SET_BASE, struct.pack("II", index, 0))
        addresses = [address + offset + part for part in (DESC, USED, AVAIL)]
        device.ioctl(SET_ADDR, struct.pack("IIQQQQ", index, 0, *addresses, 0))
        device.ioctl(SET_KICK, struct.pack("Ii", index, self.kick))
        device.ioctl(SET_CALL, struct.pack("Ii", index, self.call))

    def give(self, address, length, flags):
        slot = self.next % ENTRIES
        entry = struct.pack("<QIHH", address, length, flags, 0)
        self.memory.put(self.offset + DESC + 16 * slot, entry)
        self.memory.put(self.offset + AVAIL + 4 + 2 * slot, struct.pack("<H", slot))
        self.next += 1
        self.memory.put(self.offset + AVAIL + 2, struct.pack("<H", self.next % 65536))
        os.eventfd_write(self.kick, 1)

    def used(self):
        return struct.unpack_from("<H", self.memory.map, self.offset + USED + 2)[0]

    def wait(self, what, patience=60):
        """The bytes of the next entry that the device has used; None when there is none in time."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if self.used() != self.seen % 65536:
                slot = self.seen % ENTRIES
                self.seen += 1
                at = self.offset + USED + 4 + 8 * slot
                return struct.unpack_from("<II", self.memory.map, at)
            if select.select([self.call], [], [], 0.1)[0]:
                os.eventfd_read(self.call)
        return None


def question(target, sender):
    arp = struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + ME + sender
    arp += bytes(6) + socket.inet_aton(target)
    return b"\xff" * 6 + ME + b"\x08\x06" + arp.ljust(46, b"\0")


RINGS, BUFFERS, AREA = 0x100000, 0x800000, 16 * PAGE
target = sys.argv[1]
device = Device("/dev/vhost-vdpa-0")
rings, buffers = Memory(2 * 4 * PAGE), Memory(AREA)
device.tell(BATCH_BEGIN)
device.tell(UPDATE, RINGS, rings)
device.tell(UPDATE, BUFFERS, buffers)
device.tell(BATCH_END)
rx, tx = Ring(device, 0, rings, 0, RINGS), Ring(device, 1, rings, 4 * PAGE, RINGS)
for ring in (rx, tx):
    device.ioctl(SET_ENABLE, struct.pack("II", ring.index, 1))
device.status(15)


asked = 0


def ask(what, base):
    """Sends a question from `base`, again each second, and takes frames there until one answers."""
    global asked
    asked += 1
    # Each question has its own sender address, so that a late answer is not taken for the next one.
    sender = socket.inet_aton(f"10.9.0.{100 + asked}")
    frame = bytes(HEADER) + question(target, sender)
    buffers.put(0, frame)
    rx.give(base + PAGE, PAGE, WRITE)
    for _ in range(50):
        tx.give(base, len(frame), 0)
        if not tx.wait(what):
            sys.exit(f"{what}: the device has not taken the question")
        end = time.monotonic() + 1
        while came := rx.wait(what, end - time.monotonic()):
            said = bytes(buffers.map[PAGE + HEADER : PAGE + came[1]])
            is_answer = said[12:14] == b"\x08\x06" and said[20:22] == b"\0\2"
            if is_answer and said[28:32] == socket.inet_aton(target) and said[38:42] == sender:
                print(f"{what}: answered", flush=True)
                return
            rx.give(base + PAGE, PAGE, WRITE)
        print(f"{what}: no answer in a second, asking again", flush=True)
    sys.exit(f"{what}: no answer")


def moved(memory):
    """Another memory with the same in it; the old one becomes rubbish."""
    new = Memory(memory.size)
    new.map[:] = memory.map[:]
    return new


def spoil(memory):
    memory.map[:] = b"\xa5" * memory.size


ask("at first", BUFFERS)
for turn in range(1, 4):
    # As one change: the device sees either all of the old or all of the new memory.
    old = rings, buffers
    rings, buffers = moved(rings), moved(buffers)
    rx.memory = tx.memory = rings
    device.tell(BATCH_BEGIN)
    for address, memory in ((RINGS, rings), (BUFFERS, buffers)):
        device.tell(INVALIDATE, address, memory)
        device.tell(UPDATE, address, memory)
    device.tell(BATCH_END)
    for memory in old:
        spoil(memory)
    ask(f"all moved {turn}", BUFFERS)
# The buffers alone, one message at a time: the device has none in between.
old = buffers
buffers = moved(buffers)
device.tell(INVALIDATE, BUFFERS, old)
device.tell(UPDATE, BUFFERS, buffers)
spoil(old)
ask("buffers moved", BUFFERS)
# More memory, at another address, as after a hotplug.
more = Memory(AREA)
device.tell(UPDATE, BUFFERS + AREA, more)
old, buffers = buffers, more
ask("more memory", BUFFERS + AREA)
device.tell(INVALIDATE, BUFFERS, old)
spoil(old)
ask("less memory", BUFFERS + AREA)
# The rings are unmapped for a while: the device must wait for them.
device.tell(INVALIDATE, RINGS, rings)
device.tell(UPDATE, RINGS, rings)
ask("rings back", BUFFERS + AREA)
print("done", flush=True)
device.status(0)
