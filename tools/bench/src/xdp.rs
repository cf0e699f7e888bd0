//! Cost of frames that an XDP program drops or passes before they reach a queue.

use std::sync::Arc;

use mqnet_ebpf::{ExecutionMode, Insn, ObjectProgram, Origin, Program};
use mqnet_netdev::limits::BURST_FRAMES;
use mqnet_netdev::{
    Armed, Burst, Fault, Offloads, OwningRx, Queue, QueuePairStats, Rx, WakeSource,
};
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;
use mqnet_xdp::wrap::{HookConfig, Hooked, Pages, ReinjectConfig, ReinjectWaker, hook, way};

use super::Result;

/// XDP program that decides by the EtherType of each frame, like a filter.
const PROGRAM: [(u8, u8, u8, i16, i32); 12] = [
    (0x61, 2, 1, 0, 0),
    (0x61, 3, 1, 4, 0),
    (0xb7, 0, 0, 0, 2),
    (0xbf, 4, 2, 0, 0),
    (0x07, 4, 0, 0, 34),
    (0x2d, 4, 3, 4, 0),
    (0x69, 5, 2, 12, 0),
    (0x55, 5, 0, 2, 8),
    (0xb7, 0, 0, 0, 1),
    (0x95, 0, 0, 0, 0),
    (0xb7, 0, 0, 0, 2),
    (0x95, 0, 0, 0, 0),
];
const FRAME_MAX: u32 = 1518;

/// Queue that always returns a burst of the same frame.
struct Same {
    frame: Vec<u8>,
}

impl Queue for Same {
    fn arm(&mut self, _: u32) -> std::result::Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }

    fn park(&mut self) {}
}

impl OwningRx for Same {
    fn peek<'a>(
        &'a mut self,
        burst: &mut Burst<'a>,
        budget: usize,
    ) -> std::result::Result<(), Fault> {
        for _ in 0..budget.min(BURST_FRAMES) {
            burst.push(VnetHdr::default(), self.frame.len() as u32, Span::of(&self.frame));
        }
        Ok(())
    }

    fn release(&mut self, _: usize) -> std::result::Result<(), Fault> {
        Ok(())
    }
}

struct Silent;

impl ReinjectWaker for Silent {
    fn ring(&self) {}
}

/// Creates a closure that polls the hooked queue once and returns the number of frames that the
/// program dropped or passed.
pub(super) fn burst(bytes: usize, drops: bool) -> Result<impl FnMut() -> usize> {
    let insns = PROGRAM.iter().map(|&(code, dst, src, off, imm)| Insn { code, dst, src, off, imm });
    let (name, section) = ("bench".to_owned(), "xdp".to_owned());
    let object = ObjectProgram { name, section, insns: insns.collect(), maps: Vec::new() };
    let program = Program::new(object, ExecutionMode::BEST, 1)?;
    let stats = Arc::new(QueuePairStats::default());
    let config = ReinjectConfig {
        stats: Arc::new(QueuePairStats::default()),
        frame_max: FRAME_MAX,
        tx_offloads: Offloads::ALL,
        joined: Hooked::default(),
    };
    let (outlet, inlet) = way(config, Box::new(Silent));
    let config = HookConfig {
        program,
        origin: Origin::default(),
        other: 2,
        stats: stats.clone(),
        pages: Pages::new(FRAME_MAX),
        frame_max: FRAME_MAX,
        offloads: Offloads::NONE,
        tx_offloads: Offloads::NONE,
        outlet,
        hooked: Hooked::default(),
    };
    let mut frame = vec![0; bytes.max(34)];
    frame[12] = if drops { 8 } else { 0 };
    let mut rx = hook(Rx::Owning(Box::new(Same { frame })), config, None);
    Ok(move || {
        let _ = &inlet;
        let before = stats.rx.xdp.packets.get();
        if let Rx::Owning(queue) = &mut rx {
            let mut shown = Burst::new();
            let passed = queue.peek(&mut shown, BURST_FRAMES).map(|()| shown.frames().len());
            drop(shown);
            let released = passed.and_then(|n| queue.release(n));
            debug_assert!(released.is_ok());
        }
        (stats.rx.xdp.packets.get() - before) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the program drops or passes at least a burst of frames per call.
    #[test]
    fn frames_are_decided_about() {
        for (drops, least) in [(true, BURST_FRAMES), (false, BURST_FRAMES)] {
            let mut burst = burst(64, drops).unwrap();
            assert!(burst() >= least);
            assert!(burst() >= least);
        }
    }
}
