//! Flow rules as BPF instructions. Each rule is a chain of comparisons that returns its queue, or
//! continues with the next rule.
//!
//! At the start of a rule, `R8` is the ethertype (or IP version), and `R7` is the offset of the
//! network header. Rules preserve `R7` and `R8`; `R0` and `R9` are free.

use mqnet_netdev::{Field, FlowKind, MaskedField, SteeringRule};
use mqnet_sysio::bpf::{Alu, BpfInsn, Reg, Size};
use mqnet_wire::Layer;

use super::hash::FRAGMENT;

/// Instruction, or comparison that skips the rule.
enum Step {
    Do(BpfInsn),
    /// Skips the rule unless `R0` has this value.
    Unless(u32),
}

fn load(size: Size, base: Option<Reg>, at: usize) -> Step {
    Step::Do(match base {
        Some(base) => BpfInsn::load_packet_from(size, base, at as i32),
        None => BpfInsn::load_packet(size, at as i32),
    })
}

/// Base register of a field, if there is one, and the offset from it.
fn place(field: Field, v6: bool) -> (Option<Reg>, usize) {
    let network = |v4, v6_at| (Some(Reg::R7), if v6 { v6_at } else { v4 });
    match field {
        Field::EtherDestination => (None, 0),
        Field::EtherSource => (None, 6),
        Field::EtherType => (None, 12),
        Field::Source => network(12, 8),
        Field::Destination => network(16, 24),
        Field::TrafficClass => network(1, 0),
        Field::Protocol => network(9, 6),
        Field::SourcePort => (Some(Reg::R9), 0),
        Field::DestinationPort => (Some(Reg::R9), 2),
    }
}

/// Appends the comparisons of a field, in units of 4, 2 and 1 bytes. Units with an empty mask are
/// omitted.
fn compare(m: &MaskedField, v6: bool, steps: &mut Vec<Step>) {
    let (base, at) = place(m.field, v6);
    if v6 && m.field == Field::TrafficClass {
        // The traffic class spans the first two bytes.
        let (value, mask) = (u32::from(m.value[0]) << 4, u32::from(m.mask[0]) << 4);
        steps.push(load(Size::Half, base, at));
        steps.push(Step::Do(BpfInsn::alu(Alu::And, Reg::R0, mask)));
        steps.push(Step::Unless(value & mask));
        return;
    }
    let mut done = 0;
    while done < m.value.len() {
        let (size, n) = match m.value.len() - done {
            4.. => (Size::Word, 4),
            2 | 3 => (Size::Half, 2),
            _ => (Size::Byte, 1),
        };
        let number = |bytes: &[u8]| bytes.iter().fold(0u32, |sum, b| sum << 8 | u32::from(*b));
        let piece = done..done + n;
        let (value, mask) = (number(&m.value[piece.clone()]), number(&m.mask[piece]));
        if mask != 0 {
            steps.push(load(size, base, at + done));
            steps.push(Step::Do(BpfInsn::alu(Alu::And, Reg::R0, mask)));
            steps.push(Step::Unless(value & mask));
        }
        done += n;
    }
}

/// Appends instructions that skip the rule unless the frame has ports of this protocol, and set
/// `R9` to the offset of the ports.
fn transport(v6: bool, protocol: u8, steps: &mut Vec<Step>) {
    if v6 {
        steps.push(load(Size::Byte, Some(Reg::R7), 6));
        steps.push(Step::Unless(protocol.into()));
        steps.push(Step::Do(BpfInsn::alu_reg(Alu::Set, Reg::R9, Reg::R7)));
        steps.push(Step::Do(BpfInsn::alu(Alu::Add, Reg::R9, 40)));
        return;
    }
    steps.push(load(Size::Byte, Some(Reg::R7), 9));
    steps.push(Step::Unless(protocol.into()));
    // Fragments match no ports: later fragments have none, and the first one must use the same
    // queue.
    steps.push(load(Size::Half, Some(Reg::R7), 6));
    steps.push(Step::Do(BpfInsn::alu(Alu::And, Reg::R0, FRAGMENT.into())));
    steps.push(Step::Unless(0));
    steps.push(load(Size::Byte, Some(Reg::R7), 0));
    steps.push(Step::Do(BpfInsn::alu(Alu::And, Reg::R0, 0xf)));
    steps.push(Step::Do(BpfInsn::alu(Alu::ShiftLeft, Reg::R0, 2)));
    steps.push(Step::Do(BpfInsn::alu_reg(Alu::Set, Reg::R9, Reg::R0)));
    steps.push(Step::Do(BpfInsn::alu_reg(Alu::Add, Reg::R9, Reg::R7)));
}

fn steps(rule: &SteeringRule, kinds: [u16; 2]) -> Vec<Step> {
    let mut steps = Vec::new();
    let v6 = match rule.kind {
        FlowKind::Ether => false,
        FlowKind::Ip { v6 } | FlowKind::Transport { v6, .. } => {
            steps.push(Step::Do(BpfInsn::alu_reg(Alu::Set, Reg::R0, Reg::R8)));
            steps.push(Step::Unless(kinds[usize::from(v6)].into()));
            v6
        }
    };
    if let FlowKind::Transport { protocol, .. } = rule.kind {
        transport(v6, protocol, &mut steps);
    }
    rule.matches.iter().for_each(|m| compare(m, v6, &mut steps));
    if steps.is_empty() {
        // The rule matches every frame. Add a comparison that always holds: its jump makes the next
        // rule reachable, because the kernel rejects programs with unreachable instructions.
        steps.push(Step::Do(BpfInsn::alu(Alu::Set, Reg::R0, 0)));
        steps.push(Step::Unless(0));
    }
    steps
}

/// Assembles one rule. The comparison instruction sign-extends its immediate to 64 bits, so words
/// are compared by XOR and a comparison with zero.
fn assemble(steps: Vec<Step>, queue: u16) -> Vec<BpfInsn> {
    let end = [BpfInsn::alu(Alu::Set, Reg::R0, queue.into()), BpfInsn::exit()];
    let size = |step: &Step| if matches!(step, Step::Do(_)) { 1 } else { 2 };
    let mut left = steps.iter().map(size).sum::<usize>() + end.len();
    let mut code = Vec::with_capacity(left);
    for step in steps {
        left -= size(&step);
        match step {
            Step::Do(insn) => code.push(insn),
            Step::Unless(value) => {
                code.push(BpfInsn::alu(Alu::Xor, Reg::R0, value));
                code.push(BpfInsn::jump_unless_equal(Reg::R0, 0, left as i16));
            }
        }
    }
    code.extend(end);
    code
}

/// Assembles all rules in order. `kinds` are the values of `R0` for IPv4 and IPv6. Rules that
/// cannot match any frame of the layer are omitted.
pub(super) fn code(rules: &[SteeringRule], layer: Layer, kinds: [u16; 2]) -> Vec<BpfInsn> {
    let possible = |rule: &&SteeringRule| {
        rule.is_sound() && (layer == Layer::Ethernet || rule.kind != FlowKind::Ether)
    };
    if rules.is_empty() {
        return Vec::new();
    }
    let mut code = vec![BpfInsn::alu_reg(Alu::Set, Reg::R8, Reg::R0)];
    for rule in rules.iter().filter(possible) {
        code.extend(assemble(steps(rule, kinds), rule.queue));
    }
    code.push(BpfInsn::alu_reg(Alu::Set, Reg::R0, Reg::R8));
    code
}
