//! Steering program: `hash.rs` as BPF instructions, followed by a table lookup.
//!
//! Registers: `R6` is the context, `R7` the offset of the network header (later, of the ports),
//! `R8` the hash, `R9` the transport protocol. A load beyond the end of the frame ends the program
//! with queue 0.

use std::io;

use mqnet_netdev::SteeringRule;
use mqnet_sysio::bpf::{Alu, Array, BpfInsn, Reg, Size, SocketFilter};

use mqnet_wire::Layer;

use super::hash::{FACTOR, FRAGMENT, IPV4, IPV6, SHIFT, VERSIONS, VLAN, WITH_PORTS};
use super::rules;

/// Some helper functions require a GPL program; this one uses none of them.
const LICENSE: &std::ffi::CStr = c"MIT OR Apache-2.0";

fn skip(over: &[BpfInsn]) -> i16 {
    over.len() as i16
}

/// Sets `R0` to the ethertype and `R7` to the offset of its header.
fn ethertype() -> Vec<BpfInsn> {
    vec![
        BpfInsn::load_packet(Size::Half, 12),
        BpfInsn::alu(Alu::Set, Reg::R7, 14),
        BpfInsn::jump_unless_equal(Reg::R0, i32::from(VLAN), 2),
        BpfInsn::load_packet(Size::Half, 16),
        BpfInsn::alu(Alu::Set, Reg::R7, 18),
    ]
}

/// Sets `R0` to the IP version and `R7` to the offset of its header, which is 0.
fn version() -> Vec<BpfInsn> {
    vec![
        BpfInsn::load_packet(Size::Byte, 0),
        BpfInsn::alu(Alu::ShiftRight, Reg::R0, 4),
        BpfInsn::alu(Alu::Set, Reg::R7, 0),
    ]
}

fn ipv4() -> Vec<BpfInsn> {
    vec![
        BpfInsn::load_packet_from(Size::Word, Reg::R7, 12),
        BpfInsn::alu_reg(Alu::Set, Reg::R8, Reg::R0),
        BpfInsn::load_packet_from(Size::Word, Reg::R7, 16),
        BpfInsn::alu_reg(Alu::Xor, Reg::R8, Reg::R0),
        BpfInsn::alu(Alu::Set, Reg::R9, 0),
        BpfInsn::load_packet_from(Size::Half, Reg::R7, 6),
        BpfInsn::alu(Alu::And, Reg::R0, u32::from(FRAGMENT)),
        BpfInsn::jump_unless_equal(Reg::R0, 0, 2),
        BpfInsn::load_packet_from(Size::Byte, Reg::R7, 9),
        BpfInsn::alu_reg(Alu::Set, Reg::R9, Reg::R0),
        BpfInsn::load_packet_from(Size::Byte, Reg::R7, 0),
        BpfInsn::alu(Alu::And, Reg::R0, 0xf),
        BpfInsn::alu(Alu::ShiftLeft, Reg::R0, 2),
        BpfInsn::alu_reg(Alu::Add, Reg::R7, Reg::R0),
    ]
}

fn ipv6() -> Vec<BpfInsn> {
    let mut code = vec![BpfInsn::alu(Alu::Set, Reg::R8, 0)];
    for word in 0..8 {
        code.push(BpfInsn::load_packet_from(Size::Word, Reg::R7, 8 + 4 * word));
        code.push(BpfInsn::alu_reg(Alu::Xor, Reg::R8, Reg::R0));
    }
    code.extend([
        BpfInsn::load_packet_from(Size::Byte, Reg::R7, 6),
        BpfInsn::alu_reg(Alu::Set, Reg::R9, Reg::R0),
        BpfInsn::alu(Alu::Add, Reg::R7, 40),
    ]);
    code
}

fn other() -> Vec<BpfInsn> {
    vec![BpfInsn::alu_reg(Alu::Set, Reg::R8, Reg::R0), BpfInsn::alu(Alu::Set, Reg::R9, 0)]
}

/// Combines the hash with both ports (XOR), if the protocol has ports.
fn ports() -> Vec<BpfInsn> {
    let read = [
        BpfInsn::load_packet_from(Size::Word, Reg::R7, 0),
        BpfInsn::alu_reg(Alu::Set, Reg::R9, Reg::R0),
        BpfInsn::alu(Alu::ShiftRight, Reg::R9, 16),
        BpfInsn::alu(Alu::And, Reg::R0, 0xffff),
        BpfInsn::alu_reg(Alu::Xor, Reg::R0, Reg::R9),
        BpfInsn::alu_reg(Alu::Xor, Reg::R8, Reg::R0),
    ];
    let mut code = vec![BpfInsn::jump(skip(&read))];
    code.extend(read);
    for (place, protocol) in WITH_PORTS.iter().rev().enumerate() {
        let over = 1 + place as i16;
        code.insert(0, BpfInsn::jump_if_equal(Reg::R9, i32::from(*protocol), over));
    }
    code
}

/// Sets `R0` to the queue of the bucket.
fn lookup(array: &Array) -> Vec<BpfInsn> {
    let [map, map_too] = BpfInsn::load_map(Reg::R1, array);
    vec![
        BpfInsn::alu(Alu::ShiftRight, Reg::R8, SHIFT),
        BpfInsn::store(Reg::R10, -4, Reg::R8),
        map,
        map_too,
        BpfInsn::copy(Reg::R2, Reg::R10),
        BpfInsn::advance(Reg::R2, -4),
        BpfInsn::call_map_lookup(),
        BpfInsn::jump_if_equal(Reg::R0, 0, 1),
        BpfInsn::load(Reg::R0, Reg::R0, 0),
        BpfInsn::exit(),
    ]
}

fn assemble(array: &Array, layer: Layer, rules: &[SteeringRule]) -> Vec<BpfInsn> {
    let mix = BpfInsn::alu(Alu::Mul, Reg::R8, FACTOR);
    let (v4, v6, other) = (ipv4(), ipv6(), other());
    let mut code = vec![BpfInsn::copy(Reg::R6, Reg::R1)];
    let (begin, [is_v4, is_v6]) = match layer {
        Layer::Ethernet => (ethertype(), [IPV4, IPV6]),
        Layer::Ip => (version(), VERSIONS),
    };
    code.extend(begin);
    code.extend(rules::code(rules, layer, [is_v4, is_v6]));
    code.push(BpfInsn::jump_unless_equal(Reg::R0, i32::from(is_v4), skip(&v4) + 1));
    code.extend(&v4);
    code.push(BpfInsn::jump(1 + skip(&v6) + 1 + skip(&other)));
    code.push(BpfInsn::jump_unless_equal(Reg::R0, i32::from(is_v6), skip(&v6) + 1));
    code.extend(&v6);
    code.push(BpfInsn::jump(skip(&other)));
    code.extend(&other);
    code.push(mix);
    code.extend(ports());
    code.push(mix);
    code.extend(lookup(array));
    code
}

/// Loads the program for frames of this layer: rules first, then a lookup in `array`.
pub(super) fn load(
    array: &Array,
    layer: Layer,
    rules: &[SteeringRule],
) -> io::Result<SocketFilter> {
    SocketFilter::load_socket_filter(&assemble(array, layer, rules), LICENSE)
}
