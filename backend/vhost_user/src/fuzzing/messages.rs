//! Front end and guest of a complete function. The input determines messages, writes to the
//! guest's memory, and polls of the link and its queues.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mqnet_netdev::fuzzing::{Input, receive};
use mqnet_netdev::{
    Burst, Caps, Channel, Fault, FrameMeta, Function, LinkStatus, OwningTx, Plan, QueuePairStats,
    Rx, Tx,
};
use mqnet_shmem::Span;
use mqnet_sysio::socket::StreamSocket;
use mqnet_sysio::{clock, poll};
use mqnet_wire::VnetHdr;

use super::frontend::{AREAS, Frontend, GET_STATUS, GUEST, MEMORY, Message, RING, SIZE};
use crate::state::Shared;
use crate::{Meet, VhostUserConfig, VhostUserFunction};

/// Largest number of steps of one input.
const STEPS: usize = 60;
/// Limit for the answer to a message and for the end of the function's thread.
const LIMIT: Duration = Duration::from_secs(10);
/// The front end disconnects after more messages than this, from the first with a wrong length on.
const TORN_MAX: u32 = 3;
/// Offset of the guest's buffers in its memory.
const BUFFERS: u64 = 0x2000;
/// Longest frame that a receive queue may return.
const FRAME_MAX: u32 = mqnet_netdev::limits::FRAME_MAX;

/// Open channels of a link.
struct Link {
    session: u64,
    plan: Plan,
    channels: Vec<Channel>,
}

struct World<'a> {
    frontend: Frontend<'a>,
    memory: File,
    function: VhostUserFunction,
    socket: StreamSocket,
    link: Option<Link>,
    /// Bit map of the requests that were sent.
    requests: u64,
    /// Received bytes of an incomplete answer.
    answer: Vec<u8>,
    /// Number of status requests sent, and of status answers received.
    statuses: [u32; 2],
    /// Number of messages from the first with a wrong length on; 0 while every answer can be
    /// expected.
    torn: u32,
    /// True if the function has closed the connection.
    is_over: bool,
    is_packed: bool,
    /// Number of descriptors made available in each ring.
    made: Vec<u16>,
    /// Number of times that channels were opened.
    opened: u32,
}

/// Results that an input reached.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reached {
    /// Number of times that channels were opened.
    opened: u32,
    /// Number of frames from the guest and to the guest.
    frames: [u64; 2],
}

/// Interprets bytes as the messages of a front end and the actions of its guest.
///
/// Panics if a message is not answered in time, or an answer is malformed. Panics also if a frame
/// breaks the contract, the link is down without a reason, or the thread outlives its function.
pub fn messages(data: &[u8]) {
    // `None` if the machine is out of descriptors or memory: nothing to test.
    let _ = run(data);
}

fn run(data: &[u8]) -> Option<Reached> {
    let mut input = Input(data);
    let [choice, more] = [input.u8(), input.u8()];
    let (here, there) = UnixStream::pair().ok()?;
    let pairs = 1 + u16::from(choice >> 4 & 1);
    let function = VhostUserFunction::open(VhostUserConfig {
        name: "vhost-user:fuzz".to_owned(),
        meet: Meet::Inherited(OwnedFd::from(there)),
        mac: (choice & 1 == 1).then_some([2, 0, 0, 0, 0, 1]),
        mtu: (choice & 0x2 != 0).then_some(1500),
        queues: pairs,
        packed: choice & 0x4 != 0,
        ctrl: choice & 0x8 != 0,
    });
    let function = function.ok()?;
    let rings = 2 * pairs + u16::from(choice & 0x8 != 0);
    let offered = function.shared.lock().offered();
    let frontend = Frontend::new(input, offered, rings)?;
    let memory = frontend.memory.try_clone().ok()?;
    let mut world = World {
        frontend,
        memory: memory.into(),
        function,
        socket: OwnedFd::from(here).into(),
        link: None,
        requests: 0,
        answer: Vec::new(),
        statuses: [0; 2],
        torn: 0,
        is_over: false,
        is_packed: more & 1 == 1,
        made: vec![0; rings.into()],
        opened: 0,
    };
    if choice & 0x80 != 0 {
        let all = world.frontend.negotiation(pairs, rings);
        all.iter().for_each(|message| world.send(message));
        world.settle();
    }
    for _ in 0..STEPS {
        if world.is_over || world.torn > TORN_MAX || world.frontend.input.0.is_empty() {
            break;
        }
        world.step();
    }
    Some(world.end(choice & 0x40 != 0))
}

