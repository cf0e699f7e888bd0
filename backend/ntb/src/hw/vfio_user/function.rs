//! Emulated PCI function: registers, commands of the driver, windows and scratchpads.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_shmem::{Area, AtomicTable, MemoryMap, Region};
use mqnet_vfio_user::{Bar, DeviceModel, DmaMap, Interrupts, Model};

use super::VfioUserConfig;
use super::doorbell::Own;
use super::layout::{
    CONFIG_LEN, DOORBELLS_LEN, FIRST_VECTOR, LINK_VECTOR, MSIX_PLACE, PAGE, SPADS, STATUS_ERROR,
    STATUS_OK, TRAP, command, register,
};
use super::watch::Watched;
use crate::hw::{DoorbellTrap, MemoryWindow, Outbound};

/// Time for which the driver waits for the status of a command (`ntb_hw_epf`).
const COMMAND_MAX: Duration = Duration::from_secs(1);
/// Shortest time for which the link stays down; the driver resets its scratchpads in this time.
const REST: Duration = Duration::from_millis(100);
/// Time for which the link stays down after a fault of the guest, so that users can read the
/// reason.
const FAULT_REST: Duration = Duration::from_secs(1);

/// Memory window: this end's memory, and the translation to guest memory.
struct Window {
    memory: Arc<Region>,
    at: usize,
    outbound: Option<Outbound>,
    /// Guest address and length of `outbound`; meaningless if that is `None`.
    guest: (u64, u64),
}

impl Window {
    /// Removes the translation and returns true; returns false while a worker may still write
    /// through the translation.
    fn release(&mut self) -> bool {
        let is_unused = self.outbound.as_ref().is_none_or(|o| Arc::strong_count(&o.map) == 1);
        if is_unused {
            self.outbound = None;
        }
        is_unused
    }
}

/// Command of the driver that is not complete.
#[derive(Clone, Copy, Debug)]
struct Command {
    number: u32,
    argument: u32,
    since: Duration,
}

pub(super) struct Function {
    pub(super) registers: AtomicTable,
    peer_spads: (AtomicTable, u32),
    /// Memory of `registers`; `spad_memory` is that of `peer_spads`.
    memory: Arc<Region>,
    spad_memory: Arc<Region>,
    doorbell_bar: usize,
    windows: Vec<Window>,
    pub(super) window_len: u32,
    pub(super) doorbells: Vec<Arc<Own>>,
    interrupts: Option<Arc<Interrupts>>,
    /// Number of vectors that the driver has configured; `None` before that.
    vectors: Option<u16>,
    /// True if the driver has enabled the link.
    is_enabled: bool,
    /// True if the link was last reported to the driver as up.
    is_up: bool,
    rest_until: Duration,
    rest_why: String,
    pending: Option<Command>,
    /// True while a worker may still use translations of a former driver or client.
    has_leftovers: bool,
    now: Duration,
    /// Number of completed commands, by command number; failed commands included.
    pub(super) commands: [u64; 7],
}

/// Table over the first `len` bytes of `memory`. Tables are not shared: each user creates its own.
fn table(memory: &Arc<Region>, len: u64) -> io::Result<AtomicTable> {
    AtomicTable::new(memory.clone(), 0, len as u32).ok_or_else(|| io::Error::other("registers"))
}

fn memory(name: &str, len: u64) -> io::Result<Arc<Region>> {
    Region::shared(name, len as usize, false).map(Arc::new).map_err(io::Error::other)
}

/// Mapped ranges of a window's BAR: the window, and the first page of the doorbells if the BAR has
/// them. The second page of the doorbells is trapped.
fn mapped_ranges(has_doorbells: bool, window: Range<u64>) -> Vec<Range<u64>> {
    let doorbells = has_doorbells.then_some(0..PAGE);
    doorbells.into_iter().chain([window]).collect()
}

