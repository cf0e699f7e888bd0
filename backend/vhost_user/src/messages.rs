//! Handlers of the vhost-user requests that the crate `vhost` parses and pairs with replies. The
//! module [`early`](crate::early) handles the other requests.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use mqnet_shmem::{AtomicTable, Region};
use mqnet_sysio::descriptors;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::memory::memory_file;
use mqnet_virtio::Features;
use mqnet_virtio::inflight::region_len;
use mqnet_virtio::layout::SIZE_MAX;
use mqnet_virtio::log::Log;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures as Protocol,
    VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandler};

use crate::memory::{Memory, SLOTS_MAX};
use crate::slot::Slot;
use crate::state::{Inflight, RINGS_MAX, Shared};
use crate::vring::Call;

/// Error for a refused request. The error ends the connection, and the connection thread logs it.
fn refuse(why: impl Into<String>) -> Error {
    Error::ReqHandlerError(io::Error::other(why.into()))
}

fn unsupported<T>(what: &'static str) -> Result<T> {
    Err(Error::InvalidOperation(what))
}

/// Eventfd of a notification; `Err` for any other kind of descriptor.
fn eventfd(fd: Option<File>, what: &str) -> Result<Option<OwnedFd>> {
    match fd.map(OwnedFd::from) {
        Some(fd) if !descriptors::is_eventfd(fd.as_fd()) => {
            Err(refuse(format!("{what}: no eventfd")))
        }
        fd => Ok(fd),
    }
}

impl Shared {
    fn ring_number(&self, index: u32) -> Result<usize> {
        let (at, rings) = (index as usize, self.lock().slots.len());
        let bad = || refuse(format!("ring {index}: only {rings} exist, two for each of queues="));
        (at < rings).then_some(at).ok_or_else(bad)
    }

    /// Takes a ring out of service, applies `change`, and returns the ring to service.
    fn with_ring(&self, index: u32, change: impl FnOnce(&mut Slot)) -> Result<()> {
        let at = self.ring_number(index)?;
        let mut state = self.pause(&[at]).map_err(refuse)?;
        change(&mut state.slots[at]);
        self.serve(state);
        Ok(())
    }

    fn replace_memory(
        &self,
        make: impl FnOnce(&Memory) -> std::result::Result<Memory, String>,
    ) -> Result<()> {
        let mut state = self.pause_all().map_err(refuse)?;
        state.memory = make(&state.memory).map_err(refuse)?;
        self.serve(state);
        Ok(())
    }
}

impl VhostUserBackendReqHandler for Shared {
    fn set_owner(&self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&self) -> Result<()> {
        self.pause_all().map_err(refuse)?.reset();
        self.wake_control();
        Ok(())
    }

    fn get_features(&self) -> Result<u64> {
        Ok(self.lock().offered().0)
    }

    fn set_features(&self, features: u64) -> Result<()> {
        let features = Features(features);
        let state = self.lock();
        let odd = features.minus(state.offered());
        if odd != Features::default() {
            return Err(refuse(format!("features that were not offered: {odd}")));
        }
        if state.features == Some(features) {
            return Ok(());
        }
        drop(state);
        let mut state = self.pause_all().map_err(refuse)?;
        state.accept(features);
        self.serve(state);
        Ok(())
    }

    fn set_mem_table(
        &self,
        ranges: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        // Validate and map without the lock, which the control thread needs.
        let next = Memory::of(ranges, files).map_err(refuse)?;
        self.replace_memory(|_| Ok(next)).map(|()| None)
    }

    fn set_vring_num(&self, index: u32, num: u32) -> Result<()> {
        if num == 0 || num > SIZE_MAX.into() {
            return Err(refuse(format!("ring {index}: size {num}, allowed are 1 to {SIZE_MAX}")));
        }
        self.with_ring(index, |ring| ring.size = num as u16)
    }

    fn set_vring_addr(
        &self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let areas = [descriptor, available, used];
        // A migration sends the same areas with another log flag. Written pages are recorded
        // without this flag, so nothing changes.
        let at = self.ring_number(index)?;
        if self.lock().slots[at].areas == areas {
            return Ok(());
        }
        self.with_ring(index, |ring| ring.areas = areas)
    }

    fn set_vring_base(&self, index: u32, base: u32) -> Result<()> {
        self.with_ring(index, |ring| ring.set_base(base))
    }

