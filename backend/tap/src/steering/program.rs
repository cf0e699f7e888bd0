//! Steering program: `hash.rs` as BPF instructions, followed by a table lookup.
//!
//! Registers: `R6` is the context, `R7` the offset of the network header (later, of the ports),
//! `R8` the hash, `R9` the transport protocol. A load beyond the end of the frame ends the program
//! with queue 0.

use std::io;

use mqnet_netdev::FlowRule;
use mqnet_sysio::bpf::{Alu, Array, Insn, Program, Reg, Size};

use mqnet_wire::Layer;

use super::hash::{FACTOR, FRAGMENT, IPV4, IPV6, SHIFT, VERSIONS, VLAN, WITH_PORTS};
use super::rules;

/// Some helper functions require a GPL program; this one uses none of them.
const LICENSE: &std::ffi::CStr = c"MIT OR Apache-2.0";

fn skip(over: &[Insn]) -> i16 {
    over.len() as i16
}

/// Sets `R0` to the ethertype and `R7` to the offset of its header.
fn ethertype() -> Vec<Insn> {
    vec![
        Insn::load_packet(Size::Half, 12),
        Insn::alu(Alu::Set, Reg::R7, 14),
        Insn::jump_unless_equal(Reg::R0, i32::from(VLAN), 2),
        Insn::load_packet(Size::Half, 16),
        Insn::alu(Alu::Set, Reg::R7, 18),
    ]
}

/// Sets `R0` to the IP version and `R7` to the offset of its header, which is 0.
fn version() -> Vec<Insn> {
    vec![
        Insn::load_packet(Size::Byte, 0),
        Insn::alu(Alu::ShiftRight, Reg::R0, 4),
        Insn::alu(Alu::Set, Reg::R7, 0),
    ]
}

fn ipv4() -> Vec<Insn> {
    vec![
        Insn::load_packet_from(Size::Word, Reg::R7, 12),
        Insn::alu_reg(Alu::Set, Reg::R8, Reg::R0),
        Insn::load_packet_from(Size::Word, Reg::R7, 16),
        Insn::alu_reg(Alu::Xor, Reg::R8, Reg::R0),
        Insn::alu(Alu::Set, Reg::R9, 0),
        Insn::load_packet_from(Size::Half, Reg::R7, 6),
        Insn::alu(Alu::And, Reg::R0, u32::from(FRAGMENT)),
        Insn::jump_unless_equal(Reg::R0, 0, 2),
        Insn::load_packet_from(Size::Byte, Reg::R7, 9),
        Insn::alu_reg(Alu::Set, Reg::R9, Reg::R0),
        Insn::load_packet_from(Size::Byte, Reg::R7, 0),
        Insn::alu(Alu::And, Reg::R0, 0xf),
        Insn::alu(Alu::ShiftLeft, Reg::R0, 2),
        Insn::alu_reg(Alu::Add, Reg::R7, Reg::R0),
    ]
}

fn ipv6() -> Vec<Insn> {
    let mut code = vec![Insn::alu(Alu::Set, Reg::R8, 0)];
    for word in 0..8 {
        code.push(Insn::load_packet_from(Size::Word, Reg::R7, 8 + 4 * word));
        code.push(Insn::alu_reg(Alu::Xor, Reg::R8, Reg::R0));
    }
    code.extend([
        Insn::load_packet_from(Size::Byte, Reg::R7, 6),
        Insn::alu_reg(Alu::Set, Reg::R9, Reg::R0),
        Insn::alu(Alu::Add, Reg::R7, 40),
    ]);
    code
}

fn other() -> Vec<Insn> {
    vec![Insn::alu_reg(Alu::Set, Reg::R8, Reg::R0), Insn::alu(Alu::Set, Reg::R9, 0)]
}

/// Adds both ports to the hash, if present.
fn ports() -> Vec<Insn> {
    let read = [
        Insn::load_packet_from(Size::Word, Reg::R7, 0),
        Insn::alu_reg(Alu::Set, Reg::R9, Reg::R0),
        Insn::alu(Alu::ShiftRight, Reg::R9, 16),
        Insn::alu(Alu::And, Reg::R0, 0xffff),
        Insn::alu_reg(Alu::Xor, Reg::R0, Reg::R9),
        Insn::alu_reg(Alu::Xor, Reg::R8, Reg::R0),
    ];
    let mut code = vec![Insn::jump(skip(&read))];
    code.extend(read);
    for (place, protocol) in WITH_PORTS.iter().rev().enumerate() {
        let over = 1 + place as i16;
        code.insert(0, Insn::jump_if_equal(Reg::R9, i32::from(*protocol), over));
    }
    code
}

/// Sets `R0` to the queue of the bucket.
fn lookup(array: &Array) -> Vec<Insn> {
    let [map, map_too] = Insn::load_map(Reg::R1, array);
    vec![
        Insn::alu(Alu::ShiftRight, Reg::R8, SHIFT),
        Insn::store(Reg::R10, -4, Reg::R8),
        map,
        map_too,
        Insn::copy(Reg::R2, Reg::R10),
        Insn::advance(Reg::R2, -4),
        Insn::call_map_lookup(),
        Insn::jump_if_equal(Reg::R0, 0, 1),
        Insn::load(Reg::R0, Reg::R0, 0),
        Insn::exit(),
    ]
}

fn assemble(array: &Array, layer: Layer, rules: &[FlowRule]) -> Vec<Insn> {
    let mix = Insn::alu(Alu::Mul, Reg::R8, FACTOR);
    let (v4, v6, other) = (ipv4(), ipv6(), other());
    let mut code = vec![Insn::copy(Reg::R6, Reg::R1)];
    let (begin, [is_v4, is_v6]) = match layer {
        Layer::Ethernet => (ethertype(), [IPV4, IPV6]),
        Layer::Ip => (version(), VERSIONS),
    };
    code.extend(begin);
    code.extend(rules::code(rules, layer, [is_v4, is_v6]));
    code.push(Insn::jump_unless_equal(Reg::R0, i32::from(is_v4), skip(&v4) + 1));
    code.extend(&v4);
    code.push(Insn::jump(1 + skip(&v6) + 1 + skip(&other)));
    code.push(Insn::jump_unless_equal(Reg::R0, i32::from(is_v6), skip(&v6) + 1));
    code.extend(&v6);
    code.push(Insn::jump(skip(&other)));
    code.extend(&other);
    code.push(mix);
    code.extend(ports());
    code.push(mix);
    code.extend(lookup(array));
    code
}

/// Loads the program for frames of this layer: rules first, then a lookup in `array`.
pub(super) fn load(array: &Array, layer: Layer, rules: &[FlowRule]) -> io::Result<Program> {
    Program::load_socket_filter(&assemble(array, layer, rules), LICENSE)
}