impl Function {
    /// Creates the function, and the description of its PCI device for the server.
    pub(super) fn new(config: &VfioUserConfig) -> io::Result<(Self, Model)> {
        let bars = config.endpoint.bars();
        let mut model = Model {
            identity: config.endpoint.identity(),
            bars: std::array::from_fn(|_| Bar::default()),
            vectors: config.vectors,
            msix: MSIX_PLACE,
        };
        let registers = memory("mqnet-ntb-registers", PAGE)?;
        let mapped = |memory: &Arc<Region>, ranges: &[std::ops::Range<u64>], len| Bar {
            len,
            memory: Some(memory.clone()),
            mapped: ranges.to_vec(),
            is_prefetchable: false,
        };
        model.bars[0] = mapped(&registers, std::slice::from_ref(&(0..PAGE)), CONFIG_LEN);
        let mut spad_memory = registers.clone();
        let peer_spads = match bars.peer_spads {
            None => (table(&registers, PAGE)?, register::OWN_SPADS + 4 * SPADS as u32),
            Some(bar) => {
                let pads = memory("mqnet-ntb-scratchpads", PAGE)?;
                model.bars[bar] = Bar::mapped(pads.clone(), PAGE);
                spad_memory = pads.clone();
                (table(&pads, PAGE)?, 0)
            }
        };
        let len = u64::from(config.window);
        let mut windows = Vec::new();
        for &bar in &bars.windows[..config.windows] {
            let at = if windows.is_empty() { bars.first_window_at(config.window) } else { 0 };
            let first = u64::from(at);
            let window = memory("mqnet-ntb-window", first + len)?;
            window.prefer_huge_pages();
            let ranges = mapped_ranges(at > 0, first..first + len);
            model.bars[bar] = mapped(&window, &ranges, first + len);
            windows.push(Window { memory: window, at: at as usize, outbound: None, guest: (0, 0) });
        }
        if model.bars[bars.doorbells].len == 0 {
            let page = memory("mqnet-ntb-doorbells", PAGE)?;
            let ranges = std::slice::from_ref(&(0..PAGE));
            model.bars[bars.doorbells] = mapped(&page, ranges, DOORBELLS_LEN);
        }
        let doorbells = (0..config.vectors - FIRST_VECTOR)
            .map(|bit| Ok(Arc::new(Own::new(table(&registers, PAGE)?, bit)?)))
            .collect::<io::Result<_>>()?;
        let function = Self {
            registers: table(&registers, PAGE)?,
            peer_spads,
            memory: registers,
            spad_memory,
            doorbell_bar: bars.doorbells,
            windows,
            window_len: config.window,
            doorbells,
            interrupts: None,
            vectors: None,
            is_enabled: false,
            is_up: false,
            rest_until: Duration::ZERO,
            rest_why: String::new(),
            pending: None,
            has_leftovers: false,
            now: Duration::ZERO,
            commands: [0; 7],
        };
        function.set_constants(bars.first_window_at(config.window));
        Ok((function, model))
    }

    /// Sets the registers that the driver only reads.
    fn set_constants(&self, first_window_at: u32) {
        self.set(register::WINDOWS, self.windows.len() as u32);
        self.set(register::WINDOW_OFFSET, first_window_at);
        self.set(register::SPAD_OFFSET, register::OWN_SPADS);
        self.set(register::SPAD_COUNT, SPADS as u32);
        self.set(register::DOORBELL_ENTRY, 4);
        for vector in 0..FIRST_VECTOR + self.doorbells.len() as u16 {
            self.set(register::doorbell_data(vector), u32::from(vector) + 1);
            self.set(register::doorbell_offset(vector), 0);
        }
    }

    /// Sets the interrupts through which the function signals the driver.
    pub(super) fn connect(&mut self, interrupts: Arc<Interrupts>) {
        self.interrupts = Some(interrupts);
    }

    fn set(&self, at: u32, value: u32) {
        self.registers.word(at).store(value.to_le(), Ordering::Release);
    }

