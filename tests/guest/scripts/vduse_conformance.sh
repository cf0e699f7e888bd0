# Conformance suite on a VDUSE device of this kernel. Scripts run in the order of their names: this
# one is first, and leaves nothing behind.
modprobe -a vduse virtio_vdpa virtio_net tun bridge
conformance-vduse 2>&1