impl World<'_> {
    fn step(&mut self) {
        let action = self.frontend.input.u8();
        match action & 15 {
            0..=5 => {
                if action & 0x80 != 0 {
                    self.park();
                }
                let message = self.frontend.message();
                self.send(&message);
                if action & 0x40 == 0 {
                    self.settle();
                }
            }
            6 => {
                let message = self.frontend.raw();
                self.send(&message);
            }
            7 | 8 => {
                if action & 0x80 == 0 {
                    // Skip the pause after the start of a ring, which only costs time.
                    self.function.shared.lock().started = None;
                }
                self.poll_link(true);
            }
            9 => self.poll_queues(),
            10 => {
                let at = usize::from(self.frontend.input.u8()) % self.frontend.kicks.len();
                let _ = self.frontend.kicks[at].ring();
                self.settle();
            }
            11 => {
                let (at, value) = (self.frontend.input.u16(), self.frontend.input.u64());
                self.store(u64::from(at) & !7, value);
            }
            12 => self.make(),
            13 => {
                // Write a header or a command at the beginning of a buffer.
                let (place, len) = (u64::from(self.frontend.input.u8()), self.frontend.input.u8());
                let bytes: Vec<u8> = (0..len % 32).map(|_| self.frontend.input.u8()).collect();
                let _ = self.memory.write_all_at(&bytes, BUFFERS + 256 * (place % 64));
            }
            14 => {
                let pages = u64::from(self.frontend.input.u8());
                let len = if pages < 17 { 4096 * pages } else { MEMORY };
                let _ = self.memory.set_len(len);
            }
            _ => self.change(action >> 4),
        }
    }

    fn send(&mut self, message: &Message) {
        let fds: Vec<_> = message.fds.iter().map(AsFd::as_fd).collect();
        match self.socket.send(&message.bytes, &fds) {
            Ok(sent) if sent == message.bytes.len() => {}
            // The function has disconnected. A full socket is impossible: it holds more bytes than
            // an input.
            _ => self.is_over = true,
        }
        self.torn += u32::from(message.is_torn || self.torn > 0);
        self.requests |= 1_u64.checked_shl(message.request).unwrap_or(0);
        let is_status = message.request == GET_STATUS && !message.is_torn;
        self.statuses[0] += u32::from(is_status);
    }

    /// Waits until the function has handled all messages, and parks the queues so that rings can be
    /// stopped. After a message with a wrong length, polls once: an answer may never come.
    fn settle(&mut self) {
        if self.torn > 0 {
            let _ = poll::wait_readable(&[self.socket.as_fd()], Duration::from_millis(1));
            self.poll_link(false);
            self.receive_answers();
            return;
        }
        self.send(&Message::get_status());
        let since = clock::monotonic();
        loop {
            self.receive_answers();
            if self.is_over || self.statuses[1] >= self.statuses[0] {
                return;
            }
            assert!(clock::monotonic() - since < LIMIT, "a message was not handled in time");
            let _ = poll::wait_readable(&[self.socket.as_fd()], Duration::from_millis(1));
            self.poll_link(false);
            self.park();
        }
    }

    fn receive_answers(&mut self) {
        let mut room = [0; 4096];
        loop {
            match self.socket.receive_here(&mut room) {
                Ok(None) => break,
                Ok(Some(part)) if part.len > 0 => self.answer.extend(&room[..part.len]),
                _ => {
                    self.is_over = true;
                    break;
                }
            }
        }
        while let Some(header) = self.answer.first_chunk::<12>() {
            let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| header[4 * at + i]));
            let (request, flags, len) = (word(0), word(1), word(2) as usize);
            assert_eq!(flags & 7, 5, "flags of an answer to request {request}");
            assert!(len <= 4096, "an answer of {len} bytes to request {request}");
            let was_sent = self.requests.checked_shr(request).unwrap_or(0) & 1 == 1;
            assert!(was_sent || self.torn > 0, "an answer to request {request}, never sent");
            if self.answer.len() < 12 + len {
                break;
            }
            self.answer.drain(..12 + len);
            self.statuses[1] += u32::from(request == GET_STATUS);
        }
    }

    /// Polls the link like the control thread: closes channels of an older session, and opens new
    /// channels if `opens` is true.
    fn poll_link(&mut self, opens: bool) {
        match self.function.poll_link(clock::monotonic()) {
            LinkStatus::Down(why) => {
                assert!(!why.trim().is_empty() && !why.contains('\n'), "the reason is {why:?}");
                self.close();
            }
            LinkStatus::Up { session } => {
                if self.link.as_ref().is_some_and(|link| link.session != session) {
                    self.close();
                }
                if opens && self.link.is_none() {
                    self.open(session);
                }
            }
        }
    }

    fn plan(&mut self) -> Option<Plan> {
        let caps = self.function.caps();
        let there = Caps { wanted: None, channels: 64, ..caps.clone() };
        self.function.set_partner(&there);
        Plan::join(&caps, &there).ok()
    }

    fn open(&mut self, session: u64) {
        let Some(plan) = self.plan() else { return };
        match self.function.open(&plan) {
            Ok(channels) => {
                assert_eq!(channels.len(), usize::from(plan.channels));
                self.link = Some(Link { session, plan, channels });
                self.opened += 1;
            }
            Err(e) => assert!(!e.what.is_empty()),
        }
    }

    fn close(&mut self) {
        if self.link.take().is_some() {
            self.function.close("fuzzing");
        }
    }

    /// Prepares a channel change and commits or aborts it, or closes the link.
    fn change(&mut self, how: u8) {
        let Some(session) = self.link.as_ref().map(|link| link.session) else { return };
        if how == 0 {
            return self.close();
        }
        self.park();
        let Some(plan) = self.plan() else { return };
        match self.function.prepare(&plan) {
            Ok(channels) if how & 1 == 1 => {
                self.link = Some(Link { session, plan, channels });
                assert!(self.function.commit().is_ok());
            }
            Ok(_) => self.function.abort(),
            Err(e) => assert!(!e.what.is_empty()),
        }
    }

    fn park(&mut self) {
        for channel in self.link.iter_mut().flat_map(|link| &mut link.channels) {
            channel.rx.queue().park();
            channel.tx.queue().park();
        }
    }

    /// Polls the queues of every channel; the first fault closes the link.
    fn poll_queues(&mut self) {
        let choice = self.frontend.input.u8();
        let Some(link) = &mut self.link else { return };
        let len = u32::from(choice >> 2) * 50 + 14;
        let len = len.min(link.plan.frame_max);
        let mut poll = |channel: &mut Channel| -> Result<(), Fault> {
            let (Rx::Owning(rx), Tx::Owning(tx)) = (&mut channel.rx, &mut channel.tx) else {
                panic!("queues of a guest have memory");
            };
            for leave in [usize::from(choice & 1), 0] {
                receive(&mut **rx, 1..=FRAME_MAX, leave)?;
            }
            send(&mut **tx, len)?;
            if choice & 2 != 0 {
                let _ = (rx.arm(0)?, tx.arm(len)?);
            }
            Ok(())
        };
        if let Err(fault) = link.channels.iter_mut().try_for_each(&mut poll) {
            assert!(!fault.what.is_empty() && !fault.what.contains('\n'), "{:?}", fault.what);
            self.close();
        }
    }

    /// Writes a number into the guest's memory, which grows again if it was truncated.
    fn store(&self, at: u64, value: u64) {
        let _ = self.memory.write_all_at(&value.to_le_bytes(), at % MEMORY);
    }

    /// Makes a chain of one or two buffers available, like a correct driver, and kicks the ring.
    fn make(&mut self) {
        let input = &mut self.frontend.input;
        let (ring, kind) = (usize::from(input.u8()) % self.made.len(), input.u8());
        let is_control = self.made.len() % 2 == 1 && ring + 1 == self.made.len();
        let (start, made) = (RING * ring as u64, self.made[ring]);
        let count = if is_control || kind & 1 == 1 { 2 } else { 1 };
        let len = [90, 12, 32, 2000, 5000, 0, 0xffff_ffff, 20][usize::from(kind >> 2 & 7)];
        for i in 0..count {
            let (at, lap) = ((made + i) % SIZE, (made + i) / SIZE);
            let is_last = i + 1 == count;
            let writes = if is_control { is_last } else { ring % 2 == 0 };
            let flags = u64::from(!is_last) | u64::from(writes) << 1;
            let buffer = GUEST + BUFFERS + 256 * u64::from(kind >> 5) + 2048 * u64::from(i);
            let desc = start + AREAS[0] + 16 * u64::from(at);
            let len =
                if is_control { [u64::from(kind >> 2 & 7) + 2, 1][usize::from(i)] } else { len };
            self.store(desc, buffer);
            let rest = if self.is_packed {
                let available = if lap % 2 == 0 { 0x80 } else { 0x8000 };
                u64::from(at) | (flags | available) << 16
            } else {
                flags | u64::from((at + 1) % SIZE) << 16
            };
            self.store(desc + 8, len | rest << 32);
        }
        self.made[ring] = made.wrapping_add(if self.is_packed { count } else { 1 });
        if !self.is_packed {
            // The head of the chain in available entry `made` is the descriptor with the same
            // number.
            let available = start + AREAS[1];
            let entry = available + 4 + 2 * u64::from(made % SIZE);
            let _ = self.memory.write_all_at(&(made % SIZE).to_le_bytes(), entry);
            let _ = self.memory.write_all_at(&self.made[ring].to_le_bytes(), available + 2);
        }
        let _ = self.frontend.kicks[ring].ring();
        if is_control {
            self.settle();
        }
    }

    /// Ends the function, before or after the front end disconnects.
    fn end(mut self, hangs_up: bool) -> Reached {
        if hangs_up || self.is_over {
            let _ = nix::sys::socket::shutdown(
                self.socket.as_fd().as_raw_fd(),
                nix::sys::socket::Shutdown::Both,
            );
            let since = clock::monotonic();
            while self.function.shared.lock().absent.is_none() {
                assert!(clock::monotonic() - since < LIMIT, "the end of the front end is not seen");
                poll::pause(Duration::from_micros(100));
                self.poll_link(false);
                self.park();
            }
            let status = self.function.poll_link(clock::monotonic());
            assert!(matches!(status, LinkStatus::Down(_)), "up without a front end");
        }
        let shared = Arc::downgrade(&self.function.shared);
        let Self { frontend, function, link, socket, opened, .. } = self;
        let stats = function.stats();
        let sum = |count: fn(&QueuePairStats) -> u64| stats.iter().map(|one| count(one)).sum();
        let frames = [sum(|one| one.rx.packets.get()), sum(|one| one.tx.packets.get())];
        drop((link, function));
        await_end(&shared);
        drop(socket);
        close_refused(&frontend.refused);
        Reached { opened, frames }
    }
}