    fn get(&self, at: u32) -> u32 {
        u32::from_le(self.registers.word(at).load(Ordering::Acquire))
    }

    fn get_pair(&self, at: [u32; 2]) -> u64 {
        u64::from(self.get(at[0])) | u64::from(self.get(at[1])) << 32
    }

    /// Executes commands of the driver and changes the state of the link. `Err` with the reason if
    /// the link is down.
    pub(super) fn poll(&mut self, now: Duration, dma: &DmaMap) -> Result<(), String> {
        self.now = now;
        if self.has_leftovers {
            self.has_leftovers = !self.release_all();
        }
        self.check_memory();
        if self.pending.is_none() {
            let number =
                u32::from_le(self.registers.word(register::COMMAND).swap(0, Ordering::AcqRel));
            if number != 0 {
                let argument = self.get(register::ARGUMENT);
                self.pending = Some(Command { number, argument, since: now });
            }
        }
        if let Some(command) = self.pending {
            self.attempt(command, dma);
        }
        let state = self.state();
        match (&state, self.is_up) {
            (Ok(()), false) => self.raise(),
            (Err(_), true) => self.lower(),
            _ => {}
        }
        state
    }

    /// Executes a command and writes its status. The command stays pending while a worker uses
    /// memory that the command removes.
    fn attempt(&mut self, command: Command, dma: &DmaMap) {
        let status = match self.execute(command.number, command.argument, dma) {
            Ok(true) => STATUS_OK,
            Ok(false) => return,
            Err(why) => {
                self.rest(FAULT_REST, why);
                STATUS_ERROR
            }
        };
        self.pending = None;
        if let Some(count) = self.commands.get_mut(command.number as usize) {
            *count += 1;
        }
        // After the driver's timeout, write no status: the driver would read it as the status of
        // its next command.
        if self.now.saturating_sub(command.since) < COMMAND_MAX {
            self.registers.half(register::STATUS).store(status.to_le(), Ordering::Release);
        }
    }

    /// Executes a command. Returns true if the command is complete, false if it must be repeated,
    /// `Err` for a fault of the driver.
    fn execute(&mut self, number: u32, argument: u32, dma: &DmaMap) -> Result<bool, String> {
        match number {
            command::CONFIGURE_DOORBELL => {
                let most = FIRST_VECTOR + self.doorbells.len() as u16;
                let count = argument & 0xffff;
                let is_msix = argument & command::MSIX != 0;
                let vectors = u16::try_from(count).ok().filter(|n| (1..=most).contains(n));
                let Some(vectors) = vectors.filter(|_| is_msix) else {
                    return Err(format!(
                        "driver: {count} vectors (argument {argument:#x}), allowed are 1 to {most} \
                         of MSI-X"
                    ));
                };
                self.vectors = Some(vectors);
            }
            command::TEARDOWN_DOORBELL => self.vectors = None,
            command::CONFIGURE_WINDOW => return self.configure_window(argument, dma),
            command::TEARDOWN_WINDOW => {
                let index = self.window_index(argument)?;
                return Ok(self.release_window(index));
            }
            command::LINK_UP => self.is_enabled = true,
            command::LINK_DOWN => self.is_enabled = false,
            _ => return Err(format!("driver: command {number}, allowed are 1 to 6")),
        }
        Ok(true)
    }

    fn window_index(&self, argument: u32) -> Result<usize, String> {
        let count = self.windows.len();
        let index = usize::try_from(argument).ok().filter(|index| *index < count);
        index.ok_or_else(|| format!("driver: window {argument}, allowed are 0 to {}", count - 1))
    }

    /// Removes the translation of a window; false if the call must be repeated. The link goes down
    /// first, because the windows of a session do not change.
    fn release_window(&mut self, index: usize) -> bool {
        if self.windows[index].outbound.is_none() {
            return true;
        }
        if self.is_up {
            self.rest(REST, format!("driver: changes the translation of window {index}"));
            return false;
        }
        self.windows[index].release()
    }

