//! Execution of a client's commands.

use mqnet_shmem::{AtomicTable, Region};

use crate::config::ConfigSpace;
use crate::connection::Message;
use crate::protocol::{
    Body, CAP_SPARSE, CONFIG, DATA_MAX, DEVICE_PCI, DEVICE_RESET, DMA_READ, DMA_WRITE, Fields,
    IRQ_EVENTFD, IRQ_KINDS, IRQ_NORESIZE, MSIX, REGION_CAPS, REGION_MMAP, REGION_READ,
    REGION_WRITE, REGIONS, SET_BOOL, SET_EVENTFD, SET_NONE, SET_TRIGGER, UNMAP_ALL, capabilities,
    command,
};
use crate::{Bar, DeviceModel, DmaMap, Interrupts, MessageError, Model};

/// Result of a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Body of the reply, and the index of the BAR if its memory file is sent with the reply.
    Reply(Vec<u8>, Option<usize>),
    /// The device has not finished: the command must be repeated later.
    Wait,
}

impl From<Body> for Answer {
    fn from(body: Body) -> Self {
        Self::Reply(body.0, None)
    }
}

/// State that commands read and modify.
pub(crate) struct Target<'a> {
    pub(crate) model: &'a Model,
    pub(crate) config: &'a mut ConfigSpace,
    pub(crate) dma: &'a mut DmaMap,
    pub(crate) interrupts: &'a Interrupts,
    pub(crate) device: &'a mut dyn DeviceModel,
    /// True unless the time limit of the device has expired.
    pub(crate) may_wait: bool,
}