/// Waits for the end of the function's thread, which shares its state.
fn await_end(shared: &Weak<Shared>) {
    let since = clock::monotonic();
    while shared.strong_count() > 0 {
        assert!(clock::monotonic() - since < LIMIT, "the thread outlives its function");
        poll::pause(Duration::from_millis(1));
    }
}

/// Closes the descriptors that the function refused, which it keeps open until the process ends.
fn close_refused(inodes: &[u64]) {
    if inodes.is_empty() {
        return;
    }
    let names: Vec<String> = inodes.iter().map(|inode| format!(":[{inode}]")).collect();
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    for entry in folder.flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy();
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(number) = number.filter(|_| names.iter().any(|name| target.ends_with(name))) {
            let _ = nix::unistd::close(number);
        }
    }
}

fn send(tx: &mut dyn OwningTx, len: u32) -> Result<(), Fault> {
    let bytes = vec![7; len as usize];
    {
        let mut burst = Burst::new();
        burst.push(VnetHdr::default(), len, Span::of(&bytes));
        tx.submit(&burst, 0)?;
    }
    if tx.reserve(len)?.is_some() {
        tx.commit(&FrameMeta { len, hdr: VnetHdr::default() });
    }
    tx.flush()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Reached, run};

    // Goal: one input opens the channels and moves a frame in each direction, with either kind of
    // ring.
    #[test]
    fn inputs_reach_the_queues() {
        for (choice, more, features) in [(0x80, 0, 0), (0x84, 1, 1)] {
            // Add buffers of 90 and 2000 bytes, then poll the link and the queues.
            let steps = [12, 1, 0, 12, 0, 12, 7, 9, 4];
            let data = [&[choice, more, features][..], &steps].concat();
            assert_eq!(run(&data), Some(Reached { opened: 1, frames: [1, 1] }), "{choice:#x}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        // Goal: after any sequence of messages and writes, the function neither panics nor hangs.
        // Answers of the function are valid, and a link that is down has a reason. The thread ends
        // with the function.
        #[test]
        fn any_messages_leave_a_function_that_ends(
            choice: u8,
            data in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            super::messages(&[&[choice][..], &data].concat());
        }
    }
}