    fn configure_window(&mut self, argument: u32, dma: &DmaMap) -> Result<bool, String> {
        let index = self.window_index(argument)?;
        let at = self.get_pair(register::ADDRESS);
        let len = self.get_pair(register::SIZE);
        let window = self.window_len;
        let most = u64::from(window);
        if len == 0 || len > most || !at.is_multiple_of(PAGE) {
            return Err(format!(
                "driver: window {index} at guest address {at:#x} with {len} bytes, allowed are \
                 whole pages and 1 to {most} bytes"
            ));
        }
        if !self.release_window(index) {
            return Ok(false);
        }
        let not_mapped = |missing| {
            format!(
                "driver: window {index}: no guest memory at {missing:#x} (range {at:#x}+{len:#x})"
            )
        };
        let mut start = 0;
        let mut areas = Vec::new();
        for segment in dma.segments(at, len).map_err(not_mapped)? {
            let len = segment.len as u64;
            areas.push(Area { start, len, region: segment.region, offset: segment.offset });
            start += len;
        }
        let map = MemoryMap::new(areas).map_err(|e| format!("window {index}: {e}"))?;
        let outbound = Outbound { map: Arc::new(map), len: len as u32 };
        self.windows[index].outbound = Some(outbound);
        self.windows[index].guest = (at, len);
        Ok(true)
    }

    /// Keeps the link down for [`FAULT_REST`] if guest memory behind a window was truncated.
    fn check_memory(&mut self) {
        let is_lost = |window: &Window| {
            let map = window.outbound.iter().flat_map(|outbound| outbound.map.areas());
            map.into_iter().any(|area| area.region.is_lost())
        };
        if let Some(index) = self.windows.iter().position(is_lost) {
            self.rest(FAULT_REST, format!("guest: memory of window {index} was truncated"));
        }
    }

    fn rest(&mut self, time: Duration, why: String) {
        self.rest_until = self.rest_until.max(self.now + time);
        self.rest_why = why;
    }

    /// Keeps the link down until `until`, at least for [`REST`] from now.
    pub(super) fn rest_until(&mut self, until: Duration) {
        self.rest(REST, "restarting the link".to_owned());
        self.rest_until = self.rest_until.max(until);
    }

    fn state(&self) -> Result<(), String> {
        if self.now < self.rest_until {
            return Err(self.rest_why.clone());
        }
        if self.has_leftovers {
            return Err("releasing memory of the former guest".to_owned());
        }
        if self.vectors.is_none() {
            return Err("waiting for the guest's driver (ntb_hw_epf)".to_owned());
        }
        if !self.is_enabled {
            return Err("the guest's driver has the link disabled (ntb_transport)".to_owned());
        }
        Ok(())
    }

    fn raise(&mut self) {
        for pad in 0..SPADS {
            self.own_spad(pad).store(0, Ordering::Release);
            self.peer_spad(pad).store(0, Ordering::Release);
        }
        self.is_up = true;
        self.signal_link(1);
    }

    fn lower(&mut self) {
        self.is_up = false;
        self.signal_link(0);
    }

    fn signal_link(&self, link: u16) {
        self.registers.half(register::LINK).store(link.to_le(), Ordering::Release);
        if let Some(interrupts) = &self.interrupts {
            // Ignore an error: a client that has closed its eventfd needs no event.
            let _ = interrupts.trigger(LINK_VECTOR.into());
        }
    }

    /// Memory that the driver writes without a notification.
    pub(super) fn watched(&self) -> io::Result<Watched> {
        Ok(Watched {
            command: (table(&self.memory, PAGE)?, register::COMMAND),
            spads: (table(&self.spad_memory, PAGE)?, self.peer_spads.1),
        })
    }