impl Target<'_> {
    /// Executes one command. Returns its reply or the reason for an error reply.
    pub(crate) fn handle(
        &mut self,
        message: &mut Message,
        is_negotiated: &mut bool,
    ) -> Result<Answer, MessageError> {
        let command = message.header.command;
        if message.header.kind() != 0 {
            return Err(MessageError::Type(message.header.kind()));
        }
        if command != command::VERSION && !*is_negotiated {
            return Err(MessageError::NoVersion(command));
        }
        let body = &message.body;
        match command {
            command::VERSION => {
                let answer = version(Fields::new("VERSION", body), *is_negotiated)?;
                *is_negotiated = true;
                Ok(answer)
            }
            command::DMA_MAP => self.dma_map(message),
            command::DMA_UNMAP => self.dma_unmap(body),
            command::GET_INFO => {
                let flags = DEVICE_PCI | DEVICE_RESET;
                Ok(Body::default().u32(16).u32(flags).u32(REGIONS).u32(IRQ_KINDS).into())
            }
            command::GET_REGION_INFO => self.region_info(Fields::new("GET_REGION_INFO", body)),
            command::GET_REGION_IO_FDS => no_io_fds(Fields::new("GET_REGION_IO_FDS", body)),
            command::GET_IRQ_INFO => self.irq_info(Fields::new("GET_IRQ_INFO", body)),
            command::SET_IRQS => self.set_irqs(message),
            command::REGION_READ => self.read(Fields::new("REGION_READ", body)),
            command::REGION_WRITE => self.write(Fields::new("REGION_WRITE", body)),
            command::RESET => self.reset(),
            _ => Err(MessageError::Unsupported(command)),
        }
    }

    fn dma_map(&mut self, message: &mut Message) -> Result<Answer, MessageError> {
        let mut fields = Fields::new("DMA_MAP", &message.body);
        let (_argsz, flags) = (fields.u32()?, fields.u32()?);
        let (offset, iova, len) = (fields.u64()?, fields.u64()?, fields.u64()?);
        if flags & !(DMA_READ | DMA_WRITE) != 0 {
            return Err(MessageError::Flags { what: "DMA_MAP", flags });
        }
        let have = message.fds.len();
        if have > 1 {
            return Err(MessageError::Descriptors { what: "DMA_MAP", have, allowed: "0 and 1" });
        }
        // Do not map memory that the device may only read (a ROM): the client's mapping must not be
        // written.
        let is_memory = flags & DMA_WRITE != 0;
        let file = message.fds.pop().filter(|_| is_memory).map(|file| (file, offset));
        self.dma.map(iova, len, file)?;
        Ok(Body::default().into())
    }

    fn dma_unmap(&mut self, body: &[u8]) -> Result<Answer, MessageError> {
        let mut fields = Fields::new("DMA_UNMAP", body);
        let (argsz, flags) = (fields.u32()?, fields.u32()?);
        let (iova, len) = (fields.u64()?, fields.u64()?);
        let is_all = flags == UNMAP_ALL && iova == 0 && len == 0;
        if flags != 0 && !is_all {
            return Err(MessageError::Flags { what: "DMA_UNMAP", flags });
        }
        let (start, count) = if is_all { (0, u64::MAX) } else { (iova, len) };
        if !is_all {
            self.dma.check_unmap(start, count)?;
        }
        if !self.device.unmapped(start, count) && self.may_wait {
            return Ok(Answer::Wait);
        }
        if is_all {
            self.dma.clear();
        } else {
            self.dma.unmap(start, count)?;
        }
        Ok(Body::default().u32(argsz).u32(flags).u64(iova).u64(len).into())
    }

    fn region_info(&self, mut fields: Fields<'_>) -> Result<Answer, MessageError> {
        let (argsz, _flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
        within("region", index, REGIONS)?;
        let bar = self.bar(index);
        let (len, mut flags) = match bar {
            Some(bar) => (bar.len, REGION_READ | REGION_WRITE),
            None if index == CONFIG => (self.config.len() as u64, REGION_READ | REGION_WRITE),
            None => (0, 0),
        };
        let mapped = bar.filter(|bar| bar.memory.is_some() && !bar.mapped.is_empty());
        let mut areas = Body::default();
        if let Some(bar) = mapped {
            flags |= REGION_MMAP;
            let is_whole = bar.mapped.iter().any(|range| range.start == 0 && range.end == bar.len);
            if !is_whole {
                flags |= REGION_CAPS;
                let count = bar.mapped.len() as u32;
                areas = areas.u16(CAP_SPARSE).u16(1).u32(0).u32(count).u32(0);
                for range in &bar.mapped {
                    areas = areas.u64(range.start).u64(range.end - range.start);
                }
            }
        }
        // If `argsz` is too small, return the required size, and omit the mappable areas with their
        // flags and their file.
        let full = 32 + areas.0.len() as u32;
        let fits = argsz >= full;
        if !fits {
            flags &= !(REGION_MMAP | REGION_CAPS);
        }
        let cap_at = if fits && full > 32 { 32 } else { 0 };
        let body = Body::default().u32(full).u32(flags).u32(index).u32(cap_at).u64(len).u64(0);
        let body = if fits { body.bytes(&areas.0) } else { body };
        Ok(Answer::Reply(body.0, mapped.filter(|_| fits).map(|_| index as usize)))
    }

    /// BAR number `index`, if the function has it.
    fn bar(&self, index: u32) -> Option<&Bar> {
        self.model.bars.get(index as usize).filter(|bar| bar.len > 0)
    }

    fn irq_info(&self, mut fields: Fields<'_>) -> Result<Answer, MessageError> {
        let (_argsz, _flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
        within("interrupt kind", index, IRQ_KINDS)?;
        let (flags, count) = match index {
            MSIX => (IRQ_EVENTFD | IRQ_NORESIZE, self.interrupts.len() as u32),
            _ => (IRQ_EVENTFD, 0),
        };
        Ok(Body::default().u32(16).u32(flags).u32(index).u32(count).into())
    }

    fn set_irqs(&self, message: &mut Message) -> Result<Answer, MessageError> {
        let mut fields = Fields::new("SET_IRQS", &message.body);
        let (_argsz, flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (start, count) = (fields.u32()?, fields.u32()?);
        within("interrupt kind", index, IRQ_KINDS)?;
        let len = if index == MSIX { self.interrupts.len() as u64 } else { 0 };
        let (first, many) = (u64::from(start), u64::from(count));
        if first + many > len {
            let what = "interrupts of kind";
            return Err(MessageError::Range { what, index, start: first, count: many, len });
        }
        let have = message.fds.len();
        let descriptors = |allowed| MessageError::Descriptors { what: "SET_IRQS", have, allowed };
        match flags {
            // Remove all eventfds: the message names no vectors.
            f if f == SET_NONE | SET_TRIGGER && count == 0 => {
                if index == MSIX {
                    self.interrupts.clear();
                }
            }
            f if f == SET_NONE | SET_TRIGGER => self.trigger(start..start + count, None),
            f if f == SET_BOOL | SET_TRIGGER => {
                let chosen = fields.rest();
                if chosen.len() < count as usize {
                    let len = message.body.len();
                    return Err(MessageError::Short { command: "SET_IRQS", len });
                }
                self.trigger(start..start + count, Some(chosen));
            }
            f if f == SET_EVENTFD | SET_TRIGGER => {
                if have != 0 && have != count as usize {
                    return Err(descriptors("0 and the number of vectors"));
                }
                let fds = std::mem::take(&mut message.fds).into_iter().map(Some);
                let fds = fds.chain(std::iter::repeat_with(|| None));
                for (vector, fd) in (start..start + count).zip(fds) {
                    self.interrupts.set(vector, fd)?;
                }
            }
            _ => return Err(MessageError::Flags { what: "SET_IRQS", flags }),
        }
        Ok(Body::default().into())
    }

    fn trigger(&self, vectors: std::ops::Range<u32>, chosen: Option<&[u8]>) {
        for (at, vector) in vectors.enumerate() {
            if chosen.is_none_or(|chosen| chosen[at] != 0) {
                // Ignore a failed write: the client's eventfd affects only the client.
                let _ = self.interrupts.trigger(vector as usize);
            }
        }
    }

    /// Reads and checks the range of a region access: offset, region and number of bytes.
    fn access(&self, fields: &mut Fields<'_>) -> Result<(u64, u32, usize), MessageError> {
        let (offset, index, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let len = match self.bar(index) {
            Some(bar) => bar.len,
            None if index == CONFIG => self.config.len() as u64,
            None => 0,
        };
        let end = offset.checked_add(count.into());
        if count as usize > DATA_MAX || end.is_none_or(|end| end > len) {
            let (start, count) = (offset, count.into());
            return Err(MessageError::Range { what: "region", index, start, count, len });
        }
        Ok((offset, index, count as usize))
    }

    fn read(&mut self, mut fields: Fields<'_>) -> Result<Answer, MessageError> {
        let (offset, index, count) = self.access(&mut fields)?;
        let mut data = vec![0; count];
        if index == CONFIG {
            self.config.read(offset as usize, &mut data);
        } else if let Some(bar) = self.bar(index) {
            match memory(bar, offset, count) {
                Some(memory) => load(&memory, offset as u32, &mut data),
                None => self.device.read(index as usize, offset, &mut data),
            }
        }
        let body = Body::default().u64(offset).u32(index).u32(count as u32);
        Ok(body.bytes(&data).into())
    }

    fn write(&mut self, mut fields: Fields<'_>) -> Result<Answer, MessageError> {
        let (offset, index, count) = self.access(&mut fields)?;
        let data = fields.rest();
        let Some(data) = data.get(..count) else {
            return Err(MessageError::Short { command: "REGION_WRITE", len: 16 + data.len() });
        };
        if index == CONFIG {
            self.config.write(offset as usize, data);
        } else if let Some(bar) = self.bar(index) {
            match memory(bar, offset, count) {
                Some(memory) => store(&memory, offset as u32, data),
                None => self.device.write(index as usize, offset, data),
            }
        }
        Ok(Body::default().u64(offset).u32(index).u32(count as u32).into())
    }

    fn reset(&mut self) -> Result<Answer, MessageError> {
        if !self.device.reset() && self.may_wait {
            return Ok(Answer::Wait);
        }
        self.config.reset();
        Ok(Body::default().into())
    }
}

fn version(mut fields: Fields<'_>, is_negotiated: bool) -> Result<Answer, MessageError> {
    let (major, minor) = (fields.u16()?, fields.u16()?);
    // Ignore the client's capabilities: the server sends no commands, and at most one descriptor
    // per reply.
    if major != 0 || is_negotiated {
        return Err(MessageError::Version { major, minor });
    }
    Ok(Body::default().u16(0).u16(0).bytes(capabilities().as_bytes()).bytes(&[0]).into())
}

/// Replies that a region has no eventfds for trapped accesses.
fn no_io_fds(mut fields: Fields<'_>) -> Result<Answer, MessageError> {
    let (_argsz, _flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
    within("region", index, REGIONS)?;
    Ok(Body::default().u32(16).u32(0).u32(index).u32(0).into())
}

fn within(what: &'static str, index: u32, len: u32) -> Result<(), MessageError> {
    if index < len {
        return Ok(());
    }
    Err(MessageError::Range { what, index, start: index.into(), count: 1, len: len.into() })
}

/// Memory of a BAR if the range is within one mapped range; otherwise `None`.
fn memory(bar: &Bar, offset: u64, count: usize) -> Option<AtomicTable> {
    let region = bar.memory.as_ref().filter(|_| bar.is_mapped(offset, count as u64))?;
    let len = u32::try_from(Region::len(region)).ok()?;
    AtomicTable::new(region.clone(), 0, len)
}

/// Number of bytes of the next access: the largest aligned power of two, up to 8.
fn width(at: u32, len: usize) -> usize {
    let fits = |width: &usize| *width <= len && (at as usize).is_multiple_of(*width);
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Reads memory that the client may write concurrently, with one access per aligned number.
fn load(memory: &AtomicTable, mut at: u32, mut data: &mut [u8]) {
    use std::sync::atomic::Ordering::Acquire;
    while !data.is_empty() {
        let width = width(at, data.len());
        let (now, rest) = data.split_at_mut(width);
        match width {
            8 => now.copy_from_slice(&memory.double(at).load(Acquire).to_ne_bytes()),
            4 => now.copy_from_slice(&memory.word(at).load(Acquire).to_ne_bytes()),
            2 => now.copy_from_slice(&memory.half(at).load(Acquire).to_ne_bytes()),
            _ => now.copy_from_slice(&memory.byte(at).load(Acquire).to_ne_bytes()),
        }
        (data, at) = (rest, at + width as u32);
    }
}

/// Writes memory that the client may read concurrently, with one access per aligned number.
fn store(memory: &AtomicTable, mut at: u32, mut data: &[u8]) {
    use std::sync::atomic::Ordering::Release;
    while !data.is_empty() {
        let (now, rest) = data.split_at(width(at, data.len()));
        match *now {
            [a, b, c, d, e, f, g, h] => {
                memory.double(at).store(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), Release);
            }
            [a, b, c, d] => memory.word(at).store(u32::from_ne_bytes([a, b, c, d]), Release),
            [a, b] => memory.half(at).store(u16::from_ne_bytes([a, b]), Release),
            [a, ..] => memory.byte(at).store(a, Release),
            [] => {}
        }
        at += now.len() as u32;
        data = rest;
    }
}