    fn get_vring_base(&self, index: u32) -> Result<VhostUserVringState> {
        let mut base = 0;
        self.with_ring(index, |ring| {
            ring.stop();
            base = ring.base;
        })?;
        Ok(VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&self, index: u8, fd: Option<File>) -> Result<()> {
        let fd = eventfd(fd, "kick")?;
        // A start of a ring reopens a device that was closed after a violation.
        self.lock().broken = None;
        self.with_ring(index.into(), |ring| {
            ring.kick = fd;
            ring.started = true;
        })
    }

    fn set_vring_call(&self, index: u8, fd: Option<File>) -> Result<()> {
        let at = self.ring_number(index.into())?;
        let fd = eventfd(fd, "call")?;
        let in_service = self.lock().slots[at].set_call(fd);
        let in_service = in_service.map_err(Error::ReqHandlerError)?;
        let replace = |(interrupt, other): (Arc<Call>, _)| interrupt.replace(other);
        in_service.map_or(Ok(()), replace).map_err(|e| refuse(e.to_string()))
    }

    fn set_vring_err(&self, index: u8, fd: Option<File>) -> Result<()> {
        let at = self.ring_number(index.into())?;
        let event =
            |fd: File| EventFd::from_peer(fd.into()).ok_or_else(|| refuse("err: no eventfd"));
        self.lock().slots[at].error = fd.map(event).transpose()?;
        Ok(())
    }

    fn get_protocol_features(&self) -> Result<Protocol> {
        Ok(self.lock().offer.protocol())
    }

    fn set_protocol_features(&self, features: u64) -> Result<()> {
        let mut state = self.lock();
        state.protocol = state.offer.protocol() & Protocol::from_bits_truncate(features);
        Ok(())
    }

    /// Number of rings, as in most backends. QEMU only requires at least the number of queue pairs.
    fn get_queue_num(&self) -> Result<u64> {
        Ok(self.lock().slots.len() as u64)
    }

    fn set_vring_enable(&self, index: u32, enable: bool) -> Result<()> {
        let at = self.ring_number(index)?;
        self.lock().slots[at].enabled = enable;
        self.wake_control();
        Ok(())
    }

    fn get_config(&self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(self.lock().config(offset, size))
    }

    /// Ignored, because the config space is read-only.
    fn set_config(&self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Ok(())
    }

    fn get_inflight_fd(&self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = (wanted.num_queues, wanted.queue_size);
        let len = u64::from(inflight_each(wanted)?) * u64::from(queues);
        let file = memory_file("vhost-inflight", len as usize, false);
        let file = File::from(file.map_err(Error::ReqHandlerError)?);
        let kept = file.try_clone().map_err(Error::ReqHandlerError)?;
        let granted = VhostUserInflight::new(len, 0, queues, size);
        self.set_inflight_fd(&granted, kept)?;
        Ok((granted, file))
    }

    fn set_inflight_fd(&self, granted: &VhostUserInflight, file: File) -> Result<()> {
        let most = u64::from(inflight_each(granted)?) * RINGS_MAX as u64;
        if granted.mmap_size > most {
            let size = granted.mmap_size;
            return Err(refuse(format!("in-flight memory: {size} bytes, allowed are {most}")));
        }
        let mapped = Region::of_guest(file.into(), granted.mmap_offset, granted.mmap_size);
        let (region, offset) = mapped.map_err(|e| refuse(format!("in-flight memory: {e}")))?;
        let end = offset + granted.mmap_size as usize;
        let (region, queue_size) = (Arc::new(region), granted.queue_size);
        let next = Inflight { region, offset, end, queue_size };
        let mut state = self.pause_all().map_err(refuse)?;
        state.inflight = Some(next);
        self.serve(state);
        Ok(())
    }

    fn get_max_mem_slots(&self) -> Result<u64> {
        Ok(SLOTS_MAX as u64)
    }

    fn add_mem_region(
        &self,
        range: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        let more = Memory::of(std::slice::from_ref(range), vec![file]).map_err(refuse)?;
        self.replace_memory(|memory| memory.with_more(more)).map(|()| None)
    }

    fn remove_mem_region(&self, range: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.replace_memory(|memory| memory.with_less(range))
    }

    fn set_log_base(&self, log: &VhostUserLog, file: File) -> Result<()> {
        let len = u32::try_from(log.mmap_size);
        let len = len.map_err(|_| refuse("log: more than 4 GiB"))?;
        let mapped = Region::of_guest(file.into(), log.mmap_offset, log.mmap_size);
        let (region, offset) = mapped.map_err(|e| refuse(format!("log: {e}")))?;
        let bits = AtomicTable::new(Arc::new(region), offset, len);
        let mut state = self.pause_all().map_err(refuse)?;
        state.log = bits.map(|bits| Arc::new(Log::new(bits)));
        self.serve(state);
        Ok(())
    }

    fn set_gpu_socket(&self, _backend: GpuBackend) -> Result<()> {
        unsupported("a network device has no GPU socket")
    }

    fn get_shared_object(&self, _uuid: VhostUserSharedMsg) -> Result<File> {
        unsupported("a network device shares no objects")
    }

    fn set_device_state_fd(
        &self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        unsupported("the state of a network device is in its rings")
    }

    fn check_device_state(&self) -> Result<()> {
        unsupported("the state of a network device is in its rings")
    }

    fn get_shmem_config(&self) -> Result<VhostUserShMemConfig> {
        unsupported("a network device has no memory to map")
    }
}

/// Inflight bytes of one ring; `Err` if `of` exceeds the limits. The driver may choose either ring
/// layout, so the larger one (packed) is used.
fn inflight_each(of: &VhostUserInflight) -> Result<u32> {
    let (queues, size) = (of.num_queues, of.queue_size);
    if usize::from(queues) > RINGS_MAX || size > SIZE_MAX {
        let allowed = format!("allowed are {RINGS_MAX} of {SIZE_MAX}");
        return Err(refuse(format!("in-flight memory for {queues} rings of {size}: {allowed}")));
    }
    Ok(region_len(true, size))
}

#[cfg(test)]
mod tests;