    /// Hash that changes with the number of completed commands, a pending command, the state of the
    /// link, and the driver's scratchpads.
    pub(super) fn mark(&self) -> u64 {
        let state = u64::from(self.is_up) | u64::from(self.pending.is_some()) << 1;
        let pads = (0..SPADS).map(|pad| u64::from(self.peer_spad(pad).load(Ordering::Relaxed)));
        let values = self.commands.into_iter().chain(pads).chain([state]);
        values.fold(0, |mark, value| (mark ^ value).wrapping_mul(0x100_0000_01b3))
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Number of interrupt vectors that the driver has configured; before that, the number of all
    /// vectors.
    pub(super) fn vectors(&self) -> u16 {
        let all = self.doorbells.len() as u16 + FIRST_VECTOR;
        self.vectors.unwrap_or(all)
    }

    /// Number of doorbells for which the driver has configured vectors; before that, the number of
    /// all doorbells.
    pub(super) fn doorbell_count(&self) -> usize {
        let all = self.doorbells.len();
        self.vectors.map_or(all, |vectors| usize::from(vectors.saturating_sub(FIRST_VECTOR)))
    }

    pub(super) fn window_count(&self) -> usize {
        self.windows.len()
    }

    pub(super) fn window(&self, index: usize) -> Option<MemoryWindow> {
        let window = self.windows.get(index).filter(|_| self.is_up)?;
        Some(MemoryWindow {
            inbound: window.memory.clone(),
            inbound_at: window.at,
            inbound_len: self.window_len,
            outbound: window.outbound.clone(),
        })
    }

    /// Scratchpad `pad` of the set that this end writes and the driver reads as its own.
    pub(super) fn own_spad(&self, pad: usize) -> &std::sync::atomic::AtomicU32 {
        self.registers.word(register::OWN_SPADS + 4 * pad as u32)
    }

    /// Scratchpad `pad` of the set that the driver writes with `ntb_peer_spad_write` and this end
    /// reads.
    pub(super) fn peer_spad(&self, pad: usize) -> &std::sync::atomic::AtomicU32 {
        self.peer_spads.0.word(self.peer_spads.1 + 4 * pad as u32)
    }

    fn release_all(&mut self) -> bool {
        let mut is_done = true;
        for window in &mut self.windows {
            is_done &= window.release();
        }
        is_done
    }
}

impl DeviceModel for Function {
    fn read(&mut self, _bar: usize, _offset: u64, _data: &mut [u8]) {}

    fn write(&mut self, bar: usize, offset: u64, data: &[u8]) {
        let entry = offset.checked_sub(TRAP.into()).filter(|_| bar == self.doorbell_bar);
        let vector = entry.filter(|entry| *entry < PAGE && !data.is_empty()).map(|entry| entry / 4);
        let bit = vector.and_then(|vector| vector.checked_sub(FIRST_VECTOR.into()));
        if let Some(own) = bit.and_then(|bit| self.doorbells.get(bit as usize)) {
            own.ring();
        }
    }

    fn reset(&mut self) -> bool {
        (self.vectors, self.is_enabled, self.pending) = (None, false, None);
        if self.is_up {
            self.is_up = false;
            self.registers.half(register::LINK).store(0, Ordering::Release);
        }
        self.set(register::COMMAND, 0);
        self.registers.half(register::STATUS).store(0, Ordering::Release);
        self.doorbells.iter().for_each(|own| own.disarm());
        self.has_leftovers = !self.release_all();
        !self.has_leftovers
    }

    fn unmapped(&mut self, iova: u64, len: u64) -> bool {
        let end = iova.saturating_add(len);
        let overlaps = |window: &Window| {
            window.outbound.is_some()
                && window.guest.0 < end
                && iova < window.guest.0 + window.guest.1
        };
        let mut is_released = true;
        for index in 0..self.windows.len() {
            if overlaps(&self.windows[index]) {
                self.rest(REST, format!("guest: memory of window {index} was unmapped"));
                is_released &= !self.is_up && self.windows[index].release();
            }
        }
        is_released
    }
}
